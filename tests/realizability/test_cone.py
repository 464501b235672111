"""Witness, proof or neither, whatever the size of the features."""

import numpy as np
import pytest
import torch

from own_tasks import ByOffset
from poskernel.encodings import Alibi, Learned, LinearInterpolation, PartialRope, Rope, Shaw, Sinusoidal
from poskernel.encodings.family import BilinearFamily, LinearFamily, RelativeFamily
from poskernel.errors import InputError
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.cone import Programme, decide, largest_logit, phase_rate, positive_rows, programme
from poskernel.tasks import POSITIONAL_TASKS, Targets


def powers(*exponents, scale=1.0):
    def basis(offset):
        return torch.stack([scale * offset.double() ** power for power in exponents], 1)

    return RelativeFamily(basis, "powers")


def asked(family, task, rate=0.0, length=20):
    return programme([family], [POSITIONAL_TASKS[task].targets(length)], rate)


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 1e5])
def test_features_of_any_size_hold_the_same_kernels(scale):
    found = decide(asked(powers(1, 2, scale=scale), "first"), 10.0)
    assert found.margin > 0 and np.abs(found.weights).max() <= 1 + 1e-12
    rows = asked(powers(1, 2, scale=scale), "first").rows
    assert found.margin == float((rows @ found.weights).min())
    none = decide(asked(powers(1, scale=scale), "prev"), 10.0)
    assert none.empty and none.weights is None


@pytest.mark.parametrize("sizes", [(1e-9, 1.0), (1e6, 1e-6)])
def test_columns_of_very_different_size_do_not_hide_a_kernel(sizes):
    def basis(offset):
        return torch.stack([sizes[0] * offset.double(), sizes[1] * offset.double() ** 2], 1)

    assert decide(asked(RelativeFamily(basis, "two sizes"), "prev"), 10.0).margin > 0


def test_equal_features_prove_a_tie_unless_they_are_rounded():
    found = decide(asked(powers(0), "prev"), 10.0)
    assert found.empty and "equal features" in found.why
    rounded = decide(asked(powers(0), "prev", rate=1.0), 10.0)
    assert not rounded.empty and "does not tell" in rounded.why


LEAST_STEP = 2.0**-52


@pytest.mark.parametrize("step", [2.0**-40, 2.0**-46, LEAST_STEP])
def test_a_kernel_smaller_than_rounding_is_never_excluded(step):
    """(-1, 1) is `step` at offset 1 and 0 elsewhere, in float64 too: a bound on the margin says nothing of it."""

    def ramp(offset):
        near = offset.double() % 64
        return torch.stack([near, near + step * (offset == 1)], 1)

    def flat(offset):
        """Offset 1 lies between the others, so that all differences are the same but for what rounding takes."""
        around = torch.where(offset == 1, 1.0, 1 + 8 * (-1.0) ** offset).double()
        return torch.stack([around, around + step * (offset == 1)], 1)

    for basis in (ramp, flat):
        family, targets = RelativeFamily(basis, "two alike"), POSITIONAL_TASKS["prev"].targets(20)
        kernel = family.kernel(torch.tensor([-1.0, 1.0], dtype=torch.float64))
        assert row_margins(kernel, targets).share == 1
        found = decide(programme([family], [targets]), 10.0)
        assert not found.empty and (found.weights is not None or "neither found nor excluded" in found.why)


def test_a_bound_of_the_size_of_rounding_excludes_nothing():
    def basis(offset):
        wave = (offset.double() / 7).sin()
        return torch.stack([wave, 0.3 * wave], 1)

    family = RelativeFamily(basis, "one wave twice")
    for rate in (0.0, 1.0):
        found = decide(asked(family, "skip3", rate), 10.0)
        assert not found.empty and found.weights is None and "neither found nor excluded" in found.why


def test_products_that_round_alike_are_no_tie():
    """0.75 x (1.5 + 2 u) and 0.75 x (1.5 + 3 u) are one float64."""
    unit = 2.0**-52
    near, equal = ([1.5 + 2 * unit, 1.5 + 3 * unit, 0.75], [1.5, 1.5, 0.75])
    first = Targets(torch.tensor([2]), torch.tensor([0]))
    for values, tied in ((near, False), (equal, True), ([1.5, 2.0, 0.0], True)):
        table = torch.tensor(values, dtype=torch.float64)
        family = BilinearFamily(lambda position, table=table: table[position][:, None], "one feature")
        held = programme([family], [first])
        assert not held.rows.any(axis=1).all() and held.tied == tied
        found = decide(held, 10.0)
        assert found.empty == tied and ("equal features" if tied else "does not tell") in found.why


