"""The kernels that trained heads ended up with, beside those that were fitted before training.

Reads the weights of the paper study's one-layer, one-head models and measures each head's own mean kernel, exactly:
alpha of it, as of a fitted kernel, and how much attention its target gets, by the kernel alone and on real sequences.
Nothing is trained here, and no weight is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.mean_kernel import mean_kernels
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.errors import InputError
from poskernel.kernel import GridKernel, PositionalKernel
from poskernel.models.training import evaluation_tokens, load_checkpoint
from poskernel.models.transformer import Transformer
from poskernel.realizability.alignment import row_margins
from poskernel.study import STUDIES, Study
from poskernel.study.grid import Cell, TrainingCell, canonical
from poskernel.study.units import Measurement, Status, TrainingUnit, Unit, units_of
from poskernel.tasks import ContentTask, Targets

NAME = "trained-kernels"
TIER = 1
SEQUENCES = 64
"""Of an evaluation's sequences, those whose attention is looked at."""
ALPHA, OTHERS, MASS = "kernel_alpha", "kernel_alpha_others", "kernel_mass"
ATTENDED, HIT = "attended", "attended_most"
LEARNED, LEARNED_OTHERS = f"{ALPHA}_trained", f"{OTHERS}_trained"
MEANINGS = {
    ALPHA: "share of query rows from the training length on whose strict argmax under the head's kernel is the target",
    OTHERS: "the same among keys other than the query itself, whose token a model knows without attention",
    MASS: "softmax of the head's kernel on the target, mean over the query rows from the training length on",
    ATTENDED: "attention weight on the target in real sequences, mean over the same rows and sequences",
    HIT: "share of those rows and sequences in which no key gets more weight than the target",
    LEARNED: f"{ALPHA} over all query rows at the training length",
    LEARNED_OTHERS: f"{OTHERS} over all query rows at the training length",
}
"""What each metric is."""


@dataclass(frozen=True)
class TrainedKernelCell(TrainingCell):
    """The head of a trained one-layer model; the fields are those of the model's own cell."""

    kind = "trained-kernel"

    @classmethod
    def of(cls, cell: TrainingCell) -> "TrainedKernelCell":
        """The head of a cell's models."""
        return cls(cell.encoding, cell.task, cell.architecture, cell.recipe)

    @property
    def trained(self) -> TrainingCell:
        """The cell whose models are read."""
        return TrainingCell(self.encoding, self.task, self.architecture, self.recipe)


@dataclass(frozen=True)
class TrainedKernelUnit(Unit):
    """One trained model's head, at every length."""

    cell: TrainedKernelCell
    lengths: tuple[int, ...]
    seed: int = 0

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """What was learned, then each length's numbers."""
        learned = [(self.cell, name, self.cell.train_length) for name in (LEARNED, LEARNED_OTHERS)]
        names = (ALPHA, OTHERS, MASS, ATTENDED, HIT)
        return [*learned, *((self.cell, name, length) for length in self.lengths for name in names)]

    @property
    def kind(self) -> str:
        """A trained head is read."""
        return "trained kernels"

    @property
    def run_seed(self) -> int:
        """Seed of the model."""
        return self.seed

    @property
    def cost(self) -> float:
        """Under a second."""
        return 0.05

    @property
    def description(self) -> str:
        """Encoding, task and seed."""
        return f"kernel of the trained head of {self.cell.label} {self.cell.task.name}, seed {self.seed}"

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Read the model, never train it."""
        model = self.model(weights)
        own = self.cell.train_length
        alphas = self.alphas(mean_kernels(model, own)[0], self.targets(own, 0))
        values = {(f"{name}_trained", own): value for name, value in alphas.items()}
        for length in self.lengths:
            values |= {(name, length): value for name, value in self.beyond(model, length).items()}
        return [Measurement(*key, value=values[key[1], key[2]], status=Status.DONE) for key in self.keys]

    def model(self, weights: Path | None) -> Transformer:
        """The trained model; InputError where its weights are not there or are another model's."""
        cell = self.cell.trained
        file = None if weights is None else TrainingUnit(cell, self.lengths, self.seed).weights_file(weights)
        if file is None or not file.exists():
            raise InputError(
                f"the weights of {cell.label} {cell.task.name}, seed {self.seed}, are not in '{weights}': make them by "
                f"poskernel study run paper --tiers {TIER} --weights."
            )
        found = load_checkpoint(file)
        held = (found.model.encoding, found.task, found.model.architecture, found.recipe, found.seed)
        if held != (cell.encoding, cell.task, cell.architecture, cell.recipe, self.seed):
            raise InputError(f"'{file}' holds another model than its name says: train it again.")
        return found.model

    def alphas(self, kernel: PositionalKernel, targets: Targets) -> dict[str, float]:
        """Share of rows that the kernel gets right, among all keys and among keys other than the query."""
        return {ALPHA: row_margins(kernel, targets).share, OTHERS: share_among_others(kernel, targets)}

    def beyond(self, model: Transformer, length: int) -> dict[str, float]:
        """Every number of one length."""
        targets = self.targets(length, self.cell.train_length)
        kernel = mean_kernels(model, length)[0]
        mass = kernel.attention(length)[targets.query, targets.key]
        weights = attention_of(model, evaluation_tokens(model.architecture, length, SEQUENCES, self.seed))
        rows = weights[:, targets.query]
        wanted = rows[:, torch.arange(len(targets.query)), targets.key]
        return {
            **self.alphas(kernel, targets),
            MASS: float(mass.mean()),
            ATTENDED: float(wanted.double().mean()),
            HIT: float((wanted >= rows.amax(-1)).double().mean()),
        }

    def targets(self, length: int, first: int) -> Targets:
        """The task's query rows from `first` on; InputError for a task without positional targets."""
        if isinstance(self.cell.task, ContentTask):
            raise InputError(f"the targets of '{self.cell.task.name}' are no function of the position: leave it out.")
        return self.cell.task.targets(length).rows(first, length)


@dataclass(frozen=True)
class TrainedKernels:
    """The heads of every one-layer model of a study."""

    study: Study = STUDIES["paper"]
    name: str = NAME

    @property
    def config(self) -> Any:
        """The study whose models are read, and what is looked at."""
        return {**canonical(self.study.only([TIER]), defaults=True), "name": self.name, "sequences": float(SEQUENCES)}

    def units(self) -> list[TrainedKernelUnit]:
        """A unit a trained model."""
        return [
            TrainedKernelUnit(TrainedKernelCell.of(unit.cell), unit.lengths, unit.seed)
            for unit in units_of(self.study.only([TIER]))
            if isinstance(unit, TrainingUnit)
        ]


def share_among_others(kernel: PositionalKernel, targets: Targets) -> float:
    """Share of rows whose strict argmax among keys other than the query is the target; all keys where it is itself."""
    logits = kernel.transfer(int(targets.query.max()) + 1)
    itself = targets.query[targets.query != targets.key]
    # The query's own logit falls below every other of its row; what is left out cannot win, nor lose to a tie.
    logits[itself, itself] = logits.masked_fill(logits.isinf(), torch.inf).amin(1)[itself] - 1
    return row_margins(GridKernel(logits), targets).share


def attention_of(model: Transformer, tokens: Int[Tensor, "sequence position"]) -> Float[Tensor, "sequence query key"]:
    """Attention weights of the first head of the first layer."""
    captures: list[LayerCapture] = []
    TransformerSource(model.eval()).forward(tokens, captures.append)
    return captures[0].pattern(0)
