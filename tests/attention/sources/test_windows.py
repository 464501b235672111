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
    assert fitting(58, 17) == ", or take length 58 for 17 sequences."
    assert fitting(7, 8) == "."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (torch.tensor([1, 2, 50, 3] * 20), "token id 50 is none of 'm', whose vocabulary has 50: ids 0 to 49; give"),
        (torch.tensor([1, 2, -3, 3] * 20), "token id -3 is none of 'm'"),
        (torch.linspace(0, 9, 80), "the text is a tensor of torch.float32: give token ids as whole numbers"),
    ],
)
def test_ids_that_are_none_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        windows("m", None, text, 4, 16, 50)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([7] * 80, "all 64 tokens are the same \\(id 7\\) to 'm'"),
        (list(range(16)) * 5, "all 4 sequences of 16 tokens are the same"),
    ],
)
def test_a_text_whose_tokens_say_nothing_of_others_is_refused_and_ids_are_taken_as_given(ids, message):
    with pytest.raises(InputError, match=message):
        windows("m", lambda text: ids, "x" * 80, 4, 16, 50)
    given = windows("m", None, torch.tensor(ids, dtype=torch.int16), 4, 16, 50)[0]
    assert given.flatten().tolist() == ids[:64] and given.dtype == torch.int64


def test_the_last_id_of_the_vocabulary_is_in_it():
    ids = torch.arange(80) % 50
    assert windows("m", None, ids, 4, 16, 50)[0].flatten().tolist() == ids[:64].tolist()
