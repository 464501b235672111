"""Planted kernels are recovered by the fit that they are, and by none that they are not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from content_pairs import arrays, dense_features, statistics_of
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.pair_statistics import OffsetBasis
from poskernel.attention.content.product_fits import FITS, fit_head, golden_section, least_squares

LENGTH, DROPPED = 30, 2
LAYOUT = PairLayout.of(LENGTH, DROPPED, True, None)
KEPT = LAYOUT.length
OFFSET = (torch.arange(KEPT)[:, None] - torch.arange(KEPT)).clamp(min=0)
PROFILE = torch.randn(KEPT, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
BASIS = OffsetBasis.of(LAYOUT, torch.randn(KEPT - 1, dtype=torch.float64))


def explained(logits, content, key_term, bins, basis=BASIS):
    statistics = statistics_of(basis, logits, content, key_term, bins)
    fitted = fit_head(basis, statistics.summed())
    r2 = {
        name: 1 - float(statistics.residual(values).sum() / statistics.square.sum())
        for name, values in fitted.coefficients.items()
    }
    return r2, fitted.origin


@settings(deadline=None, max_examples=8)
@given(st.floats(-20, 20), st.floats(-20, 20), st.sampled_from([0.01, -1.0, 40.0]), st.sampled_from([1e-2, 1.0, 1e3]))
def test_a_planted_product_is_recovered_whatever_its_origins_and_units(content_origin, profile_origin, factor, unit):
    _, content, key_term, bins = arrays(LAYOUT)
    row = torch.randn(3, KEPT, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    product = factor * (content + content_origin) * (PROFILE + profile_origin)[OFFSET] + row
    r2, origin = explained(product, unit * content, key_term, bins)
    assert r2["product"] == pytest.approx(1, abs=1e-6)
    assert origin == pytest.approx(unit * content_origin, rel=1e-2, abs=1e-2 * unit)
    assert r2["sum"] < 1 - 1e-5
    assert r2["saturated"] < 1


def test_a_product_about_its_means_is_neither_position_nor_content():
    _, content, key_term, bins = arrays(LAYOUT)
    centred = PROFILE - (PROFILE[1:] * LAYOUT.valid.sum(0)).sum() / LAYOUT.valid.sum()
    r2, _ = explained((content - 0.5) * centred[OFFSET], content, key_term, bins)
    assert r2["product"] == pytest.approx(1, abs=1e-9)
    assert r2["sum"] < 0.1
    assert r2["both"] == pytest.approx(1, abs=1e-9)


def test_a_planted_additive_kernel_is_recovered_and_has_no_product():
    _, content, key_term, bins = arrays(LAYOUT)
    r2, _ = explained(0.7 * content + PROFILE[OFFSET], content, key_term, bins)
    assert r2["sum"] == pytest.approx(1, abs=1e-9)
    # A product comes as close to a sum as its origins may go far.
    assert 1 - 1e-3 < r2["product"] < 1
    assert r2["fixed"] < 0.02
    with_key, _ = explained(0.7 * content + PROFILE[OFFSET] + key_term[:, None], content, key_term, bins)
    assert with_key["additive"] == pytest.approx(1, abs=1e-9)
    assert with_key["sum"] < 0.8
    assert with_key["both"] - with_key["additive"] == pytest.approx(0, abs=1e-9)


def test_position_and_content_alone():
    _, content, key_term, bins = arrays(LAYOUT)
    r2, _ = explained((-3 * PROFILE[OFFSET]).expand_as(content), content, key_term, bins)
    assert r2["position"] == pytest.approx(1, abs=1e-9)
    assert r2["content"] < 0.05
    r2, _ = explained(0.2 * content, content, key_term, bins)
    assert r2["content"] == pytest.approx(1, abs=1e-9)
    assert r2["position"] < 0.1
    step = (bins == 2).double() * (OFFSET >= 4) - 2.0 * (bins == 4) * (OFFSET == 1)
    r2, _ = explained(step + PROFILE[OFFSET], content, key_term, bins)
    assert r2["saturated"] == pytest.approx(1, abs=1e-9)
    assert r2["free"] < 1 - 1e-3
    r2, _ = explained((bins == 2).double() + PROFILE[OFFSET], content, key_term, bins)
    assert r2["free"] == pytest.approx(1, abs=1e-9)


def test_linear_fits_are_least_squares_on_all_pairs_and_nested():
    logits, content, key_term, bins = arrays(LAYOUT)
    layout = LAYOUT
    r2, _ = explained(logits, content, key_term, bins)
    features = dense_features(BASIS, content, key_term, bins).flatten(0, 1)
    target = layout.centred(logits)[:, layout.mask.bool()].flatten()
    count, cells = BASIS.count, features[:, 2 * BASIS.count + 1 :]
    content_only = features[:, count + 1 : 2 * count].sum(1, keepdim=True)
    by_bin = cells.unflatten(1, (BASIS.octaves.shape[1], -1)).sum(1)
    key = features[:, 2 * count : 2 * count + 1]
    for name, columns in {
        "position": [features[:, :count]],
        "content": [content_only],
        "sum": [features[:, :count], content_only],
        "additive": [features[:, :count], content_only, key],
        "free": [features[:, :count], by_bin],
        "saturated": [features[:, :count], cells],
    }.items():
        matrix = torch.cat(columns, 1)
        solution = torch.linalg.lstsq(matrix, target[:, None], driver="gelsd").solution[:, 0]
        assert r2[name] == pytest.approx(1 - float((target - matrix @ solution).square().sum() / target.square().sum()))
    assert tuple(r2) == FITS
    for small, large in (("position", "sum"), ("sum", "additive"), ("additive", "both"), ("product", "both")):
        assert r2[small] <= r2[large] + 1e-9


def test_a_content_kernel_that_never_varies_explains_nothing_and_breaks_nothing():
    logits, content, key_term, bins = arrays(LAYOUT)
    r2, _ = explained(logits, 0 * content, key_term, 0 * bins)
    assert r2["content"] == r2["fixed"] == 0
    assert r2["product"] == pytest.approx(r2["position"])


def test_golden_section_and_least_squares_by_hand():
    assert golden_section(lambda x: -((x - 0.3) ** 2), -1.0, 2.0) == pytest.approx(0.3, abs=1e-6)
    normal = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).double()
    found = least_squares(normal, torch.tensor([4.0, 4.0, 0.0]).double())
    assert found.tolist() == pytest.approx([2, 2, 0])
