"""The text a model is measured on, cut into sequences of tokens."""

import hashlib
import json
import pydoc_data.topics
from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.errors import InputError

SHORTEST = 8
"""Shortest sequences that are measured."""


def default_text() -> str:
    """CPython's own help topics, joined by blank lines in sorted order of their keys."""
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[key] for key in sorted(topics))


def windows(
    model: str,
    encode: Callable[[str], list[int]] | None,
    text: str | Tensor | None,
    sequences: int,
    length: int,
) -> tuple[Int[Tensor, "sequence position"], str]:
    """The first consecutive windows of the text's tokens, and the digest of the text; `model` is named in errors."""
    if isinstance(text, Tensor):
        stream = text.reshape(-1)
        digest = hashlib.sha256(json.dumps(stream.tolist()).encode()).hexdigest()
    elif encode is None:
        raise InputError(f"'{model}' came without a tokenizer: give the text as a tensor of token ids.")
    else:
        text = default_text() if text is None else text
        stream, digest = torch.tensor(encode(text), dtype=torch.int64), hashlib.sha256(text.encode()).hexdigest()
    available = stream.shape[0] // length
    if available < 1:
        raise InputError(
            f"the text has {stream.shape[0]} tokens, less than one sequence of {length}: give a longer text"
            + fitting(stream.shape[0] // sequences, sequences)
        )
    if available < sequences:
        raise InputError(
            f"the text has {stream.shape[0]} tokens, enough for {available} sequences of {length} and not {sequences}: "
            "give a longer text" + fitting(stream.shape[0] // sequences, sequences)
        )
    return stream[: sequences * length].view(sequences, length), digest


def fitting(length: int, sequences: int) -> str:
    """The end of a sentence that says which length would fit, if any."""
    return f", or --length {length} for {sequences} sequences." if length >= SHORTEST else "."
