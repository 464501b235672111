"""What every verb leaves in its --out folder beside its own files: the configuration and a manifest."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from poskernel.errors import InputError, RunError
from poskernel.storage import require_writable, write_whole

CONFIG_FILE = "config.toml"


@contextmanager
def saved_with_manifest(folder: Path, settings: str, line: Sequence[str]) -> Iterator[None]:
    """While open, a verb writes its files; then manifest.json says how they came about, with their digests.

    `settings` is the resolved configuration as TOML, written first; `line` the command line. A verb whose results are
    in the folder but say no (RunError) has a manifest too. A manifest that the verb has written stays where it is of
    this kind, and becomes the `result` of ours where it is another. A verb that refuses its input leaves nothing, not
    even the folder. InputError for a folder that cannot be written.
    """
    require_writable("--out", folder, folder=True)
    place = folder / CONFIG_FILE
    earlier = place.read_text() if place.is_file() else None
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    write_whole(place, settings)
    before = states(folder)
    try:
        yield
    except RunError:
        if states(folder) != before:
            write_manifest(folder, settings, line, before)
        raise
    except InputError:
        if states(folder) == before:
            undo(place, earlier, missing)
        raise
    write_manifest(folder, settings, line, before)


def undo(place: Path, earlier: str | None, made: Sequence[Path]) -> None:
    """Take back the configuration, and the folders that were made for it: a refused verb leaves nothing."""
    if earlier is not None:
        write_whole(place, earlier)
        return
    place.unlink(missing_ok=True)
    with suppress(OSError):  # the verb, or someone else, has put something there
        for folder in made:
            folder.rmdir()


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """What tells a file of a folder that was written anew: files are replaced, so inode and time."""
    found = {path.relative_to(folder).as_posix(): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (state.st_ino, state.st_mtime_ns) for name, state in found.items()}


def write_manifest(folder: Path, settings: str, line: Sequence[str], before: dict[str, tuple[int, int]]) -> None:
    """The manifest of the files that were written since."""
    from poskernel.study.transfer import MANIFEST_FILE, MANIFEST_SCHEMA, manifest

    written = sorted(name for name, state in states(folder).items() if before.get(name) != state)
    own = {}
    if MANIFEST_FILE in written:
        own = json.loads((folder / MANIFEST_FILE).read_text())
        if own.get("schema") == MANIFEST_SCHEMA:
            return
        written.remove(MANIFEST_FILE)
    files = {name: (folder / name).read_bytes() for name in written}
    about = manifest(tomllib.loads(settings), line, files) | ({"result": own} if own else {})
    write_whole(folder / MANIFEST_FILE, json.dumps(about, indent=1) + "\n")
