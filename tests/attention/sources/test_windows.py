"""The text of a measurement and its windows."""

import hashlib

import pytest
import torch

from poskernel.attention.sources.windows import default_text, fitting, windows
from poskernel.errors import InputError


def test_default_text_is_pythons_own_and_in_order():
    from pydoc_data.topics import topics

    text = default_text()
    assert text.startswith(topics[min(topics)])
    assert text.endswith(topics[max(topics)])
    assert len(text) > 300_000


def test_windows_are_consecutive_and_do_not_overlap():
    tokens, digest = windows("a model", lambda text: list(range(len(text))), "x" * 50, 3, 16)
    assert tokens.tolist() == torch.arange(48).view(3, 16).tolist()
    assert digest == hashlib.sha256(b"x" * 50).hexdigest()


def test_a_model_without_a_tokenizer_wants_token_ids():
    with pytest.raises(InputError, match="tensor of token ids"):
        windows("a model", None, "words", 4, 16)


def test_advice_is_given_only_where_it_can_be_followed():
    assert fitting(58, 17) == ", or --length 58 for 17 sequences."
    assert fitting(7, 8) == "."
