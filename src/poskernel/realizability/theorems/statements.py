"""The statements of the realizability paper, applied to one encoding and task: the first that decides gives the answer.

Theorem 2 for stationary kernels, proposition 1 for affine features, proposition 4 for clamped positions, proposition
3(A) for sinusoidal ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import (
    T5,
    Alibi,
    Encoding,
    Learned,
    LearnedGaussian,
    Nope,
    RelativeEncoding,
    Shaw,
    Sinusoidal,
    XPos,
)
from poskernel.encodings.family import BilinearFamily, LinearFamily, RelativeFamily
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import STRICTNESS, alpha, row_margins
from poskernel.realizability.existence import Exists, existence, order_cycle
from poskernel.realizability.margin_programme import distinct_rows, margin_constraints
from poskernel.realizability.theorems.attainment import Peak, peak
from poskernel.realizability.theorems.demand import Demand, Quantity, demanded, lengths_to, share_text, vanishing
from poskernel.realizability.theorems.following import followed_pairs, missed_shares, most_followed, unfollowable
from poskernel.realizability.theorems.tails import TAILS, tail_of
from poskernel.tasks import ContentTask, Targets, Task

AFFINE_UNTIL = 512
"""Positions over which features are compared with a straight line."""
KNOWN_TAILS = (*TAILS, Alibi, Nope, Learned, Sinusoidal)
"""Classes whose formula says what lies beyond the horizon: others, subclasses among them, are known up to it."""


SOLVABLE = "existence at the training length"
"""What fails where no kernel solves the training length: every statement supposes it."""
PAGES = {
    "theorem 2": "theorem-2",
    "proposition 1": "proposition-1",
    "proposition 2": "proposition-2-rate",
    "proposition 3": "proposition-3a",
    "proposition 4": "proposition-4",
    SOLVABLE: "existence-at-the-training-length",
    "none": "one-s-own-encoding-and-task",
}
"""Where docs/theory.md explains each statement, by the heading's address."""


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


def cosine_sum(features: Float[Tensor, " feature"]) -> Float[Tensor, "feature feature"]:
    """Weights of sum_k cos(theta_k (d - offset)) on [sines, cosines], from the features of the position `offset`."""
    sine, cosine = (part.diag() for part in features.chunk(2))
    return torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)])


