"""What deep rows ask for: exact for built-in tasks, counted for others; only what vanishes counts as vanishing."""

import math

import pytest
import torch

from own_tasks import ByOffset, in_odd_block, is_cube, is_odd, is_power_of_two, is_square, usual_except
from poskernel.realizability.theorems.demand import Quantity, constant_part, demanded, vanishing
from poskernel.tasks import POSITIONAL_TASKS, Skip


@pytest.mark.parametrize(
    ("task", "quantity", "value"),
    [
        ("prev", Quantity.OFFSET, 1),
        ("skip5", Quantity.OFFSET, 5),
        ("prev", Quantity.KEY, None),
        ("first", Quantity.KEY, 0),
        ("pos5", Quantity.KEY, 5),
        ("first", Quantity.OFFSET, None),
        ("copy", Quantity.OFFSET, None),
        ("copy", Quantity.KEY, None),
        ("reverse", Quantity.OFFSET, None),
        ("reverse", Quantity.KEY, None),
    ],
)
def test_built_in_tasks_are_known_exactly(task, quantity, value):
    found = demanded(POSITIONAL_TASKS[task], 20, 1000, quantity)
    assert found.exact and found.settles == (value is not None)
    if value is not None:
        assert found.value == value and found.share == 1


@pytest.mark.parametrize("rare", [is_square, is_power_of_two, is_cube])
def test_exceptions_of_density_zero_vanish(rare):
    found = demanded(usual_except(rare), 20, 100_000)
    assert found.settles and found.value == 1 and not found.exact


