import pytest
import torch
from torch import Tensor

from poskernel.encodings import NonlinearFamily
from poskernel.encodings.nonlinear import PAIRS_AT_A_TIME
from poskernel.errors import InputError


def squares(weights: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """w0^2 (i - j) + w1 i: no kernel of the offset unless w1 is 0."""
    return weights[:, :1] ** 2 * (query - key) + weights[:, 1:] * query


FAMILY = NonlinearFamily(squares, torch.tensor([1.0, 0.5]), "squares")
WEIGHTS = torch.tensor([3.0, 2.0], dtype=torch.float64)


def test_logits_stand_at_causal_pairs() -> None:
    kernel = NonlinearFamily(squares, torch.zeros(2), "squares", stationary_until=1).kernel(WEIGHTS)
    expected = [
        [float("-inf") if key > query else 9 * (query - key) + 2 * query for key in range(4)] for query in range(4)
    ]
    assert kernel.transfer(4).tolist() == expected
    assert kernel.logits(torch.tensor([0]), torch.tensor([3])).tolist() == [[0]]  # said of no pair, and masked
    assert kernel.profile(1) is not None
    assert kernel.profile(2) is None


def test_a_family_that_says_nothing_is_stationary_everywhere() -> None:
    profile = FAMILY.kernel(torch.tensor([3.0, 0.0], dtype=torch.float64)).profile(5)
    assert profile is not None
    assert profile.tolist() == [0, 9, 18, 27, 36]


def test_the_gradient_is_that_of_the_weights_at_hand() -> None:
    gradient = torch.zeros(1, 3, 3, dtype=torch.float64)
    gradient[0, 2, 0] = 1.0
    assert FAMILY.pull_back(WEIGHTS[None], gradient).tolist() == [[12.0, 2.0]]  # 2 w0 (i - j), i
    assert FAMILY.pull_back(2 * WEIGHTS[None], gradient).tolist() == [[24.0, 2.0]]
    assert not FAMILY.grid_logits(WEIGHTS[None], 3).requires_grad


def test_a_fit_starts_in_float64() -> None:
    assert FAMILY.start().dtype == torch.float64
    assert FAMILY.start().tolist() == [1.0, 0.5]
    assert FAMILY.shape == (2,)


def test_many_pairs_are_evaluated_a_part_at_a_time() -> None:
    seen: list[int] = []

    def counting(weights: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen.append(len(query))
        return squares(weights, query, key)

    kernel = NonlinearFamily(counting, torch.zeros(2), "counting").kernel(WEIGHTS)
    length = PAIRS_AT_A_TIME + 5
    profile = kernel.profile(length)
    assert profile is not None
    assert torch.equal(profile, 11.0 * torch.arange(length).double())
    assert seen == [PAIRS_AT_A_TIME, 5]


def test_a_logit_that_is_no_number_is_named() -> None:
    family = NonlinearFamily(lambda weights, query, key: weights[:, :1] / (query - 2), torch.ones(2), "broken")
    with pytest.raises(InputError, match="'broken' is inf at query 2, key 0: mend the encoding's formula"):
        family.kernel(WEIGHTS).transfer(4)
