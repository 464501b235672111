"""A capture's own arithmetic, and how a layer's tensors become one."""

import math
from dataclasses import replace

import pytest
import torch

from poskernel.attention.sources.capture import LayerCapture, read_mask
from poskernel.errors import InputError


def test_logits_and_pattern_by_hand():
    query = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]])
    key = torch.tensor([[[[1.0, 0.0], [0.5, 1.0]]]])
    bias = torch.tensor([[[[0.0, 0.0], [0.25, 0.0]]]])
    capture = LayerCapture(0, query, key, 0.1, torch.arange(2), True, bias=bias, softcap=2.0)
    last = torch.tensor([1])
    logits = capture.logits(1, last, torch.arange(2))[0, 0]
    expected = [2 * math.tanh(0.7 / 2) + 0.25, 2 * math.tanh(1.15 / 2)]
    torch.testing.assert_close(logits, torch.tensor(expected))
    torch.testing.assert_close(capture.pattern(1)[0, 1], torch.tensor(expected).softmax(0))
    assert capture.pattern(1)[0, 0].tolist() == [1, 0]
    assert not capture.bilinear


def test_reading_masks():
    offset = torch.arange(6)[:, None] - torch.arange(6)
    assert read_mask((offset >= 0)[None, None]) == (True, None, True)
    assert read_mask(((offset >= 0) & (offset < 3))[None, None]) == (True, 3, True)
    assert read_mask((offset.abs() < 3)[None, None]) == (False, 3, True)
    assert read_mask(torch.ones(1, 1, 6, 6, dtype=torch.bool)) == (False, None, True)
    padded = ((offset >= 0) & (torch.arange(6) > 0))[None, None]
    assert not read_mask(padded)[2]


def test_half_precision_is_captured_as_float32_and_float64_as_it_is():
    for given, held in ((torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float64,) * 2):
        vectors = torch.randn(1, 2, 5, 4).to(given)
        capture = LayerCapture.assembled(0, vectors, vectors, 0.5, True)
        assert capture.query.dtype == capture.key.dtype == held
        assert torch.equal(capture.query.to(given), vectors)


def test_a_mask_that_says_more_than_direction_and_window_is_kept():
    vectors = torch.randn(1, 1, 6, 4)
    offset = torch.arange(6)[:, None] - torch.arange(6)
    band = LayerCapture.assembled(0, vectors, vectors, 1.0, True, mask=((offset >= 0) & (offset < 3))[None, None])
    assert (band.causal, band.window, band.mask) == (True, 3, None)
    holes = ((offset >= 0) & (offset % 2 == 0))[None, None]
    kept = LayerCapture.assembled(0, vectors, vectors, 1.0, True, mask=holes)
    assert torch.equal(kept.mask, holes)
    assert torch.equal(kept.pattern(0)[0] > 0, holes[0, 0])


def test_vectors_before_the_rotation_are_never_those_after_one_that_is_unreadable():
    plain = LayerCapture.assembled(3, torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 4), 1.0, True)
    assert plain.before_rotation() == (plain.query, plain.key)
    unrotated = replace(plain, unrotated_query=torch.zeros(1, 1, 5, 4), unrotated_key=torch.ones(1, 1, 5, 4))
    assert [float(part.mean()) for part in unrotated.before_rotation()] == [0, 1]
    with pytest.raises(InputError, match="the unrotated queries and keys of layer 3 are not known, as it hides them"):
        replace(plain, unreadable="it hides them").before_rotation()
