"""The same changes in a pretrained model: distances of every head, and loss, on windows of one of several texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.experiments.experiment import ExperimentUnit
from poskernel.experiments.pretrained.models import RealModelCell, opened, text_windows
from poskernel.experiments.spectral.band_changes import DAMPED, BandChanges
from poskernel.experiments.spectral.band_units import (
    ALL,
    LOSS,
    distance_parts,
    head_distances,
    scored_changes,
    scores,
)
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

DAMPING = (DAMPED,)
"""The one gain: every other costs as much again."""
FIRST = 16
"""Positions left out of distances."""
MEASURED_FOR_ENERGY = 1
"""Sequences on which the energies of planes are measured."""
ROWS = 256
"""Rows whose logits over the vocabulary are held at a time."""


@dataclass(frozen=True)
class PretrainedBandUnit(ExperimentUnit):
    """Every head and the loss of one pretrained model with tied embeddings, on one text."""

    cell: RealModelCell
    texts: int = 5

    @property
    def cost(self) -> float:
        """About as long as a few trainings of tier 1."""
        return 8.0

    @property
    def aspect(self) -> str:
        """Bands."""
        return "bands of planes"

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Loss under every change, then distances."""
        model, length = self.cell.model, self.cell.length
        heads = [(layer, head) for layer in range(model.layers) for head in range(model.heads)]
        found: list[tuple[Cell, str, int]] = [
            (self.cell.at(scope=ALL, change=name), LOSS.name, length) for name in scored_changes(DAMPING)
        ]
        return found + [
            (self.cell.at(state="trained", **where), metric, length) for where, metric in distance_parts(heads, DAMPING)
        ]

    def measure(self, weights: Path | None) -> list[Measurement]:
        """One pass for all layers changed one at a time, then a pass for every change of all layers."""
        loaded, cell = opened(self.cell.model), self.cell
        source = loaded.source
        windows = text_windows(loaded, cell.source, self.seed, self.texts, cell.sequences, cell.length)
        changes = BandChanges.of(source, source.heads, windows[:MEASURED_FOR_ENERGY], FIRST, self.seed)
        everything = {**changes.changes(), **changes.controls()}
        found = scores(source, everything, scored_changes(DAMPING), lambda: next_token_loss(source, windows))
        values: dict[tuple[Cell, str, int], float | str] = {
            (cell.at(scope=ALL, change=name), LOSS.name, cell.length): loss for name, loss in found.items()
        }
        for (where, metric), value in head_distances(source, changes, windows, FIRST, DAMPING).items():
            values[cell.at(state="trained", **dict(where)), metric, cell.length] = value
        return self.done(values)


def next_token_loss(source: HuggingFaceSource, tokens: Int[Tensor, "sequence position"]) -> float:
    """Cross-entropy of each token after the first, nats, with the output layer tied to the embeddings."""
    embedding = source.embedding()
    hidden = source.forward(tokens, None)[:, :-1].flatten(0, 1)
    parts = zip(hidden.split(ROWS), tokens[:, 1:].flatten().split(ROWS), strict=True)
    total = sum(float(row_losses(rows, labels, embedding).sum()) for rows, labels in parts)
    return total / len(hidden)


def row_losses(
    hidden: Float[Tensor, "row width"], labels: Int[Tensor, " row"], embedding: Float[Tensor, "vocabulary width"]
) -> Float[Tensor, " row"]:
    """Cross-entropy of every row."""
    return torch.nn.functional.cross_entropy(hidden @ embedding.T, labels, reduction="none")
