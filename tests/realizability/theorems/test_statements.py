"""The statements on one's own case: which one decides, and what it takes for it not to."""

from dataclasses import dataclass

import pytest
import torch

from own_tasks import ByKey, ByOffset, in_odd_block, is_odd, is_square, usual_except
from poskernel.encodings import AbsoluteEncoding, RelativeEncoding, parse_encoding
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
