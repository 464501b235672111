"""What a module says of its positions and of tokens with a meaning."""

from types import SimpleNamespace

import pytest
from torch import nn

from poskernel.attention.sources.module_facts import (
    position_limit,
    position_table,
    require_positions,
    rotary,
    special_tokens,
)
from poskernel.errors import InputError


def test_the_smaller_of_config_and_table_is_the_limit():
    said = SimpleNamespace(max_position_embeddings=None, n_ctx=40)
    assert position_limit(said, None) == 40
    assert position_limit(said, 30) == 30
    assert position_limit(SimpleNamespace(), 30) == 30
    assert position_limit(SimpleNamespace(), None) is None


def test_rows_that_no_token_can_have_are_no_positions():
    plain, padded, shifted = nn.Embedding(10, 2), nn.Embedding(10, 2, padding_idx=1), nn.Embedding(10, 2)
    shifted.offset = 2
    for table, rows in ((plain, 10), (padded, 8), (shifted, 8)):
        assert position_table(nn.ModuleDict({"inner": nn.ModuleDict({"wpe": table})})) == rows
    assert position_table(nn.ModuleDict({"tokens": plain})) is None


def test_tokens_with_a_meaning_are_found_in_nested_configs():
    nested = {"inner": {"image_token_id": 7}, "eos_token_id": [3, 4], "pad_token_id": None, 5: 6}
    assert special_tokens(nested) == {3, 4, 7}


@pytest.mark.parametrize(
    ("config", "rotates"),
    [
        ({"rope_theta": 1e4}, True),
        ({"rope_parameters": {"rope_theta": 1e4}}, True),
        ({"rotary_dim": 64}, True),
        ({"position_embedding_type": "rotary"}, True),
        ({"position_embedding_type": "absolute", "rope_scaling": None}, False),
        ({}, False),
    ],
)
def test_configs_say_whether_they_rotate(config, rotates):
    assert rotary(SimpleNamespace(**config)) == rotates
    assert not rotary(None)


def test_longer_sequences_than_positions_are_refused_and_extend_is_named_for_rotary_models_alone():
    require_positions("m", 64, 64, True)
    require_positions("m", 10_000, None, False)
    with pytest.raises(
        InputError, match=r"length 65 is beyond the 64 positions of 'm': take a length of 64 or less.*extend"
    ):
        require_positions("m", 65, 64, True)
    with pytest.raises(InputError, match=r"take a length of 64 or less.$"):
        require_positions("m", 65, 64, False)