def unsettled_text(demand: Demand) -> str:
    """The demand in words, where no offset settles or that is open."""
    return f"{'no offset settles' if demand.settles is False else 'whether an offset settles is open'}: {demand.reason}"


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
        return type(self.encoding) in KNOWN_TAILS

    def answer(self) -> Answer:
        """The verdict by the first statement that applies."""
        if isinstance(self.task, ContentTask):
            return self.undecided("the targets depend on the tokens, so no kernel of positions is asked for")
        if self.encoding.no_kernel:
            return self.undecided(self.encoding.no_kernel)
        if type(self.encoding) is LearnedGaussian:
            return self.undecided(
                "the rows beyond the training length are drawn at random, so there is no one kernel at every length: "
                "a new key as target wins at the rate of chance",
                theorem="proposition 2",
            )
        if self.encoding.drawn:
            return self.undecided("its positions are drawn at random, so there is no one kernel at every length")
        if self.encoding.depends_on_length:
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
        trained, family = self.task.targets(self.train_length), self.linear_family()
        again = peak(family, distinct_rows(margin_constraints(family, trained)), [trained], self.seconds)
        if again.margin is not None:
            return None  # seen with rows and columns brought to one size
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
        if not demand.settles:
            return self.unsettled(demand)
        tail = tail_of(self.encoding)
        if not self.linear:
            if tail is not None and demand.value != 0:
                return Answer(Verdict.CANNOT, name, f"{demand.reason}, but {tail.why}", demand.exact, demand)
            return self.undecided("whether the offset is attained is open: the family is not linear", demand, name)
        assert demand.value is not None
        aligned = self.aligned(demand.value)
        if aligned is not None:
            weights, margin = aligned
            return self.attained(demand, weights, margin, self.known_tail)
        deep = Targets(torch.tensor([self.horizon]), torch.tensor([self.horizon - demand.value]))
        return self.by_programme(deep, demand)

    def unsettled(self, demand: Demand) -> Answer:
        """No offset settles: theorem 2 excludes kernels with one strict global peak, and what excludes the others?

        First what holds for every kernel of the offset, then what the family's formula adds, then a kernel that follows
        the task; where none of them decides it is open.
        """
        name, missed = "theorem 2", unsettled_text(demand)
        nothing_follows = unfollowable(self.task)
        if nothing_follows is not None:
            return Answer(Verdict.CANNOT, name, f"{missed}, and {nothing_follows}", True, demand)
        tail = tail_of(self.encoding)
        if tail is not None and demand.settles is False and (tail.settles or demand.exact):
            # Of the built-in tasks only `first` comes this far: it asks for a new offset on every row.
            return Answer(Verdict.CANNOT, name, f"{missed}, and {tail.why}", demand.exact, demand)
        lengths = lengths_to(self.horizon, self.train_length)
        shares = missed_shares(self.task, self.train_length, lengths, new_winners=tail is None)
        if vanishing(lengths, shares)[0] is False:
            whose = "any kernel of the offset" if tail is None else f"any kernel of the family ({tail.why})"
            most = share_text(1 - shares[-1])
            reason = f"{missed}, and {whose} is right on at most {most} of the rows up to {self.horizon}"
            return Answer(Verdict.CANNOT, name, reason, False, demand)
        if self.linear and not self.task.depends_on_length:
            return self.following(demand)
        return self.undecided(f"{missed}; a kernel without a global peak is neither found nor excluded", demand, name)

    def following(self, demand: Demand) -> Answer:
        """A kernel without a global peak that is right on the rows up to the horizon, by a programme; or undecided."""
        family, trained = self.linear_family(), self.task.targets(self.train_length)
        rows = self.task.new_targets(self.train_length, self.horizon)
        pairs = followed_pairs(most_followed(rows, None, trained).winners)
        beaten = (family.design(each, torch.zeros_like(each)) for each in pairs)
        higher, lower = (part.numpy() for part in beaten)
        found = peak(family, distinct_rows(np.vstack([margin_constraints(family, trained), higher - lower])), [trained],
                     self.seconds)  # fmt: skip
        missed, name = unsettled_text(demand), "theorem 2"
        if found.weights is not None:
            right = alpha(self.kernel(found.weights), self.task, self.train_length, self.horizon)
            lengths = lengths_to(self.horizon, self.train_length)
            shares = [1 - alpha(self.kernel(found.weights), self.task, self.train_length, each) for each in lengths]
            if vanishing(lengths, shares)[0]:
                reason = (
                    f"{missed}, but a kernel without a global peak follows them: it solves length {self.train_length} "
                    f"and is right on {share_text(right)} of the rows up to {self.horizon}"
                )
                return Answer(Verdict.TRANSFERS, name, reason, False, demand, found.weights, found.margin)
        return self.undecided(
            f"{missed}; kernels with a global peak cannot follow, and of the others none was found that is right up to "
            f"{self.horizon}{': ' + found.why if found.why else ''}, which excludes none that misses a few rows",
            demand,
            name,
        )

    def linear_family(self) -> LinearFamily:
        """The family at the training length."""
        family = self.encoding.family(self.train_length, self.train_length)
        assert isinstance(family, LinearFamily)
        return family

    def aligned(self, offset: int) -> tuple[Float[Tensor, " weight"], float] | None:
        """The kernel basis(d) . basis(offset), where it solves the training length and peaks strictly at the offset.

        By Cauchy and Schwarz it does so at every offset with other features, where all features have the same length.
        For rotary ones that is every other offset: theta (d - offset) is a multiple of 2 pi only at d = offset, since
        theta is rational. XPos' features shrink.
        """
        if type(self.encoding) is XPos:
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
            return self.attained(demand, best.weights, best.margin, type(self.encoding) in (T5, Shaw))
        if best.impossible:
            reason = f"{what}, and no kernel that solves length {self.train_length} peaks there: {best.why}"
            return Answer(Verdict.CANNOT, name, reason, demand.exact, demand)
        return self.undecided(f"{what}; whether a kernel peaks there is open: {best.why}", demand, name)

    def peaked(self, deep: Targets) -> Peak:
        """The kernel with the largest margin on the training length's rows and on these deep ones."""
        family = self.linear_family()
        wanted: Sequence[Targets] = (self.task.targets(self.train_length), deep)
        rows = distinct_rows(np.vstack([margin_constraints(family, each) for each in wanted]))
        return peak(family, rows, wanted, self.seconds)

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
        if best.impossible:
            reason = f"{demand.reason}, but no kernel that solves length {self.train_length} gives it to new rows"
            return Answer(Verdict.CANNOT, name, reason, demand.exact and self.known_tail, demand)
        return self.undecided(f"whether one kernel has both is open: {best.why}", demand, name)

    def sinusoidal(self) -> Answer:
        """Proposition 3(A): sinusoidal features hold every rotary kernel; beyond fixed offsets nothing is known."""
        demand, name = self.demand(), "proposition 3"
        if demand.settles and type(self.encoding) is Sinusoidal and demand.value is not None:
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