@pytest.mark.parametrize(
    "task",
    [
        usual_except(is_odd),
        usual_except(in_odd_block),
        ByOffset(lambda query: query.double().log2().floor().clamp(min=0)),  # drifts
        ByOffset(lambda query: query // 2),  # grows
        usual_except(lambda query: query % 20 == 0),  # rare, but never vanishing
    ],
)
@pytest.mark.parametrize("horizon", [20_000, 100_000])
def test_what_does_not_vanish_never_settles(task, horizon):
    assert not demanded(task, 20, horizon).settles


def test_the_share_is_of_the_scored_rows_at_the_horizon():
    rows = range(20, 5000)
    squares = sum(round(row**0.5) ** 2 == row for row in rows)
    assert demanded(usual_except(is_square), 20, 5000).share == pytest.approx(1 - squares / len(rows))


def test_a_task_of_ones_own_is_counted_even_where_it_is_a_built_in_one():
    class MySkip(Skip):
        pass

    assert not demanded(MySkip(3), 20, 5000).exact
    assert demanded(MySkip(3), 20, 5000).settles


def test_a_slow_fall_decides_nothing():
    lengths = [2**power for power in range(10, 18)]
    shares = [1 / torch.tensor(float(length)).log().item() for length in lengths]
    assert vanishing(lengths, shares)[0] is None
    assert vanishing(lengths, [0.5] * 8)[0] is False
    assert vanishing(lengths, [length**-0.5 for length in lengths])[0] is True
    for slow in (lambda n: 0.76 * math.log(n) ** -0.5, lambda n: 1 / math.log(math.log(n)), lambda n: n**-0.03):
        assert vanishing(lengths, [slow(length) for length in lengths])[0] is None


def test_sums_of_two_squares_are_rare_too_slowly_to_tell():
    """A density-zero set whose share, 0.76 / sqrt(ln n), is 24% at 1e5."""
    squares = torch.arange(320) ** 2
    sums = torch.zeros(2 * 320**2 + 1, dtype=torch.bool)
    sums[(squares[:, None] + squares).flatten()] = True
    found = demanded(usual_except(lambda query: sums[query]), 20, 100_000)
    assert found.settles is None and 0.7 < found.share < 0.8


@pytest.mark.parametrize("horizon", [95_000, 100_000, 105_000, 200_000])
def test_blocks_that_come_back_are_not_taken_for_vanishing(horizon):
    """Exceptions on [10^k, 1.05 x 10^k): their share falls like 1 / n between two blocks and never vanishes."""
    blocks = usual_except(lambda query: query < 1.05 * 10 ** (query.clamp(min=1).double().log10() + 1e-12).floor())
    assert demanded(blocks, 20, horizon).settles is not True


def test_a_share_that_has_just_begun_to_fall_decides_nothing():
    stopped = usual_except(lambda query: is_odd(query) & (query < 20_000))
    assert demanded(stopped, 20, 22_000).settles is None and demanded(stopped, 20, 20_000).settles is False


def test_one_or_two_lengths_with_exceptions_show_no_tendency():
    lengths = [100, 200, 400, 800]
    few = ([0.0, 0.0, 0.0, 0.2], [0.0, 0.0, 0.0, 0.05], [0.0, 0.0, 0.02, 0.01], [0.0, 0.3, 0.0, 0.3])
    for shares in few:
        settles, how = vanishing(lengths, shares)
        assert settles is None and "too few" in how
    assert vanishing(lengths, [0.0, 0.4, 0.4, 0.4])[0] is False
    assert vanishing(lengths, [0.0, 0.02, 0.01, 0.005])[0] is None  # it has risen once, and may again
    assert vanishing(lengths, [0.1, 0.0, 0.0, 0.0])[0] is True


def squares_or_every(step):
    """Offset 2 on squares and on every so many rows: a share that falls, and not to 0."""
    return usual_except(lambda query: (is_square(query) | (query % step == 0)) & (query > 20))


@pytest.mark.parametrize(
    ("step", "train_length", "horizon"),
    [
        (50, 20, 100_000),
        (100, 20, 100_000),
        (200, 20, 100_000),
        (500, 20, 100_000),
        (50, 20, 10_000),
        (100, 20, 10_000),
        (200, 20, 10_000),
        (100, 20, 1000),
        (100, 1000, 10_000),  # few lengths, of which the first rows that count hide a part
        (100, 1000, 100_000),
        (1000, 20, 1_000_000),
    ],
)
def test_rare_exceptions_that_come_back_for_ever_do_not_settle(step, train_length, horizon):
    found = demanded(squares_or_every(step), train_length, horizon)
    assert found.settles is None
    assert "no limit can be told" in found.reason or "too few" in found.reason


@pytest.mark.parametrize("horizon", [10_000, 15_000, 20_000, 100_000, 200_000])
@pytest.mark.parametrize("train_length", [10, 20, 40])
def test_squares_alone_settle(train_length, horizon):
    assert demanded(usual_except(lambda query: is_square(query) & (query > 20)), train_length, horizon).settles


def test_primes_thin_out_too_slowly_to_tell():
    """A share of 1 / ln n tends to 0; up to a million it looks like many others that do not."""
    sieve = torch.ones(1_000_001, dtype=torch.bool)
    sieve[:2] = False
    for number in range(2, 1001):
        if sieve[number]:
            sieve[number * number :: number] = False
    for horizon in (10_000, 100_000, 1_000_000):
        assert demanded(usual_except(lambda query: sieve[query]), 20, horizon).settles is None


@pytest.mark.parametrize(("constant", "power"), [(0.0, 0.5), (0.002, 0.5), (0.01, 1.5), (0.0, 0.25), (0.001, 2 / 3)])
def test_the_fit_finds_the_constant_it_was_made_with(constant, power):
    rows = torch.arange(20, 40_000, dtype=torch.float64)
    share = (constant + 0.3 * rows**-power).cumsum(0) / (rows - 19)
    counted = [(length, float(share[length - 21])) for length in (40_000 // 2**each for each in range(8, -1, -1))]
    part, error = constant_part(counted, 20)
    assert part == pytest.approx(constant / counted[-1][1], abs=0.04) and 0 <= error < 0.02


def test_noise_widens_the_error_of_the_fit():
    """Rows drawn at random at rate q^-1/2: a sample of them leaves more open than a law."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.arange(20, 40_000, dtype=torch.float64)
    drawn = torch.rand(len(rows), generator=generator, dtype=torch.float64) < 0.5 * rows**-0.5
    lengths = [40_000 // 2**each for each in range(8, -1, -1)]
    errors = []
    for rate in (0.5 * rows**-0.5, drawn.double()):
        share = rate.cumsum(0) / (rows - 19)
        errors.append(constant_part([(length, float(share[length - 21])) for length in lengths], 20)[1])
    assert errors[1] > 10 * errors[0]


def test_a_fit_takes_five_lengths():
    lengths = [1000 * 2**power for power in range(6)]
    shares = [length**-0.5 for length in lengths]
    assert vanishing(lengths, shares)[0] is True
    settles, how = vanishing(lengths[:4], shares[:4])
    assert settles is None and "exceptions at 4 lengths" in how
