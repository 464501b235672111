"""Exact columns: where float64 holds every product and difference, and where a lost digit hides a kernel."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.encodings import Learned, Shaw
from poskernel.encodings.family import BilinearFamily, RelativeFamily
from poskernel.realizability.exactness import digits, exact_columns

SHORT = 2**52


def of_offsets(*columns):
    return RelativeFamily(lambda offset: torch.stack([column(offset.double()) for column in columns], 1), "own")


def of_positions(*columns):
    return BilinearFamily(lambda position: torch.stack([column(position.double()) for column in columns], 1), "own")


SIZES = st.one_of(st.integers(-40, 40).map(float), st.sampled_from([0.3, -0.6, 1e-300, 5e-324, 1e300, 2.0**60, 0.1]))


@given(st.lists(SIZES, min_size=1, max_size=5))
@settings(deadline=None)
def test_the_digits_of_a_column_by_whole_numbers(entries):
    found = digits(np.array(entries)[:, None])
    sizes = [abs(Fraction(entry)) for entry in entries if entry]
    if not sizes:
        assert (found.span[0], found.count[0]) == (0, 0)
        return
    step = Fraction(float(found.step[0]))
    assert math.log2(step).is_integer() and all((size / step).denominator == 1 for size in sizes)
    assert any((size / step / 2).denominator != 1 for size in sizes)  # and no larger power of 2 does it
    if found.span[0] < SHORT:
        assert found.span[0] == max(sizes) / step
    assert found.least[0] == min(sizes)
    if math.isfinite(found.count[0]):
        unit = max(sizes) / int(found.count[0])
        assert all((size / unit).denominator == 1 for size in sizes)


@given(st.lists(SIZES, min_size=2, max_size=5))
@settings(deadline=None)
def test_differences_of_an_exact_column_are_those_of_a_multiple_of_it(entries):
    """In truth, so that no proof by whole numbers rests on a digit that was lost."""
    table = torch.tensor(entries, dtype=torch.float64)
    family = of_offsets(lambda offset: table[offset.long()])
    if not exact_columns([family], [len(entries) - 1])[0]:
        return
    pairs = list(product(entries, repeat=2))
    for first, second in pairs:
        shown, true = Fraction(first - second), Fraction(first) - Fraction(second)
        assert abs(shown - true) <= abs(true) * Fraction(1, 2**53)
        assert (shown == 0) == (true == 0)


def test_whole_numbers_and_multiples_of_one_number_are_exact():
    assert exact_columns([of_offsets(lambda d: d, lambda d: d**2)], [100_000]).all()
    assert exact_columns([of_offsets(lambda d: 0.3 * d.eq(2).double(), lambda d: 1e9 + d)], [20]).all()
    for size in (1.0, 0.1, 1e-7):
        scaled = BilinearFamily(lambda position, size=size: size * Learned().features(position, 6), "scaled")
        assert exact_columns([scaled], [10]).all()
    assert exact_columns([Shaw(4).family(20, 20)], [50]).all()


@pytest.mark.parametrize(
    "column",
    [
        lambda d: d.log1p(),
        lambda d: d / 3,
        lambda d: (1e-7 * d).cos(),
        lambda d: d**4,  # beyond 2^53 at the far end
        lambda d: 9 - 8 * d.eq(1).double() + 2.0**-52 * d.eq(1).double(),
    ],
)
def test_what_differences_round_is_not_exact(column):
    assert exact_columns([of_offsets(lambda d: d, column)], [20_000]).tolist() == [True, False]


def test_products_need_twice_the_digits():
    wide, narrow = (lambda d: d + 2.0**-30 * d.eq(1).double()), (lambda d: d)
    assert exact_columns([of_offsets(wide, narrow)], [20]).all()
    assert exact_columns([of_positions(wide, narrow)], [20]).tolist() == [False, True, True, True]
    assert not exact_columns(
        [of_positions(lambda d: 1e-200 * d.eq(1).double())], [20]
    ).any()  # the product is 0 in float64


def test_units_of_two_lengths_are_looked_at_together():
    """0.3 and 0.1 are each exact; whether a multiple of one is one of the other float64 does not say."""
    one, other = of_offsets(lambda d: 0.3 * d.eq(1).double()), of_offsets(lambda d: 0.1 * d.eq(1).double())
    assert exact_columns([one, one], [5, 9]).all() and not exact_columns([one, other], [5, 9]).any()
