"""Theorem 2 on one's own case: one offset on almost all deep rows, the strict global peak of a realizing kernel."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import T5, KerpleLog, Shaw, XPos
from poskernel.realizability.alignment import STRICTNESS, alpha, row_margins
from poskernel.realizability.cone import with_resolution
from poskernel.realizability.existence import order_cycle
from poskernel.realizability.margin_programme import distinct_rows, margin_constraints
from poskernel.realizability.theorems.attainment import peak
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.demand import Demand, lengths_to, share_text, vanishing
from poskernel.realizability.theorems.following import followed_pairs, missed_shares, most_followed, unfollowable
from poskernel.realizability.theorems.tails import Tail, tail_of
from poskernel.realizability.theorems.verdicts import NO_PEAK, SOLVABLE, Answer, Verdict, undecided, unsettled_text
from poskernel.tasks import Targets

NAME = "theorem 2"
FEWEST = 0.001
"""A smaller share of rows is said to be under it: what is counted is no more exact than that."""


def falling(case: Case, tail: Tail) -> Answer:
    """Kernels that fall strictly from offset 0 on take offset 0 on every row, by their formula: no number is needed."""
    trained, demand = case.trained, case.demand()
    elsewhere = trained.offset != 0
    if bool(elsewhere.any()):
        row, offset = int(trained.query[elsewhere][0]), int(trained.offset[elsewhere][0])
        reason = (
            f"no kernel of the family solves length {case.train_length}: {tail.why}, and row {row} asks for offset "
            f"{offset}"
        )
        return Answer(Verdict.CANNOT, SOLVABLE, reason, True)
    if demand.settles is None:
        return undecided(f"{unsettled_text(demand)}, and {tail.why}", demand, NAME)
    if not demand.settles or demand.value != 0:
        return Answer(Verdict.CANNOT, NAME, f"{demand.reason}, but {tail.why}", demand.exact, demand)
    family = case.encoding.family(case.train_length, case.train_length)
    linear = isinstance(case.encoding, KerpleLog) and not case.encoding.free_rate
    weights = -torch.ones(family.shape, dtype=torch.float64) if linear else family.start()
    profile = family.kernel(weights).profile(2)
    assert profile is not None  # a function of the offset
    reason = f"{demand.reason}, and every kernel of the family that is not constant falls strictly from there"
    return Answer(Verdict.TRANSFERS, NAME, reason, demand.exact, demand, weights, float(profile[0] - profile[1]))


def stationary(case: Case) -> Answer:
    """One offset on almost all deep rows, attained as a strict global peak by a kernel that solves the training length.

    The training length is known to be solved by some kernel.
    """
    demand = case.demand()
    if not demand.settles:
        return unsettled(case, demand)
    if not case.linear:
        return undecided("whether the offset is attained is open: the family is not linear", demand, NAME)
    assert demand.value is not None
    aligned = aligned_kernel(case, demand.value)
    if aligned is not None:
        return attained(case, demand, *aligned)
    deep = Targets(torch.tensor([case.horizon]), torch.tensor([case.horizon - demand.value]))
    return by_programme(case, deep, demand)


def seen_whole(case: Case) -> bool:
    """Whether all that an encoding's kernels do lies before the horizon: beyond it they are constant."""
    encoding = case.encoding
    if type(encoding) is T5:
        return encoding.max_distance < case.horizon
    return type(encoding) is Shaw and encoding.clip < case.horizon


def unsettled(case: Case, demand: Demand) -> Answer:
    """No offset settles: theorem 2 excludes kernels with one strict global peak, and what excludes the others?

    First what holds for every kernel of the offset, then what the family's formula adds, then a kernel that follows
    the task; where none of them decides it is open.
    """
    missed = unsettled_text(demand)
    nothing_follows = unfollowable(case.task)
    if nothing_follows is not None:
        return Answer(Verdict.CANNOT, NAME, f"{missed}, and {nothing_follows}", True, demand)
    tail = tail_of(case.encoding)
    if tail is not None and demand.settles is False and (tail.settles or demand.exact):
        # Of the built-in tasks only `first` comes this far: it asks for a new offset on every row.
        return Answer(Verdict.CANNOT, NAME, f"{missed}, and {tail.why}", demand.exact, demand)
    lengths = lengths_to(case.horizon, case.train_length)
    shares = missed_shares(case.task, case.train_length, lengths, new_winners=tail is None)
    if vanishing(lengths, shares)[0] is False:
        whose = "any kernel of the offset" if tail is None else f"any kernel of the family ({tail.why})"
        few = shares[-1] > 1 - FEWEST
        most = f"under {share_text(FEWEST)}" if few else f"at most {share_text(1 - shares[-1])}"
        reason = f"{missed}, and {whose} is right on {most} of the rows up to {case.horizon}"
        return Answer(Verdict.CANNOT, NAME, reason, False, demand)
    if case.linear and not case.task.depends_on_length:
        return following(case, demand)
    return undecided(f"{missed}; a kernel without a global peak is neither found nor excluded", demand, NAME)


