import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel.errors import InputError
from poskernel.kernel import (
    ENTRIES_PER_BLOCK,
    BilinearKernel,
    GridKernel,
    PositionalKernel,
    StationaryKernel,
    constant,
    mask_future,
    tabulated,
)

COSINE = StationaryKernel(lambda offset: (0.3 * offset.double()).cos())


def features(position: torch.Tensor) -> torch.Tensor:
    return torch.stack([position.double().sin(), position.double().cos(), torch.ones(len(position)).double()], 1)


def bilinear(seed: int = 0) -> BilinearKernel:
    return BilinearKernel(
        features, torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    )


def random_grid(length: int, seed: int = 0) -> GridKernel:
    generator = torch.Generator().manual_seed(seed)
    return GridKernel(torch.randn(length, length, dtype=torch.float64, generator=generator))


def loop_g(values: np.ndarray) -> list[float]:
    length = len(values)
    return [float(np.mean([values[j + d, j] for j in range(length - d)])) for d in range(length)]


def loop_r2(values: np.ndarray, row_centred: bool) -> float:
    length, g = len(values), loop_g(values)
    seen, fitted = [], []
    for i in range(length):
        row = np.array([values[i, j] for j in range(i + 1)])
        fit = np.array([g[i - j] for j in range(i + 1)])
        if row_centred:
            row, fit = row - row.mean(), fit - fit.mean()
        seen.append(row)
        fitted.append(fit)
    pooled, fit = np.concatenate(seen), np.concatenate(fitted)
    centre = 0.0 if row_centred else pooled.mean()
    return float(1 - ((pooled - fit) ** 2).sum() / ((pooled - centre) ** 2).sum())


def test_a_stationary_kernel_is_a_function_of_the_offset() -> None:
    logits = COSINE.logits(torch.tensor([3, 9]), torch.tensor([0, 2, 9]))
    assert logits[0, 0] == math.cos(0.3 * 3)
    assert logits[1, 1] == pytest.approx(math.cos(0.3 * 7))
    assert logits[0, 2] == 0  # after its query: not asked of a function that is not signed


def test_a_signed_function_is_asked_beyond_its_query() -> None:
    kernel = StationaryKernel(lambda offset: offset.double(), signed=True)
    assert kernel.logits(torch.tensor([3]), torch.tensor([0, 5])).tolist() == [[3, -2]]


@pytest.mark.parametrize(("query", "key"), [([0], [5]), ([2, 3], [7, 9]), ([5], [5]), ([9], [0, 1])])
def test_positions_in_any_order(query: list[int], key: list[int]) -> None:
    kernel = tabulated(torch.arange(10.0))
    expected = [[float(max(q - k, 0)) for k in key] for q in query]
    assert kernel.logits(torch.tensor(query), torch.tensor(key)).tolist() == expected


def test_a_causal_function_need_not_exist_in_the_future() -> None:
    def logarithm(offset: torch.Tensor) -> torch.Tensor:
        assert (offset >= 0).all()
        return -(offset.double() + 1).log()

    kernel = StationaryKernel(logarithm)
    assert kernel.transfer(5)[4, 0] == -math.log(5)
    assert (kernel + bilinear()).transfer(5).isfinite().sum() == 15


def test_bilinear_logits_are_the_product() -> None:
    kernel = bilinear()
    for i, j in ((0, 0), (4, 2), (2, 4)):
        expected = features(torch.tensor([i]))[0] @ kernel.weights @ features(torch.tensor([j]))[0]
        assert kernel.logits(torch.tensor([i]), torch.tensor([j])).item() == pytest.approx(expected.item(), abs=1e-14)


@pytest.mark.parametrize("kernel", [COSINE, bilinear(), random_grid(9)], ids=["stationary", "bilinear", "grid"])
def test_transfer_masks_the_future_and_blocks_agree(kernel: PositionalKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poskernel.kernel.ENTRIES_PER_BLOCK", 4 * 9)
    whole = kernel.transfer(9)
    assert (whole[torch.ones(9, 9).triu(1).bool()] == -math.inf).all()
    assert whole.isfinite().sum() == 45
    for first in (0, 3, 8):
        seen = []
        for query, block in kernel.row_blocks(9, first):
            torch.testing.assert_close(block, whole[query][:, : block.shape[1]])
            seen += query.tolist()
        assert seen == list(range(first, 9))


def test_row_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENTRIES_PER_BLOCK <= 1 << 22
    monkeypatch.setattr("poskernel.kernel.ENTRIES_PER_BLOCK", 100)
    assert [len(query) for query, _ in COSINE.row_blocks(23)] == [4, 4, 4, 4, 4, 3]
    assert [len(query) for query, _ in COSINE.row_blocks(101)] == [1] * 101  # never none


@pytest.mark.parametrize(
    "kernel", [bilinear(), random_grid(12), random_grid(12, 3) + COSINE], ids=["bilinear", "grid", "sum"]
)
def test_g_and_stationarity_match_loops(kernel: PositionalKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poskernel.kernel.ENTRIES_PER_BLOCK", 5 * 12)
    values = kernel.logits(torch.arange(12), torch.arange(12)).numpy()
    np.testing.assert_allclose(kernel.g(12).numpy(), loop_g(values), atol=1e-13)
    for row_centred in (True, False):
        assert kernel.stationarity(12, row_centred) == pytest.approx(loop_r2(values, row_centred), abs=1e-12)


def test_a_stationary_kernel_explains_itself_wholly() -> None:
    assert COSINE.stationarity(40) == pytest.approx(1.0, abs=1e-12)
    assert COSINE.stationarity(40, row_centred=False) == pytest.approx(1.0, abs=1e-12)


def test_rows_that_differ_by_a_constant_attend_alike() -> None:
    values, shift = COSINE.logits(torch.arange(30), torch.arange(30)), torch.arange(30.0).double()[:, None]
    torch.testing.assert_close(GridKernel(values + shift).attention(30), COSINE.attention(30))


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e6])
def test_a_constant_kernel_has_no_variance_to_explain(value: float) -> None:
    assert math.isnan(constant(value).stationarity(50))
    assert math.isnan(constant(value).stationarity(50, row_centred=False))


