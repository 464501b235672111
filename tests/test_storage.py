import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from poskernel.errors import InputError, RunError
from poskernel.storage import cache_folder, require_writable, write_whole


def test_what_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    require_writable("--out", tmp_path / "new" / "folder", folder=True)
    require_writable("--report", tmp_path / "new" / "page.html", folder=False)
    assert not list(tmp_path.iterdir())
    file = write_whole(tmp_path / "file", "x")
    for path, folder, words in (
        (file, True, "a file: give a folder"),
        (file / "below", True, "nothing can be written in"),
        (tmp_path, False, "a folder: give the path"),
        (file / "page.html", False, "nothing can be written in"),
        (Path("/proc/nope"), True, "choose another folder"),
    ):
        with pytest.raises(InputError, match=words):
            require_writable("--out", path, folder)


def test_the_variable_chooses_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("POSKERNEL_CACHE")
    assert cache_folder().name == "poskernel"


def test_writes_text_and_bytes_and_makes_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    mask = os.umask(0o027)
    try:
        write_whole(path, "grün\n")
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o640  # as any file the user writes, not as private as a temporary one
    assert path.read_bytes() == "grün\n".encode()
    write_whole(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.csv"
    write_whole(path, "old")

    def fail(descriptor: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((RunError, KeyboardInterrupt)) as caught:
        write_whole(path, "new")
    if isinstance(error, OSError):
        assert str(path) in str(caught.value)
        assert "No space left on device; free space" in str(caught.value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(RunError, match=r"cannot write .*file/inner"):
        write_whole(tmp_path / "file" / "inner", "x")


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "table"
    size = 1 << 20
    script = textwrap.dedent(f"""
        from pathlib import Path
        from poskernel.storage import write_whole
        print("ready", flush=True)
        while True:
            for letter in b"ab":
                write_whole(Path({str(path)!r}), bytes([letter]) * {size})
    """)
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            while not path.exists():
                pass
            process.send_signal(signal.SIGKILL)
            process.wait()
        content = path.read_bytes()
        assert len(content) == size
        assert len(set(content)) == 1


def test_others_may_read_as_the_umask_says(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "a.txt", b"")
    plain = tmp_path / "plain.txt"
    plain.write_text("")
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_reader_in_the_middle_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_whole(path, "old")
    with path.open() as reader:
        write_whole(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
