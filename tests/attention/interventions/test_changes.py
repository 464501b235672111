"""What each change does to operands, against obvious arithmetic, and what it refuses."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.attention.interventions.bands import Band, outside_bands
from poskernel.attention.interventions.changes import (
    Intervention,
    LogitKernel,
    MeanFilter,
    Operands,
    PlaneGain,
    PositionMeans,
    Temperature,
    Translation,
)
from poskernel.attention.interventions.planes import RotaryPlanes
from poskernel.errors import InputError
from poskernel.kernel import GridKernel, constant, tabulated

WIDTH, LENGTH = 6, 12
FREQUENCIES = torch.tensor([1.0, 0.3], dtype=torch.float64)


def rotary(seed: int = 0, only_length: int | None = None) -> dict[int, RotaryPlanes]:
    """Two planes in random directions of a head 6 wide, in layer 2."""
    generator = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64))[0]
    return {2: RotaryPlanes(FREQUENCIES, axes[:4].view(2, 2, WIDTH), only_length)}


def operands(dtype: torch.dtype = torch.float64, layer: int = 2) -> Operands:
    generator = torch.Generator().manual_seed(9)
    query, key = (torch.randn(2, heads, LENGTH, WIDTH, generator=generator, dtype=dtype) for heads in (4, 2))
    return Operands(layer, query, key, torch.arange(LENGTH))


def means() -> PositionMeans:
    given = operands()
    return PositionMeans({2: given.query.mean(0)}, {2: given.key.mean(0)})


@settings(max_examples=40, deadline=None)
@given(st.floats(-3, 3), st.integers(0, 100))
def test_a_gain_scales_the_projection_and_a_translation_turns_it(value: float, seed: int) -> None:
    given, planes = operands(), rotary(seed)
    first, second = planes[2].planes[1]
    gained = PlaneGain({(2, 3): (1,)}, value, planes).apply(given).query
    turned = Translation({(2, 3): (1,)}, value, planes).apply(given).query
    for t in range(LENGTH):
        query = given.query[0, 3, t]
        x, y = float(query @ first), float(query @ second)
        rest = query - x * first - y * second
        torch.testing.assert_close(gained[0, 3, t], rest + value * (x * first + y * second))
        angle = -0.3 * value
        x, y = x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)
        torch.testing.assert_close(turned[0, 3, t], rest + x * first + y * second)
    assert torch.equal(gained[:, :3], given.query[:, :3])


def test_gains_on_both_sides_are_squares_on_queries() -> None:
    given, planes = operands(), rotary()
    both = PlaneGain({(2, 0): (0, 1)}, 0.5, planes, sides="both").apply(given)
    assert torch.equal(both.query, PlaneGain({(2, 0): (0, 1)}, 0.25, planes).apply(given).query)
    axes = planes[2].planes.flatten(0, 1)
    halves = [part - 0.5 * part @ axes.T @ axes for part in (given.query[:, 0], given.key[:, 0])]
    torch.testing.assert_close(both.query[:, 0] @ given.key[:, 0].mT, halves[0] @ halves[1].mT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_changes_of_nothing_leave_every_bit_in_every_precision(dtype: torch.dtype) -> None:
    given, planes = operands(dtype), rotary()
    heads = [(2, head) for head in range(4)]
    every = dict.fromkeys(heads, (0, 1))
    nothing: list[Intervention] = [
        PlaneGain(every, 1.0, planes),
        Translation(every, 0.0, planes),
        Temperature(heads, 1.0),
        MeanFilter(heads, means(), list(Band), short=4.0),
        LogitKernel(heads, constant(0.0)),
    ]
    for change in nothing:
        assert change.idle(LENGTH)
        after = change.apply(given)
        assert torch.equal(after.query, given.query)
        assert torch.equal(after.key, given.key)
        assert after.added is None
        assert change.apply(operands(dtype, layer=1)).query.dtype == dtype


def test_other_layers_get_the_very_same_operands() -> None:
    given, heads = operands(layer=1), [(2, head) for head in range(4)]
    changes: list[Intervention] = [
        PlaneGain({(2, 0): (0,)}, 0.5, rotary()),
        Translation({(2, 0): (0,)}, 0.5, rotary()),
        Temperature(heads, 2.0),
        MeanFilter(heads, means(), [Band.SHORT], short=4.0),
        LogitKernel(heads, constant(1.0)),
    ]
    for change in changes:
        assert change.apply(given) is given
        assert not change.idle(LENGTH)
        assert change.chosen <= set(heads)


def test_a_mean_filter_takes_bands_of_the_means_and_leaves_content() -> None:
    given, measured = operands(), means()
    after = MeanFilter([(2, 0), (2, 1)], measured, [Band.SHORT], short=4.0).apply(given)
    for before, changed, mean, count in (
        (given.query, after.query, measured.query[2], 2),
        (given.key, after.key, measured.key[2], 1),
    ):
        filtered = mean - torch.stack([outside_bands(part, [Band.SHORT], 4.0) for part in mean])
        torch.testing.assert_close(changed[:, :count].mean(0), filtered[:count])
        torch.testing.assert_close((changed - changed.mean(0)), (before - before.mean(0)))
        assert torch.equal(changed[:, count:], before[:, count:])


def test_kernels_add_up_where_their_heads_meet() -> None:
    grid = GridKernel(torch.randn(LENGTH, LENGTH, dtype=torch.float64))
    given = LogitKernel([(2, 0), (2, 1)], grid).apply(operands())
    after = LogitKernel([(2, 1)], 2.0 * tabulated(torch.arange(12.0))).apply(given)
    offset = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).clamp(min=0)
    expected = torch.zeros(1, 4, LENGTH, LENGTH, dtype=torch.float64)
    expected[0, :2] = grid.values
    expected[0, 1] += 2.0 * offset
    torch.testing.assert_close(after.added, expected)


def test_what_is_refused() -> None:
    planes = rotary()
    with pytest.raises(InputError, match="plane 2 is not in layer 2: its planes are 0 to 1"):
        PlaneGain({(2, 0): (0, 2)}, 0.5, planes)
    with pytest.raises(InputError, match="a plane of head 3 in layer 2 is named twice"):
        Translation({(2, 3): (1, 1)}, 0.5, planes)
    with pytest.raises(InputError, match="layer 1 has no rotary planes"):
        PlaneGain({(1, 0): (0,)}, 0.5, planes)
    with pytest.raises(InputError, match="a gain of nan is no finite number"):
        PlaneGain({(2, 0): (0,)}, math.nan, planes)
    with pytest.raises(InputError, match="a shift of inf is no finite number"):
        Translation({(2, 0): (0,)}, math.inf, planes)
    with pytest.raises(InputError, match="a gain of inf"):
        Temperature([(2, 0)], math.inf)
    with pytest.raises(InputError, match="head 4 is not in layer 2: its heads are 0 to 3"):
        Temperature([(2, 4)], 2.0).apply(operands())
    narrow = Operands(2, torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 4), torch.arange(3))
    with pytest.raises(InputError, match="planes of layer 2 are those of heads 6 wide, not 4"):
        PlaneGain({(2, 0): (0,)}, 0.5, planes).apply(narrow)
    with pytest.raises(InputError, match="change with the length and were read at 8 positions, not 12"):
        Translation({(2, 0): (0,)}, 1.0, rotary(only_length=8)).apply(operands())
    Translation({(2, 0): (0,)}, 1.0, rotary(only_length=12)).apply(operands())
    PlaneGain({(2, 0): (0,)}, 0.5, rotary(only_length=8)).apply(operands())  # planes do not change
    with pytest.raises(InputError, match=r"heads 2 and 3 of layer 2 share a key head.*: choose head 3 too"):
        MeanFilter([(2, 2)], means(), [Band.SHORT])
    with pytest.raises(InputError, match="layer 0 has no measured means"):
        MeanFilter([(0, 2)], means(), [Band.SHORT])
    long = Operands(2, torch.zeros(1, 4, 13, WIDTH), torch.zeros(1, 2, 13, WIDTH), torch.arange(13))
    with pytest.raises(InputError, match="measured at 12 positions and position 12 is asked for"):
        MeanFilter([(2, 2), (2, 3)], means(), [Band.SHORT], short=4.0).apply(long)
    with pytest.raises(InputError, match="the kernel is known for 5 positions, not for 12"):
        LogitKernel([(2, 0)], tabulated(torch.ones(5))).apply(operands())
    with pytest.raises(InputError, match="the kernel holds logits that are not finite"):
        LogitKernel([(2, 0)], constant(math.inf)).apply(operands())