def test_a_small_spread_on_a_large_level_still_counts() -> None:
    assert (constant(1e4) + COSINE * 1e-3).stationarity(50) == pytest.approx(1.0, abs=1e-6)


def test_spectrum_finds_the_frequency() -> None:
    kernel = StationaryKernel(lambda offset: (2 * math.pi * 5 / 64 * offset.double()).cos())
    assert int(kernel.spectrum(64).abs().argmax()) == 5
    assert kernel.spectrum(64)[5].real == pytest.approx(32)


def test_attention_is_a_causal_softmax() -> None:
    attention = bilinear().attention(6)
    torch.testing.assert_close(attention.sum(1), torch.ones(6, dtype=torch.float64))
    assert (attention.triu(1) == 0).all()
    row = bilinear().logits(torch.tensor([3]), torch.arange(4))[0].exp()
    torch.testing.assert_close(attention[3, :4], row / row.sum())


@given(st.integers(0, 2**20), st.floats(-3, 3))
def test_kernels_add_subtract_and_scale(seed: int, factor: float) -> None:
    left, right, position = bilinear(seed), random_grid(7, seed), torch.arange(7)
    a, b = left.logits(position, position), right.logits(position, position)
    assert torch.equal((left + right).logits(position, position), a + b)
    assert torch.equal((left - right).logits(position, position), a - b)
    assert torch.equal((left * right).logits(position, position), a * b)
    assert torch.equal((left * factor).logits(position, position), a * factor)
    assert torch.equal((factor * left).transfer(7), mask_future(a * factor, position))


def test_a_combination_is_stationary_only_if_both_parts_are() -> None:
    assert (COSINE + constant(1.0)).profile(5) is not None
    torch.testing.assert_close((COSINE - COSINE).profile(5), torch.zeros(5, dtype=torch.float64))
    assert (COSINE + bilinear()).profile(5) is None


def test_predicted_against_measured_is_a_subtraction() -> None:
    measured = tabulated(COSINE.profile(20) + 0.25)
    difference = measured - COSINE
    assert difference.horizon == 20
    torch.testing.assert_close(difference.profile(20), torch.full((20,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize(
    "kernel", [tabulated(torch.ones(8)), GridKernel(torch.ones(8, 8)), tabulated(torch.ones(8)) + COSINE]
)
def test_nothing_is_said_beyond_the_horizon(kernel: PositionalKernel) -> None:
    assert kernel.horizon == 8
    kernel.transfer(8)
    for call in (kernel.transfer, kernel.g, kernel.spectrum, kernel.stationarity, kernel.attention):
        with pytest.raises(InputError, match="known for 8 positions, not for 9: measure it at a longer length"):
            call(9)


@pytest.mark.parametrize("length", [0, -3])
def test_an_empty_grid_is_refused(length: int) -> None:
    with pytest.raises(InputError, match=f"length {length} holds no position"):
        COSINE.transfer(length)
    with pytest.raises(InputError, match=f"length {length} holds no position"):
        bilinear().stationarity(length)


def test_transfer_acts_on_the_weights_not_on_the_block() -> None:
    """Features of positions 0 and 1 span two of three dimensions: two W that agree there differ at 2."""
    phi = features(torch.arange(2))
    null = torch.linalg.svd(phi)[2][2]
    twin = BilinearKernel(features, bilinear().weights + torch.outer(null, null))
    torch.testing.assert_close(twin.transfer(2), bilinear().transfer(2), atol=1e-14, rtol=0)
    assert (twin.transfer(3)[2] - bilinear().transfer(3)[2]).abs().max() > 0.01


def test_kernels_show_themselves_in_a_line_whatever_they_hold() -> None:
    measured = tabulated(torch.linspace(1, 3, 500, dtype=torch.float64))
    assert repr(measured) == "StationaryKernel of 500 positions, g = 1, 1, 1.01, 1.01, ... nats"
    assert repr(measured - COSINE) == "CombinedKernel of 500 positions, g = 0, 0.0487, 0.183, 0.39, ... nats"
    assert repr(bilinear()) == "BilinearKernel of every position"
    assert repr(GridKernel(torch.eye(300))) == "GridKernel of 300 positions"
    assert repr(tabulated(torch.ones(2))) == "StationaryKernel of 2 positions, g = 1, 1, ... nats"
