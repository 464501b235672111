import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from poskernel.encodings import Sinusoidal
from poskernel.errors import InputError
from poskernel.kernel import BilinearKernel, GridKernel, PositionalKernel, StationaryKernel, constant, tabulated
from poskernel.realizability.alignment import (
    STRICTNESS,
    RowMargins,
    alignment_margin,
    alpha,
    certificate,
    reach,
    row_margins,
    rows_change,
    targets_conflict,
)
from poskernel.realizability.margin_programme import best_margin, margin_constraints
from poskernel.tasks import TASKS, OffsetRegime, Targets, Task

TASK = st.sampled_from(reference.POSITIONAL_TASKS)
SMALL_WHOLE = st.integers(-2, 2).map(float)
"""Few values, so that ties are common."""


def dense(kernel: PositionalKernel, length: int) -> PositionalKernel:
    """The same kernel without a profile: judged in blocks of rows."""
    return GridKernel(kernel.transfer(length).nan_to_num(neginf=0.0))


def targets(*pairs: tuple[int, int]) -> Targets:
    query, key = zip(*pairs, strict=True)
    return Targets(torch.tensor(query), torch.tensor(key))


def test_margin_is_the_target_less_the_best_other_causal_key() -> None:
    logits = torch.tensor([[5.0, -math.inf, -math.inf], [1.0, 3.0, -math.inf], [2.0, 2.0, 7.0]])
    assert alignment_margin(logits, torch.tensor([0, 1, 0])).tolist() == [math.inf, 2.0, -5.0]


def test_a_target_after_its_query_is_refused() -> None:
    logits = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)
    with pytest.raises(InputError, match="target key 2 of row 1 lies after its query"):
        alignment_margin(logits, torch.tensor([0, 2, 2]))


@pytest.mark.parametrize("key", [4, -1])
@pytest.mark.parametrize("stationary", [True, False])
def test_hand_made_targets_must_be_causal(key: int, stationary: bool) -> None:
    kernel = tabulated(torch.arange(9.0)) if stationary else GridKernel(torch.eye(9))
    with pytest.raises(
        InputError, match=f"target key {key} of query row 3 is none of its causal keys: give one of 0 to 3"
    ):
        row_margins(kernel, targets((3, key)))


def test_no_row_is_an_error() -> None:
    with pytest.raises(InputError, match="no query row to score"):
        row_margins(constant(0.0), Targets(torch.arange(0), torch.arange(0)))


@given(st.lists(SMALL_WHOLE, min_size=31, max_size=31), TASK, st.sampled_from([21, 26, 31]))
@settings(deadline=None)
def test_the_relative_path_equals_brute_force(profile: list[float], task: str, length: int) -> None:
    kernel = tabulated(torch.tensor(profile, dtype=torch.float64))
    wanted = TASKS[task].targets(length)
    fast, slow = row_margins(kernel, wanted), row_margins(dense(kernel, length), wanted)
    for index, (row, key) in enumerate(zip(wanted.query.tolist(), wanted.key.tolist(), strict=True)):
        margin, right = reference.row_margin([profile[row - other] for other in range(row + 1)], row, key)
        assert fast.margin[index].item() == slow.margin[index].item() == margin
        assert fast.right[index].item() is slow.right[index].item() is right
    share = reference.alpha(lambda i, j: profile[i - j], task, 20, length)
    assert alpha(kernel, TASKS[task], 20, length) == pytest.approx(share, abs=1e-15)


