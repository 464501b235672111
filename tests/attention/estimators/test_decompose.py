"""The four-term split against loops, against a model with known means, and against what its hypotheses exclude."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import capture_of, random_capture
from poskernel.attention.estimators.decompose import (
    PATTERNS,
    TERMS,
    SplitEstimator,
    cross_logits,
    four_terms,
    pattern_weights,
    sequential,
    shares,
    term_gram,
)
from poskernel.errors import InputError, RunError
from rotary_captures import LENGTH, means, noisy, rotary_capture, turn

DROPPED = 3


def split(captures, dropped=DROPPED):
    estimator = SplitEstimator({0: captures[0].heads}, captures[0].length, dropped)
    for part in captures:
        estimator.consume(part)
    return estimator.estimates()


def seen_pairs(length, dropped, causal=True, window=None):
    reach = window or length
    return {
        t: [s for s in range(dropped, length) if (0 <= t - s < reach if causal else abs(t - s) < reach)]
        for t in range(dropped, length)
    }


def centred(gram, pairs):
    """Row-centred entries of a [query, key] matrix over the pairs, in one vector."""
    return np.concatenate(
        [[gram[t, s] for s in keys] - np.mean([gram[t, s] for s in keys]) for t, keys in pairs.items()]
    )


def dense_cross(capture, head):
    """A_xy(t, s) one number at a time."""
    n, _, length, _ = capture.query.shape
    out = np.zeros((n, n, length, length))
    for x, y, t, s in itertools.product(range(n), range(n), range(length), range(length)):
        out[x, y, t, s] = capture.scale * float(capture.query[x, head, t] @ capture.key[y, capture.key_head(head), s])
        if capture.softcap is not None:
            out[x, y, t, s] = capture.softcap * math.tanh(out[x, y, t, s] / capture.softcap)
        if capture.bias is not None:
            out[x, y, t, s] += float(capture.bias[0, head % capture.bias.shape[1], t, s])
    return out


def dense_gram(crossed, pairs):
    """Inner products of the terms: population means replaced by sequences that differ from all others, all choices."""
    n, flat = len(crossed), np.array([[centred(entry, pairs) for entry in row] for row in crossed])
    gram, count = np.zeros((4, 4)), 0
    for x, a, b, c, d in itertools.permutations(range(n), 5):
        left, right = (
            np.stack([flat[i, j], flat[i, x] - flat[i, j], flat[x, j] - flat[i, j],
                      flat[x, x] - flat[i, x] - flat[x, j] + flat[i, j]])
            for i, j in ((a, b), (c, d))
        )  # fmt: skip
        gram, count = gram + left @ right.T, count + 1
    return (gram + gram.T) / 2 / count


def dense_divergences(crossed, pairs):
    """Sums over rows of KL(attention || uniform) and KL(attention || softmax of each term), [sequence, 5]."""
    n, out = len(crossed), np.zeros((len(crossed), 5))
    for x in range(n):
        rest = [y for y in range(n) if y != x]
        position = np.mean([crossed[a, b] for a, b in itertools.permutations(rest, 2)], 0)
        key, query = (
            np.mean([crossed[a, x] if side else crossed[x, a] for a in rest], 0) - position for side in (1, 0)
        )
        terms = [position, key, query, crossed[x, x] - position - key - query]
        for t, keys in pairs.items():

            def weights(gram, t=t, keys=keys):
                return np.exp(gram[t, keys]) / np.exp(gram[t, keys]).sum()

            w = weights(crossed[x, x])
            out[x, 0] += (w * np.log(w * len(keys))).sum()
            out[x, 1:] += [(w * np.log(w / weights(term))).sum() for term in terms]
    return out


SETTINGS = {
    "causal": {},
    "window": {"window": 5},
    "both directions": {"causal": False},
    "both directions, window": {"causal": False, "window": 4},
    "soft cap": {"softcap": 2.0},
    "bias": {"bias": -0.5 * torch.arange(10.0, dtype=torch.float64).expand(1, 1, 10, 10)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_streamed_split_equals_loops(name, monkeypatch):
    monkeypatch.setattr("poskernel.attention.estimators.row_tiles.ENTRIES", 36 * 10 * 3)  # several tiles
    capture = random_capture(6, heads=2, keyheads=1, length=10, width=4, **SETTINGS[name])
    pairs = seen_pairs(10, 2, capture.causal, capture.window)
    result = split([capture], dropped=2)[1]
    crossed = dense_cross(capture, 1)
    gram = dense_gram(crossed, pairs)
    np.testing.assert_allclose(result.gram * sum(map(len, pairs.values())), gram, rtol=1e-10, atol=1e-10)
    for i, term in enumerate(TERMS):
        assert result.shares[term].value == pytest.approx(gram[i, i] / gram.sum(), rel=1e-9)
        left = gram[i + 1 :, i + 1 :].sum()
        assert result.sequential[term].value == pytest.approx(1 - left / gram.sum(), rel=1e-9)
    assert result.total.value == pytest.approx(np.trace(gram) / gram.sum(), rel=1e-9)
    sums = dense_divergences(crossed, pairs).sum(0)
    for i, term in enumerate(TERMS):
        assert result.kl_shares[term].value == pytest.approx(1 - sums[i + 1] / sums[0], rel=1e-9)
    assert result.divergence == pytest.approx(sums[0] / len(pairs) / 6, rel=1e-9)


def test_left_out_sequences_are_left_out():
    crossed, pairs = dense_cross(random_capture(7, 1, 1, length=8, width=3), 0), seen_pairs(8, 0)
    flat = np.array([[centred(entry, pairs) for entry in row] for row in crossed]).reshape(49, -1)
    means = pattern_weights(7) @ torch.tensor(flat @ flat.T).flatten()
    kept = [0, 1, 3, 4, 5, 6]
    np.testing.assert_allclose(term_gram(means[0]), dense_gram(crossed, pairs), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        term_gram(means[3]), dense_gram(crossed[np.ix_(kept, kept)], pairs), rtol=1e-9, atol=1e-12
    )
    assert len(PATTERNS) == means.shape[1]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_the_four_terms_add_up_to_the_logits(dtype, tolerance, softcap):
    capture = noisy(6, torch.Generator().manual_seed(0), dtype=dtype, softcap=softcap)
    everywhere = torch.arange(LENGTH)
    terms = four_terms(cross_logits(capture, 0, torch.arange(6), everywhere, everywhere))
    logits = capture.logits(0, everywhere, everywhere)
    assert float((terms.sum(0) - logits).abs().max() / logits.abs().max()) < tolerance
    assert float(terms[0].std()) > 0.1
    if softcap is None:
        # Term by term as defined: means of the others before the rotation, rotated.
        u, v = capture.unrotated_query[:, 0], capture.unrotated_key[:, 0]
        rest = [y for y in range(6) if y != 2]
        key = capture.scale * turn(u[rest].mean(0)) @ turn(v[2]).T
        # <mu_q, mu_k> there would pair a text with itself; the mean over different texts is what position is.
        pairs = [capture.scale * turn(u[a]) @ turn(v[b]).T for a, b in itertools.permutations(rest, 2)]
        position = torch.stack(pairs).mean(0)
        torch.testing.assert_close(terms[0, 2], position, rtol=tolerance, atol=10 * tolerance)
        torch.testing.assert_close(terms[1, 2], key - position, rtol=tolerance, atol=10 * tolerance)


def known_gram(noise, scale=0.5):
    """The terms' inner products in closed form where queries and keys are known means plus independent noise."""
    query, key = means()[0, 0], means(seed=6)[1, 0]
    pairs = seen_pairs(LENGTH, DROPPED)
    position = centred((scale * turn(query) @ turn(key).T).numpy(), pairs)
    keyed = queried = both = 0.0
    for t, keys in pairs.items():
        spread = turn(key)[keys] - turn(key)[keys].mean(0)
        keyed += scale**2 * noise**2 * float(query[t] @ query[t]) * (len(keys) - 1)
        queried += scale**2 * noise**2 * float(spread.square().sum())
        both += scale**2 * noise**4 * query.shape[1] * (len(keys) - 1)
    return np.diag([position @ position, keyed, queried, both])


