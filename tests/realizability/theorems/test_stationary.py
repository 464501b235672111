"""Theorem 2 on one's own case: what it takes to settle, to peak, and to follow without a peak."""

from dataclasses import dataclass

import pytest
import torch

from own_cases import RISING, Own, answer, case
from own_tasks import ByKey, ByOffset, in_odd_block, is_odd, is_square, usual_except
from poskernel.encodings import T5, RelativeEncoding, RelativeFamily, Rope, Shaw
from poskernel.errors import InputError
from poskernel.realizability.alignment import alpha, row_margins
from poskernel.realizability.theorems.stationary import aligned_kernel, seen_whole
from poskernel.realizability.theorems.verdicts import SOLVABLE, Verdict

TRANSFERS, CANNOT, UNDECIDED = Verdict.TRANSFERS, Verdict.CANNOT, Verdict.UNDECIDED


def test_rare_exceptions_do_not_stand_in_the_way_but_frequent_ones_do():
    def task(rare):
        return usual_except(lambda query: rare(query) & (query >= 20))

    found = answer("rope", task(is_square), 20_000)
    assert found.verdict is TRANSFERS and not found.exact  # counted up to the horizon
    shares = [alpha(case("rope", "prev").kernel(found.weights), task(is_square), 20, length) for length in (200, 5000)]
    assert shares == [pytest.approx(0.944, abs=1e-3), pytest.approx(0.987, abs=1e-3)]
    assert answer("rope", task(is_odd), 20_000).verdict is CANNOT
    assert answer("rope", task(in_odd_block), 20_000).verdict is not TRANSFERS


def later(offset):
    """Offset 1 on rows below 20 and another from there on."""
    return ByOffset(lambda query: torch.where(query < 20, 1, offset))


def test_a_far_peak_is_found_by_the_programme_with_the_training_length():
    asked = case("rope", later(30))
    found = answer("rope", later(30))
    assert (found.verdict, found.demand.value) == (TRANSFERS, 30)
    assert alpha(asked.kernel(found.weights), asked.task, 20, 2000) > 0.99
    assert row_margins(asked.kernel(found.weights), asked.task.targets(20)).first_wrong is None


def test_an_offset_that_the_training_length_ranks_second_cannot_be_the_global_peak():
    found = answer("rope", later(2))
    assert found.verdict is CANNOT and "1 > 2 > 1" in found.reason


def test_an_offset_that_shares_its_features_cannot_peak():
    assert "equal features" in answer("shaw:clip=16", later(30)).reason
    assert answer("shaw:clip=16", "skip:offset=16").verdict is CANNOT
    assert answer("shaw:clip=16", "skip:offset=15").verdict is TRANSFERS


def test_what_lies_beyond_the_horizon_is_not_called_seen():
    assert seen_whole(case(T5(max_distance=1999), "prev")) and not seen_whole(case(T5(max_distance=2000), "prev"))
    assert seen_whole(case(Shaw(16), "prev")) and not seen_whole(case(Shaw(3000), "prev"))
    assert not seen_whole(case("rope", "prev"))
    for clip, exact in ((150, True), (3000, False)):
        found = answer(Shaw(clip), later(100))
        assert (found.verdict, found.exact) == (TRANSFERS, False)  # a task of one's own is counted
        assert ("over all others up to 2000" in found.reason) == (not exact)


@dataclass(frozen=True)
class Growing(RelativeEncoding):
    """Features whose length changes with the offset: the aligned kernel peaks elsewhere, the programme has to look."""

    name = "growing"

    def basis(self, offset):
        phase = offset.double()
        return torch.stack([phase.cos() * (1 + phase / 100), phase.sin(), (-phase).exp()], dim=1)


def test_where_features_grow_the_programme_answers():
    assert aligned_kernel(case(Growing(), "skip:offset=0"), 0) is None
    found = answer(Growing(), "skip:offset=0")
    assert found.verdict is TRANSFERS and not found.exact and "up to 2000" in found.reason


@pytest.mark.parametrize("name", RISING)
def test_a_kernel_without_a_global_peak_may_follow_what_does_not_settle(name):
    asked = case(RISING[name], "first", 20_000)
    found = answer(RISING[name], "first", 20_000)
    assert (found.verdict, found.exact) == (TRANSFERS, False) and "without a global peak" in found.reason
    kernel = asked.kernel(found.weights)
    assert alpha(kernel, asked.task, 20, 20_000) == 1 == alpha(kernel, asked.task, 20, 60)


def test_what_no_kernel_of_the_offset_follows_is_excluded_for_any_family():
    found = answer(RISING["line and square"], "copy", 20_000)
    assert (found.verdict, found.exact) == (CANNOT, True) and "two neighbouring even lengths" in found.reason


def test_a_family_that_might_follow_is_left_open():
    """cos(d - pi) has no highest offset: rotary kernels can change their winner for ever, at rare rows."""
    profile = (torch.arange(40_000, dtype=torch.float64) - torch.pi).cos()
    winner = profile.cummax(0).indices
    records = ByOffset(lambda query: winner[query])
    turning = Own(lambda offset: torch.stack([offset.cos(), offset.sin()], 1))
    for encoding in (turning, "rope:base=1,frequencies=1"):
        assert answer(encoding, records, 2_000).verdict is not CANNOT


