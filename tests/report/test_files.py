"""A file appears whole or not at all."""

import stat

import pytest

from poskernel.errors import RunError
from poskernel.report import files
from poskernel.report.files import write_whole


def test_writes_folders_and_replaces(tmp_path):
    path = tmp_path / "new" / "a.txt"
    assert write_whole(path, b"one") == path
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = write_whole(tmp_path / "a.txt", b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunError, match=r"taken/a\.txt"):
        write_whole(tmp_path / "taken" / "a.txt", b"")


def test_others_may_read_as_the_umask_says(tmp_path):
    path = write_whole(tmp_path / "a.txt", b"")
    plain = tmp_path / "plain.txt"
    plain.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
