"""Files of one model: its tensors and, as JSON beside them, what it is and how it came about."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Norm
from poskernel.storage import write_whole


def write_tensors(about: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> None:
    """One safetensors file with a description that names its `format`; it is there whole or not at all."""
    from safetensors.torch import save

    data = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"poskernel": json.dumps(about)})
    write_whole(path, data)


def read_tensors(path: Path, format: str, otherwise: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors of a file of that format.

    InputError names a file that is none, or of another format; `otherwise` says what to do about it.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("poskernel", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"'{path}' is no readable checkpoint ({error}): {otherwise}.") from None
    if about.get("format") != format:
        raise InputError(f"'{path}' has format '{about.get('format')}', this version reads '{format}': {otherwise}.")
    return about, tensors


def read_architecture(fields: Mapping[str, Any]) -> Architecture:
    """An architecture from its fields as plain JSON values."""
    before = fields.get("attention_norm")
    norms = {"norm": Norm(fields["norm"]), "attention_norm": None if before is None else Norm(before)}
    return Architecture(**{**fields, **norms})