def test_own_tasks_that_ask_for_a_new_offset_on_every_row():
    own = ByKey(lambda query: 0 * query)
    found = answer("rope", own, 20_000)
    assert (found.verdict, found.exact) == (CANNOT, False) and "almost periodic" in found.reason
    assert answer(RISING["logarithm"], own, 20_000).verdict is TRANSFERS


@pytest.mark.parametrize("encoding", ["rope", "yarn", "xpos", "p-rope", "partial", "llama3"])
def test_first_is_excluded_for_every_rotary_kernel(encoding):
    found = answer(encoding, "first")
    assert (found.verdict, found.exact) == (CANNOT, True)
    assert "almost periodic" in found.reason or "tend to 0" in found.reason


def test_a_subclass_is_known_up_to_the_horizon_only():
    @dataclass(frozen=True)
    class Tilted(Rope):
        def basis_at(self, offset, length):
            return torch.cat([super().basis_at(offset, length), offset.double()[:, None] / 100], 1)

        def family(self, train_length, length):
            return RelativeFamily(lambda offset: self.basis_at(offset, length), self.name)

    found = answer(Tilted(), "first")
    assert (found.verdict, found.exact) == (TRANSFERS, False)


def test_a_constant_share_of_exceptions_is_no_settled_offset():
    task = usual_except(lambda query: (query % 20 == 0) & (query >= 20))
    found = answer("rope", task, 20_000)
    assert (found.verdict, found.exact) == (CANNOT, False)
    assert "5%" in found.reason and "stays the same" in found.reason


def test_the_reason_is_the_one_that_decided():
    """Offset 1 as the peak of a d + b d^2: the logits outgrow the margin, and no time limit is at fault."""
    found = answer(RISING["line and square"], "prev", 100_000)
    assert found.verdict is UNDECIDED and "strict argmax" in found.reason and "limit" not in found.reason
    assert answer(RISING["line and square"], "prev", 2_000).verdict is TRANSFERS


@pytest.mark.parametrize("name", ["kerple-power", "kerple-log:free_rate=true", "kerple-log", "kerple-log:rate=1e-12"])
def test_kernels_that_fall_are_known_without_a_programme(name):
    found = answer(name, "prev")
    assert (found.verdict, found.exact, found.theorem) == (CANNOT, True, SOLVABLE)
    assert "fall from offset 0" in found.reason and "row 1 asks for offset 1" in found.reason
    found = answer(name, "skip:offset=0")
    assert (found.verdict, found.exact) == (TRANSFERS, True) and found.margin > 0
    kernel = case(name, "skip:offset=0").kernel(found.weights)
    assert alpha(kernel, case(name, "skip:offset=0").task, 20, 60) == 1


def test_falling_kernels_follow_no_later_offset():
    moves = ByOffset(lambda query: torch.where(query < 20, 0, 3))
    found = answer("kerple-power", moves)
    assert (found.verdict, found.exact, found.theorem) == (CANNOT, False, "theorem 2")
    drifts = ByOffset(lambda query: torch.where(query < 20, 0, query.clamp(min=1).double().log2().long()))
    assert answer("kerple-log", drifts, 100_000).verdict is not TRANSFERS


def test_no_horizon_excludes_a_kernel_that_exists():
    """7 d - d^4 peaks at offset 1 in whole numbers, whatever float64 makes of d^4 far out."""
    steep = Own(lambda offset: torch.stack([offset, offset**4], 1))
    assert all(7 * offset - offset**4 < 7 - 1 for offset in (0, *range(2, 1000)))
    for horizon in (200, 500, 30_000, 100_000):
        assert answer(steep, "prev", horizon).verdict is not CANNOT


@pytest.mark.parametrize("step", [2.0**-40, 2.0**-46])
def test_two_features_that_differ_at_one_offset_alone_are_not_excluded(step):
    alike = Own(lambda offset: torch.stack([offset % 64, offset % 64 + step * (offset == 1)], 1))
    asked = case(alike, "prev")
    assert alpha(asked.kernel(torch.tensor([-1.0, 1.0], dtype=torch.float64)), asked.task, 20, 1000) == 1
    assert answer(alike, "prev").verdict is not CANNOT


@pytest.mark.parametrize("horizon", [1000, 2000])
def test_features_of_the_least_size_are_decided_without_a_fault(horizon):
    """2^-d beside 0 at offset 1: from offset 1075 on float64 has 0 there too, a tie."""
    halves = Own(lambda offset: torch.where(offset == 1, 0 * offset, 0.5**offset)[:, None])
    found = answer(halves, "prev", horizon)
    assert found.verdict is (CANNOT if horizon > 1075 else UNDECIDED)
    assert ("equal features" in found.reason) == (horizon > 1075)


def test_features_that_overflow_are_refused():
    huge = Own(lambda offset: (1e308 * torch.where(offset == 1, 1.0, -1.0).double())[:, None])
    with pytest.raises(InputError, match="so large that their differences overflow: scale them down"):
        answer(huge, "prev")
