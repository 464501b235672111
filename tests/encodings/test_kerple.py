import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.encodings import Encoding, KerpleLog, KerplePower, LinearFamily, ModelShape, NonlinearFamily
from poskernel.encodings.kerple import power, power_parameters, softplus_inverse
from poskernel.errors import InputError

FREE = KerpleLog(free_rate=True)


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


@given(st.floats(-4, 4), st.floats(-4, 4))
@settings(deadline=None, max_examples=40)
def test_kernels_are_the_paper_s_formulas(first: float, second: float) -> None:
    weights = torch.tensor([first, second], dtype=torch.float64)
    logarithmic = FREE.family(20, 40).kernel(weights).profile(40)
    powers = KerplePower().family(20, 40).kernel(weights).profile(40)
    assert logarithmic is not None
    assert powers is not None
    r1, r2 = softplus(first), softplus(second)
    exponent = 2 - 2 * math.exp(-r2)
    assert 0 < exponent < 2
    for offset in range(40):
        assert float(logarithmic[offset]) == pytest.approx(-r1 * math.log(1 + r2 * offset), rel=1e-9, abs=1e-12)
        assert float(powers[offset]) == pytest.approx(-r1 * offset**exponent, rel=1e-9, abs=1e-12)
    # Each falls with the offset from 0 on, so the row itself is every row's argmax.
    for profile in (logarithmic, powers):
        assert profile[0] == 0
        assert bool((profile.diff() < 0).all())


def test_a_fixed_rate_is_linear_with_a_sign_and_a_free_one_is_not() -> None:
    fixed, free = KerpleLog(rate=0.5).family(20, 20), FREE.family(20, 20)
    assert isinstance(fixed, LinearFamily)
    assert isinstance(free, NonlinearFamily)
    assert fixed.upper_bounds().tolist() == [0.0]
    profile = fixed.kernel(torch.tensor([-2.0], dtype=torch.float64)).profile(5)
    assert profile is not None
    assert profile.tolist() == pytest.approx([-2 * math.log(1 + 0.5 * offset) for offset in range(5)])
    same = free.kernel(torch.tensor([softplus_inverse(2.0), softplus_inverse(0.5)], dtype=torch.float64)).profile(5)
    assert same is not None
    torch.testing.assert_close(profile, same)


def test_a_free_fit_starts_at_the_rate() -> None:
    start = KerpleLog(rate=0.25, free_rate=True).family(20, 20).start()
    assert softplus(float(start[1])) == pytest.approx(0.25)


def test_the_gradient_of_the_power_is_finite_at_offset_zero() -> None:
    weights = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    power(power_parameters(weights), torch.arange(3.0, dtype=torch.float64)).sum().backward()
    assert weights.grad is not None
    assert bool(weights.grad.isfinite().all())


@pytest.mark.parametrize("encoding", [FREE, KerplePower()], ids=["log", "power"])
def test_the_module_is_a_kernel_of_the_family_in_every_head(encoding: Encoding) -> None:
    torch.manual_seed(0)
    module = encoding.module(ModelShape(64, 4, 20))
    (weights,) = module.parameters()
    assert weights.shape == (4, 2)
    assert len(weights.unique()) == 8
    bias = module(torch.arange(25)).bias
    assert bias is not None
    for head in range(4):
        expected = encoding.family(20, 25).kernel(weights[head].detach().double()).transfer(25)
        torch.testing.assert_close(
            bias[head].double().tril(), expected.nan_to_num(neginf=0).tril(), atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("value", [1e-6, 0.5, 1.0, 40.0])
def test_the_inverse_of_softplus(value: float) -> None:
    assert softplus(softplus_inverse(value)) == pytest.approx(value)


def test_an_impossible_rate_is_refused() -> None:
    with pytest.raises(InputError, match=r"rate of kerple-log is 0.0: give a positive number"):
        KerpleLog(rate=0.0)