def following(case: Case, demand: Demand) -> Answer:
    """A kernel without a global peak that is right on the rows up to the horizon, by a programme; or undecided."""
    family, trained = case.family, case.trained
    rows = case.task.new_targets(case.train_length, case.horizon)
    pairs = followed_pairs(most_followed(rows, None, trained).winners)
    higher, lower = (family.design(each, torch.zeros_like(each)).numpy() for each in pairs)
    wanted = distinct_rows(np.vstack([margin_constraints(family, trained), higher - lower]))
    asked = with_resolution(wanted, [family], [case.horizon], case.phase_rate, tied=True)
    found = peak(family, asked, [trained], case.left)
    missed = unsettled_text(demand)
    if found.weights is not None:
        kernel, lengths = case.kernel(found.weights), lengths_to(case.horizon, case.train_length)
        shares = [1 - alpha(kernel, case.task, case.train_length, each) for each in lengths]
        if vanishing(lengths, shares, case.train_length)[0]:
            reason = (
                f"{missed}, but a kernel without a global peak follows them: it solves length {case.train_length} "
                f"and is right on {share_text(1 - shares[-1])} of the rows up to {case.horizon}"
            )
            return Answer(Verdict.TRANSFERS, NO_PEAK, reason, False, demand, found.weights, found.margin)
    return undecided(
        f"{missed}; kernels with a global peak cannot follow, and of the others none was found that is right up to "
        f"{case.horizon}{': ' + found.why if found.why else ''}, which excludes none that misses a few rows",
        demand,
        NAME,
    )


def aligned_kernel(case: Case, offset: int) -> tuple[Float[Tensor, " weight"], float, bool] | None:
    """The kernel basis(d) . basis(offset), its margin, and whether it peaks at the offset beyond the horizon too.

    By Cauchy and Schwarz it peaks there, over every offset with other features, where all features have the same
    length. None where it does not, or does not solve the training length. XPos' features shrink.
    """
    if type(case.encoding) is XPos:
        return None
    table = case.feature_table(case.horizon + 1)
    size = table.norm(dim=1)
    if not bool(((size - size[offset]).abs() <= STRICTNESS * size[offset]).all()):
        return None
    weights = table[offset] / table[offset].abs().max()
    profile = table @ weights
    rest = torch.cat([profile[:offset], profile[offset + 1 :]]).max()
    trained = row_margins(case.kernel(weights), case.trained)
    if trained.first_wrong is not None or float(profile[offset] - rest) <= STRICTNESS * float(profile.abs().max()):
        return None
    # One of T5's or Shaw's buckets that ends before the horizon stays where it is.
    return weights, min(trained.least, float(profile[offset] - rest)), type(case.encoding) in (T5, Shaw)


def attained(case: Case, demand: Demand, weights: Float[Tensor, " weight"], margin: float, everywhere: bool) -> Answer:
    """The demanded offset is the strict global peak of a kernel that solves the training length."""
    how = "over all others" if everywhere else f"over all others up to {case.horizon}"
    reason = f"{demand.reason}, and a kernel with its strict peak there, {how}, solves length {case.train_length}"
    return Answer(Verdict.TRANSFERS, NAME, reason, demand.exact and everywhere, demand, weights, margin)


def by_programme(case: Case, deep: Targets, demand: Demand) -> Answer:
    """Attainability with the training length: a cycle of offsets, then equal features, then the programme."""
    targets = case.trained
    both = Targets(*(torch.cat(pair) for pair in ((targets.query, deep.query), (targets.key, deep.key))))
    what = f"offset {demand.value} is demanded of deep rows"
    cycle = order_cycle(both)
    if cycle is not None:
        chain = " > ".join(map(str, [*cycle, cycle[0]]))
        reason = f"{what}, but with length {case.train_length} that orders offsets in a cycle: {chain}"
        return Answer(Verdict.CANNOT, NAME, reason, demand.exact, demand)
    best = case.peaked(deep)
    if best.margin is not None:
        assert best.weights is not None
        return attained(case, demand, best.weights, best.margin, seen_whole(case))
    if best.impossible:
        reason = f"{what}, and no kernel that solves length {case.train_length} peaks there: {best.why}"
        return Answer(Verdict.CANNOT, NAME, reason, demand.exact, demand)
    return undecided(f"{what}; whether a kernel peaks there is open: {best.why}", demand, NAME)
