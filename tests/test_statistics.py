"""Statistics against brute force, scipy, exact enumeration, and the promise that a 95% interval covers 95%."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from poskernel import statistics
from poskernel.errors import InputError
from poskernel.statistics import Estimate, auc, mean, median, precision, spearman

scores = st.integers(-5, 5)
rows = st.lists(st.tuples(scores, st.booleans()), min_size=2, max_size=25).filter(
    lambda pairs: len({label for _, label in pairs}) == 2
)


def auc_by_counting(score, positive):
    """Every pair of a positive and a negative row, looked at one by one."""
    won = [
        (a > b) + 0.5 * (a == b)
        for a, is_positive in zip(score, positive, strict=True)
        for b, is_other in zip(score, positive, strict=True)
        if is_positive and not is_other
    ]
    return sum(won) / len(won)


def resample_by_repeating(counts, *columns):
    """The resample that a row of counts stands for, written out."""
    repeated = np.repeat(np.arange(len(counts)), counts.astype(int))
    return [np.asarray(column)[repeated] for column in columns]


# --- Estimate -----------------------------------------------------------------------------------------------------


def test_an_estimate_prints_value_and_interval():
    estimate = Estimate(0.9, 0.73, 0.951, 15, "")
    assert str(estimate) == "0.90 [0.73, 0.95]"
    assert f"{estimate:.3f}" == "0.900 [0.730, 0.951]"
    assert str(Estimate(-0.001, -0.2, 0.2, 5, "")) == "0.00 [-0.20, 0.20]"
    assert str(Estimate(0.9, math.nan, math.nan, 1, "")) == "0.90 [no interval]"
    assert str(Estimate(math.nan, math.nan, math.nan, 0, "")) == "undefined"


# --- AUC ----------------------------------------------------------------------------------------------------------


@given(rows)
@settings(max_examples=50, deadline=None)
def test_auc_counts_pairs_with_ties_half(pairs):
    score, positive = zip(*pairs, strict=True)
    result = auc(score, positive, seed=0, shuffles=1, resamples=1)
    assert result.auc.value == pytest.approx(auc_by_counting(score, positive), abs=1e-12)
    assert (result.positives, result.negatives) == (sum(positive), len(positive) - sum(positive))


@given(rows)
@settings(max_examples=50, deadline=None)
def test_auc_sees_ranks_only_and_flips_with_the_sign(pairs):
    score, positive = (np.array(column) for column in zip(*pairs, strict=True))
    plain = auc(score, positive, seed=0, shuffles=200, resamples=200)
    mapped = auc(np.exp(score / 3.0) - 7, positive, seed=0, shuffles=200, resamples=200)
    assert mapped == plain
    for flipped in (auc(-score, positive, seed=0, shuffles=1), auc(score, ~positive, seed=0, shuffles=1)):
        assert flipped.auc.value == pytest.approx(1 - plain.auc.value, abs=1e-12)


def test_shuffled_p_agrees_with_every_labelling_enumerated():
    score, positive = np.array([0.1, 0.4, 0.4, 0.6, 0.7, 0.9, 0.2, 0.6]), np.array([0, 0, 1, 1, 0, 1, 0, 0])
    observed = auc_by_counting(score, positive)
    labellings = [np.isin(range(8), chosen) for chosen in itertools.combinations(range(8), 3)]
    exact = np.mean([auc_by_counting(score, labels) >= observed - 1e-12 for labels in labellings])
    result = auc(score, positive, seed=3, shuffles=20_000, resamples=10)
    assert result.p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))
    assert 0.01 < exact < 0.5


def test_shuffles_within_clusters_agree_with_enumeration_and_differ_from_free_ones():
    # Inside a cluster the score says nothing (it runs the wrong way in one); only the clusters' levels differ.
    score, positive = np.array([0, 1, 2, 10, 11, 12]), np.array([0, 0, 1, 1, 1, 0])
    cluster = np.array(list("aaabbb"))
    observed, as_high = auc_by_counting(score, positive), []
    for low, high in itertools.product(range(3), itertools.combinations(range(3, 6), 2)):
        as_high.append(auc_by_counting(score, np.isin(range(6), [low, *high])) >= observed - 1e-12)
    within = auc(score, positive, clusters=cluster, seed=0, resamples=10)
    free = auc(score, positive, seed=0, resamples=10)
    assert within.p == pytest.approx(np.mean(as_high), abs=0.02)
    assert free.p < within.p
    assert "within 2 clusters" in within.p_method


def test_the_smallest_p_is_one_over_shuffles_plus_one():
    result = auc(range(40), np.arange(40) >= 20, seed=0, shuffles=99, resamples=10)
    assert result.p == 1 / 100


def test_p_is_uniform_where_nothing_is_to_be_found():
    rng = np.random.default_rng(1)
    p = [auc(rng.random(20), np.arange(20) < 8, seed=i, shuffles=199, resamples=1).p for i in range(300)]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_perfect_separation_falls_back_to_percentile_and_says_so():
    result = auc([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1], seed=0)
    assert (result.auc.value, result.auc.low, result.auc.high) == (1, 1, 1)
    assert "BCa undefined" in result.auc.method
    assert "no resample differs" in result.auc.method


def test_one_class_only_has_no_auc():
    result = auc([0.1, 0.2], [1, 1], seed=0)
    assert math.isnan(result.auc.value) and math.isnan(result.auc.low) and math.isnan(result.p)
    assert "no negative row" in result.auc.method
    assert "no positive row" in auc([], [], seed=0).auc.method


# --- resamples ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(scores, scores, st.integers(0, 3)), min_size=3, max_size=15))
@settings(max_examples=80, deadline=None)
def test_weighted_statistics_equal_those_of_the_resample_written_out(triples):
    x, y, counts = (np.array(column, dtype=float) for column in zip(*triples, strict=True))
    drawn_x, drawn_y = resample_by_repeating(counts, x, y)
    assume(drawn_x.size > 2 and np.ptp(drawn_x) > 0 and np.ptp(drawn_y) > 0)
    weighted = statistics.correlation_of(x, y)(counts[None])[0]
    assert weighted == pytest.approx(stats.spearmanr(drawn_x, drawn_y).statistic, abs=1e-12)
    label = (y > drawn_y.min()).astype(float)
    (drawn_label,) = resample_by_repeating(counts, label)
    weighted = statistics.auc_of(x, label)(counts[None])[0]
    assert weighted == pytest.approx(auc_by_counting(drawn_x, drawn_label), abs=1e-12)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_intervals_agree_with_scipy(method):
    rng = np.random.default_rng(2)
    x = rng.gamma(1.5, size=40)
    ours = mean(x, interval=method, seed=1, resamples=20_000)
    theirs = stats.bootstrap((x,), np.mean, n_resamples=20_000, method=method, rng=3).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    assert ours.low != mean(x, interval="percentile" if method == "bca" else "bca", seed=1).low


def test_bca_of_a_biased_statistic_agrees_with_scipy():
    """A high correlation of few rows: the bias correction and the acceleration both move the interval."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=15)
    y = x + 0.5 * rng.normal(size=15)

    def vectorized(a, b, axis):
        a, b = stats.rankdata(a, axis=axis), stats.rankdata(b, axis=axis)
        a, b = a - a.mean(axis, keepdims=True), b - b.mean(axis, keepdims=True)
        return (a * b).sum(axis) / np.sqrt((a * a).sum(axis) * (b * b).sum(axis))

    options = {"paired": True, "vectorized": True, "n_resamples": 20_000, "rng": 1}
    theirs = stats.bootstrap((x, y), vectorized, method="BCa", **options).confidence_interval
    ours, plain = (spearman(x, y, seed=0, interval=method, resamples=20_000) for method in ("bca", "percentile"))
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)
    assert abs(plain.low - ours.low) > 0.02
    assert "BCa bootstrap" in ours.method


