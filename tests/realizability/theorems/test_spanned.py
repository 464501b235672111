"""Kernels that products of one's own features hold: squares about lines, functions of the offset."""

import time
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from own_cases import Line, answer, case, scaled
from own_tasks import ByKey, is_square, usual_except
from poskernel import characterize
from poskernel.encodings import AbsoluteEncoding
from poskernel.realizability.theorems.spanned import (
    line_of,
    offset_kernel,
    spanned,
    square_about,
    square_text,
    unchanging,
    whitening,
)
from poskernel.realizability.theorems.verdicts import SEARCH, Verdict
from poskernel.tasks import Skip


@dataclass(frozen=True)
class Waves(AbsoluteEncoding):
    """Cosines and sines of the position; the mixed ones are combinations of them."""

    name = "waves"
    rates: tuple[float, ...] = (1.0, 0.3, 0.1)
    mixed: bool = False

    def features(self, position, train_length):
        phase = position.double()[:, None] * torch.tensor(self.rates, dtype=torch.float64)
        plain = torch.cat([phase.cos(), phase.sin()], 1)
        mix = torch.randn(plain.shape[1], plain.shape[1], generator=torch.Generator().manual_seed(0)).double()
        return plain @ mix if self.mixed else plain


@dataclass(frozen=True)
class Bent(AbsoluteEncoding):
    """1, p, p^2 in other words, beside a wave; or without the square."""

    name = "bent"
    square: bool = True

    def features(self, position, train_length):
        at = position.double() / 50
        bent = at**2 if self.square else at.sqrt()
        return torch.stack([1 + at, at - bent, 2 - bent, at.cos()], 1)


def right_everywhere(asked, weights, length):
    """A slow reference: the strict argmax of every row, each by itself."""
    kernel, targets = asked.kernel(weights), asked.task.targets(length)
    logits = kernel.logits(torch.arange(length), torch.arange(length))
    return all(
        int(logits[row, : row + 1].argmax()) == key
        for row, key in zip(targets.query.tolist(), targets.key.tolist(), strict=True)
    )


@pytest.mark.parametrize("encoding", [Waves(), Waves(mixed=True), scaled(Waves(), 1e-5, 1.0, 300.0)])
@pytest.mark.parametrize("offset", [1, 3])
def test_waves_carry_an_offset(encoding, offset):
    found, asked = answer(encoding, Skip(offset), 10_000), case(encoding, Skip(offset))
    assert (found.verdict, found.theorem, found.exact, found.until) == (Verdict.TRANSFERS, SEARCH, False, 10_000)
    assert f"is offset {offset}" in found.reason and found.margin > 0 and float(found.weights.abs().max()) == 1
    assert right_everywhere(asked, found.weights, 200)


def test_it_does_not_take_long():
    started = time.monotonic()
    assert characterize(Waves(), "prev", 20, 10_000).verdict == "transfers"
    assert time.monotonic() - started < 20


def test_exceptions_that_become_rare_do_no_harm():
    rare = usual_except(lambda query: is_square(query) & (query > 20))
    found = answer(Waves(), rare, 10_000)
    assert found.verdict is Verdict.TRANSFERS and "right on 9" in found.reason


HALVES = ByKey(lambda query: query // 2)


@pytest.mark.parametrize("encoding", [Line(square=True), Bent(), scaled(Line(square=True), 1e-4, 7.0)])
@pytest.mark.parametrize(
    ("task", "words"), [(Skip(1), "-(i - 1 - j)^2"), (HALVES, "-(0.5 i - 0.25 - j)^2"), (Skip(4), "-(i - 4 - j)^2")]
)
def test_squares_about_a_line_carry_what_lies_on_it(encoding, task, words):
    found, asked = answer(encoding, task, 5000), case(encoding, task)
    assert (found.verdict, found.theorem, found.until) == (Verdict.TRANSFERS, SEARCH, 5000)
    assert found.reason.startswith(words) and right_everywhere(asked, found.weights, 200)


def test_without_the_square_there_is_none():
    assert square_about(case(Bent(square=False), "prev", 5000), 1.0, -1.0) is None
    assert square_about(case(Bent(), "prev", 5000), 1.0, -1.0) is not None
    assert spanned(case(Bent(square=False), "prev", 2000)) is None


def test_features_that_do_not_repeat_hold_no_function_of_the_offset():
    assert offset_kernel(case(Bent(square=False), "prev"), 1, 2000) is None
    assert answer(Waves((2 * torch.pi / 3,)), "prev").verdict is not Verdict.TRANSFERS  # offsets 1 and 4 are the same


@given(st.integers(1, 4).flatmap(lambda many: st.lists(st.floats(0.05, 3), min_size=many, max_size=many)))
@settings(deadline=None, max_examples=15)
def test_forms_that_do_not_change_along_diagonals(rates):
    values = case(Waves(tuple(rates)), "prev").feature_table(400)
    values = values @ whitening(values)
    forms = unchanging(values)
    assert len(forms) >= 2 * len({round(rate, 1) for rate in rates}) - len(rates) and len(forms) > 0
    for form in forms:
        kernel = values @ form @ values.T
        assert float((kernel[1:, 1:] - kernel[:-1, :-1]).abs().tril().max()) < 1e-5 * float(kernel.abs().max())


def test_lines_have_every_key_nearest():
    slope, intercept = line_of(case(Bent(), ByKey(lambda query: query // 3)), 1000)
    query = torch.arange(1000)
    assert bool(((slope * query + intercept).round() == query // 3).all())
    assert line_of(case(Bent(), ByKey(lambda query: query.double().sqrt())), 1000) is None


LINES = ((1.0, -1.0), (0.5, -0.25), (1.0, 0.0), (0.0, 0.0), (0.0, 3.0), (0.0, -3.0), (0.5, 2.0))


def test_squares_in_words():
    assert [square_text(*each) for each in LINES] == [
        "-(i - 1 - j)^2",
        "-(0.5 i - 0.25 - j)^2",
        "-(i - j)^2",
        "-(0 - j)^2",
        "-(3 - j)^2",
        "-(-3 - j)^2",
        "-(0.5 i + 2 - j)^2",
    ]
