"""Tiles hold every pair once, whatever the direction and the window."""

import pytest
import torch

from captures import random_capture
from poskernel.attention.estimators.row_tiles import attention, blocks, check_dropped, common_bias, row_tiles
from poskernel.errors import InputError


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("dropped", [0, 5])
def test_every_pair_is_seen_once(causal, window, dropped, monkeypatch):
    monkeypatch.setattr("poskernel.attention.estimators.row_tiles.ENTRIES", 40 * 9)
    capture = random_capture(2, causal=causal, window=window)
    allowed = capture.allowed(0)[0]
    counts = torch.zeros(40, 40, dtype=torch.int64)
    for tile in row_tiles(capture, dropped):
        assert len(tile.rows) <= 9
        counts[tile.rows[:, None], tile.keys] += tile.seen
        assert torch.equal(tile.offsets, tile.rows[:, None] - tile.keys)
        assert tile.seen.any(0).all()
    allowed = allowed.clone()
    allowed[:dropped] = allowed[:, :dropped] = False
    assert torch.equal(counts, allowed.long())


def test_centring_and_weights_equal_loops():
    capture = random_capture(2, window=7)
    for tile in row_tiles(capture, 3):
        values = capture.logits(1, tile.rows, tile.keys)
        centred, weights = tile.centred(values), tile.log_weights(values).exp()
        for x in range(2):
            for row in range(len(tile.rows)):
                seen = tile.seen[row]
                torch.testing.assert_close(centred[x, row, seen], values[x, row, seen] - values[x, row, seen].mean())
                torch.testing.assert_close(weights[x, row, seen], values[x, row, seen].softmax(0))
                assert not centred[x, row, ~seen].any()
                assert not weights[x, row, ~seen].any()


def test_blocks_share_the_batch():
    for batch in range(6, 40):
        found = blocks(random_capture(batch, length=4), 8, 6)
        assert torch.equal(torch.cat(list(found)), torch.arange(batch))
        assert all(6 <= len(part) <= 12 for part in found)


def test_refusals():
    with pytest.raises(InputError, match="a batch of 5 sequences is too small"):
        blocks(random_capture(5), 8, 6)
    with pytest.raises(InputError, match="dropping -1 positions of 8"):
        check_dropped(8, -1)
    with pytest.raises(InputError, match="a mask that is neither causal"):
        next(row_tiles(random_capture(2, mask=torch.ones(1, 1, 40, 40, dtype=torch.bool)), 0))


def test_attention_weights_are_those_of_the_capture():
    sinks = torch.linspace(-1, 2, 4, dtype=torch.float64)
    for capture in (random_capture(2, window=7), random_capture(2, sinks=sinks), random_capture(2, causal=False)):
        pattern = capture.pattern(2)
        for tile in row_tiles(capture, 0):
            weights = attention(capture, 2, tile, capture.logits(2, tile.rows, tile.keys))
            torch.testing.assert_close(weights, pattern[:, tile.rows][:, :, tile.keys])


def test_a_bias_may_be_written_once_a_sequence_but_must_be_the_same():
    table = torch.randn(1, 2, 40, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows, keys = torch.arange(20, 30), torch.arange(4, 30)
    for bias in (table, table.expand(3, -1, -1, -1).contiguous()):
        found = common_bias(random_capture(3, bias=bias), 3, rows, keys)
        assert torch.equal(found, table[0, 1][20:30, 4:30])
    assert common_bias(random_capture(3), 0, rows, keys) is None
    different = table.repeat(3, 1, 1, 1)
    different[2, 0, 25, 5] += 1
    assert common_bias(random_capture(3, bias=different), 1, rows, keys) is not None
    with pytest.raises(InputError, match="the bias of layer 0 depends on the text"):
        common_bias(random_capture(3, bias=different), 2, rows, keys)
