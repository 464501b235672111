"""Coverage of the intervals of every head, the short version of benchmarks/coverage.py; worlds are what they say."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from captures import DROPPED
from poskernel.statistics import Estimate
from simulated_heads import OFFSET, STATISTICS, WORLDS, coverages, drawn_heads, true_values

HEADS = 160
"""A coverage of 95% then has a standard error of 1.7 points."""


@pytest.fixture(scope="module", params=[("noise", 16), ("drift", 16), ("uneven", 64)], ids=lambda given: given[0])
def drawn(request):
    name, sequences = request.param
    world = WORLDS[name]
    return world, true_values(world, 4000), drawn_heads(world, sequences, HEADS, 3)


def halved(estimate):
    """The same estimate with an interval half as wide."""
    reach = (estimate.high - estimate.low) / 4
    return Estimate(estimate.value, estimate.value - reach, estimate.value + reach, estimate.n, estimate.method)


def test_intervals_hold_the_truth_as_often_as_they_say_and_halved_ones_do_not(drawn):
    """Within 3 points of 95% and three standard errors; the benchmark draws enough to say it of the 3 points alone."""
    _, truth, results = drawn
    found = coverages(truth, results)
    narrow = {name: halved for name in STATISTICS if name != "g"}
    broken = coverages(
        truth,
        [
            replace(one, g_error=one.g_error / 2, **{name: half(getattr(one, name)) for name, half in narrow.items()})
            for one in results
        ],
    )
    for name in STATISTICS:
        assert abs(found[name].covered - 0.95) <= 0.03 + 3 * 0.017, (name, found[name])
        assert broken[name].covered < 0.95 - 0.03 - 3 * 0.017, (name, broken[name])
        assert found[name].undefined == 0


def test_estimates_are_not_biased(drawn):
    """By less than a third of their standard deviation: a ratio of unbiased means is biased by about its variance."""
    _, truth, results = drawn
    for name, found in coverages(truth, results).items():
        assert abs(found.bias) < 0.33, (name, found)


def test_at_four_sequences_intervals_are_short_but_not_by_far():
    world = WORLDS["drift"]
    found = coverages(true_values(world, 4000), drawn_heads(world, 4, HEADS, 3))
    assert all(one.covered > 0.85 for one in found.values()), found


@pytest.mark.parametrize("name", WORLDS)
def test_the_mean_of_a_worlds_logits_is_its_gram(name):
    world = WORLDS[name]
    drawn = world.draw(3000, 1, torch.Generator().manual_seed(0))[:, 0].double()
    # Of rotated content a query and a key of one position share nothing: their noises are drawn apart.
    error = drawn.std(0) / 3000**0.5
    off = ((drawn.mean(0) - world.gram).abs() / error)[OFFSET >= 0]
    assert float(off.max()) < 5
    assert float(off.mean()) < 1


def test_the_share_is_of_single_sequences():
    """Without any noise beside the Gram, the share of the Gram itself; with it, less in the known proportion."""
    world, kept = WORLDS["noise"], OFFSET.shape[0] - DROPPED
    truth = true_values(world, 4000)
    seen = np.tril(np.ones((kept, kept)))
    gram = world.gram[DROPPED:, DROPPED:].double().numpy()
    centred = (gram - (gram * seen).sum(1, keepdims=True) / seen.sum(1, keepdims=True)) * seen
    alone = true_values(replace(world, draw=lambda n, heads, generator: world.gram.expand(n, heads, -1, -1)), 500)
    # Unit noise of every pair, less one degree of freedom a row.
    noise = kept * (kept + 1) / 2 - kept
    assert truth["share"] == pytest.approx(alone["share"] / (1 + noise / (centred**2).sum()), rel=0.02)