# --- coverage -----------------------------------------------------------------------------------------------------


def covered(truth, estimates):
    return np.mean([estimate.low <= truth <= estimate.high for estimate in estimates])


def test_intervals_cover_the_truth():
    rng = np.random.default_rng(4)
    normal = [rng.normal(size=8) for _ in range(400)]
    assert 0.92 < covered(0, [mean(x) for x in normal]) < 0.98
    pairs = [rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=40) for _ in range(200)]
    truth = 6 / math.pi * math.asin(0.3)
    assert covered(truth, [spearman(p[:, 0], p[:, 1], seed=i, resamples=400) for i, p in enumerate(pairs)]) > 0.89
    labels = np.arange(40) < 20
    shifted = [rng.normal(size=40) + labels for _ in range(200)]
    truth = stats.norm.cdf(1 / math.sqrt(2))
    assert covered(truth, [auc(x, labels, seed=i, resamples=400, shuffles=1).auc for i, x in enumerate(shifted)]) > 0.89


def test_rows_of_a_cluster_are_not_independent():
    """A shared cluster effect: resampling rows covers far too seldom, resampling clusters about as promised."""
    rng = np.random.default_rng(6)
    cluster = np.repeat(np.arange(20), 10)
    data = [rng.normal(size=20)[cluster] + 0.2 * rng.normal(size=200) for _ in range(150)]
    by_row = covered(0, [mean(x, interval="percentile", seed=i, resamples=300) for i, x in enumerate(data)])
    by_cluster = covered(
        0, [mean(x, interval="percentile", clusters=cluster, seed=i, resamples=300) for i, x in enumerate(data)]
    )
    assert by_row < 0.65
    assert by_cluster > 0.86


