"""Tasks a user might write: the demanded offset as a function of the row (and of the length)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from poskernel.tasks import OffsetRegime, Task


@dataclass(frozen=True)
class ByOffset(Task):
    """Row i asks for the key offset(i) back."""

    regime = OffsetRegime.FIXED_RELATIVE
    offset: Callable[[torch.Tensor], torch.Tensor]
    name = "by-offset"

    def target_key(self, query, length):
        return query - self.offset(query).long()


@dataclass(frozen=True)
class ByKey(Task):
    """Row i asks for key(i)."""

    regime = OffsetRegime.FIXED_ABSOLUTE
    key: Callable[[torch.Tensor], torch.Tensor]
    name = "by-key"

    def target_key(self, query, length):
        return torch.minimum(self.key(query).long(), query)


def usual_except(rare, usual=1, exception=2):
    """Offset `usual`, or `exception` on the rows where rare holds."""
    return ByOffset(lambda query: torch.where(rare(query), exception, usual))


def is_square(query):
    return query.double().sqrt().round() ** 2 == query


def is_power_of_two(query):
    return (query & (query - 1)) == 0


def is_cube(query):
    return query.double().pow(1 / 3).round() ** 3 == query


def is_odd(query):
    return query % 2 == 1


def in_odd_block(query):
    return query.clamp(min=1).double().log2().floor() % 2 == 1
