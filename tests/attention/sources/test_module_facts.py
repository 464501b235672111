"""What a module says of its positions and of tokens with a meaning."""

from types import SimpleNamespace

from torch import nn

from poskernel.attention.sources.module_facts import position_limit, position_table, special_tokens


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
