"""Generated data: bracket matching and local reordering as token sequences, and a convolution of real numbers.

Each draws from the stream it is given and from nothing else, so that conditions with one seed share their data.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.errors import InputError

BOUNDARY = 0
"""The token that starts every generated sequence."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of tokens and which of them a model is scored on (each predicted from those before it)."""

    tokens: Int[Tensor, "sequence position"]
    scored: Bool[Tensor, "sequence position"]


class Source(ABC):
    """Where sequences come from; a frozen dataclass, since it is part of what a model is known by."""

    name: ClassVar[str]
    """What a table calls it."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of distinct tokens."""

    @abstractmethod
    def draw(self, stream: torch.Generator, sequences: int, length: int) -> Sequences:
        """Sequences to train on."""


@dataclass(frozen=True)
class Dyck(Source):
    """Well-formed brackets of some kinds. Scored: at a closing bracket, which kind it is (Hewitt et al. 2020).

    Whether a bracket opens or closes is a coin's toss where both are possible, so only the kind can be predicted. Words
    follow one another until the sequence is full; the last may be unfinished.
    """

    name: ClassVar[str] = "dyck"
    kinds: int = 2
    deepest: int = 6

    def __post_init__(self) -> None:
        if self.kinds < 1 or self.deepest < 1:
            raise InputError(
                f"brackets of {self.kinds} kinds, {self.deepest} deep, are none: give at least 1 of either."
            )

    @property
    def vocabulary(self) -> int:
        """The start, then an opening and a closing bracket of each kind."""
        return 1 + 2 * self.kinds

    def draw(self, stream: torch.Generator, sequences: int, length: int) -> Sequences:
        """Fresh sequences: 0 first, kind k opens as 1 + k and closes as 1 + kinds + k."""
        opening = torch.randint(2, (length, sequences), generator=stream).bool()
        kind = torch.randint(self.kinds, (length, sequences), generator=stream)
        rows = torch.arange(sequences)
        stack, depth = torch.zeros(sequences, self.deepest, dtype=torch.long), torch.zeros(sequences, dtype=torch.long)
        tokens = torch.full((sequences, length), BOUNDARY)
        for step in range(1, length):
            opens = (depth == 0) | (opening[step] & (depth < self.deepest))
            top = stack[rows, (depth - 1).clamp(min=0)]
            stack[rows[opens], depth[opens]] = kind[step][opens]
            tokens[:, step] = torch.where(opens, 1 + kind[step], 1 + self.kinds + top)
            depth = torch.where(opens, depth + 1, depth - 1)
        return Sequences(tokens, tokens > self.kinds)


@dataclass(frozen=True)
class Reordering(Source):
    """Blocks of random tokens, each followed by the same tokens in another, fixed order. Scored: the second halves.

    Sequences are block, mark, reordered block, mark, and so on: everything needed is at most 2 x block back.
    """

    name: ClassVar[str] = "reordering"
    order: tuple[int, ...] = (2, 0, 3, 1)
    """Place within the block that each place of the second half repeats."""
    symbols: int = 16

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))) or not self.order:
            raise InputError(f"the order {self.order} is no permutation of 0, 1, ...: give each place once.")
        if self.symbols < 1:
            raise InputError(f"{self.symbols} symbols fill no block: give at least 1.")

    @property
    def vocabulary(self) -> int:
        """Start, two marks, and the symbols."""
        return 3 + self.symbols

    def draw(self, stream: torch.Generator, sequences: int, length: int) -> Sequences:
        """Fresh sequences: 0 first, mark 1 before a reordered block, mark 2 after it, symbols from 3 on."""
        size = len(self.order)
        period = 2 * size + 2
        pairs = -(-(length - 1) // period)
        block = torch.randint(3, 3 + self.symbols, (sequences, pairs, size), generator=stream)
        parts = [
            block,
            torch.ones_like(block[..., :1]),
            block[..., list(self.order)],
            torch.full_like(block[..., :1], 2),
        ]
        tokens = torch.cat([torch.zeros(sequences, 1, dtype=torch.long), torch.cat(parts, dim=-1).flatten(1)], dim=1)
        place = (torch.arange(length) - 1) % period
        scored = (place > size) & (place < period - 1) & (torch.arange(length) > 0)
        return Sequences(tokens[:, :length], scored.expand(sequences, -1).clone())


@dataclass(frozen=True)
class Convolution:
    """x_t standard normal, y_t = sum_d w(d) x_(t - d): what attention with the weights w over offsets computes."""

    name: ClassVar[str] = "convolution"
    weights: tuple[float, ...] = (1.0,)
    """w(0), w(1), ...: not negative, and they add up to 1, as the weights of one attention row do."""

    def __post_init__(self) -> None:
        if not self.weights or min(self.weights) < 0 or abs(sum(self.weights) - 1) > 1e-9:
            raise InputError(f"the weights {self.weights} are no row of attention: give numbers >= 0 that add up to 1.")

    @property
    def support(self) -> int:
        """Offsets it has a weight for; rows before that see too little."""
        return len(self.weights)

    def draw(
        self, stream: torch.Generator, sequences: int, length: int
    ) -> tuple[Float[Tensor, "sequence position"], Float[Tensor, "sequence position"]]:
        """Fresh x and their y; x before position 0 counts as 0."""
        x = torch.randn(sequences, length, generator=stream)
        kernel = torch.tensor(self.weights).flip(0)[None, None]
        padded = torch.nn.functional.pad(x, (self.support - 1, 0))
        return x, torch.nn.functional.conv1d(padded[:, None], kernel)[:, 0]
