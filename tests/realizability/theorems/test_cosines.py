"""Sums of cosines about one offset: the kernel that the formula promises is the encoding's own."""

import pytest
import torch

from own_cases import answer, case
from own_tasks import ByOffset
from poskernel.realizability.theorems.cosines import cosine_peak, cosine_sum
from poskernel.realizability.theorems.verdicts import Verdict


def test_cosine_sum_is_the_rotary_kernel_at_an_offset():
    asked = case("sinusoidal", "skip3")
    kernel = asked.kernel(cosine_sum(asked.feature_table(4)[3]))
    theta = [1e4 ** (-k / 16) for k in range(16)]
    expected = sum(torch.tensor(rate * (7 - 2 - 3)).cos() for rate in theta)
    assert float(kernel.logits(torch.tensor([7]), torch.tensor([2]))) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("name", ["rope", "linear", "yarn", "llama3", "ntk", "partial", "p-rope", "sinusoidal"])
@pytest.mark.parametrize("offset", [0, 1, 7])
def test_deep_rows_of_the_kernel_itself_lose_what_was_said(name, offset):
    """Far beyond the training length, on the encoding's own features: the peak is there, with the margin given."""
    asked = case(name, f"skip:offset={offset}", 3000)
    found = cosine_peak(asked)
    row = torch.tensor([3000])
    logits = asked.kernel(found.weights).logits(row, torch.arange(3001))[0]
    best = logits.topk(2)
    assert int(best.indices[0]) == 3000 - offset
    assert float(best.values[0] - best.values[1]) == pytest.approx(found.margin, rel=1e-6)


def test_other_encodings_have_none():
    for name in ("xpos", "alibi", "learned", "t5"):
        assert cosine_peak(case(name, "prev")) is None
    assert cosine_peak(case("rope", "first")) is None  # no offset settles


def test_what_float64_does_not_show_is_said():
    seen, unseen = cosine_peak(case("rope", "prev")), cosine_peak(case("rope:scale=1e-7", "prev"))
    assert seen.weights is not None and "float64" not in seen.reason
    assert unseen.weights is None and 0 < unseen.margin < 1e-13 and "less than float64 tells" in unseen.reason
    far = cosine_peak(case("rope:frequencies=1", "prev", 1_000_000))  # 710 positions are 113 turns, nearly
    assert far.weights is not None and "float64" in far.reason and far.exact


def test_trained_rows_that_ask_for_something_else_are_looked_at():
    def task(early):
        return ByOffset(lambda query: torch.where(query < 10, early, 12).clamp(max=query))

    assert cosine_peak(case("rope", task(1))) is None  # near rows take the offset nearest to 12
    assert answer("rope", task(1)).verdict is Verdict.TRANSFERS  # by the programme
    whole = ByOffset(lambda query: query.clamp(max=12))
    found = cosine_peak(case("rope:scale=0.1", whole))
    assert found.verdict is Verdict.TRANSFERS and found.margin > 0
