"""Encodings a user might write, and cases of them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from poskernel.encodings import AbsoluteEncoding, Encoding, RelativeEncoding, parse_encoding
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.statements import answer_of
from poskernel.tasks import parse_task


def case(encoding, task, horizon=2000, train_length=20):
    encoding = parse_encoding(encoding) if isinstance(encoding, str) else encoding
    return Case(encoding, parse_task(task) if isinstance(task, str) else task, train_length, horizon, 30.0)


def answer(encoding, task, horizon=2000, train_length=20):
    return answer_of(case(encoding, task, horizon, train_length))


@dataclass(frozen=True)
class Own(RelativeEncoding):
    """Somebody's own basis, of which nothing is known beyond the horizon."""

    name = "own"
    functions: Callable[[torch.Tensor], torch.Tensor]

    def basis(self, offset):
        return self.functions(offset.double())


RISING = {
    "logarithm": Own(lambda offset: torch.log1p(offset)[:, None]),
    "line and square": Own(lambda offset: torch.stack([offset / 100, (offset / 100) ** 2], 1)),
    "root and cosine": Own(lambda offset: torch.stack([offset.sqrt(), offset.cos()], 1)),
}


@dataclass(frozen=True)
class Line(AbsoluteEncoding):
    """Proposition 1's own features."""

    name = "line"
    square: bool = False

    def features(self, position, train_length):
        powers = (0, 1, 2) if self.square else (0, 1)
        return torch.stack([(position.double() / 20) ** power for power in powers], dim=1)


@dataclass(frozen=True)
class ScaledBasis(RelativeEncoding):
    """An encoding of offsets whose basis is multiplied, column by column if there are several factors."""

    name = "scaled"
    of: Encoding
    factors: tuple[float, ...] = (1.0,)

    def basis(self, offset):
        return self.of.basis(offset) * multipliers(self.factors, self.of.basis(offset).shape[1])

    def bounded_weights(self):
        return self.of.bounded_weights()


@dataclass(frozen=True)
class ScaledFeatures(AbsoluteEncoding):
    """An encoding of positions whose features are multiplied."""

    name = "scaled"
    of: Encoding
    factors: tuple[float, ...] = (1.0,)

    def features(self, position, train_length):
        features = self.of.features(position, train_length)
        return features * multipliers(self.factors, features.shape[1])


def multipliers(factors, width):
    return torch.tensor(factors, dtype=torch.float64).repeat(-(-width // len(factors)))[:width]


def scaled(encoding, *factors):
    return (ScaledBasis if encoding.relative else ScaledFeatures)(encoding, factors)
