"""The statements on one's own case: which one decides, and what it takes for it not to."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from own_tasks import ByKey, ByOffset, in_odd_block, is_odd, is_square, usual_except
from poskernel.encodings import AbsoluteEncoding, RelativeEncoding, RelativeFamily, Rope, parse_encoding
from poskernel.realizability.alignment import alpha, row_margins
from poskernel.realizability.theorems.statements import SOLVABLE, Case, Verdict, cosine_sum
from poskernel.tasks import parse_task

TRANSFERS, CANNOT, UNDECIDED = Verdict.TRANSFERS, Verdict.CANNOT, Verdict.UNDECIDED


def case(encoding, task, horizon=2000):
    encoding = parse_encoding(encoding) if isinstance(encoding, str) else encoding
    return Case(encoding, parse_task(task) if isinstance(task, str) else task, 20, horizon, 30.0)


@pytest.mark.parametrize(
    ("encoding", "task", "verdict", "theorem"),
    [
        ("rope", "prev", TRANSFERS, "theorem 2"),
        ("rope", "skip5", TRANSFERS, "theorem 2"),
        ("rope", "copy", CANNOT, "theorem 2"),
        ("rope", "first", CANNOT, "theorem 2"),
        ("rope", "reverse", CANNOT, SOLVABLE),
        ("rope", "pos2", CANNOT, SOLVABLE),
        ("nope", "prev", CANNOT, "proposition 1"),
        ("nope", "first", CANNOT, "proposition 1"),
        ("alibi", "prev", CANNOT, "proposition 1"),
        ("alibi", "first", CANNOT, "proposition 1"),
        ("alibi:free_slope=true", "first", TRANSFERS, "proposition 1"),
        ("alibi", "skip:offset=0", TRANSFERS, "proposition 1"),
        ("learned", "first", TRANSFERS, "proposition 4"),
        ("learned", "pos5", TRANSFERS, "proposition 4"),
        ("learned", "prev", CANNOT, "proposition 4"),
        ("learned", "copy", CANNOT, "proposition 4"),
        ("sinusoidal", "skip3", TRANSFERS, "proposition 3"),
        ("sinusoidal:frequencies=4", "copy", UNDECIDED, "none"),
        ("rope", "induction", UNDECIDED, "none"),
        ("dynamic", "prev", UNDECIDED, "none"),
    ],
)
def test_built_in_cells(encoding, task, verdict, theorem):
    found = case(encoding, task).answer()
    assert (found.verdict, found.theorem) == (verdict, theorem)
    assert found.exact == (verdict is not UNDECIDED)
    assert found.reason and not found.reason.endswith(".")


@pytest.mark.parametrize(
    ("encoding", "task"),
    [("rope", "skip2"), ("learned", "pos2"), ("sinusoidal", "prev"), ("alibi:free_slope=true", "first")],
)
def test_a_kernel_that_transfers_is_shown_and_does(encoding, task):
    asked = case(encoding, task)
    found = asked.answer()
    kernel = asked.kernel(found.weights)
    assert float(found.weights.abs().max()) <= 1 + 1e-12
    assert row_margins(kernel, asked.task.targets(20)).least >= found.margin - 1e-12 > 0
    assert alpha(kernel, asked.task, 20, 700) == 1


def test_rare_exceptions_do_not_stand_in_the_way_but_frequent_ones_do():
    def task(rare):
        return usual_except(lambda query: rare(query) & (query >= 20))

    found = case("rope", task(is_square), 20_000).answer()
    assert found.verdict is TRANSFERS and not found.exact  # counted up to the horizon
    shares = [alpha(case("rope", "prev").kernel(found.weights), task(is_square), 20, length) for length in (200, 5000)]
    assert shares == [pytest.approx(0.944, abs=1e-3), pytest.approx(0.987, abs=1e-3)]
    assert case("rope", task(is_odd), 20_000).answer().verdict is CANNOT
    assert case("rope", task(in_odd_block), 20_000).answer().verdict is not TRANSFERS


def later(offset):
    """Offset 1 on rows below 20 and another from there on."""
    return ByOffset(lambda query: torch.where(query < 20, 1, offset))


def test_a_far_peak_is_found_by_the_programme_with_the_training_length():
    asked = case("rope", later(30))
    found = asked.answer()
    assert (found.verdict, found.demand.value) == (TRANSFERS, 30)
    assert alpha(asked.kernel(found.weights), asked.task, 20, 2000) > 0.99
    assert row_margins(asked.kernel(found.weights), asked.task.targets(20)).first_wrong is None


def test_an_offset_that_the_training_length_ranks_second_cannot_be_the_global_peak():
    found = case("rope", later(2)).answer()
    assert found.verdict is CANNOT and "1 > 2 > 1" in found.reason


def test_an_offset_that_shares_its_features_cannot_peak():
    assert "equal features" in case("shaw:clip=16", later(30)).answer().reason
    assert case("shaw:clip=16", "skip:offset=16").answer().verdict is CANNOT
    assert case("shaw:clip=16", "skip:offset=15").answer().verdict is TRANSFERS


def test_clamped_positions_give_new_rows_what_the_last_trained_row_asks():
    kept = ByKey(lambda query: torch.where(query < 10, 0, 3))
    assert case("learned", kept).answer().verdict is TRANSFERS
    changed = ByKey(lambda query: torch.where(query < 20, 0, 3))
    found = case("learned", changed).answer()
    assert found.verdict is CANNOT and "no kernel that solves length 20" in found.reason


@dataclass(frozen=True)
class Line(AbsoluteEncoding):
    """Proposition 1's own features."""

    name = "line"
    square: bool = False

    def features(self, position, train_length):
        powers = (0, 1, 2) if self.square else (0, 1)
        return torch.stack([(position.double() / 20) ** power for power in powers], dim=1)