def test_shares_of_a_rotary_model_with_known_means_are_unbiased_and_those_of_plug_in_means_are_not():
    generator, exact = torch.Generator().manual_seed(1), known_gram(1.0)
    pairs = seen_pairs(LENGTH, DROPPED)
    captures = [noisy(8, generator) for _ in range(60)]
    grams = np.array([split([part])[0].gram.numpy() * sum(map(len, pairs.values())) for part in captures])
    error = grams.std(0) / math.sqrt(len(grams))
    assert (np.abs(grams.mean(0) - exact) <= 3.5 * error + 1e-9).all()
    plug_in = []
    for part in captures:
        mean_query, mean_key = part.query[:, 0].mean(0), part.key[:, 0].mean(0)
        position = centred((part.scale * mean_query @ mean_key.T).numpy(), pairs)
        plug_in.append(position @ position)
    assert np.mean(plug_in) > exact[0, 0] + 5 * np.std(plug_in) / math.sqrt(60)


def test_intervals_of_shares_cover_and_narrow():
    generator, exact = torch.Generator().manual_seed(2), known_gram(1.0)
    truth = exact.diagonal() / exact.sum()
    covered, runs = np.zeros(4), 60
    for _ in range(runs):
        result = split([noisy(8, generator), noisy(8, generator)])[0]
        spans = [result.shares[term] for term in TERMS]
        covered += [span.low <= value <= span.high for span, value in zip(spans, truth, strict=True)]
    assert (covered / runs >= 0.88).all(), covered / runs
    assert "jackknife" in spans[0].method
    assert spans[0].n == 16
    wide = split([noisy(8, generator)])[0].shares["position"]
    many = split([noisy(16, generator) for _ in range(4)])[0].shares["position"]
    assert many.high - many.low < 0.7 * (wide.high - wide.low)