@given(st.integers(0, 2**30), TASK, st.booleans())
@settings(deadline=None, max_examples=40)
def test_the_block_path_equals_brute_force(seed: int, task: str, whole: bool) -> None:
    values = torch.randn(26, 26, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    grid = (2 * values).round() if whole else values
    rows = grid.tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poskernel.kernel.ENTRIES_PER_BLOCK", 3 * 26)
        judged = row_margins(GridKernel(grid), TASKS[task].targets(26))
    for row, key, margin, right in zip(
        judged.query.tolist(),
        TASKS[task].targets(26).key.tolist(),
        judged.margin.tolist(),
        judged.right.tolist(),
        strict=True,
    ):
        assert (margin, right) == reference.row_margin(rows[row], row, key)


@given(st.lists(SMALL_WHOLE, min_size=45, max_size=45), TASK)
@settings(deadline=None)
def test_reach_equals_brute_force(noise: list[float], task: str) -> None:
    # A kernel that solves its task for a while: the noise starts late.
    profile = [0.0] * 45
    wanted = TASKS[task].targets(24)
    profile[int(wanted.offset[-1])] = 5.0
    profile[30:] = [3 * value for value in noise[30:]]
    kernel = tabulated(torch.tensor(profile, dtype=torch.float64))
    expected = reference.reach(lambda i, j: profile[i - j], task, 8, 45)
    assert reach(kernel, TASKS[task], 8, 45) == expected
    assert reach(dense(kernel, 45), TASKS[task], 8, 45) == expected


def test_reach_looks_beyond_its_first_span() -> None:
    for peak in (255, 256, 257, 2047, 2048, 2049, 2999):
        profile = torch.zeros(3000, dtype=torch.float64)
        profile[1], profile[peak] = 1.0, 2.0
        assert reach(tabulated(profile), TASKS["prev"], 20, 3000) == peak
    assert reach(tabulated(profile[:2999]), TASKS["prev"], 20, 2999) is None


def test_alpha_is_the_reach_seen_from_a_length() -> None:
    profile = torch.zeros(90, dtype=torch.float64)
    profile[1], profile[50] = 1.0, 2.0
    kernel = tabulated(profile)
    assert alpha(kernel, TASKS["prev"], 20, 50) == 1.0
    assert alpha(kernel, TASKS["prev"], 20, 60) == 0.75
    judged = row_margins(kernel, TASKS["prev"].new_targets(20, 60))
    assert judged.first_wrong == 50
    assert judged.until(50).share == 1.0
    assert judged.least == -1.0


def test_a_tie_fails() -> None:
    assert alpha(constant(1.0), TASKS["prev"], 20, 30) == 0.0
    assert alpha(dense(constant(1.0), 30), TASKS["prev"], 20, 30) == 0.0
    two_peaks = torch.zeros(30)
    two_peaks[[1, 25]] = 1.0
    judged = row_margins(tabulated(two_peaks), TASKS["prev"].new_targets(20, 30))
    assert judged.right.tolist() == [True] * 5 + [False] * 5
    assert judged.margin.tolist() == [1.0] * 5 + [0.0] * 5


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize(
    ("relative", "right"), [(8e-9, True), (1.01e-9, True), (0.99e-9, False), (1e-12, False), (0, False)]
)
def test_strictness_is_relative_to_the_largest_logit(scale: float, relative: float, right: bool) -> None:
    profile = torch.zeros(8, dtype=torch.float64)
    profile[1], profile[0] = scale * (1 - relative), -scale
    profile[2] = scale * (1 - 2 * relative)
    assert STRICTNESS == 1e-9
    for kernel in (tabulated(profile), dense(tabulated(profile), 8)):
        assert row_margins(kernel, targets((5, 4))).right.tolist() == [right]


def test_the_largest_logit_may_be_a_very_negative_one() -> None:
    profile = torch.tensor([-1.0, 1e-3, 0.0, -1e7], dtype=torch.float64)
    for kernel in (tabulated(profile), dense(tabulated(profile), 4)):
        assert row_margins(kernel, targets((2, 1), (3, 2))).right.tolist() == [True, False]


def test_row_zero_has_no_rival() -> None:
    judged = row_margins(constant(0.0), targets((0, 0)))
    assert judged.margin.tolist() == [math.inf]
    assert judged.right.tolist() == [True]


def test_float32_kernels_are_judged_alike() -> None:
    profile = torch.randn(40, generator=torch.Generator().manual_seed(1))
    profile[3] = 9.0
    for kernel in (tabulated(profile), dense(tabulated(profile), 40)):
        assert kernel.transfer(4).dtype == torch.float32
        judged = row_margins(kernel, TASKS["skip3"].targets(40))
        assert judged.share == 1.0
        assert judged.margin.dtype == torch.float64


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("stationary", [True, False])
def test_logits_that_are_no_numbers_are_no_wrong_rows(value: float, stationary: bool) -> None:
    profile = torch.zeros(10, dtype=torch.float64)
    profile[[1, 2]] = value
    kernel = (
        tabulated(profile) if stationary else GridKernel(tabulated(profile).logits(torch.arange(10), torch.arange(10)))
    )
    with pytest.raises(InputError, match="logits at query row 2 are not all finite numbers: mend the kernel"):
        row_margins(kernel, targets((2, 1), (3, 2)))


@pytest.mark.parametrize(
    ("length", "conflict"), [(21, True), (22, True), (37, True), (38, True), (39, False), (40, False)]
)
def test_copy_conflicts_with_its_training_length_until_38(length: int, conflict: bool) -> None:
    for task in ("copy", "reverse"):
        assert targets_conflict(TASKS[task], 20, length) is conflict
        assert rows_change(TASKS[task], 20, length) is conflict
    assert not targets_conflict(TASKS["prev"], 20, length)


def test_two_lengths_of_the_study_s_own_range_conflict() -> None:
    for short in range(10, 19):
        for task in ("copy", "reverse"):
            assert any(targets_conflict(TASKS[task], short, long) for long in range(short + 1, 21))
    assert not targets_conflict(TASKS["copy"], 19, 20)  # the same half


@pytest.mark.parametrize("task", reference.POSITIONAL_TASKS)
def test_conflicts_match_the_definition(task: str) -> None:
    for short, long in ((5, 6), (8, 15), (9, 17), (10, 19), (10, 20)):
        expected = any(
            None not in (a := (reference.target_key(task, row, short), reference.target_key(task, row, long)))
            and a[0] != a[1]
            for row in range(short)
        )
        assert targets_conflict(TASKS[task], short, long) is expected


@pytest.fixture(scope="module")
def lucky_copy() -> BilinearKernel:
    """A sinusoidal W that solves copy at 20 and every new row of length 30: the programme asks for no others."""
    family = Sinusoidal().family(20, 30)
    copy = TASKS["copy"]
    wanted = (copy.targets(20), copy.new_targets(20, 30))
    best = best_margin(np.vstack([margin_constraints(family, each) for each in wanted]), family.upper_bounds().numpy())
    assert best.weights is not None
    kernel = family.kernel(torch.from_numpy(best.weights).reshape(32, 32))
    assert isinstance(kernel, BilinearKernel)
    return kernel


def test_theorem_1_needs_the_hypothesis_the_paper_leaves_out(lucky_copy: BilinearKernel) -> None:
    found = certificate(lucky_copy, TASKS["copy"], 20, 30)
    assert found.realized
    assert found.aligned
    assert alpha(lucky_copy, TASKS["copy"], 20, 30) == 1.0
    assert found.train_margin == pytest.approx(0.975, abs=5e-4)
    assert found.new_margin == pytest.approx(0.975, abs=5e-4)
    assert found.conflict
    assert not found.covered
    assert not found.holds
    judged = row_margins(lucky_copy, TASKS["copy"].targets(30))
    assert judged.query[~judged.right].tolist() == [15, 16, 17, 18, 19]


def test_the_certificate_holds_where_every_hypothesis_does() -> None:
    profile = torch.zeros(60, dtype=torch.float64)
    profile[3], profile[40] = 2.0, 1.5
    found = certificate(tabulated(profile), TASKS["skip3"], 20, 60)
    assert found.holds
    assert (found.train_margin, found.new_margin, found.margin) == (2.0, 0.5, 0.5)
    # What it promises: every row of the longer length is right, by that margin.
    whole = row_margins(tabulated(profile), TASKS["skip3"].targets(60))
    assert whole.share == 1.0
    assert whole.least == found.margin


def test_the_certificate_notices_an_unsolved_training_length() -> None:
    values = tabulated(torch.eye(40, dtype=torch.float64)[3]).logits(torch.arange(40), torch.arange(40)).clone()
    values[5, 5] = 3.0
    found = certificate(GridKernel(values), TASKS["skip3"], 20, 40)
    assert found.aligned
    assert not found.realized
    assert not found.holds
    assert found.train_margin == -2.0


def test_the_certificate_notices_a_wrong_new_row() -> None:
    profile = torch.zeros(40, dtype=torch.float64)
    profile[3], profile[30] = 1.0, 2.0
    found = certificate(tabulated(profile), TASKS["skip3"], 20, 40)
    assert found.realized
    assert not found.aligned
    assert not found.holds
    assert certificate(tabulated(profile), TASKS["skip3"], 20, 30).holds


@dataclass(frozen=True)
class LateRows(Task):
    """prev on the rows 15 on at length 20, on every row at other lengths: no clash, yet rows never trained on."""

    regime = OffsetRegime.FIXED_RELATIVE
    depends_on_length = True
    name = "late-rows"

    def target_key(self, query: Tensor, length: int) -> Tensor:
        return torch.where(query >= (15 if length == 20 else 1), query - 1, -1)


def test_the_certificate_notices_rows_that_training_never_held() -> None:
    values = tabulated(torch.eye(30, dtype=torch.float64)[1]).logits(torch.arange(30), torch.arange(30)).clone()
    values[7, 0] = 5.0
    found = certificate(GridKernel(values), LateRows(), 20, 30)
    assert found.realized
    assert found.aligned
    assert not found.conflict
    assert not found.covered
    assert not found.holds
    assert row_margins(GridKernel(values), LateRows().targets(30)).first_wrong == 7


@given(st.integers(0, 2**30))
@settings(deadline=None, max_examples=25)
def test_a_certificate_that_holds_is_never_wrong(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    profile = torch.randn(40, dtype=torch.float64, generator=generator)
    profile[int(torch.randint(1, 4, (1,), generator=generator))] = 3.0
    kernel = StationaryKernel(lambda offset: profile[offset], horizon=40)
    for task in ("prev", "skip2", "skip3", "copy"):
        found = certificate(kernel, TASKS[task], 20, 40)
        whole = row_margins(kernel, TASKS[task].targets(40))
        if found.holds:
            assert whole.share == 1.0
            assert whole.least >= found.margin - 1e-12


def test_row_margins_by_hand() -> None:
    judged = RowMargins(torch.tensor([4, 5, 9]), torch.tensor([1.0, -2.0, 3.0]), torch.tensor([True, False, True]))
    assert judged.share == pytest.approx(2 / 3)
    assert judged.least == -2.0
    assert judged.first_wrong == 5
    assert judged.until(5).first_wrong is None
