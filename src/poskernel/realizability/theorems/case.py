"""One encoding and task at one training length, and what the statements ask of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import Alibi, Encoding, Learned, Nope, Sinusoidal
from poskernel.encodings.family import BilinearFamily, RelativeFamily
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import alpha
from poskernel.realizability.cone import Programme, phase_rate, programme
from poskernel.realizability.existence import Exists, existence
from poskernel.realizability.theorems.attainment import Peak, peak
from poskernel.realizability.theorems.demand import Demand, Quantity, demanded
from poskernel.realizability.theorems.tails import TAILS
from poskernel.realizability.theorems.verdicts import SOLVABLE, Answer, Verdict, undecided
from poskernel.tasks import Targets, Task

KNOWN_TAILS = (*TAILS, Alibi, Nope, Learned, Sinusoidal)
"""Classes whose formula says what lies beyond the horizon: others, subclasses among them, are known up to it."""


@dataclass(frozen=True)
class Case:
    """One encoding and task at one training length."""

    encoding: Encoding
    task: Task
    train_length: int
    horizon: int
    seconds: float
    """Time limit of all programmes together, from the moment the case is made."""
    started: float = field(default_factory=time.monotonic, compare=False, repr=False)

    @property
    def left(self) -> float:
        """Seconds left of the time limit, at least 0."""
        return max(0.0, self.started + self.seconds - time.monotonic())

    @property
    def linear(self) -> bool:
        """Whether programmes over the weights exist, the same at every length."""
        encoding = self.encoding
        if encoding.depends_on_length or encoding.drawn or encoding.no_kernel:
            return False
        return isinstance(encoding.family(self.train_length, self.train_length), RelativeFamily | BilinearFamily)

    @property
    def relative(self) -> bool:
        """Whether every kernel is a function of the offset alone: a linear family says so itself."""
        return isinstance(self.family, RelativeFamily) if self.linear else self.encoding.relative

    @property
    def phase_rate(self) -> float:
        """Most radians a position of sines and cosines in the features; 0 where they have none."""
        return phase_rate(self.encoding, self.train_length)

    @property
    def known_tail(self) -> bool:
        """Whether what was found up to the horizon holds beyond it, by the encoding's formula."""
        return type(self.encoding) in KNOWN_TAILS

    @property
    def family(self) -> RelativeFamily | BilinearFamily:
        """The linear family."""
        family = self.encoding.family(self.train_length, self.train_length)
        assert isinstance(family, RelativeFamily | BilinearFamily)
        return family

    @property
    def trained(self) -> Targets:
        """The query rows of the training length."""
        return self.task.targets(self.train_length)

    def demand(self, quantity: Quantity = Quantity.OFFSET) -> Demand:
        """What deep rows ask for."""
        return demanded(self.task, self.train_length, self.horizon, quantity)

    def feature_table(self, length: int) -> Float[Tensor, "position feature"]:
        """Basis by offset, or features by position, of the first positions."""
        return self.family.values(torch.arange(length))

    def kernel(self, weights: Float[Tensor, "..."]) -> PositionalKernel:
        """The kernel with these weights."""
        return self.encoding.family(self.train_length, self.train_length).kernel(weights)

    def exists(self, length: int | None) -> Exists | None:
        """Whether any kernel solves the training length, and a longer one with it; None where that has no rows."""
        if length is not None and not len(self.task.targets(length).query):
            return None
        return existence(self.encoding, self.task, self.train_length, length, self.left).answer

    def scores(self, length: int) -> bool:
        """Whether there is a row to score at a length."""
        return bool(len(self.task.targets(length).rows(self.train_length, length).query))

    def alpha_of(self, weights: Float[Tensor, "..."] | None, length: int) -> float | None:
        """Alpha of a kernel that was found; None without one, or without a row to score."""
        if weights is None or not self.scores(length):
            return None
        return alpha(self.kernel(weights), self.task, self.train_length, length)

    def programme(self, wanted: Sequence[Targets]) -> Programme:
        """The constraints of all these rows."""
        return programme([self.family] * len(wanted), wanted, self.phase_rate)

    def peaked(self, deep: Targets) -> Peak:
        """The kernel with the largest margin on the training length's rows and on these deep ones."""
        wanted = (self.trained, deep)
        return peak(self.family, self.programme(wanted), wanted, self.left)

    def unsolved(self) -> Answer | None:
        """The verdict where no kernel of the family solves the training length itself, or that is unknown."""
        found = existence(self.encoding, self.task, self.train_length, None, self.left)
        if found.answer is Exists.YES:
            return None
        if found.answer is Exists.NO:
            reason = f"no kernel of the family solves length {self.train_length}: {found.reason}"
            return Answer(Verdict.CANNOT, SOLVABLE, reason, True)
        return undecided(f"whether length {self.train_length} can be solved is unknown: {found.reason}")