def test_affine_features_peak_at_an_end_until_a_square_joins_them():
    found = case(Line(), "prev").answer()
    assert (found.verdict, found.theorem) == (CANNOT, "proposition 1")
    assert case(Line(), "first").answer().verdict is TRANSFERS
    assert case(Line(square=True), "prev").answer().theorem != "proposition 1"


@dataclass(frozen=True)
class Growing(RelativeEncoding):
    """Features whose length changes with the offset: the aligned kernel peaks elsewhere, the programme has to look."""

    name = "growing"

    def basis(self, offset):
        phase = offset.double()
        return torch.stack([phase.cos() * (1 + phase / 100), phase.sin(), (-phase).exp()], dim=1)


def test_where_features_grow_the_programme_answers():
    asked = case(Growing(), "skip:offset=0")
    assert asked.aligned(0) is None
    found = asked.answer()
    assert found.verdict is TRANSFERS and not found.exact and "up to 2000" in found.reason


def test_cosine_sum_is_the_rotary_kernel_at_an_offset():
    asked = case("sinusoidal", "skip3")
    kernel = asked.kernel(cosine_sum(asked.feature_table(4)[3]))
    theta = [1e4 ** (-k / 16) for k in range(16)]
    expected = sum(torch.tensor(rate * (7 - 2 - 3)).cos() for rate in theta)
    assert float(kernel.logits(torch.tensor([7]), torch.tensor([2]))) == pytest.approx(float(expected), rel=1e-6)


@dataclass(frozen=True)
class Own(RelativeEncoding):
    """Somebody's own basis, of which nothing is known beyond the horizon."""

    name = "own"
    functions: Callable[[torch.Tensor], torch.Tensor]

    def basis(self, offset):
        return self.functions(offset.double())


RISING = {
    "logarithm": Own(lambda offset: torch.log1p(offset)[:, None]),
    "line and square": Own(lambda offset: torch.stack([offset / 100, (offset / 100) ** 2], 1)),
    "root and cosine": Own(lambda offset: torch.stack([offset.sqrt(), offset.cos()], 1)),
}


