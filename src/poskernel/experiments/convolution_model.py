"""A minimal attention-only transformer on a convolution: does its attention become the known kernel?

Each layer sees one number a position. What queries and keys see of it is norm(u x_t + c [+ p_t]), with a trained
direction u, a trained constant c and the encoding's p_t; the value is the number itself times one trained gain, so the
output can only be a weighted sum of earlier numbers. The gain starts at +1: with a negative start the weights would
have to be learnt upside down.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings import Encoding, ModelShape
from poskernel.models.generated import Convolution
from poskernel.models.optimization import Optimization, Schedule
from poskernel.models.transformer import Norm, turned
from poskernel.random_streams import random_stream

DIRECTION_SPREAD = 0.1
"""How strongly content enters queries and keys at the start, beside a constant of spread 1."""
EVALUATION_SEQUENCES = 256


@dataclass(frozen=True)
class Learner:
    """A model and how it is trained; the defaults are those of the recipe that was found to work."""

    task: Convolution
    encoding: Encoding
    norm: Norm = Norm.LAYER
    scrambled: bool = False
    """Whether positions are put through one fixed permutation: order is there, but offsets mean nothing."""
    layers: int = 1
    width: int = 32
    length: int = 64
    schedule: Schedule = field(
        default_factory=lambda: Schedule(steps=800, batch=64, learning_rate=1e-2, warmup=100, weight_decay=0.0)
    )


class ConvolutionLayer(nn.Module):
    """One attention layer from numbers to numbers."""

    def __init__(self, norm: Norm, width: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(DIRECTION_SPREAD * torch.randn(width))
        self.constant = nn.Parameter(torch.randn(width))
        self.norm = norm.module(width)
        self.query_key = nn.Linear(width, 2 * width)
        self.gain = nn.Parameter(torch.tensor(1.0))
        self.scale = width**-0.5


class ConvolutionModel(nn.Module):
    """Layers one after another; each adds nothing to what it reads, so two layers are two convolutions."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ConvolutionLayer(learner.norm, learner.width) for _ in range(learner.layers))
        self.position_module = learner.encoding.module(ModelShape(learner.width, 1, learner.length))
        position = torch.arange(learner.length)
        if learner.scrambled:
            position = torch.randperm(learner.length, generator=random_stream(0, "scrambled positions"))
        self.position: Tensor
        self.register_buffer("position", position, persistent=False)

    def forward(self, numbers: Float[Tensor, "sequence position"]) -> Float[Tensor, "sequence position"]:
        """Outputs."""
        for layer in self.layers:
            assert isinstance(layer, ConvolutionLayer)
            weights = attention(self.logits(layer, numbers))
            numbers = layer.gain * (weights @ numbers[..., None])[..., 0]
        return numbers

    def logits(
        self, layer: ConvolutionLayer, numbers: Float[Tensor, "sequence position"]
    ) -> Float[Tensor, "sequence query key"]:
        """Scaled logits of a layer in nats, before the mask."""
        placement = self.position_module(self.position)
        stream = numbers[..., None] * layer.direction + layer.constant
        stream = stream if placement.embedding is None else stream + placement.embedding
        query, key = layer.query_key(layer.norm(stream))[..., None, :].chunk(2, dim=-1)
        query, key, _ = turned(query, key, key, placement)
        product = layer.scale * (query[..., 0, :] @ key[..., 0, :].transpose(-1, -2))
        return product if placement.bias is None else product + placement.bias[0]


def attention(logits: Float[Tensor, "sequence query key"]) -> Float[Tensor, "sequence query key"]:
    """Softmax over the keys up to each query."""
    later = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
    return logits.masked_fill(later, float("-inf")).softmax(-1)


@dataclass(frozen=True, eq=False)
class Recovered:
    """What a model does on fresh sequences, over late rows: those that see every offset below `offsets`."""

    weights: Float[Tensor, " offset"]
    """Mean weight at each offset: after the softmax, or of the input-output Jacobian where there are more layers."""
    profile: Float[Tensor, " offset"] | None
    """g(offset) of the row-centred mean logits, nats; None where there are more layers."""
    stationarity: float | None
    """Share of the variance of those logits that g explains."""
    error: float
    """Mean squared error on late rows as a share of the variance of y."""


def train_learner(learner: Learner, seed: int, looks: tuple[int, ...]) -> dict[int, Recovered | None]:
    """Train, and look at what is recovered after some steps; None from where the loss was not finite."""
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(random_stream(seed, "init").get_state())
        model = ConvolutionModel(learner)
    optimization = Optimization(list(model.parameters()), learner.schedule)
    data, first = random_stream(seed, "data"), learner.task.support - 1
    found: dict[int, Recovered | None] = {}
    finite = True
    for step in range(learner.schedule.steps + 1):
        if step in looks:
            found[step] = recovered(model, learner, seed) if finite else None
        if step == learner.schedule.steps or not finite:
            continue
        x, y = learner.task.draw(data, learner.schedule.batch, learner.length)
        loss = optimization.step((model(x) - y)[:, first:].square().mean())
        finite = bool(torch.isfinite(torch.tensor(loss)))
    return found


def recovered(model: ConvolutionModel, learner: Learner, seed: int) -> Recovered:
    """What the model does on the evaluation sequences."""
    x, y = learner.task.draw(random_stream(seed, "evaluation"), EVALUATION_SEQUENCES, learner.length)
    offsets = learner.length // 2
    late = torch.arange(offsets, learner.length)
    was_training = model.training
    model.eval()
    profile: Tensor | None = None
    stationarity: float | None = None
    with torch.no_grad():
        error = float((model(x) - y)[:, late].square().mean() / y[:, late].var())
        if learner.layers == 1:
            (layer,) = model.layers
            assert isinstance(layer, ConvolutionLayer)
            logits = model.logits(layer, x)
            weights = attention(logits).mean(0)
            profile, stationarity = stationary_part(by_offset(logits.double().mean(0), late, offsets))
    if learner.layers > 1:
        weights = mean_jacobian(model, x)
    model.train(was_training)
    return Recovered(by_offset(weights.double(), late, offsets).mean(0), profile, stationarity, error)


def by_offset(
    matrix: Float[Tensor, "query key"], rows: Int[Tensor, " row"], offsets: int
) -> Float[Tensor, "row offset"]:
    """Entries (t, t - d) of some rows, d = 0 to offsets - 1."""
    return matrix[rows[:, None], rows[:, None] - torch.arange(offsets)]


def stationary_part(rows: Float[Tensor, "row offset"]) -> tuple[Float[Tensor, " offset"], float | None]:
    """Mean of row-centred rows, and the share of their variance that it explains (None where there is none)."""
    centred = rows - rows.mean(1, keepdim=True)
    profile = centred.mean(0)
    total = float(centred.square().sum())
    return profile, None if total < 1e-20 else 1 - float((centred - profile).square().sum()) / total


def mean_jacobian(model: ConvolutionModel, x: Float[Tensor, "sequence position"]) -> Float[Tensor, "query key"]:
    """d y_t / d x_s, averaged over the sequences."""
    inputs = x.clone().requires_grad_()
    outputs = model(inputs).sum(0)  # sequences do not see each other: the gradient of the sum is each one's own
    rows = [torch.autograd.grad(output, inputs, retain_graph=True)[0].mean(0) for output in outputs]
    return torch.stack(rows)
