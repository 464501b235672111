"""Theorem 1 holds for random kernels, and fails where targets clash; the transfer operator needs the weights."""

import pytest
import torch

from poskernel.encodings import ENCODINGS, T5, Alibi, Learned, LinearFamily, Nope, Rope, Sinusoidal
from poskernel.encodings.absolute import sinusoids
from poskernel.encodings.encoding import geometric_frequencies
from poskernel.kernel import BilinearKernel
from poskernel.random_streams import random_stream
from poskernel.realizability.theorems import transfer
from poskernel.realizability.theorems.check import Effort
from poskernel.tasks import TASKS, Copy, Reverse, Skip

CHEAP = ((T5(), TASKS["prev"]), (Alibi(), Skip(0)), (Rope(), Copy()), (Learned(), TASKS["first"]))


def test_theorem_1_holds():
    check = transfer.theorem_1(Effort.DEFAULT, 0, cells=CHEAP, samples=10)
    assert check.holds and check.n == 40
    assert "0 of 4 cells without a kernel" in check.measured


def test_theorem_1_covers_every_linear_encoding_with_one_family():
    linear = {
        each.name
        for each in ENCODINGS.values()
        if not (each.depends_on_length or each.no_kernel) and isinstance(each.family(20, 20), LinearFamily)
    }
    assert {encoding.name for encoding, _ in transfer.CELLS} == linear - {"nope"}
    assert transfer.theorem_1(Effort.DEFAULT, 0, samples=1).n == len(transfer.CELLS)


@pytest.mark.parametrize(("name", "drift"), [("dynamic", 0.1), ("longrope", 0.12)])
def test_a_family_that_changes_with_the_length_moves_the_old_rows(name, drift):
    """Every row of the longer length is right, yet the kernel is another: only the old rows tell."""
    check = transfer.theorem_1(Effort.DEFAULT, 0, cells=((ENCODINGS[name], TASKS["prev"]),), samples=3)
    assert not check.holds and check.measured.startswith("3 of 3 kernels fail")
    moved = float(check.measured.split("old rows move by ")[1].split()[0])
    assert moved == pytest.approx(drift, abs=0.02)


def test_a_cell_without_a_kernel_is_no_support():
    check = transfer.theorem_1(Effort.DEFAULT, 0, cells=(*CHEAP, (Nope(), TASKS["prev"])), samples=2)
    assert check.n == 8 and not check.holds
    assert "1 of 5 cells without a kernel" in check.measured and "nope prev" in check.note


def test_without_the_missing_hypothesis_theorem_1_fails():
    """The paper's own premises, met by a sinusoidal kernel: copy at 20 and 30, where rows 15 to 19 are wrong."""
    check = transfer.theorem_1(Effort.DEFAULT, 0, cells=((Sinusoidal(), Copy()),), length=30, samples=3)
    assert not check.holds
    assert check.measured.startswith("3 of 3 kernels fail")
    assert "5 of 15 rows wrong, least margin -19.9 (promised 0.975)" in check.measured


def test_reverse_breaks_it_too():
    check = transfer.theorem_1(Effort.DEFAULT, 0, cells=((Sinusoidal(), Reverse()),), length=24, samples=1)
    assert not check.holds and check.n == 1


def test_nothing_checked_is_nothing_held():
    check = transfer.theorem_1(Effort.DEFAULT, 0, cells=((Nope(), TASKS["prev"]),))
    assert not check.holds and check.n == 0


def pair(encoding, task, length=40):
    return transfer.Pair(encoding.family(20, 20), encoding.family(20, length), task, 20, length)


def test_realizing_weights_differ_and_realize():
    asked = pair(Rope(), TASKS["skip3"])
    weights = asked.weights(5, random_stream(0, "test"))
    assert len({tuple(each.tolist()) for each in weights}) == 5
    assert all(asked.transferred(each) is not None for each in weights)
    slopes = [float(each[1]) for each in pair(Alibi(), Skip(0)).weights(20, random_stream(0, "test"))]
    assert max(slopes) <= 0


def test_weights_without_the_premises_say_nothing():
    assert pair(Rope(), TASKS["prev"]).transferred(-torch.ones(32, dtype=torch.float64)) is None
    assert pair(Nope(), TASKS["prev"]).weights(3, random_stream(0, "test")) == []


def test_premises_are_the_rows_of_both_lengths():
    """Copy at 20 and 30: offset 10 on rows 10 to 19 as trained, offset 15 on the rows from 20 on."""
    (weights,) = pair(Sinusoidal(), Copy(), 30).weights(1, random_stream(0, "test"))
    found = pair(Sinusoidal(), Copy(), 30).transferred(weights)
    assert (found.wrong, found.rows) == (5, 15) and found.promised > 0 > found.found and found.drift <= 1e-12


def test_two_weights_share_a_block_and_part_later():
    check = transfer.transfer_acts_on_weights(Effort.DEFAULT, 0)
    assert check.holds and check.measured.startswith("12 null directions of 32 features")
    assert "alpha of prev 1.00 and 0.77" in check.measured
    assert float(check.measured.split(" and by ")[1].split()[0]) != 1.0  # not what the weights were scaled to


def test_features_of_full_column_rank_leave_no_such_pair():
    check = transfer.transfer_acts_on_weights(Effort.DEFAULT, 0, encoding=Sinusoidal(frequencies=3))
    assert not check.holds and check.measured.startswith("0 null directions of 6 features")
    assert not transfer.transfer_acts_on_weights(Effort.DEFAULT, 0, encoding=Learned()).holds


def test_relative_weights_give_the_kernel_of_the_offset():
    frequency, at = geometric_frequencies(1e4, 16), torch.arange(30)
    kernel = BilinearKernel(lambda position: sinusoids(position, frequency), transfer.relative_weights(frequency, 7))
    offset = (at[:, None] - at).double()
    wanted = ((offset[:, :, None] - 7) * frequency).cos().sum(2)
    torch.testing.assert_close(kernel.logits(at, at), wanted, rtol=0, atol=1e-12)