# --- Spearman, mean, precision ------------------------------------------------------------------------------------


def test_spearman_known_values():
    assert spearman([1, 2, 3, 4], [1, 4, 9, 16], seed=0).value == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1], seed=0).value == pytest.approx(-1)
    x, y = [1, 2, 2, 3, 5], [2, 1, 2, 5, 4]
    assert spearman(x, y, seed=0).value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    method = spearman(x, y, seed=0).method
    assert method.startswith("95% percentile bootstrap, 10000 resamples of 5 rows")
    assert "undefined ones left out" in method  # five times the same row


def test_spearman_by_cluster_says_so_and_is_wider():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(6), 8)
    x, y = rng.normal(size=6)[cluster] + 0.3 * rng.normal(size=(2, 48))
    by_row, by_cluster = spearman(x, y, seed=0), spearman(x, y, seed=0, clusters=cluster)
    assert by_cluster.value == by_row.value
    assert by_cluster.high - by_cluster.low > by_row.high - by_row.low
    assert "6 clusters" in by_cluster.method
    lone = spearman(x, y, seed=0, clusters=["a"] * 48)
    assert lone.value == by_row.value and math.isnan(lone.low) and "1 clusters" in lone.method


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [([1, 1, 1], [1, 2, 3], "first array is constant"), ([1, 2, 3], [0, 0, 0], "second"), ([1, 2], [1, 2], "2 rows")],
)
def test_spearman_undefined_is_nan_with_the_reason(first, second, reason):
    estimate = spearman(first, second, seed=0)
    assert math.isnan(estimate.value) and math.isnan(estimate.low) and math.isnan(estimate.high)
    assert reason in estimate.method


def test_mean_by_hand():
    estimate = mean([1, 2, 3, 4])
    half = stats.t.ppf(0.975, 3) * math.sqrt(5 / 3) / 2
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2.5, 2.5 - half, 2.5 + half))
    assert mean([1, 2, 3, 4], level=0.5).high < estimate.high
    assert math.isnan(mean([]).value) and "no rows" in mean([]).method
    assert mean([3]).value == 3 and math.isnan(mean([3]).low)
    assert "says nothing" in mean([3, 3]).method


def test_precision_lists_the_violations():
    score, outcome = [0.9, 0.6, 0.5, 0.4, 0.8], [0.9, 0.1, 0.7, 0.0, 0.69]
    result = precision(score, outcome, tau=0.5, threshold=0.7, seed=0)
    assert result.estimate.value == 0.5 and result.estimate.n == 4
    assert result.violations == (1, 4)
    assert 0 <= result.estimate.low < 0.5 < result.estimate.high <= 1


