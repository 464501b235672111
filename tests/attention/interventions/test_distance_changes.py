"""Changes of attention distance: measured as the model under the intervention has them, predicted as loops say."""

import math
from collections.abc import Sequence

import pytest
import torch

from poskernel.attention.interventions.bands import Band, filter_change
from poskernel.attention.interventions.changes import Intervention, MeanFilter, PlaneGain
from poskernel.attention.interventions.controls import consume_layers, position_means
from poskernel.attention.interventions.distance_changes import (
    FilterDistances,
    LogDistances,
    MeasuredDistances,
    PlaneDistances,
)
from poskernel.attention.interventions.intervene import intervening
from poskernel.attention.interventions.planes import rotary_planes
from poskernel.attention.sources.capture import LayerCapture
from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer

DROPPED, LENGTH, SHORT = 3, 20, 8.0


def model(encoding: str = "rope") -> Transformer:
    torch.manual_seed(1)
    made = Transformer(Architecture(width=32, layers=2, heads=2, train_length=LENGTH), ENCODINGS[encoding])
    with torch.no_grad():
        for block in made.blocks:
            block.query_key_value.weight *= 4  # logits of some size
    return made.double().requires_grad_(False)


def text(sequences: int = 3) -> torch.Tensor:
    return torch.randint(0, 12, (sequences, LENGTH), generator=torch.Generator().manual_seed(1))


def captures(made: Transformer, tokens: torch.Tensor, changes: Sequence[Intervention] = ()) -> list[LayerCapture]:
    seen: list[LayerCapture] = []
    with intervening(made, *changes):
        consume_layers(made, tokens, seen.append, len(tokens))
    return seen


def head_logits(capture: LayerCapture, head: int) -> torch.Tensor:
    everywhere = torch.arange(capture.length)
    return capture.logits(head, everywhere, everywhere).double()


def distance(logits: torch.Tensor) -> float:
    """Mean over sequences and rows, row by row; the first positions take no part."""
    total, rows = 0.0, 0
    for sequence in logits:
        for t in range(DROPPED, sequence.shape[0]):
            weights = sequence[t, DROPPED : t + 1].softmax(-1)
            total += sum(float(w) * math.log(1 + t - s) for s, w in enumerate(weights, DROPPED))
            rows += 1
    return total / rows


def diagonal_means(logits: torch.Tensor) -> list[float]:
    """Of one sequence, past the dropped positions."""
    kept = range(DROPPED, logits.shape[0])
    return [
        sum(float(logits[s + d, s]) for s in kept if s + d < logits.shape[0]) / (len(kept) - d)
        for d in range(len(kept))
    ]


def toeplitz(profile: Sequence[float]) -> torch.Tensor:
    """Logits of a kernel; the dropped positions hold anything, as they take no part."""
    place = torch.arange(LENGTH)
    offsets = (place[:, None] - place).clamp(0, len(profile) - 1)
    return torch.tensor(list(profile), dtype=torch.float64)[offsets]


@pytest.mark.parametrize("layer", [0, 1])
def test_planes_do_in_their_layer_what_the_model_does_under_the_gain(layer: int) -> None:
    made, tokens, head, planes = model(), text(), 1, (0, 2)
    rotary = rotary_planes(made)
    one = PlaneDistances(rotary, {"some": {(layer, head): planes}}, [0.5, 1.5], DROPPED)
    plain = captures(made, tokens)
    for capture in plain:
        one.consume(capture)
    assert set(one.found) == {("some", gain, layer, head) for gain in (0.5, 1.5)}
    logits = head_logits(plain[layer], head)
    for gain in (0.5, 1.5):
        found = one.found["some", gain, layer, head]
        under = captures(made, tokens, [PlaneGain({(layer, head): planes}, gain, rotary)])[layer]
        assert found.measured == pytest.approx(distance(head_logits(under, head)) - distance(logits), abs=1e-9)
        assert abs(found.measured) > 1e-4
        part = head_logits(under, head) - logits
        profiles = torch.tensor([diagonal_means(each) for each in part], dtype=torch.float64)
        said = [logits[x] + toeplitz(((profiles.sum(0) - profiles[x]) / 2).tolist()) for x in range(3)]
        assert found.predicted == pytest.approx(distance(torch.stack(said)) - distance(logits), abs=1e-9)
        g = torch.tensor([diagonal_means(each) for each in logits], dtype=torch.float64).mean(0)
        kernels = [distance(toeplitz(each.tolist())[None]) for each in (g, g + profiles.mean(0))]
        assert found.alone == pytest.approx(kernels[1] - kernels[0], abs=1e-9)


