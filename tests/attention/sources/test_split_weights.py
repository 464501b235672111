"""Weights in pieces over several packages: joined as they were, and refused where they are not whole."""

import errno
import hashlib

import pytest

from poskernel.attention.sources.weights import locate
from poskernel.errors import InputError, RunError

CONTENT = bytes(range(256)) * 40


def install(site, name: str, files: dict[str, bytes], requires: tuple[str, ...] = ()) -> None:
    """A package with some files, as an installer leaves it."""
    module, about = site / name.replace("-", "_"), site / f"{name.replace('-', '_')}-1.0.dist-info"
    for folder in (module, about):
        folder.mkdir(parents=True)
    for file, content in files.items():
        (module / file).write_bytes(content)
    needed = "".join(f"Requires-Dist: {each}==1.0\n" for each in requires)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needed}")
    (about / "RECORD").write_text("".join(f"{module.name}/{file},,\n" for file in files))


def spread(site, parts: int = 3, digest: str | None = None, without: int | None = None) -> None:
    """A package `spread` whose weights lie in as many packages beside it."""
    names = [f"spread-part{number}" for number in range(1, parts + 1)]
    digest = hashlib.sha256(CONTENT).hexdigest() if digest is None else digest
    install(site, "spread", {"SHA256SUMS": f"{digest}  w.gguf\n".encode()}, tuple(names))
    size = -(-len(CONTENT) // parts)
    for number, name in enumerate(names):
        if number != without:
            install(site, name, {f"w.gguf.part{number:02d}": CONTENT[number * size : (number + 1) * size]})


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that packages are installed in, and a cache of its own."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "site"


def test_pieces_are_joined_once_and_not_again(site) -> None:
    spread(site)
    found = locate("package:spread")
    assert found.gguf and found.path.name == "w.gguf" and found.path.read_bytes() == CONTENT
    assert found.digest() == hashlib.sha256(CONTENT).hexdigest()
    before = found.path.stat().st_mtime_ns
    assert locate("package:spread").path.stat().st_mtime_ns == before
    assert [file.name for file in found.path.parent.iterdir()] == ["w.gguf"]


@pytest.mark.parametrize("without", [0, 1, 2])
def test_a_part_that_is_not_installed_is_named(site, without: int) -> None:
    spread(site, without=without)
    with pytest.raises(InputError, match=f"needs 'spread-part{without + 1}'.*pip install"):
        locate("package:spread")


def test_another_digest_than_stated_is_refused_and_leaves_nothing(site, tmp_path) -> None:
    spread(site, digest="0" * 64)
    with pytest.raises(InputError, match="do not make the file whose digest"):
        locate("package:spread")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_gap_in_one_package_is_refused(site) -> None:
    install(site, "gappy", {"w.gguf.part00": b"a", "w.gguf.part02": b"c"})
    with pytest.raises(InputError, match="not all of which are here"):
        locate("package:gappy")


def test_a_package_without_pieces_carries_no_weights(site) -> None:
    install(site, "plain", {"notes.txt": b"-"})
    with pytest.raises(InputError, match="carries no weights"):
        locate("package:plain")


def test_a_full_disk_is_said_and_leaves_nothing(site, tmp_path, monkeypatch) -> None:
    def full(*_files: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("poskernel.attention.sources.split_weights.shutil.copyfileobj", full)
    spread(site)
    with pytest.raises(RunError, match=r"cannot write .*No space left on device.*POSKERNEL_CACHE"):
        locate("package:spread")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
