import math

import pytest
import torch
from torch import Tensor, nn

from poskernel.encodings import Fire, ModelShape, parse_encoding
from poskernel.encodings.fire import network_start
from poskernel.errors import InputError


def fire(network: nn.Module, query: int, key: int, scale: float, threshold: float) -> Tensor:
    """The paper's formula, one pair at a time."""
    argument = math.log(scale * (query - key) + 1) / math.log(scale * max(threshold, query) + 1)
    return network(torch.tensor([argument], dtype=torch.float64)).detach()


def network_of(weights: Tensor, width: int) -> nn.Module:
    """The network that a kernel's weights describe."""
    network = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, 1)).double()
    slope, bias, output, last = weights.split([width, width, width, 1])
    state = {"0.weight": slope[:, None], "0.bias": bias, "2.weight": output[None], "2.bias": last}
    network.load_state_dict(state)
    return network


@pytest.mark.parametrize("threshold", [512.0, 7.5])
def test_kernels_are_the_paper_s_formula(threshold: float) -> None:
    encoding = Fire(width=5, scale=0.3, threshold=threshold)
    weights = torch.randn(16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grid, network = encoding.family(8, 20).kernel(weights).transfer(20), network_of(weights, 5)
    for query in range(20):
        for key in range(query + 1):
            expected = float(fire(network, query, key, 0.3, threshold))
            assert float(grid[query, key]) == pytest.approx(expected, abs=1e-12)


def test_below_the_threshold_the_kernel_is_one_of_the_offset_and_beyond_it_is_not() -> None:
    weights = network_start(32)
    far, near = (Fire(threshold=threshold).family(20, 20).kernel(weights) for threshold in (512.0, 10.0))
    assert far.profile(80) is not None
    assert near.profile(11) is not None  # positions 0 to 10
    assert near.profile(12) is None
    profile, grid = near.profile(11), near.transfer(11)
    assert profile is not None
    for query in range(11):
        torch.testing.assert_close(grid[query, : query + 1].flip(0), profile[: query + 1])
    longer = near.transfer(40)
    assert not torch.allclose(longer[39, 35:40], longer[12, 8:13])


def test_a_network_without_its_biases_would_be_linear() -> None:
    """So they are part of the family: with them switched off every kernel is a multiple of one function."""
    encoding, weights = Fire(width=3), torch.zeros(10, dtype=torch.float64)
    weights[:3], weights[6:9] = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.3, 4.0, -1.0])
    profile = encoding.family(20, 80).kernel(weights).profile(80)
    straight = torch.log1p(0.1 * torch.arange(80).double())
    assert profile is not None
    torch.testing.assert_close(profile / profile[-1], straight / straight[-1], atol=1e-12, rtol=0)


def test_a_fit_starts_from_the_same_network_every_time() -> None:
    start = network_start(32)
    assert start.shape == (97,)
    assert torch.equal(start, Fire().family(20, 20).start())
    assert bool((start[:64].abs() <= 1).all())
    assert bool((start[64:].abs() <= 32**-0.5).all())
    assert len(start.unique()) == 97


def test_the_module_is_a_kernel_of_the_family_in_every_head() -> None:
    torch.manual_seed(0)
    for threshold in (512.0, 9.0):
        encoding = Fire(width=6, threshold=threshold)
        module = encoding.module(ModelShape(32, 2, 20))
        assert {name for name, _ in module.named_parameters()} >= {"scale", "threshold_factor", "network.0.bias"}
        bias, state = module(torch.arange(30)).bias, module.state_dict()
        assert bias is not None
        for head in range(2):
            parts = [state["network.0.weight"][:, 0], state["network.0.bias"]]
            parts += [state["network.2.weight"][head], state["network.2.bias"][head : head + 1]]
            expected = encoding.family(20, 30).kernel(torch.cat(parts).double()).transfer(30)
            torch.testing.assert_close(
                bias[head].double().tril(), expected.nan_to_num(neginf=0).tril(), atol=1e-5, rtol=1e-5
            )


def test_all_of_the_module_is_trained() -> None:
    torch.manual_seed(0)
    module = Fire(threshold=9.0).module(ModelShape(32, 2, 20))
    bias = module(torch.arange(30)).bias
    assert bias is not None
    (bias**2).sum().backward()
    assert all(weight.grad is not None and bool(weight.grad.abs().sum() > 0) for weight in module.parameters())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fire:width=0", "width of FIRE is 0"),
        ("fire:scale=0", "scale of FIRE is 0.0"),
        ("fire:threshold=-1", "threshold of FIRE is -1.0"),
    ],
)
def test_impossible_parameters_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_encoding(text)
