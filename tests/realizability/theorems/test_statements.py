"""The statements on one's own case: which one decides, and that no unit of the features changes what it says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from own_cases import Line, answer, case, scaled
from poskernel.encodings import Alibi, KerpleLog, Learned, Nope, Rope, Shaw, Sinusoidal, XPos
from poskernel.realizability.alignment import alpha, row_margins
from poskernel.realizability.theorems.verdicts import SOLVABLE, Verdict
from poskernel.tasks import Copy, Position, Skip

TRANSFERS, CANNOT, UNDECIDED = Verdict.TRANSFERS, Verdict.CANNOT, Verdict.UNDECIDED


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
        ("kerple-log", "skip:offset=0", TRANSFERS, "theorem 2"),
        ("kerple-power", "prev", CANNOT, SOLVABLE),
        ("t5", "prev", TRANSFERS, "theorem 2"),
        ("learned", "first", TRANSFERS, "proposition 4"),
        ("learned", "pos5", TRANSFERS, "proposition 4"),
        ("learned", "prev", CANNOT, "proposition 4"),
        ("learned", "copy", CANNOT, "proposition 4"),
        ("sinusoidal", "skip3", TRANSFERS, "proposition 3"),
        ("sinusoidal:frequencies=4", "copy", CANNOT, "targets at two lengths"),
        ("rope", "induction", UNDECIDED, "none"),
        ("dynamic", "prev", UNDECIDED, "none"),
    ],
)
def test_built_in_cells(encoding, task, verdict, theorem):
    found = answer(encoding, task)
    assert (found.verdict, found.theorem) == (verdict, theorem)
    assert found.exact == (verdict is not UNDECIDED)
    assert found.reason and not found.reason.endswith(".")


@pytest.mark.parametrize(
    ("encoding", "task"),
    [("rope", "skip2"), ("learned", "pos2"), ("sinusoidal", "prev"), ("alibi:free_slope=true", "first"),
     ("partial", "prev"), ("kerple-log", "skip:offset=0")],
)  # fmt: skip
def test_a_kernel_that_transfers_is_shown_and_does(encoding, task):
    asked = case(encoding, task)
    found = answer(encoding, task)
    kernel = asked.kernel(found.weights)
    assert float(found.weights.abs().max()) <= 1 + 1e-12
    assert row_margins(kernel, asked.task.targets(20)).least >= found.margin - 1e-12 > 0
    assert alpha(kernel, asked.task, 20, 700) == 1


OF_OFFSETS = (Rope(frequencies=4), Alibi(), Alibi(free_slope=True), Nope(), Shaw(4), KerpleLog(), XPos(frequencies=2))
OF_POSITIONS = (Learned(), Line(), Line(square=True), Sinusoidal(frequencies=2))
REFERENCE: dict = {}


def reference(encoding, task):
    key = (encoding, task.name)
    if key not in REFERENCE:
        REFERENCE[key] = said(scaled(encoding, 1.0), task)
    return REFERENCE[key]


def said(encoding, task):
    found = answer(encoding, task, 200, 12)
    return found.verdict, found.theorem, found.exact


@given(
    st.sampled_from(OF_OFFSETS + OF_POSITIONS),
    st.sampled_from([Skip(1), Skip(3), Position(0), Position(2), Copy(), Skip(0)]),
    st.floats(-7, 5).map(lambda power: 10.0**power),
)
@settings(deadline=None, max_examples=20)
def test_no_unit_of_the_features_changes_the_verdict(encoding, task, factor):
    assert said(scaled(encoding, factor), task) == reference(encoding, task)


@given(st.sampled_from(OF_OFFSETS), st.lists(st.sampled_from([1e-7, 1e-3, 1.0, 1e4]), min_size=2, max_size=3))
@settings(deadline=None, max_examples=25)
def test_nor_does_one_unit_for_each_column(encoding, factors):
    for task in (Skip(1), Position(0)):
        assert said(scaled(encoding, *factors), task) == reference(encoding, task)


SLOW = ("linear:factor=1e5", "rope:scale=1e-5", "rope:scale=1e-7", "rope:scale=1e-12", "rope:frequencies=1",
        "sinusoidal:base=1e30", "yarn:factor=1e4")  # fmt: skip


@pytest.mark.parametrize("encoding", SLOW)
@pytest.mark.parametrize("task", ["prev", "skip3", "skip:offset=0"])
def test_slow_frequencies_transfer_by_their_formula(encoding, task):
    """What their kernels lose beside the peak may be far below what float64 shows: no number says `cannot`."""
    found = answer(encoding, task, 100_000)
    assert (found.verdict, found.exact) == (TRANSFERS, True) and found.margin > 0


def test_a_short_horizon_shows_no_clamped_positions():
    assert answer("sinusoidal", "prev", 200).verdict is TRANSFERS
    assert answer("sinusoidal:frequencies=2", "copy", 200).theorem == "targets at two lengths"
    found = answer(scaled(Sinusoidal(frequencies=2), 1.0), "prev", 200)  # somebody's own, beyond its training length
    assert found.theorem == "a kernel that was found" and found.until == 200 and not found.exact
