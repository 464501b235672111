"""The statements of the realizability paper, applied to one encoding and task: the first that decides gives the answer.

Theorem 2 for stationary kernels, proposition 1 for affine features, proposition 4 for clamped positions, proposition
3(A) for sinusoidal ones.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import Alibi, Encoding, Learned, Nope, RelativeEncoding, Sinusoidal
from poskernel.encodings.bias import T5, Shaw
from poskernel.encodings.family import BilinearFamily, LinearFamily, RelativeFamily
from poskernel.encodings.rotary import RotaryEncoding, XPos
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import STRICTNESS, alpha, row_margins
from poskernel.realizability.existence import Exists, existence, order_cycle
from poskernel.realizability.margin_programme import best_margin, distinct_rows, margin_constraints
from poskernel.realizability.theorems.demand import Demand, Quantity, demanded
from poskernel.tasks import ContentTask, Targets, Task

IMPOSSIBLE = 1e-9
"""A proven bound on the margin (with |w| <= 1) at or below this counts as none."""
AFFINE_UNTIL = 512
"""Positions over which features are compared with a straight line."""
KNOWN_TAILS = (RotaryEncoding, T5, Shaw, Alibi, Nope, Learned, Sinusoidal)
"""Encodings whose formula says what lies beyond the horizon: other people's are known up to it."""


SOLVABLE = "existence at the training length"
"""What fails where no kernel solves the training length: every statement supposes it."""


class Verdict(StrEnum):
    """Does some kernel of the family that solves the training length have alpha tending to 1?"""

    TRANSFERS = "transfers"
    CANNOT = "cannot"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Answer:
    """A verdict, where it comes from, and what supports it."""

    verdict: Verdict
    theorem: str
    """Statement of the realizability paper that gives it; "none" where none applies."""
    reason: str
    exact: bool
    """For every length; otherwise as far as the horizon shows."""
    demand: Demand | None = None
    weights: Float[Tensor, "..."] | None = None
    """Weights, each at most 1 in size, of a kernel that transfers."""
    margin: float | None = None
    """Its least margin over the training length's rows and the offsets up to the horizon, nats."""


@dataclass(frozen=True, eq=False)
class Peak:
    """The programme's answer: a kernel with its margin, or a bound on every margin."""

    weights: Float[Tensor, "..."] | None
    margin: float | None
    bound: float
    tied: bool
    """The target and another key have equal features."""


def cosine_sum(features: Float[Tensor, " feature"]) -> Float[Tensor, "feature feature"]:
    """Weights of sum_k cos(theta_k (d - offset)) on [sines, cosines], from the features of the position `offset`."""
    sine, cosine = (part.diag() for part in features.chunk(2))
    return torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)])


