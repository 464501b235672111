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
    vocabulary: int | None = None,
) -> tuple[Int[Tensor, "sequence position"], str]:
    """The first consecutive windows of the text's tokens, and the digest of the text; `model` is named in errors.

    Raises InputError for too short a text, ids outside the `vocabulary` (where that is given), and for words that a
    tokenizer turns into one token for ever or into sequences all the same: their estimates would be of nothing, with
    intervals of width 0. Token ids are taken as they are given: one token repeated is a known answer.
    """
    if isinstance(text, Tensor):
        if text.is_floating_point() or text.is_complex() or text.dtype == torch.bool:
            raise InputError(f"the text is a tensor of {text.dtype}: give token ids as whole numbers.")
        stream = text.reshape(-1).to(torch.int64)
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
    tokens = stream[: sequences * length].view(sequences, length)
    check_ids(model, tokens, vocabulary)
    if not isinstance(text, Tensor):
        check_varied(model, tokens)
    return tokens, digest


def check_ids(model: str, tokens: Int[Tensor, "sequence position"], vocabulary: int | None) -> None:
    """InputError for ids that the model has no embedding for."""
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or (vocabulary is not None and most >= vocabulary):
        wrong = least if least < 0 else most
        ids = "" if vocabulary is None else f", whose vocabulary has {vocabulary}: ids 0 to {vocabulary - 1}"
        raise InputError(f"token id {wrong} is none of '{model}'{ids}; give the ids of its own tokenizer.")


def check_varied(model: str, tokens: Int[Tensor, "sequence position"]) -> None:
    """InputError for sequences that say nothing of any other text."""
    if bool((tokens == tokens[0, 0]).all()):
        raise InputError(
            f"all {tokens.numel()} tokens are the same (id {int(tokens[0, 0])}) to '{model}': give a text in a "
            "language that its tokenizer knows."
        )
    if tokens.shape[0] > 1 and bool((tokens == tokens[0]).all()):
        raise InputError(
            f"all {tokens.shape[0]} sequences of {tokens.shape[1]} tokens are the same, so nothing is known of other "
            "texts: give a text that does not repeat itself."
        )


def fitting(length: int, sequences: int) -> str:
    """The end of a sentence that says which length would fit, if any."""
    return f", or take length {length} for {sequences} sequences." if length >= SHORTEST else "."