@pytest.mark.parametrize("name", RISING)
def test_a_kernel_without_a_global_peak_may_follow_what_does_not_settle(name):
    asked = case(RISING[name], "first", 20_000)
    found = asked.answer()
    assert (found.verdict, found.exact) == (TRANSFERS, False) and "without a global peak" in found.reason
    assert (
        alpha(asked.kernel(found.weights), asked.task, 20, 20_000)
        == 1
        == alpha(asked.kernel(found.weights), asked.task, 20, 60)
    )


def test_what_no_kernel_of_the_offset_follows_is_excluded_for_any_family():
    found = case(RISING["line and square"], "copy", 20_000).answer()
    assert (found.verdict, found.exact) == (CANNOT, True) and "two neighbouring even lengths" in found.reason


def test_a_family_that_might_follow_is_left_open():
    """cos(d - pi) has no highest offset: rotary kernels can change their winner for ever, at rare rows."""
    profile = (torch.arange(40_000, dtype=torch.float64) - torch.pi).cos()
    winner = profile.cummax(0).indices
    records = ByOffset(lambda query: winner[query])
    turning = Own(lambda offset: torch.stack([offset.cos(), offset.sin()], 1))
    for encoding in (turning, "rope:base=1,frequencies=1"):
        assert case(encoding, records, 2_000).answer().verdict is not CANNOT


def test_own_tasks_that_ask_for_a_new_offset_on_every_row():
    own = ByKey(lambda query: 0 * query)
    found = case("rope", own, 20_000).answer()
    assert (found.verdict, found.exact) == (CANNOT, False) and "almost periodic" in found.reason
    assert case(RISING["logarithm"], own, 20_000).answer().verdict is TRANSFERS


@pytest.mark.parametrize("encoding", ["rope", "yarn", "xpos", "p-rope", "partial", "llama3"])
def test_first_is_excluded_for_every_rotary_kernel(encoding):
    found = case(encoding, "first").answer()
    assert (found.verdict, found.exact) == (CANNOT, True)
    assert "almost periodic" in found.reason or "tend to 0" in found.reason


def test_a_subclass_is_known_up_to_the_horizon_only():
    @dataclass(frozen=True)
    class Tilted(Rope):
        def basis_at(self, offset, length):
            return torch.cat([super().basis_at(offset, length), offset.double()[:, None] / 100], 1)

        def family(self, train_length, length):
            return RelativeFamily(lambda offset: self.basis_at(offset, length), self.name)

    found = case(Tilted(), "first").answer()
    assert (found.verdict, found.exact) == (TRANSFERS, False)


def test_a_constant_share_of_exceptions_is_no_settled_offset():
    task = usual_except(lambda query: (query % 20 == 0) & (query >= 20))
    found = case("rope", task, 20_000).answer()
    assert (found.verdict, found.exact) == (CANNOT, False)
    assert "5%" in found.reason and "stays the same" in found.reason


def test_the_reason_is_the_one_that_decided():
    """Offset 1 as the peak of a d + b d^2: the logits outgrow the margin, and no time limit is at fault."""
    found = case(RISING["line and square"], "prev", 100_000).answer()
    assert found.verdict is UNDECIDED and "strict argmax" in found.reason and "limit" not in found.reason
    assert case(RISING["line and square"], "prev", 2_000).answer().verdict is TRANSFERS


def test_a_small_scale_does_not_hide_a_kernel():
    """Margins below 1e-6, until the columns have one size."""
    small = Own(lambda offset: 1e-7 * torch.stack([offset, offset**2], 1))
    asked = case(small, "first")
    assert asked.exists(None) == "undecided"
    assert asked.answer().verdict is TRANSFERS
    found = case("rope:scale=1e-3", "skip3").answer()  # where this does not help either, the reason is the true one
    assert found.verdict is UNDECIDED and "limit" not in found.reason


@pytest.mark.parametrize("name", ["kerple-power", "kerple-log:free_rate=true"])
def test_kernels_that_fall_are_known_without_a_programme(name):
    found = case(name, "prev").answer()
    assert (found.verdict, found.exact) == (CANNOT, True) and "fall from offset 0" in found.reason