def test_pure_terms_get_everything():
    generator, ones = torch.Generator().manual_seed(3), torch.ones(8, 1, LENGTH, 8, dtype=torch.float64)
    fresh = torch.randn(8, 1, LENGTH, 8, generator=generator, dtype=torch.float64)
    fixed = fresh[:1].expand_as(fresh)
    cases = {
        "position": capture_of(fixed, fixed), "key": capture_of(ones, fresh), "query": capture_of(fresh, fixed),
        "interaction": capture_of(
            fresh * torch.randn(8, 1, 1, 1, generator=generator, dtype=torch.float64).sign(), fresh
        ),
    }  # fmt: skip
    for term, capture in cases.items():
        result = split([capture])[0]
        largest = max(TERMS, key=lambda name: result.shares[name].value)
        assert largest == term
        if term == "position":
            assert result.shares[term].value == pytest.approx(1)
            assert result.kl_shares[term].value == pytest.approx(1)
            assert result.sequential[term].value == pytest.approx(1)
        if term == "key":  # its means are those of seven texts, and not exactly zero
            assert result.shares[term].value == pytest.approx(1, abs=0.1)
            assert result.kl_shares[term].value > 0.7
            assert result.kl_shares["position"].value < 0


def test_a_bias_common_to_all_texts_is_position():
    slope = -2.0 * (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).double()[None, None]
    plain = split([noisy(8, torch.Generator().manual_seed(4))])[0].gram
    biased = split([noisy(8, torch.Generator().manual_seed(4), bias=slope)])[0].gram
    torch.testing.assert_close(biased[1:, 1:], plain[1:, 1:])
    assert biased[0, 0] > 5 * plain[0, 0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-50, 50))
def test_row_constants_change_nothing_and_all_terms_together_explain_everything(seed, constant):
    capture = random_capture(6, 1, 1, length=9, width=3, seed=seed)
    # A constant added to every key of a sequence moves each row's logits together.
    key = capture.key + constant * torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = split([capture_of(capture.query, key, capture.scale)], dropped=1)[0]
    result = split([capture], dropped=1)[0]
    torch.testing.assert_close(moved.gram, result.gram, rtol=1e-6, atol=1e-8)
    assert result.sequential["interaction"].value == 1


def test_sequential_and_shares_of_a_gram_by_hand():
    gram = torch.tensor([[4.0, 0, 0, 1], [0, 3, 0.5, 0], [0, 0.5, 2, 0], [1, 0, 0, 1]], dtype=torch.float64)
    assert shares(gram).tolist() == pytest.approx([4 / 13, 3 / 13, 2 / 13, 1 / 13])
    assert sequential(gram).tolist() == pytest.approx([1 - 7 / 13, 1 - 3 / 13, 1 - 1 / 13, 1])
    assert torch.isnan(shares(0 * gram)).all()