def test_rows_of_the_least_numbers_are_brought_to_one_size():
    """2^-d beside 0 at offset 1: squares of its entries are 0, and counts of its unit are beyond float64."""
    family = RelativeFamily(lambda offset: torch.where(offset == 1, 0.0, 0.5 ** offset.double())[:, None], "halves")
    far = POSITIONAL_TASKS["prev"].targets(1001).rows(1000, 1001)
    held = programme([family], [far])
    found = decide(held, 10.0, accept=lambda weights: False)
    assert not found.empty and np.abs(held.rows[held.rows != 0]).min() < 1e-300
    both = Programme(np.vstack([held.rows, -held.rows]), held.upper, held.resolution, False)
    assert decide(both, 10.0).weights is None


@pytest.mark.parametrize("size", [1e308, 1.7e308])
def test_features_whose_differences_overflow_are_refused(size):
    family = RelativeFamily(
        lambda offset: torch.where(offset == 1, offset.double() * size, torch.tensor(-size, dtype=torch.float64))[
            :, None
        ],
        "huge",
    )
    with pytest.raises(InputError, match="'huge' are so large that their differences overflow"):
        asked(family, "prev")
    squares = BilinearFamily(lambda position: 1e160 * position.double()[:, None], "huge")
    with pytest.raises(InputError, match="scale them down"):
        asked(squares, "prev")


def test_weights_that_rounding_could_undo_are_no_witness():
    rows = np.array([[1.0, 0.0], [-1.0, 1e-12]])
    weights = np.array([1e-13, 1.0])
    for resolution, sound in ((0.0, True), (1e-12, False)):
        held = Programme(rows, np.full(2, np.inf), np.full(2, resolution), resolution > 0)
        assert positive_rows(held, weights) == sound


def test_refused_witnesses_are_not_returned():
    found = decide(asked(powers(1, 2), "first"), 10.0, accept=lambda weights: False)
    assert found.weights is None and not found.empty


def test_no_time_is_named():
    found = decide(asked(powers(0.5, 1, 2, 3), "prev"), 1e-9)
    assert found.weights is None and not found.empty and "limit of 1e-09 s" in found.why


def test_multiples_of_the_last_place_are_not_called_exact():
    """cos(1e-7 d) changes by a few units in its last place: whole numbers of them, and no proof of anything."""

    def basis(offset):
        phase = 1e-7 * offset.double()
        return torch.stack([phase.cos(), phase.sin()], 1)

    held = asked(RelativeFamily(basis, "slow"), "prev")
    assert held.resolution[0] > 0
    found = decide(held, 10.0)
    assert not found.empty
    assert asked(powers(0, 1), "prev").resolution.tolist() == [0, 0]


def test_how_fast_phases_turn():
    turning = {
        Rope(): 1,
        Rope(scale=50.0): 50,
        PartialRope(): 1,
        Sinusoidal(): 1,
        LinearInterpolation(factor=4.0): 0.25,
    }
    assert {encoding: phase_rate(encoding, 20) for encoding in turning} == turning
    assert not any(phase_rate(encoding, 20) for encoding in (Learned(), Alibi(), Shaw()))


def test_fast_phases_lose_more_to_rounding():
    """At 2^54 radians a position float64 knows nothing of the phase: neither a kernel nor a proof."""
    slow, fast = (asked(Rope(scale=scale).family(20, 20), "prev", rate=scale).resolution for scale in (0.5, 1e6))
    assert (
        slow.max() == asked(Rope().family(20, 20), "prev", rate=1.0).resolution.max() and fast.max() > 1e5 * slow.max()
    )
    scale = 18014398509482372.0
    family, targets = Rope(frequencies=1, scale=scale).family(5, 5), ByOffset(lambda row: row.clamp(max=3)).targets(5)
    assert decide(programme([family], [targets], 1.0), 10.0).empty  # what a rate of 1 would have it prove
    found = decide(programme([family], [targets], scale), 10.0)
    assert not found.empty and found.weights is None


def test_where_no_row_asks_for_anything_all_weights_do():
    alone = Targets(torch.tensor([0]), torch.tensor([0]))
    found = decide(programme([powers(1, 2)], [alone]), 10.0)
    assert found.weights.tolist() == [0, 0] and found.margin is None and not found.empty
    assert decide(programme([powers(1, 2)], [alone]), 10.0, accept=lambda weights: False).weights is None


class Pairs(LinearFamily):
    """A family known by its design alone."""

    shape = (2,)

    def __init__(self, of):
        self.of = of

    def kernel(self, weights):
        return self.of.kernel(weights)

    def grid_logits(self, weights, length):
        return self.of.grid_logits(weights, length)

    def grid_gradient(self, gradient):
        return self.of.grid_gradient(gradient)

    def design(self, query, key):
        return self.of.design(query, key)


def test_the_largest_logit_by_a_plain_loop():
    for family in (powers(1, 2), Learned().family(4, 4), Pairs(powers(1, 2))):
        pairs = [(query, key) for query in range(5) for key in range(5 if family.size == 16 else query + 1)]
        rows = torch.cat([family.design(torch.tensor([query]), torch.tensor([key])) for query, key in pairs])
        assert largest_logit(family, 4).tolist() == rows.abs().amax(0).tolist()
