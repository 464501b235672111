"""Existence beside selection: does any kernel of a family solve the training length, and a longer one with it.

A rule may fail to select a kernel that exists; this module asks for the kernel itself. Exact certificates come first
(targets that clash, a cycle in the order a relative kernel must obey, two keys with equal features), then a linear
programme whose answer is verified by substitution both ways.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float

from poskernel.encodings import Encoding, KernelFamily, LinearFamily, RelativeFamily
from poskernel.errors import InputError, RunError
from poskernel.realizability.alignment import targets_conflict
from poskernel.realizability.margin_programme import POSITIVE, best_margin, distinct_rows, margin_constraints
from poskernel.storage import cache_folder, write_whole
from poskernel.tasks import Targets, Task

logger = logging.getLogger(__name__)

IMPOSSIBLE = 1e-9
"""An upper bound on the margin (with |w| <= 1) at or below this counts as none."""


class Exists(StrEnum):
    """Whether some kernel of the family solves all the lengths asked for."""

    YES = "yes"
    NO = "no"
    CONFLICT = "conflict"
    UNDECIDED = "undecided"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True)
class Existence:
    """The answer, the margin range that supports it (nats, for weights of at most 1), and why in words."""

    answer: Exists
    margin: float | None
    """Verified margin of the kernel found; None where none was."""
    upper_bound: float | None
    """No kernel with |w| <= 1 has a larger margin."""
    reason: str


def existence(
    encoding: Encoding,
    task: Task,
    train_length: int,
    length: int | None = None,
    seconds: float = 60.0,
    cache: bool = True,
    test_encoding: Encoding | None = None,
) -> Existence:
    """Does any kernel of the encoding solve every query row at train_length, and at length too where one is given.

    All rows count, not the new ones alone. With a `test_encoding`, or where the family changes with the length, the
    same weights stand for other logits at `length`. `seconds` bounds the linear programme; beyond it the answer is
    undecided. Not applicable where the kernels are not linear in their weights, or none is defined. Answers are cached
    by the content of the programme under POSKERNEL_CACHE.
    """
    if length is not None and length <= train_length:
        raise InputError(f"length {length} is not beyond the training length {train_length}: give a longer one.")
    tested = encoding if test_encoding is None else test_encoding
    if without := next((each.no_kernel for each in (encoding, tested) if each.no_kernel), ""):
        return not_applicable(without)
    # Rows below the training length have one kernel at both lengths, unless the family is another at each.
    same_rows = tested == encoding and not encoding.depends_on_length
    if length is not None and same_rows and task.depends_on_length and targets_conflict(task, train_length, length):
        return Existence(
            Exists.CONFLICT,
            None,
            None,
            f"rows below {train_length} have other targets at length {length}: no kernel has both",
        )
    if length is not None and tested.drawn:
        return not_applicable(f"what '{tested.name}' is at length {length} is drawn at random")
    families = [encoding.family(train_length, train_length)]
    families += [] if length is None else [tested.family(train_length, length)]
    targets = [task.targets(train_length)] + ([] if length is None else [task.targets(length)])
    return linear_existence(families, targets, seconds, cache)


def linear_existence(
    families: Sequence[KernelFamily], targets: Sequence[Targets], seconds: float, cache: bool
) -> Existence:
    """Do any weights solve each family's targets: by certificates, else by the linear programme."""
    linear = [family for family in families if isinstance(family, LinearFamily)]
    if len(linear) < len(families):
        return not_applicable("the logits are not linear in the weights on one grid")
    for family, wanted in zip(linear, targets, strict=True):
        if isinstance(family, RelativeFamily) and (cycle := order_cycle(wanted)):
            chain = " > ".join(str(offset) for offset in [*cycle, cycle[0]])
            return Existence(Exists.NO, None, 0.0, f"the targets order offsets in a cycle: {chain}")
    rows = distinct_rows(np.vstack([margin_constraints(*pair) for pair in zip(linear, targets, strict=True)]))
    if not rows.any(axis=1).all():
        return Existence(Exists.NO, None, 0.0, "the target and another key have equal features, so they always tie")
    upper = linear[0].upper_bounds().numpy()

    def answer() -> Existence:
        return programme_answer(rows, upper, seconds)

    return cached(rows, upper, answer) if cache else answer()


def not_applicable(reason: str) -> Existence:
    """No answer, and why."""
    return Existence(Exists.NOT_APPLICABLE, None, None, reason)


def programme_answer(
    rows: Float[np.ndarray, "constraint weight"], upper: Float[np.ndarray, " weight"], seconds: float
) -> Existence:
    """The linear programme's answer, accepted only as far as substitution supports it."""
    started = time.monotonic()
    best = best_margin(rows, upper, seconds)
    stopped = f", where the limit of {seconds:g} s ended the search" if time.monotonic() - started >= seconds else ""
    margin = best.margin if best.positive else None
    bound = best.upper_bound if np.isfinite(best.upper_bound) else None
    if best.positive:
        return Existence(Exists.YES, margin, bound, f"a kernel with margin {best.margin:.2g} exists")
    if bound is not None and bound <= IMPOSSIBLE:
        return Existence(Exists.NO, None, bound, f"dual weights bound every margin by {bound:.2g}")
    known = "no bound" if bound is None else f"the margin is between {best.margin:.2g} and {bound:.2g}"
    return Existence(
        Exists.UNDECIDED,
        None,
        bound,
        f"{known}{stopped}; a margin must exceed {POSITIVE:g} to count",
    )


def order_cycle(targets: Targets) -> list[int] | None:
    """Offsets of a shortest cycle in 'must beat', each beating the next: then no relative kernel exists.

    None if acyclic.
    """
    beats: dict[int, set[int]] = {}
    for query, offset in zip(targets.query.tolist(), targets.offset.tolist(), strict=True):
        beats.setdefault(offset, set()).update(other for other in range(query + 1) if other != offset)
    best: list[int] | None = None
    for start in sorted(beats):
        before, frontier = {start: start}, [start]
        while frontier and start in beats:
            following: list[int] = []
            for offset in frontier:
                if start in beats.get(offset, ()):
                    path = [offset]
                    while path[-1] != start:
                        path.append(before[path[-1]])
                    if best is None or len(path) < len(best):
                        best = path[::-1]
                    following = []
                    break
                for other in beats.get(offset, ()):
                    if other not in before and other in beats:
                        before[other] = offset
                        following.append(other)
            frontier = following
        if best is not None and len(best) == 2:
            break
    return best


def cached(
    rows: Float[np.ndarray, "constraint weight"], upper: Float[np.ndarray, " weight"], answer: Callable[[], Existence]
) -> Existence:
    """The stored answer to the same programme, or a new one, stored unless undecided (more time may decide it)."""
    digest = hashlib.sha256(b"poskernel existence 2")
    for array in (rows, upper):
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    path = cache_folder() / "existence" / f"{digest.hexdigest()}.json"
    try:
        stored = json.loads(path.read_text())
        return Existence(Exists(stored.pop("answer")), **stored)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # absent or damaged: computed anew, and overwritten whole
    result = answer()
    if result.answer is not Exists.UNDECIDED:
        try:
            write_whole(path, json.dumps(asdict(result)))
        except RunError as error:
            logger.warning("the answer is not cached: %s", error)
    return result
