"""Streamed fits of planted heads: held-out R2 of what was planted, nothing of what was not."""

import math
from dataclasses import replace

import pytest
import torch

from planted_content import (
    DROPPED,
    EMBEDDING,
    FORM,
    LENGTH,
    PROFILE,
    SETTINGS,
    TOKENS,
    WIDTH,
    PlantedSource,
    bilinear,
    cosine,
    key_term,
    noise,
)
from poskernel.attention.content import product
from poskernel.attention.content.content_kernels import KERNELS
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.product import FITS, HeadFits, ProductSettings, batches, fit_products, share
from poskernel.errors import InputError


def fits(source, settings=SETTINGS, tokens=TOKENS):
    return {(fit.layer, fit.head, fit.kernel): fit for fit in fit_products(source, tokens, settings=settings)}


@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 12), (False, None)])
def test_planted_heads_are_recovered_on_sequences_not_fitted(causal, window):
    heads = [
        lambda x: PROFILE + bilinear(x) + key_term(x),
        lambda x: (cosine(x) + 3) * (2 * PROFILE - 1) + 5,
        lambda x: 0.5 * PROFILE + 2 * cosine(x),
    ]
    found = fits(PlantedSource([heads], causal, window))
    assert set(found) == {(0, head, kernel) for head in range(3) for kernel in KERNELS}
    for kernel in ("token", "input"):
        assert found[0, 0, kernel].r2("additive").value == pytest.approx(1, abs=1e-6)
        assert found[0, 0, kernel].gain("both", "additive").value == pytest.approx(0, abs=1e-6)
    assert found[0, 0, "cosine"].r2("additive").value < 0.8
    assert found[0, 1, "cosine"].r2("product").value == pytest.approx(1, abs=1e-6)
    assert found[0, 1, "cosine"].origin == pytest.approx(3, rel=1e-3)
    assert found[0, 1, "cosine"].gain("product", "sum").low > 0.001
    assert found[0, 2, "cosine"].r2("sum").value == pytest.approx(1, abs=1e-6)
    assert found[0, 2, "cosine"].r2("position").value < found[0, 2, "cosine"].r2("sum").value - 0.05


def test_noise_has_no_r2_beyond_what_its_coefficients_cost():
    layout = PairLayout.of(LENGTH, DROPPED, True, None)
    for fit in fits(PlantedSource([[noise]]), tokens=torch.cat([TOKENS, TOKENS.flip(1)])).values():
        # Least squares with p coefficients on n pairs loses p / n of independent noise on pairs it has not seen.
        cost = 100 / (12 * float(layout.mask.sum()))
        for name in FITS:
            estimate = fit.r2(name)
            assert -2 * cost - 0.02 < estimate.value < 0.02, (fit.kernel, name)
            assert estimate.low < 0.005


def test_the_result_does_not_depend_on_batches_or_on_other_layers(monkeypatch):
    layers = [[lambda x: PROFILE + noise(x), cosine], [bilinear, lambda x: noise(2 * x)]]

    settings = replace(SETTINGS, kernels=("match", "token"))
    whole = fit_products(PlantedSource(layers), TOKENS[:8], settings=settings)
    alone = fit_products(PlantedSource(layers), TOKENS[:8], [1], settings)
    assert [(fit.layer, fit.head, fit.kernel) for fit in alone] == [
        (fit.layer, fit.head, fit.kernel) for fit in whole if fit.layer == 1
    ]
    for one, other in zip(alone, [fit for fit in whole if fit.layer == 1], strict=True):
        for name in FITS:
            torch.testing.assert_close(one.residual[name], other.residual[name], rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(product, "PAIRS_AT_ONCE", 2 * LENGTH**2)
    small = fit_products(PlantedSource(layers), TOKENS[:8], [1], settings)
    for fit in small:
        same = next(other for other in alone if (other.head, other.kernel) == (fit.head, fit.kernel))
        # Content bins come from the first batch, so only they may differ.
        for name in set(FITS) - {"free", "saturated"}:
            torch.testing.assert_close(fit.residual[name], same.residual[name], rtol=1e-4, atol=1e-4)
    monkeypatch.undo()
    assert [len(part) for part in batches(torch.zeros(5, 1024, dtype=torch.int64))] == [3, 2]


def test_a_lower_rank_explains_a_kernel_of_that_rank_only():
    left, right = FORM[:, :1], FORM[:1]
    heads = [lambda x: x @ left @ right @ x.transpose(1, 2), bilinear]
    settings = ProductSettings(dropped=DROPPED, components=WIDTH, rank=1, kernels=("token",))
    found = fits(PlantedSource([heads]), settings)
    # The vectors are centred, so a part of either form is of the key alone.
    assert found[0, 0, "token"].r2("additive").value == pytest.approx(1, abs=1e-6)
    assert found[0, 1, "token"].r2("additive").value < 0.9


def test_shares_and_their_intervals():
    part, total = torch.tensor([1.0, 2.0, 3.0, 2.0]), torch.tensor([4.0, 4.0, 4.0, 4.0])
    estimate = share(part, total)
    assert estimate.value == pytest.approx(0.5)
    half = 3.182446 * float((part / 4).std()) / 2
    assert (estimate.low, estimate.high) == (pytest.approx(0.5 - half, rel=1e-5), pytest.approx(0.5 + half, rel=1e-5))
    assert share(total, total).value == 1
    assert math.isnan(share(part, 0 * total).value)
    one = share(part[:1], total[:1])
    assert one.value == 0.25
    assert math.isnan(one.low)
    # Sequences with larger logits count for more: a ratio of sums, no mean of ratios.
    assert share(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 3.0])).value == 0.25


def test_a_row_of_a_head_names_every_fit():
    residual = {name: torch.tensor([1.0, 3.0]) for name in FITS} | {"both": torch.tensor([1.0, 1.0])}
    row = HeadFits(2, 5, "match", torch.tensor([4.0, 4.0]), residual, 0.25).row()
    assert (row["layer"], row["head"], row["kernel"], row["origin"]) == (2, 5, "match", 0.25)
    assert row["additive"] == 0.5
    assert row["both_over_additive"] == pytest.approx(0.25)
    assert all(f"{name}_low" in row and f"{name}_high" in row for name in FITS)


def test_what_cannot_be_fitted_is_refused_in_one_sentence():
    heads = [[cosine]]
    with pytest.raises(InputError, match="3 sequences leave no two in each half"):
        fit_products(PlantedSource(heads), TOKENS[:3], settings=SETTINGS)
    with pytest.raises(InputError, match="'planted' does not give its token embeddings"):
        fit_products(PlantedSource(heads, says=False), TOKENS, settings=SETTINGS)
    with pytest.raises(InputError, match=r"unknown content kernels \['cosin'\]: choose from match"):
        ProductSettings(kernels=("cosin",))
    with pytest.raises(InputError, match="rank of the content kernels is 0"):
        ProductSettings(rank=0)
    source = PlantedSource(heads)
    source.says = False
    source.embedding = lambda: EMBEDDING
    with pytest.raises(InputError, match="layer 0 does not give the input of its attention"):
        fit_products(source, TOKENS, settings=SETTINGS)
    settings = ProductSettings(dropped=DROPPED, components=WIDTH, kernels=("match", "cosine", "token"))
    assert len(fit_products(source, TOKENS, settings=settings)) == 3
