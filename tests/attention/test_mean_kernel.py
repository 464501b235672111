"""Mean kernels of a first layer: the mean of the logits over every sequence of tokens there is, one by one."""

import itertools

import pytest
import torch

from poskernel import alpha
from poskernel.attention.closed_form import ClosedFormKernel
from poskernel.attention.mean_kernel import doubled, mean_kernels
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import parse_encoding
from poskernel.errors import InputError
from poskernel.models.training import initial_model
from poskernel.models.transformer import Architecture, Norm
from poskernel.tasks import TASKS

VOCABULARY, LENGTH = 3, 5
EVERY_SEQUENCE = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))


def model_of(encoding, heads=2, layers=1, **changes):
    shape = Architecture(width=16, layers=layers, heads=heads, vocabulary=VOCABULARY, train_length=4, **changes)
    model = initial_model(shape, parse_encoding(encoding), 0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())) / 4)
    return model


@pytest.mark.parametrize(
    "encoding", ["rope", "learned", "sinusoidal", "nope", "alibi", "t5", "partial", "yarn:factor=4,original=2", "fire"]
)
@pytest.mark.parametrize("norm", [Norm.LAYER, Norm.SCALE])
def test_it_is_the_mean_over_every_sequence(encoding, norm):
    model = model_of(encoding, norm=norm)
    kernels, seen = mean_kernels(model, LENGTH), []
    places = torch.arange(LENGTH)
    TransformerSource(doubled(model)).forward(EVERY_SEQUENCE, seen.append)
    for head, kernel in enumerate(kernels):
        mean = seen[0].logits(head, places, places).mean(0)
        causal = places[:, None] >= places
        torch.testing.assert_close(kernel.logits(places, places)[causal], mean[causal].double(), atol=1e-6, rtol=1e-6)


def test_rotary_heads_are_closed_forms_at_any_length():
    (kernel,) = mean_kernels(model_of("rope", heads=1), 4)
    (longer,) = mean_kernels(model_of("rope", heads=1), 60)
    assert isinstance(kernel, ClosedFormKernel) and kernel.measured == 1
    torch.testing.assert_close(kernel.profile(60), longer.profile(60))


def test_without_positions_every_other_key_ties():
    (kernel,) = mean_kernels(model_of("nope", heads=1), 40)
    assert alpha(kernel, TASKS["skip3"], 20, 40) == 0 and alpha(kernel, TASKS["first"], 20, 40) == 0


def test_the_first_layer_alone_is_read():
    one, two = model_of("rope"), model_of("rope", layers=2)
    two.blocks[0].load_state_dict(one.blocks[0].state_dict())
    two.embedding.load_state_dict(one.embedding.state_dict())
    for mine, other in zip(mean_kernels(one, 9), mean_kernels(two, 9), strict=True):
        torch.testing.assert_close(mine.profile(9), other.profile(9))


def test_what_cannot_be_averaged_so_is_said():
    with pytest.raises(InputError, match="sees later keys"):
        mean_kernels(model_of("rope", causal=False), 5)
    with pytest.raises(InputError, match="token by token"):
        mean_kernels(model_of("shaw"), 5)
