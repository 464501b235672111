import pytest
import torch

from poskernel.encodings import Alibi, ModelShape
from poskernel.encodings.bias import alibi_slopes

# The slopes of the ALiBi paper and its published code: for 8 heads 1/2 ... 1/256; for other numbers those of the next
# lower power of two, then every other slope of twice that power.
GOLDEN = {
    1: [2**-8],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    8: [2**-h for h in range(1, 9)],
    12: [*(2**-h for h in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
    16: [2 ** (-h / 2) for h in range(1, 17)],
}


@pytest.mark.parametrize("heads", GOLDEN)
def test_slopes_are_those_of_the_paper(heads: int) -> None:
    assert alibi_slopes(heads).tolist() == pytest.approx(GOLDEN[heads], rel=1e-15)


@pytest.mark.parametrize("heads", range(1, 40))
def test_every_number_of_heads_has_distinct_slopes(heads: int) -> None:
    slopes = alibi_slopes(heads).tolist()
    assert len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


def test_no_heads_no_slopes() -> None:
    with pytest.raises(ValueError, match="0 heads have no slopes: give at least 1"):
        alibi_slopes(0)


def test_the_bias_falls_with_the_offset() -> None:
    bias = Alibi().module(ModelShape(64, 4, 20))(torch.arange(6)).bias
    assert bias is not None
    assert bias.shape == (4, 6, 6)
    assert bias[0, 5].tolist() == [-1.25, -1.0, -0.75, -0.5, -0.25, 0.0]
    # Every head's bias is a kernel of the family: c = 0 and a negative slope.
    for head, slope in enumerate(GOLDEN[4]):
        family = Alibi().family(20, 6)
        expected = family.kernel(torch.tensor([0.0, -slope], dtype=torch.float64)).transfer(6)
        torch.testing.assert_close(bias[head].double().tril(), expected.nan_to_num(neginf=0).tril())


def test_the_slope_is_bounded_unless_freed() -> None:
    assert Alibi().family(20, 20).upper_bounds().tolist() == [float("inf"), 0]
    assert Alibi(free_slope=True).family(20, 20).upper_bounds().isinf().all()