def test_a_kernel_tells_everything_where_there_is_no_content() -> None:
    made, tokens = model(), torch.full((2, LENGTH), 5)
    every = {(0, head): (0, 1, 3) for head in range(2)}
    one = PlaneDistances(rotary_planes(made), {"some": every}, [0.0], DROPPED)
    one.consume(captures(made, tokens)[0])
    for found in one.found.values():
        assert found.predicted == pytest.approx(found.measured, abs=1e-6)
        assert found.alone == pytest.approx(found.measured, abs=1e-6)


def test_controls_are_measured_alike() -> None:
    made, tokens, rotary = model(), text(), rotary_planes(model())
    sets = {"a": {(0, 0): (1,), (1, 1): (0, 3)}, "b": {(1, 1): (2,)}}
    one, plain = PlaneDistances(rotary, sets, [0.5], DROPPED), MeasuredDistances(rotary, sets, 0.5, DROPPED)
    for capture in captures(made, tokens):
        one.consume(capture)
        plain.consume(capture)
    assert plain.found == {(name, *head): one.found[name, 0.5, *head].measured for name, _, *head in one.found}
    assert set(plain.found) == {("a", 0, 0), ("a", 1, 1), ("b", 1, 1)}


def test_a_filter_does_in_its_layer_what_the_model_does_under_it() -> None:
    made, tokens, keep = model("sinusoidal"), text(), (Band.MIDDLE, Band.UNRESOLVED)
    means = position_means(made, tokens)
    filters = FilterDistances(means, keep, DROPPED, SHORT)
    plain = captures(made, tokens)
    for capture in plain:
        filters.consume(capture)
    for layer in range(2):
        under = captures(made, tokens, [MeanFilter([(layer, 0), (layer, 1)], means, keep, SHORT)])[layer]
        for head in range(2):
            logits = head_logits(plain[layer], head)
            found = filters.found[layer, head]
            assert found.measured == pytest.approx(distance(head_logits(under, head)) - distance(logits), abs=1e-9)
            profiles = torch.tensor([diagonal_means(each) for each in logits], dtype=torch.float64)
            changes = [
                filter_change((profiles.sum(0) - each) / 2, keep, SHORT).g(LENGTH - DROPPED) for each in profiles
            ]
            said = torch.stack([logits[x] + toeplitz(changes[x].tolist()) for x in range(3)])
            assert found.predicted == pytest.approx(distance(said) - distance(logits), abs=1e-9)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_distances_do_not_depend_on_the_batch(batch: int) -> None:
    made, tokens = model(), text(5)
    found = LogDistances(DROPPED)
    consume_layers(made, tokens, found.consume, batch)
    for layer, capture in enumerate(captures(made, tokens)):
        for head in range(2):
            assert found.means()[layer, head] == pytest.approx(distance(head_logits(capture, head)), abs=1e-9)


def test_what_cannot_be_told_apart_is_refused() -> None:
    made = model()
    one = PlaneDistances(rotary_planes(made), {"some": {(0, 0): (0,)}}, [0.5], DROPPED)
    with pytest.raises(InputError, match="one sequence says nothing about another"):
        one.consume(captures(made, text(1))[0])
    with pytest.raises(InputError, match="layer 0 has a bias"):
        LogDistances(DROPPED).consume(captures(model("alibi"), text())[0])
