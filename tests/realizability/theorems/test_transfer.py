"""Theorem 1 holds for random kernels, and fails where targets clash; the transfer operator needs the weights."""

import torch

from poskernel.encodings import Alibi, Learned, Nope, Rope, Sinusoidal
from poskernel.encodings.absolute import sinusoids
from poskernel.encodings.encoding import geometric_frequencies
from poskernel.kernel import BilinearKernel
from poskernel.random_streams import random_stream
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.theorems import transfer
from poskernel.realizability.theorems.check import Effort
from poskernel.tasks import TASKS, Copy, Reverse, Skip

CHEAP = ((Nope(), TASKS["prev"]), (Alibi(), Skip(0)), (Rope(), Copy()), (Learned(), TASKS["first"]))


def test_theorem_1_holds():
    check = transfer.theorem_1(Effort.DEFAULT, 0, cells=CHEAP, samples=10)
    assert check.holds and check.n == 30
    assert "without any realizing kernel: nope prev" in check.note


def test_theorem_1_covers_every_kind_of_family():
    assert {encoding.name for encoding, _ in transfer.CELLS} == {
        "nope", "alibi", "rope", "learned", "learned-iid", "sinusoidal",
    }  # fmt: skip


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


def test_realizing_weights_differ_and_realize():
    family, targets = Rope().family(20, 40), transfer.premise_rows(TASKS["skip3"], 20, 40)
    weights = transfer.realizing_weights(family, targets, 5, random_stream(0, "test"))
    assert len({tuple(each.tolist()) for each in weights}) == 5
    assert all(bool(row_margins(family.kernel(each), targets).right.all()) for each in weights)
    slopes = [float(each[1]) for each in transfer.realizing_weights(
        Alibi().family(20, 40), Skip(0).targets(40), 20, random_stream(0, "test"))]  # fmt: skip
    assert max(slopes) <= 0


def test_premises_are_the_rows_of_both_lengths():
    rows = transfer.premise_rows(Copy(), 20, 30)
    assert rows.query.tolist() == list(range(10, 30))
    assert rows.offset.tolist() == [10] * 10 + [15] * 10


def test_two_weights_share_a_block_and_part_later():
    check = transfer.transfer_acts_on_weights(Effort.DEFAULT, 0)
    assert check.holds and check.measured.startswith("12 null directions of 32 features")
    assert "alpha of prev 1.00 and 0.90" in check.measured


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
