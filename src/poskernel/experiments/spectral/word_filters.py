"""A class of words whose queries alone lose their short planes: does what tells classes apart do anything?"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.interventions.bands import Band
from poskernel.attention.interventions.controls import consume_layers
from poskernel.attention.interventions.distance_changes import HeadLogits
from poskernel.attention.interventions.intervene import intervening
from poskernel.attention.interventions.on_tokens import AtQueries
from poskernel.attention.sources.capture import LayerCapture
from poskernel.experiments.experiment import Quantity
from poskernel.experiments.language_units import Part
from poskernel.experiments.spectral.band_changes import (
    DAMPED,
    NO_CONTROL,
    NONE,
    BandChanges,
    Change,
    Columns,
    at_matched,
    gained,
    random_for,
)
from poskernel.models.transformer import Transformer
from poskernel.models.word_classes import WordClass

CLASSES = (WordClass.FUNCTION, WordClass.CONTENT)
CLASS_DISTANCE = Quantity("class_distance", "mean ln(1 + offset) that queries of a word class attend to, over heads")
CLASS_LOSS = Quantity("class_loss", "loss after tokens of a word class with its own queries changed, nats a token")
LOW_PASS = gained(Band.SHORT, DAMPED)
CLASS_CHANGES = (NONE, LOW_PASS, at_matched(Band.SHORT), random_for(Band.SHORT))


class ClassDistances:
    """Consumes captures of one batch: mean log attention distance of the rows of a mask, over all heads."""

    def __init__(self, rows: Mapping[str, Bool[Tensor, "batch position"]], dropped: int) -> None:
        self.rows, self.dropped = rows, dropped
        self.found: dict[str, list[float]] = {name: [] for name in rows}

    def consume(self, capture: LayerCapture) -> None:
        """One layer."""
        for head in range(capture.heads):
            logits = HeadLogits.of(capture, head, self.dropped)
            distances = logits.row_distances(logits.logits)
            for name, rows in self.rows.items():
                self.found[name].append(float(distances[rows[:, self.dropped :]].double().mean()))

    def means(self) -> dict[str, float]:
        """By name."""
        return {name: sum(values) / len(values) for name, values in self.found.items()}


def class_parts() -> list[tuple[Columns, str]]:
    """Distance and losses of every class, as columns and metric."""
    found: list[tuple[Columns, str]] = []
    for each in CLASSES:
        name = each.name.lower()
        found.append(({"words": name}, CLASS_DISTANCE.name))
        found += [({"words": name, "change": change}, CLASS_LOSS.name) for change in CLASS_CHANGES]
    return found


def class_values(
    model: Transformer,
    tokens: Int[Tensor, "sequence position"],
    classes: Int[Tensor, " vocabulary"],
    changes: BandChanges,
    dropped: int,
) -> dict[tuple[Part, str], float | str]:
    """Everything that `class_parts` asks of a model."""
    rows = {each.name.lower(): classes[tokens] == int(each) for each in CLASSES}
    distances = ClassDistances(rows, dropped)
    consume_layers(model, tokens, distances.consume, len(tokens))
    named = {**changes.changes(), **changes.controls(), NONE: [()]}
    values: dict[tuple[Part, str], float | str] = {}
    for where, metric in class_parts():
        name = str(where["words"])
        if metric == CLASS_DISTANCE.name:
            values[tuple(where.items()), metric] = distances.means()[name]
            continue
        losses = [class_loss(model, tokens, rows[name], draw) for draw in named.get(str(where["change"]), [])]
        values[tuple(where.items()), metric] = sum(losses) / len(losses) if losses else NO_CONTROL
    return values


@torch.inference_mode()
def class_loss(
    model: Transformer,
    tokens: Int[Tensor, "batch position"],
    chosen: Bool[Tensor, "batch position"],
    change: Change,
) -> float:
    """Mean loss of the tokens that follow chosen ones, nats, with the change at those queries alone."""
    with intervening(model, *(AtQueries(each, chosen) for each in change)):
        logits: Float[Tensor, "batch position vocabulary"] = model(tokens)[:, :-1]
    asked = chosen[:, :-1]
    return float(torch.nn.functional.cross_entropy(logits[asked], tokens[:, 1:][asked]))