def test_logits_that_do_not_vary_have_no_shares():
    same = torch.ones(6, 1, LENGTH, 4, dtype=torch.float64)
    result = split([capture_of(same, same)])[0]
    assert math.isnan(result.shares["position"].value)
    assert "undefined" in result.shares["position"].method
    assert math.isnan(result.kl_shares["key"].value)


def test_batches_are_cut_into_blocks_and_the_numbers_are_the_blocks_together():
    generator = torch.Generator().manual_seed(7)
    whole = noisy(16, generator)
    halves = [
        rotary_capture(whole.unrotated_query[part], whole.unrotated_key[part]) for part in (slice(0, 8), slice(8, 16))
    ]
    one, two = split([whole])[0], split(halves)[0]
    torch.testing.assert_close(one.gram, two.gram)
    assert one.shares["key"] == two.shares["key"]
    assert one.shares["key"].n == 16


def test_what_cannot_be_split_is_refused():
    with pytest.raises(InputError, match="a batch of 5 sequences is too small"):
        split([random_capture(5)])
    with pytest.raises(InputError, match="dropping 9 positions of 10"):
        SplitEstimator({0: 1}, 10, 9)
    with pytest.raises(InputError, match="layer 0 has a mask that is neither causal"):
        split([random_capture(6, mask=torch.ones(1, 1, 40, 40, dtype=torch.bool))])
    with pytest.raises(InputError, match="the bias of layer 0 depends on the text"):
        split([random_capture(6, bias=torch.randn(6, 1, 40, 40, dtype=torch.float64))])
    with pytest.raises(InputError, match="layer 1 was not captured"):
        SplitEstimator({1: 1}, 10, 1).estimates()
    broken = random_capture(6)
    broken.query[0, 0, 20] = math.nan
    with pytest.raises(RunError, match="layer 0 head 0 gave logits that are not finite"):
        split([broken])
    estimator = SplitEstimator({3: 1}, 40)
    estimator.consume(random_capture(6))
    assert not estimator.sums[3, 0].means


# One of each way that position enters: rotation, its part of a head, soft cap with windows, learned, bias, both ways.
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gemma2", "gpt2", "bloom", "bert", "modernbert", "t5"])
def test_terms_add_up_and_streams_run_on_real_code(family):
    pytest.importorskip("transformers")
    from families import HEADS, tiny, tokens
    from poskernel.attention.estimators.distance import DistanceEstimator
    from poskernel.attention.estimators.drift import DriftEstimator
    from poskernel.attention.estimators.symbolic import PermutationEstimator
    from poskernel.attention.sources.huggingface import HuggingFaceSource
    from poskernel.attention.sources.rotary_probe import rotary_probes

    source, layers, length = HuggingFaceSource(tiny(family)), dict.fromkeys(range(2), HEADS), 24
    estimators = [
        SplitEstimator(layers, length, 2), DriftEstimator(layers, length, 2), DistanceEstimator(layers, length, 2),
        PermutationEstimator(layers, length, 2, probes=rotary_probes(source), rows=3),
    ]  # fmt: skip
    everywhere = torch.arange(length)

    def consume(capture):
        for head in range(capture.heads):
            terms = four_terms(cross_logits(capture, head, torch.arange(6), everywhere, everywhere))
            logits = capture.logits(head, everywhere, everywhere)
            assert float((terms.sum(0) - logits).abs().max() / logits.abs().max()) < 1e-5
        for estimator in estimators:
            estimator.consume(capture)

    with source.capturing():
        source.forward(tokens(6, length), consume)
    splits, drifts, distances, permutations = (estimator.estimates() for estimator in estimators)
    assert len(splits) == len(drifts) == len(distances) == len(permutations) == 2 * HEADS
    for split_, drift, distance, permutation in zip(splits, drifts, distances, permutations, strict=True):
        assert split_.sequential["interaction"].value == 1
        assert -1.01 <= permutation.positional.value <= 1.01
        assert sum(mass.value for mass in distance.mass) == pytest.approx(1, abs=1e-5)
        if family == "gemma2":
            assert math.isnan(drift.slope.value)
        else:
            assert sum(part.value for part in drift.parts.values()) == pytest.approx(drift.slope.value, rel=1e-6)
