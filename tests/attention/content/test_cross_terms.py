"""Ranks, ratios and class kernels of planted residuals, against loops and what was planted."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from planted_content import (
    DROPPED,
    EMBEDDING,
    LENGTH,
    PROFILE,
    SETTINGS,
    TOKENS,
    VOCABULARY,
    PlantedSource,
    bilinear,
    cosine,
    noise,
)
from poskernel.attention.content.class_kernels import TokenClasses
from poskernel.attention.content.content_kernels import token_match
from poskernel.attention.content.cross_terms import (
    RANKS,
    CrossTermEstimator,
    captured,
    effective_rank,
    measure_cross_terms,
    rectangle,
    residual_ratio,
    singular_shares,
)
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.product import HeadFits, fitted_products
from poskernel.errors import InputError

CLASSES = TokenClasses(torch.arange(VOCABULARY) % 3, 3)
MATCHING = replace(SETTINGS, kernels=("match",))


def orthonormal(rows, columns, seed=0):
    drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.qr(drawn).Q


def test_the_effective_rank_counts_equal_singular_values():
    for rank in (1, 2, 7):
        matrix = 3 * orthonormal(12, rank) @ orthonormal(10, rank, seed=1).T
        shares = singular_shares(matrix)
        assert float(effective_rank(shares)) == pytest.approx(rank)
        assert float(captured(shares, 1)) == pytest.approx(1 / rank)
        assert float(captured(shares, rank)) == pytest.approx(1)
    values = torch.tensor([2.0, 1.0]).double()
    expected = math.exp(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2)))
    assert float(effective_rank(singular_shares(torch.diag(values)))) == pytest.approx(expected)
    assert torch.isnan(effective_rank(singular_shares(torch.zeros(3, 3))))


def test_the_ratio_is_that_of_the_norms():
    fits = HeadFits(0, 0, "match", torch.tensor([4.0, 4.0]), {"additive": torch.tensor([1.0, 1.0])}, 0.0)
    assert residual_ratio(fits, "additive").value == 0.5


@pytest.mark.parametrize("window", [None, 10])
def test_the_rectangle_holds_attended_pairs_only_and_no_row_or_column_mean(window):
    layout = PairLayout.of(LENGTH, DROPPED, True, window)
    marked = torch.where(layout.mask.bool(), torch.randn(2, *layout.mask.shape, dtype=torch.float64), torch.nan)
    block = rectangle(marked, layout)
    assert block.shape == (2, (window or layout.length) // 2, (window or layout.length) // 2)
    assert block.isfinite().all()
    for axis in (1, 2):
        np.testing.assert_allclose(block.mean(axis), 0, atol=1e-12)


def features_of(fixed):
    """Two uncorrelated functions of a token with equal sums of squares; the cross-term of both has rank 2."""
    left, right = (orthonormal(VOCABULARY, 2, seed=seed) for seed in (8, 9))
    place = {tuple(row.tolist()): token for token, row in enumerate(EMBEDDING)}
    tokens = torch.tensor([[place[tuple(row.tolist())] for row in sequence] for sequence in fixed])
    return left[tokens], right[tokens]


def rank_two(vectors):
    left, right = features_of(vectors)
    return 5 * left @ right.transpose(1, 2)


def test_a_planted_cross_term_of_rank_two_is_found_at_its_rank():
    heads = [lambda x: PROFILE + rank_two(x), lambda x: PROFILE + noise(x)]
    _, cross = measure_cross_terms(PlantedSource([heads]), TOKENS, "match", settings=MATCHING)
    found = {(entry.head, entry.fit): entry for entry in cross}
    assert set(found) == {(head, fit) for head in range(2) for fit in ("additive", "product")}
    side = (LENGTH - DROPPED) // 2
    for fit in ("additive", "product"):
        planted, full = found[0, fit], found[1, fit]
        # What the fitted kernels take away by chance adds a little of high rank.
        assert planted.effective_rank().value == pytest.approx(2, abs=0.35)
        assert planted.captured[:, RANKS.index(2)].min() > 0.95
        assert full.effective_rank().value > side / 2
        assert full.rank.shape == full.rank_null.shape == (len(TOKENS) // 2,)
        # Noise is no less structured within a sequence than across two.
        assert full.excess_rank().low < 0.5
        assert full.excess_rank().high > -0.5


def test_residuals_are_logits_less_the_fit_and_their_nulls_have_the_keys_of_another_sequence():
    heads = [lambda x: PROFILE + 2 * cosine(x) + noise(x)]
    source = PlantedSource([heads])
    settings = replace(SETTINGS, kernels=("cosine", "token"))
    products = fitted_products(source, TOKENS[:6], settings=settings)
    captures = []
    source.forward(TOKENS[6:], captures.append)
    consumer = products.testing(TOKENS[6:])
    consumer(captures[0])
    for kernel in settings.kernels:
        cross = CrossTermEstimator(products, kernel)
        text = products.text(TOKENS[6:])
        fit = products.fits[0]
        for name in ("additive", "product"):
            residual = cross.residual(captures[0], fit, 0, name, ((text, None), (text, None)))
            left = fit.layout.centred(residual).square().sum((1, 2))
            fits = next(entry for entry in products.results() if entry.kernel == kernel)
            torch.testing.assert_close(left, fits.residual[name])
    # With other keys the content is that of the pair of tokens at hand.
    other = text.rolled()
    crossed = cross.residual(captures[0], fit, 0, "additive", ((text, None), (other, None)))
    fitted = products.fitted[0, 0, "token"].coefficients["additive"]
    slope = fitted[fit.bases[0].count + 1]
    learned = fit.learned["token"][0]
    change = slope * (learned.content(text.vectors, text.vectors) - learned.content(text.vectors, other.vectors))
    key = fitted[2 * fit.bases[0].count] * (learned.key_term(text.vectors) - learned.key_term(other.vectors))
    straight = cross.residual(captures[0], fit, 0, "additive", ((text, None), (text, None)))
    mask = fit.layout.mask.bool()
    torch.testing.assert_close((crossed - straight)[:, mask], (change + key[:, None])[:, mask])


def test_class_kernels_gain_what_was_planted_and_nothing_on_noise():
    def by_class(x):
        place = {tuple(row.tolist()): token for token, row in enumerate(EMBEDDING)}
        kinds = torch.tensor([[int(CLASSES.table[place[tuple(row.tolist())]]) for row in sequence] for sequence in x])
        near = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs() < 4
        return PROFILE + 3.0 * ((kinds[:, :, None] == 1) & (kinds[:, None] == 2) & near)

    heads = [by_class, lambda x: PROFILE + noise(x)]
    tokens = torch.cat([TOKENS, TOKENS.flip(1)])
    fits, cross = measure_cross_terms(
        PlantedSource([heads]), tokens, "match", settings=MATCHING, classes={"planted": CLASSES}
    )
    gain, null = (
        {entry.head: getattr(entry, name)["planted"] for entry in cross if entry.fit == "additive"}
        for name in ("class_gains", "class_nulls")
    )
    additive = {entry.head: entry.r2("additive").value for entry in fits}
    assert additive[0] < 0.9
    assert additive[0] + gain[0].value == pytest.approx(1, abs=0.02)
    assert gain[1].value < 0.01
    # With another sequence's classes nothing is left of it.
    assert null[0].value < 0.02 < gain[0].value
    assert not any(entry.class_gains for entry in measure_cross_terms(
        PlantedSource([[bilinear]]), TOKENS, "match", settings=MATCHING)[1])  # fmt: skip


def test_what_cannot_be_measured_is_refused():
    source = PlantedSource([[cosine]])
    products = fitted_products(source, TOKENS[:4], settings=MATCHING)
    with pytest.raises(InputError, match="content kernel 'cosine' was not fitted: choose from match"):
        CrossTermEstimator(products, "cosine")
    with pytest.raises(InputError, match="1 sequence in a batch has no other"):
        CrossTermEstimator(products, "match").testing(TOKENS[:1])
    assert token_match(TOKENS[:1], TOKENS[:1]).diagonal(dim1=1, dim2=2).all()
