"""A GGUF file that is spread over several packages, because an index takes no file that large: joined in the cache.

The package and those that it requires carry NAME.gguf.part00, NAME.gguf.part01, ...; a file SHA256SUMS beside them is
honoured. Nothing is imported.
"""

import hashlib
import importlib.metadata
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackagePath
from pathlib import Path
from typing import Protocol, runtime_checkable

from poskernel.errors import InputError, RunError
from poskernel.storage import cache_folder

PIECE = re.compile(r"(?P<whole>.+\.gguf)\.part(?P<number>\d+)")
REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SUMS = "SHA256SUMS"


@runtime_checkable
class Distribution(Protocol):
    """An installed package, as importlib.metadata gives it or its backport, which takes its place once imported."""

    @property
    def name(self) -> str:
        """What the index calls it."""

    @property
    def version(self) -> str:
        """Its version."""

    @property
    def requires(self) -> list[str] | None:
        """The packages that it needs, a line each."""

    @property
    def files(self) -> list[PackagePath] | None:
        """What it installed."""


def joined_weights(distribution: Distribution) -> Path | None:
    """The whole file, joined once and kept in the cache; None where the package carries no pieces.

    Raises InputError where a piece or a package with pieces is missing or the whole has another digest than stated.
    """
    carriers = [distribution, *required(distribution)]
    pieces = {
        int(match["number"]): (match["whole"], path)
        for carrier in carriers
        for path in files_of(carrier)
        if (match := PIECE.fullmatch(path.name))
    }
    if not pieces:
        return None
    whole, name = pieces[max(pieces)][0], distribution.name
    missing = sorted(set(range(min(pieces), max(pieces) + 1)) - set(pieces))
    if missing or min(pieces) > 1 or {part[0] for part in pieces.values()} != {whole}:
        raise InputError(f"the package '{name}' carries {whole} in pieces, not all of which are here: {remedy(name)}")
    target = cache_folder() / "models" / f"{name}-{distribution.version}" / whole
    if not target.is_file():
        join([pieces[number][1] for number in sorted(pieces)], target, stated_digest(carriers, whole), name)
    return target


def required(distribution: Distribution) -> Iterator[Distribution]:
    """The installed packages that it requires; InputError for one of its own parts that is not installed."""
    for line in distribution.requires or ():
        found = REQUIREMENT.match(line)
        assert found is not None
        try:
            yield importlib.metadata.distribution(found[0])
        except importlib.metadata.PackageNotFoundError:
            if found[0].startswith(f"{distribution.name}-part"):
                raise InputError(
                    f"the package '{distribution.name}' needs '{found[0]}', which carries a piece of its weights: "
                    f"{remedy(distribution.name)}"
                ) from None


def files_of(distribution: Distribution) -> Iterator[Path]:
    """Its files that are there."""
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if path.is_file():
            yield path


def stated_digest(carriers: list[Distribution], whole: str) -> str | None:
    """What a file of digests says of the whole file; None where none speaks of it."""
    for carrier in carriers:
        for path in files_of(carrier):
            if path.name == SUMS:
                for line in path.read_text(encoding="utf-8").splitlines():
                    digest, _, name = line.partition(" ")
                    if name.strip(" *") == whole:
                        return digest.lower()
    return None


def join(pieces: list[Path], target: Path, stated: str | None, name: str) -> None:
    """Write the whole file beside its place and rename it, so that a kill leaves all of it or nothing."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            temporary = Path(folder) / target.name
            with temporary.open("wb") as written:
                for piece in pieces:
                    with piece.open("rb") as read:
                        shutil.copyfileobj(read, written)
            with temporary.open("rb") as read:
                digest = hashlib.file_digest(read, "sha256").hexdigest()
            if stated is not None and digest != stated:
                raise InputError(f"the pieces of '{name}' do not make the file whose digest it states: {remedy(name)}")
            temporary.rename(target)
    except OSError as error:
        raise RunError(
            f"cannot write {target} ({error.strerror}): free space or set POSKERNEL_CACHE to another folder."
        ) from error


def remedy(name: str) -> str:
    """How to get all pieces."""
    return f"pip install --force-reinstall {name}."
