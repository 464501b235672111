"""Existence beside selection: does any kernel of a family solve the training length, and a longer one with it.

A rule may fail to select a kernel that exists; this module asks for the kernel itself. Exact certificates come first
(targets that clash, a cycle in the order a relative kernel must obey, two keys with equal features), then a linear
programme whose answer is verified by substitution both ways.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np

from poskernel.encodings import Encoding, KernelFamily, LinearFamily, RelativeFamily
from poskernel.errors import InputError, RunError
from poskernel.realizability.alignment import targets_conflict
from poskernel.realizability.cone import Programme, decide, phase_rate, programme
from poskernel.storage import cache_folder, write_whole
from poskernel.tasks import Targets, Task

logger = logging.getLogger(__name__)

VERSION = b"poskernel existence 5"
"""Of what counts as an answer: cached ones of another version are not read."""


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
    """Verified margin of the kernel found; None where none was, or where no row has a wrong key."""
    upper_bound: float | None
    """No kernel with |w| <= 1 has a larger margin."""
    reason: str

    @property
    def proved(self) -> bool:
        """Whether the answer is a yes, a no or a conflict: each rests on a proof, never on how small a margin is."""
        return self.answer in (Exists.YES, Exists.NO, Exists.CONFLICT)


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
    by the content of the programme under POSKERNEL_CACHE. Raises InputError where nothing is asked or no time is given.
    """
    if not seconds >= 0:
        raise InputError(f"the time limit of existence is {seconds}: give a number of seconds, 0 or more.")
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
    lengths = [train_length] if length is None else [train_length, length]
    targets = [task.targets(each) for each in lengths]
    for each, asked in zip(lengths, targets, strict=True):
        if not len(asked.query):
            raise InputError(f"task '{task.name}' has no query row at length {each}: give a longer one.")
    families = [encoding.family(train_length, train_length), tested.family(train_length, lengths[-1])][: len(lengths)]
    rate = max(phase_rate(encoding, train_length), phase_rate(tested, lengths[-1]))
    return linear_existence(families, targets, seconds, cache, rate)


def linear_existence(
    families: Sequence[KernelFamily], targets: Sequence[Targets], seconds: float, cache: bool, rate: float
) -> Existence:
    """Do any weights solve each family's targets: by certificates, else by the linear programme.

    `rate` is how fast the phases of sines and cosines turn at most, radians a position; 0 where features are exact.
    """
    linear = [family for family in families if isinstance(family, LinearFamily)]
    if len(linear) < len(families):
        return not_applicable("the logits are not linear in the weights on one grid")
    for family, wanted in zip(linear, targets, strict=True):
        if isinstance(family, RelativeFamily) and (cycle := order_cycle(wanted)):
            chain = " > ".join(str(offset) for offset in [*cycle, cycle[0]])
            return Existence(Exists.NO, None, 0.0, f"the targets order offsets in a cycle: {chain}")
    asked = programme(linear, targets, rate)

    def answer() -> Existence:
        return programme_answer(asked, seconds)

    return cached(asked, answer) if cache else answer()


def not_applicable(reason: str) -> Existence:
    """No answer, and why."""
    return Existence(Exists.NOT_APPLICABLE, None, None, reason)


def programme_answer(asked: Programme, seconds: float) -> Existence:
    """The answer of certificates and the linear programme, accepted only as far as substitution supports it."""
    found = decide(asked, seconds)
    bound = found.bound if np.isfinite(found.bound) else None
    if found.margin is not None:
        return Existence(Exists.YES, found.margin, bound, f"a kernel with margin {found.margin:.2g} exists")
    if found.weights is not None:
        return Existence(Exists.YES, None, bound, "every query row sees its target alone, so any kernel solves it")
    if found.empty:
        return Existence(Exists.NO, None, bound, found.why)
    return Existence(Exists.UNDECIDED, None, bound, found.why)


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


def cached(asked: Programme, answer: Callable[[], Existence]) -> Existence:
    """The stored answer to the same programme, or a new one, stored unless undecided (more time may decide it)."""
    digest = hashlib.sha256(VERSION + (b" rounded" if asked.rounded else b"") + (b" tied" if asked.tied else b""))
    for array in (asked.rows, asked.upper, asked.resolution):
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