def test_precision_without_violations_uses_the_exact_binomial():
    estimate = precision([1] * 20, [1] * 20, tau=0.5, threshold=0.7, seed=0).estimate
    assert (estimate.value, estimate.high) == (1, 1)
    assert estimate.low == pytest.approx(0.025 ** (1 / 20))
    assert "exact binomial" in estimate.method
    nothing = precision([0.1], [1], tau=0.5, threshold=0.7, seed=0)
    assert math.isnan(nothing.estimate.value) and nothing.estimate.n == 0 and "0.5" in nothing.estimate.method
    clustered = precision([1] * 4, [1] * 4, tau=0.5, threshold=0.7, seed=0, clusters=[0, 0, 1, 1]).estimate
    assert "no resample differs" in clustered.method


def test_the_papers_precision_interval():
    """12 violations in 160 rows: 0.925; the binomial standard error gives the width a row bootstrap must have."""
    outcome = np.r_[np.zeros(12), np.ones(148)]
    estimate = precision(np.ones(160), outcome, tau=0.5, threshold=0.7, seed=0).estimate
    assert estimate.value == 0.925
    error = math.sqrt(0.925 * 0.075 / 160)
    assert (estimate.low, estimate.high) == pytest.approx((0.925 - 1.96 * error, 0.925 + 1.96 * error), abs=0.01)


# --- seeds and bad input ------------------------------------------------------------------------------------------


def test_a_seed_fixes_everything():
    rng = np.random.default_rng(0)
    x, y = rng.random(20), rng.random(20)
    assert auc(x, y > 0.5, seed=1) == auc(x, y > 0.5, seed=1)
    assert spearman(x, y, seed=1) == spearman(x, y, seed=1)
    assert spearman(x, y, seed=1).low != spearman(x, y, seed=2).low


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: auc([1, 2], [1], seed=0), "2 rows and positive 1"),
        (lambda: auc([[1, 2]], [1, 0], seed=0), r"shape \(1, 2\)"),
        (lambda: auc([1, math.nan], [1, 0], seed=0), "score is nan at row 1"),
        (lambda: auc([1, 2], [1, 2], seed=0), "positive is 2 at row 1"),
        (lambda: auc(["high", "low"], [1, 0], seed=0), "no number"),
        (lambda: auc([1, 2], [1, 0], seed=0, shuffles=0), "0 shuffles"),
        (lambda: spearman([1, 2, 3], [1, 2], seed=0), "3 rows and second 2"),
        (lambda: spearman([1, 2, 3], [1, 3, 2], seed=0, resamples=0), "0 resamples"),
        (lambda: spearman([1, 2, 3], [1, 3, 2], seed=-1), "seed -1"),
        (lambda: spearman([1, 2, 3], [1, 3, 2], seed=0, clusters=[1, 2]), "each of the 3 rows"),
        (lambda: mean([1, math.inf]), "inf"),
        (lambda: mean([1, 2], clusters=[1, 1]), "percentile"),
        (lambda: mean([1, 2], level=1.0), "level of 1"),
        (lambda: precision([1], [1, 2], tau=0.5, threshold=0.5, seed=0), "1 rows and outcome 2"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(InputError, match=words):
        call()


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_the_weighted_median_is_that_of_the_repeated_rows(values, extra):
    counts = np.ones(len(values))
    counts[0] += extra
    repeated = np.sort(np.repeat(values, counts.astype(int)))
    weighted = statistics.median_of(np.asarray(values, dtype=float))(counts[None])[0]
    assert weighted == repeated[(len(repeated) - 1) // 2]


def test_a_median_has_an_interval_that_contains_it():
    values = np.random.default_rng(0).normal(size=200)
    found = median(values, seed=1)
    assert found.low <= found.value <= found.high and found.high - found.low < 0.5
    clustered = median(np.repeat(values[:20], 10), seed=1, clusters=np.repeat(np.arange(20), 10))
    assert "20 clusters" in clustered.method
    assert math.isnan(median([], seed=0).value)