@dataclass(frozen=True)
class Case:
    """One encoding and task at one training length."""

    encoding: Encoding
    task: Task
    train_length: int
    horizon: int
    seconds: float

    @property
    def linear(self) -> bool:
        """Whether programmes over the weights exist, the same at every length."""
        encoding = self.encoding
        if encoding.depends_on_length or encoding.drawn or encoding.no_kernel:
            return False
        return isinstance(encoding.family(self.train_length, self.train_length), LinearFamily)

    @property
    def known_tail(self) -> bool:
        """Whether what was found up to the horizon holds beyond it, by the encoding's formula."""
        return isinstance(self.encoding, KNOWN_TAILS)

    def answer(self) -> Answer:
        """The verdict by the first statement that applies."""
        if isinstance(self.task, ContentTask):
            return self.undecided("the targets depend on the tokens, so no kernel of positions is asked for")
        if self.encoding.no_kernel:
            return self.undecided(self.encoding.no_kernel)
        if self.encoding.depends_on_length or self.encoding.drawn:
            return self.undecided("the theorems speak of one family at every length, and this one changes with it")
        if not self.linear:
            return (
                self.stationary()
                if self.encoding.relative
                else self.undecided(
                    "no statement covers a family that is neither stationary nor bilinear in features of positions"
                )
            )
        features = self.feature_table(AFFINE_UNTIL)
        if bool((features.diff(n=2, dim=0).abs() <= 1e-12 * features.abs().max()).all()):
            return self.affine()
        unsolved = self.training_length_unsolved()
        if unsolved is not None:
            return unsolved
        if isinstance(self.encoding, RelativeEncoding):
            return self.stationary()
        clamped = self.clamped_from()
        return self.sinusoidal() if clamped is None else self.clamped(clamped)

    def undecided(self, reason: str, demand: Demand | None = None, theorem: str = "none") -> Answer:
        """No statement decides it."""
        return Answer(Verdict.UNDECIDED, theorem, reason, False, demand)

    def demand(self, quantity: Quantity = Quantity.OFFSET) -> Demand:
        """What deep rows ask for."""
        return demanded(self.task, self.train_length, self.horizon, quantity)

    def feature_table(self, length: int) -> Float[Tensor, "position feature"]:
        """Basis by offset, or features by position, of the first positions."""
        family = self.encoding.family(self.train_length, length)
        assert isinstance(family, RelativeFamily | BilinearFamily)
        return family.values(torch.arange(length))

    def exists(self, length: int | None) -> Exists:
        """Whether any kernel solves the training length, and a longer one with it."""
        return existence(self.encoding, self.task, self.train_length, length, self.seconds).answer

    def training_length_unsolved(self) -> Answer | None:
        """The verdict where no kernel of the family solves the training length itself, or that is unknown."""
        found = existence(self.encoding, self.task, self.train_length, None, self.seconds)
        if found.answer is Exists.YES:
            return None
        reason = f"no kernel of the family solves length {self.train_length}: {found.reason}"
        if found.answer is Exists.NO:
            return Answer(Verdict.CANNOT, SOLVABLE, reason, True)
        return self.undecided(f"whether length {self.train_length} can be solved is unknown: {found.reason}")

    def affine(self) -> Answer:
        """Proposition 1: logits linear in the key peak at an end of the row, so no interior key ever wins."""
        targets, name = self.task.targets(self.train_length), "proposition 1"
        interior = (targets.key > 0) & (targets.key < targets.query)
        if bool(interior.any()):
            row, key = int(targets.query[interior][0]), int(targets.key[interior][0])
            reason = (
                f"logits are affine in the key and peak at key 0 or at the row itself, and row {row} asks for {key}"
            )
            return Answer(Verdict.CANNOT, name, reason, self.known_tail)
        unsolved = self.training_length_unsolved()
        if unsolved is not None:
            return replace(unsolved, theorem=name)
        rising = bool((targets.key == 0).all())
        demand = self.demand(Quantity.KEY if rising else Quantity.OFFSET)
        end = "key 0" if rising else "the row itself"
        if demand.settles and demand.value == 0:
            found = self.peaked(Targets(torch.tensor([self.horizon]), torch.tensor([0 if rising else self.horizon])))
            if found.margin is not None:
                reason = f"a kernel affine in the key peaks at {end} on every row, and {demand.reason}"
                exact = demand.exact and self.known_tail
                return Answer(Verdict.TRANSFERS, name, reason, exact, demand, found.weights, found.margin)
        if demand.settles is False and isinstance(self.encoding, RelativeEncoding):
            reason = (
                f"the kernels that solve length {self.train_length} peak at {end} on every row, but {demand.reason}"
            )
            return Answer(Verdict.CANNOT, name, reason, demand.exact and self.known_tail, demand)
        return self.undecided(f"rows peak at one end or the other, and {demand.reason}", demand, name)

    def stationary(self) -> Answer:
        """Theorem 2: one offset on almost all deep rows, attained as a strict global peak by a realizing kernel."""
        demand, name = self.demand(), "theorem 2"
        if demand.settles is None:
            return self.undecided(demand.reason, demand, name)
        if not demand.settles:
            return Answer(Verdict.CANNOT, name, f"no offset settles: {demand.reason}", demand.exact, demand)
        if not self.linear:
            return self.undecided("whether the offset is attained is open: the family is not linear", demand, name)
        assert demand.value is not None
        aligned = self.aligned(demand.value)
        if aligned is not None:
            weights, margin = aligned
            return self.attained(demand, weights, margin, self.known_tail)
        deep = Targets(torch.tensor([self.horizon]), torch.tensor([self.horizon - demand.value]))
        return self.by_programme(deep, demand)

    def aligned(self, offset: int) -> tuple[Float[Tensor, " weight"], float] | None:
        """The kernel basis(d) . basis(offset), where it solves the training length and peaks strictly at the offset.

        By Cauchy and Schwarz it does so at every offset with other features, where all features have the same length.
        For rotary ones that is every other offset: theta (d - offset) is a multiple of 2 pi only at d = offset, since
        theta is rational. XPos' features shrink.
        """
        if isinstance(self.encoding, XPos):
            return None
        table = self.feature_table(self.horizon + 1)
        size = table.norm(dim=1)
        if not bool(((size - size[offset]).abs() <= 1e-9 * size[offset]).all()):
            return None
        weights = table[offset] / table[offset].abs().max()
        profile = table @ weights
        rest = torch.cat([profile[:offset], profile[offset + 1 :]]).max()
        trained = row_margins(self.kernel(weights), self.task.targets(self.train_length))
        if trained.first_wrong is not None or float(profile[offset] - rest) <= STRICTNESS * float(profile.abs().max()):
            return None
        return weights, min(trained.least, float(profile[offset] - rest))

    def attained(self, demand: Demand, weights: Float[Tensor, " weight"], margin: float, everywhere: bool) -> Answer:
        """The demanded offset is the strict global peak of a kernel that solves the training length."""
        how = "over all others" if everywhere else f"over all others up to {self.horizon}"
        reason = f"{demand.reason}, and a kernel with its strict peak there, {how}, solves length {self.train_length}"
        return Answer(Verdict.TRANSFERS, "theorem 2", reason, demand.exact and everywhere, demand, weights, margin)

    def by_programme(self, deep: Targets, demand: Demand) -> Answer:
        """Attainability with the training length: a cycle of offsets, then equal features, then the programme."""
        targets, name = self.task.targets(self.train_length), "theorem 2"
        both = Targets(*(torch.cat(pair) for pair in ((targets.query, deep.query), (targets.key, deep.key))))
        what = f"offset {demand.value} is demanded of deep rows"
        cycle = order_cycle(both)
        if cycle is not None:
            chain = " > ".join(map(str, [*cycle, cycle[0]]))
            reason = f"{what}, but with length {self.train_length} that orders offsets in a cycle: {chain}"
            return Answer(Verdict.CANNOT, name, reason, demand.exact, demand)
        best = self.peaked(deep)
        if best.margin is not None:
            assert best.weights is not None
            return self.attained(demand, best.weights, best.margin, isinstance(self.encoding, T5 | Shaw))
        if best.bound <= IMPOSSIBLE:
            why = "another offset has equal features" if best.tied else f"every margin is bounded by {best.bound:.1g}"
            reason = f"{what}, and no kernel that solves length {self.train_length} peaks there: {why}"
            return Answer(Verdict.CANNOT, name, reason, demand.exact, demand)
        return self.undecided(f"{what}; whether a kernel peaks there is open within {self.seconds:g} s", demand, name)

    def peaked(self, deep: Targets) -> "Peak":
        """The kernel with the largest margin on the training length's rows and on these deep ones."""
        family = self.encoding.family(self.train_length, self.train_length)
        assert isinstance(family, LinearFamily)
        wanted = (self.task.targets(self.train_length), deep)
        rows = distinct_rows(np.vstack([margin_constraints(family, each) for each in wanted]))
        if not rows.any(axis=1).all():
            return Peak(None, None, 0.0, True)
        best = best_margin(rows, family.upper_bounds().numpy(), self.seconds)
        if not best.positive or best.weights is None:
            return Peak(None, None, best.upper_bound, False)
        weights = torch.from_numpy(best.weights).reshape(family.shape)
        kernel = family.kernel(weights)
        if any(row_margins(kernel, each).first_wrong is not None for each in wanted):
            return Peak(None, None, best.upper_bound, False)  # the margin is lost in the size of the logits
        return Peak(weights, best.margin, best.upper_bound, False)

    def clamped_from(self) -> int | None:
        """Position, trained, from which all features are one and the same; None where they go on changing."""
        changes = (self.feature_table(self.horizon // 10).diff(dim=0) != 0).any(1).nonzero()
        first = int(changes[-1]) + 1 if len(changes) else 0
        return first if first <= self.train_length else None

    def clamped(self, first: int) -> Answer:
        """Proposition 4(b): new rows share a query and new keys tie, so one early key may win on all of them."""
        demand, name = self.demand(Quantity.KEY), "proposition 4"
        if demand.settles is None:
            return self.undecided(demand.reason, demand, name)
        if not demand.settles or demand.value is None:
            reason = f"all new rows have the same features, so one key wins on all of them, but {demand.reason}"
            return Answer(Verdict.CANNOT, name, reason, demand.exact and self.known_tail, demand)
        if demand.value >= first:
            reason = f"{demand.reason}, and all keys from {first} on have the same features, so they tie"
            return Answer(Verdict.CANNOT, name, reason, demand.exact and self.known_tail, demand)
        row = max(self.train_length, first + 1)
        best = self.peaked(Targets(torch.tensor([row]), torch.tensor([demand.value])))
        if best.margin is not None:
            reason = f"{demand.reason}, and all new rows see it with the same margin, whatever the length"
            return Answer(
                Verdict.TRANSFERS, name, reason, demand.exact and self.known_tail, demand, best.weights, best.margin
            )
        if best.bound <= IMPOSSIBLE:
            reason = f"{demand.reason}, but no kernel that solves length {self.train_length} gives it to new rows"
            return Answer(Verdict.CANNOT, name, reason, demand.exact and self.known_tail, demand)
        return self.undecided(f"whether one kernel has both is open within {self.seconds:g} s", demand, name)

    def sinusoidal(self) -> Answer:
        """Proposition 3(A): sinusoidal features hold every rotary kernel; beyond fixed offsets nothing is known."""
        demand, name = self.demand(), "proposition 3"
        if demand.settles and isinstance(self.encoding, Sinusoidal) and demand.value is not None:
            table = self.feature_table(self.horizon + 1)
            weights, profile = cosine_sum(table[demand.value]), table @ table[demand.value]
            trained = row_margins(self.kernel(weights), self.task.targets(self.train_length))
            best = profile.topk(2).values
            if trained.first_wrong is None and int(profile.argmax()) == demand.value:
                reason = (
                    f"{demand.reason}, and sum_k cos(theta_k (d - {demand.value})), a kernel of the family, peaks "
                    f"there strictly over all others and solves length {self.train_length}"
                )
                margin = min(trained.least, float(best[0] - best[1]))
                return Answer(Verdict.TRANSFERS, name, reason, demand.exact, demand, weights, margin)
        return self.undecided(
            f"no statement covers these absolute features where {demand.reason} (conjecture 1 is open)", demand
        )

    def kernel(self, weights: Float[Tensor, "..."]) -> PositionalKernel:
        """The kernel with these weights."""
        return self.encoding.family(self.train_length, self.train_length).kernel(weights)

    def alpha_of(self, weights: Float[Tensor, "..."] | None, length: int) -> float | None:
        """Alpha of a kernel that was found."""
        return None if weights is None else alpha(self.kernel(weights), self.task, self.train_length, length)
