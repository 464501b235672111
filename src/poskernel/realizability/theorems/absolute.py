"""Propositions 1, 3 and 4 on one's own case: features that are affine in the position, sinusoidal, or clamped."""

from itertools import count

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import Alibi, Nope
from poskernel.realizability.exactness import BLOCK, MANTISSA, digits
from poskernel.realizability.refutation import EPSILON
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.demand import Quantity
from poskernel.realizability.theorems.verdicts import Answer, Verdict, undecided
from poskernel.tasks import Targets

AFFINE_UNTIL = 512
"""Positions over which features are first compared with a straight line: most bend there."""


def is_affine(case: Case) -> bool:
    """Whether every feature is a straight line of the position up to the horizon, so that no kernel bends.

    Each column is measured against its own size. Sines and cosines never are, however slow.
    """
    if type(case.encoding) in (Alibi, Nope):
        return True
    if case.phase_rate:
        return False
    if not straight(case.feature_table(min(AFFINE_UNTIL, case.horizon) + 1)):
        return False
    whole = case.feature_table(case.horizon + 1)
    return straight(whole) and never_bends(whole)


def straight(table: Float[Tensor, "position feature"]) -> bool:
    """Whether every column is its own chord, up to the rounding of its values."""
    share = torch.arange(len(table), dtype=torch.float64)[:, None] / (len(table) - 1)
    chord = table[0] + share * (table[-1] - table[0])
    return bool(((table - chord).abs() <= 16 * EPSILON * table.abs().amax(0)).all())


def never_bends(table: Float[Tensor, "position feature"]) -> bool:
    """Whether rounding has left no combination of the columns, straight but for it, a peak in between.

    One column that rises or falls throughout, beside constant ones, has none. Of several, such as d and 1.1 d, the
    roundings remain where the columns cancel, unless float64 holds all their values and differences.
    """
    steps = table.diff(dim=0)
    varying = (steps != 0).any(0)
    if int(varying.sum()) <= 1:
        return bool(((steps >= 0).all(0) | (steps <= 0).all(0)).all())
    even = bool((steps == steps[0]).all())
    return even and bool((digits(table[:, varying].numpy()).span < 2 ** (MANTISSA - 1)).all())


def affine(case: Case) -> Answer:
    """Proposition 1: logits linear in the key peak at an end of the row, so no interior key ever wins."""
    targets, name = case.trained, "proposition 1"
    interior = (targets.key > 0) & (targets.key < targets.query)
    if bool(interior.any()):
        row, key = int(targets.query[interior][0]), int(targets.key[interior][0])
        reason = f"logits are affine in the key and peak at key 0 or at the row itself, and row {row} asks for {key}"
        return Answer(Verdict.CANNOT, name, reason, case.known_tail)
    unsolved = case.unsolved()
    if unsolved is not None:
        return Answer(unsolved.verdict, name, unsolved.reason, unsolved.exact)
    tried = [at_end(case, quantity) for quantity in ends(case)]
    answers = sorted(tried, key=lambda each: RANKS.index(each.verdict))
    if len(answers) == 1 or answers[0].verdict is Verdict.TRANSFERS:
        return answers[0]
    # From some row on all peak at one end: a kernel that transfers has to take one of the two.
    reason = "; ".join(each.reason for each in answers)
    return Answer(answers[0].verdict, name, reason, all(each.exact for each in answers), answers[0].demand)


RANKS = (Verdict.TRANSFERS, Verdict.UNDECIDED, Verdict.CANNOT)
"""Of what holds at one end, what holds of the whole: the first of these that any end gives."""


def ends(case: Case) -> list[Quantity]:
    """The ends that deep rows may peak at: a key where it is key 0, an offset where it is the row itself.

    Kernels of the offset peak at one end on every row, so one trained row beyond the first says which; affine features
    of positions may turn from one to the other once.
    """
    wide = case.trained.query > 0
    if not case.relative or not bool(wide.any()):
        return [Quantity.KEY, Quantity.OFFSET]
    return [Quantity.KEY if bool((case.trained.key[wide] == 0).all()) else Quantity.OFFSET]


def at_end(case: Case, quantity: Quantity) -> Answer:
    """Whether an affine kernel that solves the training length takes one end on deep rows, as they ask."""
    demand, name = case.demand(quantity), "proposition 1"
    end = "key 0" if quantity is Quantity.KEY else "the row itself"
    exact = demand.exact and case.known_tail
    if demand.settles is None:
        return undecided(f"whether deep rows ask for {end} is open: {demand.reason}", demand, name)
    if not demand.settles or demand.value != 0:
        reason = f"a kernel affine in the key that peaks at {end} on deep rows is wrong there, as {demand.reason}"
        return Answer(Verdict.CANNOT, name, reason, exact, demand)
    found = case.peaked(
        Targets(torch.tensor([case.horizon]), torch.tensor([0 if quantity is Quantity.KEY else case.horizon]))
    )
    if found.margin is not None:
        reason = f"a kernel affine in the key peaks at {end} on deep rows, and {demand.reason}"
        return Answer(Verdict.TRANSFERS, name, reason, exact, demand, found.weights, found.margin)
    if found.impossible:
        reason = f"no kernel that solves length {case.train_length} peaks at {end} on deep rows: {found.why}"
        return Answer(Verdict.CANNOT, name, reason, exact, demand)
    return undecided(f"whether a kernel peaks at {end} on deep rows is open: {found.why}", demand, name)


def clamped_from(case: Case) -> int | None:
    """Position, trained, from which all features up to the horizon are the same; None where they go on changing."""
    table = case.feature_table(case.train_length + 1)
    for start in count(case.train_length + 1, BLOCK):
        if start > case.horizon:
            break
        later = case.family.values(torch.arange(start, min(start + BLOCK, case.horizon + 1)))
        if bool((later != table[-1]).any()):
            return None
    changes = (table.diff(dim=0) != 0).any(1).nonzero()
    return int(changes[-1]) + 1 if len(changes) else 0


def clamped(case: Case, first: int) -> Answer:
    """Proposition 4(b): new rows share a query and new keys tie, so one early key may win on all of them."""
    demand, name = case.demand(Quantity.KEY), "proposition 4"
    exact = demand.exact and case.known_tail
    if demand.settles is None:
        return undecided(demand.reason, demand, name)
    if not demand.settles or demand.value is None:
        reason = f"all new rows have the same features, so one key wins on all of them, but {demand.reason}"
        return Answer(Verdict.CANNOT, name, reason, exact, demand)
    if demand.value >= first:
        reason = f"{demand.reason}, and all keys from {first} on have the same features, so they tie"
        return Answer(Verdict.CANNOT, name, reason, exact, demand)
    row = max(case.train_length, first + 1)
    best = case.peaked(Targets(torch.tensor([row]), torch.tensor([demand.value])))
    if best.margin is not None:
        reason = f"{demand.reason}, and all new rows see it with the same margin, whatever the length"
        return Answer(Verdict.TRANSFERS, name, reason, exact, demand, best.weights, best.margin)
    if best.impossible:
        reason = f"{demand.reason}, but no kernel that solves length {case.train_length} gives it to new rows"
        return Answer(Verdict.CANNOT, name, reason, exact, demand)
    return undecided(f"whether one kernel has both is open: {best.why}", demand, name)


def sinusoidal(case: Case) -> Answer:
    """Beyond fixed offsets, which proposition 3(A) answers, nothing is known of features that go on changing."""
    demand = case.demand()
    return undecided(f"no statement covers these absolute features where {demand.reason}", demand)
