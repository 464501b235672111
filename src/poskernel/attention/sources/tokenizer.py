"""The tokenizer beside a model's weights, as functions of text and of one token; refused where it knows no words.

Without its vocabulary files a model still gets a tokenizer from transformers: an empty one, to which every word is
unknown or nothing at all. What would be measured then is one token for ever.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from poskernel.attention.sources.windows import SHORTEST
from poskernel.errors import InputError, first_line

VOCABULARIES = ("tokenizer.json", "tekken.json", "*vocab*", "*.model", "*.tiktoken")
"""Files that hold a vocabulary; tokenizers of bytes and characters have none and name none."""
UNKNOWN = 0.9
"""A text of which more is unknown is in no language of the tokenizer."""


def read_tokenizer(folder: Path, name: str, transformers: Any) -> Any:
    """The tokenizer beside the weights; InputError where there is none, or none with a vocabulary."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for files it cannot read
        raise InputError(
            f"'{name}' has no tokenizer that can be read ({first_line(error)}): add tokenizer.json to it."
        ) from error
    named = [file for file in (getattr(tokenizer, "vocab_files_names", None) or {}).values() if isinstance(file, str)]
    present = {file.name for pattern in (*VOCABULARIES, *named) for file in folder.glob(pattern)}
    if named and not present:
        raise InputError(
            f"'{name}' has no tokenizer that can be read: its {type(tokenizer).__name__} would be empty, as none of "
            f"{', '.join(sorted({*named, 'tokenizer.json'}))} is there: add the tokenizer's files to it."
        )
    return tokenizer


def encoder(tokenizer: Any, model: str) -> Callable[[str], list[int]]:
    """The tokenizer as a function of text; InputError from it for a text that it does not know."""

    def encode(text: str) -> list[int]:
        # The text is longer than any context; it is cut into windows afterwards, so the length warning would mislead.
        ids = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        check_known(ids, text, tokenizer, model)
        return ids

    return encode


def check_known(ids: Sequence[int], text: str, tokenizer: Any, model: str) -> None:
    """InputError where a tokenizer makes nothing of a text, or nearly everything unknown."""
    whose = f"the tokenizer of '{model}' ({type(tokenizer).__name__})"
    remedy = "give a text that it is for, or the model's own tokenizer files."
    if text.strip() and not ids:
        raise InputError(f"{whose} makes no token of a text of {len(text)} letters: {remedy}")
    unknown = getattr(tokenizer, "unk_token_id", None)
    share = sum(token == unknown for token in ids) / max(1, len(ids))
    if len(ids) >= SHORTEST and share > UNKNOWN:
        raise InputError(f"{whose} does not know {share:.0%} of the text's {len(ids)} tokens: {remedy}")


def decoder(tokenizer: Any) -> Callable[[int], str]:
    """The tokenizer as a function of one token id, with the space before it where the token begins a word."""

    def text_of(ids: list[int]) -> str:
        # No cleaning up: it would move the spaces by which one sees where words begin.
        return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    # Alone, a piece loses its space (SentencePiece) or shows its mark (WordPiece's ##); after another it is what it is.
    anchor = list(tokenizer("a", add_special_tokens=False, verbose=False)["input_ids"])[-1:]
    before = text_of(anchor)

    def decode(token: int) -> str:
        both = text_of([*anchor, token])
        return both.removeprefix(before) if both.startswith(before) else text_of([token])

    return decode
