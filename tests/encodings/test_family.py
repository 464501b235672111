import pytest
import torch
from torch import Tensor

from poskernel.encodings import BilinearFamily, RelativeFamily
from poskernel.encodings.family import causal_offsets, checked
from poskernel.errors import InputError

EYE = torch.eye(4, dtype=torch.float64)


def relative(values: Tensor) -> RelativeFamily:
    """A family whose basis is wrong in some way from the second offset on."""
    return RelativeFamily(lambda offset: values[: len(offset)], "mine")


def test_one_hot_bases_give_back_the_weights() -> None:
    relative_family = RelativeFamily(lambda offset: EYE[offset], "mine")
    weights = torch.arange(1.0, 5.0, dtype=torch.float64)
    assert torch.equal(relative_family.kernel(weights).profile(4), weights)  # type: ignore[arg-type]
    bilinear_family = BilinearFamily(lambda position: EYE[position], "mine")
    matrix = torch.arange(16.0, dtype=torch.float64).reshape(4, 4)
    assert torch.equal(bilinear_family.kernel(matrix).logits(torch.arange(4), torch.arange(4)), matrix)
    assert bilinear_family.size == 16
    assert relative_family.size == 4


def test_future_pairs_repeat_offset_zero_on_the_grid() -> None:
    assert causal_offsets(3).reshape(3, 3).tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0]]


def test_a_long_profile_is_evaluated_in_blocks() -> None:
    seen: list[int] = []

    def basis(offset: Tensor) -> Tensor:
        seen.append(len(offset))
        return offset.double()[:, None]

    family = RelativeFamily(basis, "mine")
    seen.clear()
    profile = family.kernel(torch.tensor([2.0], dtype=torch.float64)).profile(200_000)
    assert profile is not None
    assert torch.equal(profile, 2 * torch.arange(200_000).double())
    assert max(seen) <= 1 << 16


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            torch.ones(1, 2, dtype=torch.complex128),
            "basis of encoding 'mine' is complex .*complex128.*: give its real and",
        ),
        (torch.ones(1), r"has shape \(1,\) for 1 positions: give \(1, features\)"),
        (torch.ones(2, 3), r"has shape \(2, 3\) for 1 positions"),
        (torch.ones(1, 0), r"has shape \(1, 0\) for 1 positions"),
        (torch.tensor([[1.0, float("nan")]]), "is nan at @ 0, column 1: mend the encoding's formula.$"),
        (torch.tensor([[float("inf")]]), "is inf at @ 0, column 0"),
    ],
)
def test_an_encoding_that_returns_nonsense_is_named(values: Tensor, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("@", "offset")):
        RelativeFamily(lambda offset: values, "mine")
    with pytest.raises(InputError, match=words.replace("basis", "features").replace("@", "position")):
        BilinearFamily(lambda position: values, "mine")


def test_nonsense_beyond_the_first_position_is_found_too() -> None:
    values = torch.ones(9, 2)
    values[5, 1] = float("nan")
    family = relative(values)
    with pytest.raises(InputError, match="is nan at offset 5, column 1"):
        family.grid_logits(torch.ones(1, 2, dtype=torch.float64), 9)


@pytest.mark.parametrize(("where", "horizon"), [(710, 700), (701, 700), (700, 690), (7100, 7000), (123_457, 120_000)])
def test_far_out_a_shorter_horizon_is_a_remedy_too(where: int, horizon: int) -> None:
    """The offset that was asked for is named, not the row of the block that it came in."""
    family = RelativeFamily(lambda offset: torch.where(offset < where, 1.0, float("inf"))[:, None], "mine")
    with pytest.raises(InputError, match=rf"is inf at offset {where}, column 0: .*\(horizon={horizon}\)"):
        family.values(torch.arange(where - 3, where + 3))


def test_columns_that_depend_on_the_positions_are_refused() -> None:
    """The natural mistake: one-hot features without a fixed number of classes."""
    family = BilinearFamily(torch.nn.functional.one_hot, "mine")
    with pytest.raises(InputError, match="has 5 columns for 5 positions but 1 for position 0 alone"):
        family.grid_logits(torch.ones(1, 1, 1, dtype=torch.float64), 5)


def test_integer_and_float32_features_are_taken_as_float64() -> None:
    assert checked(torch.ones(2, 1, dtype=torch.long), torch.arange(2), "x", "offset").dtype == torch.float64
    assert checked(torch.ones(2, 1), torch.arange(2), "x", "offset").dtype == torch.float64


def test_bounds_are_zero_where_the_encoding_says() -> None:
    family = RelativeFamily(lambda offset: EYE[offset], "mine", nonpositive=(1, 3))
    assert family.upper_bounds().tolist() == [float("inf"), 0, float("inf"), 0]
    assert BilinearFamily(lambda position: EYE[position], "mine").upper_bounds().isinf().all()
