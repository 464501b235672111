"""Rotary encodings: queries and keys turn with their position, so a head's kernel is a sum of cosines of the offset.

Here: what all of them share, plain RoPE, and the variants that turn part of a head or damp what they turn. Frequency
scalings for context extension are in `rotary_scaling`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings.encoding import (
    ModelShape,
    Placement,
    PositionModule,
    RelativeEncoding,
    Rotation,
    geometric_frequencies,
    require_count,
    require_positive,
)
from poskernel.encodings.family import KernelFamily, RelativeFamily
from poskernel.errors import InputError

LARGEST_EXPONENT = 87.0
"""e to this is still a float32, and so is its inverse."""


class RotaryEncoding(RelativeEncoding):
    """An encoding that turns pair k of a head by rate_k times the position, and stretches it by an attention factor a.

    Kappa(d) = c + a^2 sum_k u_k cos(rate_k d) + v_k sin(rate_k d); the constant c is there where a pair does not turn.
    """

    title: ClassVar[str]
    """How errors call it."""
    base: float
    frequencies: int
    """Pairs of one head in the kernel family, half the head's width; in a model the head width decides."""

    @abstractmethod
    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """Radians a position of the pairs that turn, in a head of `pairs` pairs and a sequence of that length.

        InputError where such a head cannot be turned.
        """

    @property
    def weight_meaning(self) -> str:
        """Cosines and sines of the pairs, at whatever rate they turn: the variants of RoPE share their weights."""
        return "rotary pairs"

    @property
    def attention_factor(self) -> float:
        """The factor a on cosines and sines."""
        return 1.0

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """The constant if there is one, cosines, sines: of the shortest sequence where the length matters."""
        return self.basis_at(offset, 1)

    def basis_at(self, offset: Int[Tensor, " offset"], length: int) -> Float[Tensor, "offset weight"]:
        """The basis at these offsets in a sequence of that length."""
        rates = self.rates(self.frequencies, length)
        phase = offset.double()[:, None] * rates
        waves = self.attention_factor**2 * torch.cat([phase.cos(), phase.sin()], dim=1)
        if len(rates) == self.frequencies:
            return waves
        return torch.cat([torch.ones(len(offset), 1, dtype=torch.float64), waves], dim=1)

    def family(self, train_length: int, length: int) -> KernelFamily:
        """The span of the basis at the evaluated length."""
        return RelativeFamily(lambda offset: self.basis_at(offset, length), self.name)

    def plane_rates(self, pairs: int, length: int) -> Float[Tensor, " plane"]:
        """Rates of the planes (k, k + planes) that a model turns; coordinates beyond 2 x planes are left alone."""
        return self.rates(pairs, length)

    def module(self, shape: ModelShape) -> PositionModule:
        """Turns queries and keys alike; the head's width takes the place of `frequencies`."""
        pairs = pairs_of(shape, self.title)
        if self.depends_on_length:
            return LengthwiseRotaryTable(self, pairs)
        return RotaryTable(self.plane_rates(pairs, 1), self.attention_factor)


@dataclass(frozen=True)
class Rope(RotaryEncoding):
    """RoPE (arXiv 2104.09864).

    Kappa(d) = sum_k a_k cos(theta_k d) + b_k sin(theta_k d), theta_k = scale base^(-k/frequencies).
    """

    name = "rope"
    title = "RoPE"
    base: float = 1e4
    frequencies: int = 16
    scale: float = 1.0
    """Factor on every frequency: 1/s is linear position interpolation by s."""

    def __post_init__(self) -> None:
        require_rotary(self)
        require_positive(self.scale, "frequency scale of RoPE")

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """scale base^(-k/pairs), at every length."""
        return self.scale * geometric_frequencies(self.base, pairs)


@dataclass(frozen=True)
class PartialRope(RotaryEncoding):
    """Partial rotary (GPT-J, GPT-NeoX): the first D' = int(fraction D) coordinates of a head of width D turn.

    Kappa(d) = c + sum_k a_k cos(theta_k d) + b_k sin(theta_k d), theta_k = base^(-2k/D'), k < D'/2. The rest of the
    head stays content: D' sets the frequencies, unlike in p-RoPE.
    """

    name = "partial"
    title = "partial RoPE"
    fraction: float = 0.5
    base: float = 1e4
    frequencies: int = 16

    def __post_init__(self) -> None:
        require_rotary(self)
        require_fraction(self.fraction, "turned fraction of partial RoPE")
        self.rates(self.frequencies, 1)

    @property
    def weight_meaning(self) -> str:
        """Its own: the turned pairs are others than in RoPE, and one weight belongs to what does not turn."""
        return self.name

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """base^(-2k/D') of the D'/2 turned pairs."""
        turned = int(self.fraction * 2 * pairs)
        if turned < 2 or turned % 2:
            raise InputError(
                f"partial RoPE turns {turned} of a head's {2 * pairs} coordinates at fraction {self.fraction}: give a "
                "fraction that makes this an even number of at least 2."
            )
        return geometric_frequencies(self.base, turned // 2)


@dataclass(frozen=True)
class ProportionalRope(RotaryEncoding):
    """p-RoPE (arXiv 2410.06205; "proportional" elsewhere): the lowest frequencies of RoPE are set to 0.

    Kappa(d) = c + sum_k a_k cos(theta_k d) + b_k sin(theta_k d), theta_k = base^(-2k/D) for the first int(fraction D/2)
    pairs only. The frequencies are those of the whole head, unlike in partial rotary.
    """

    name = "p-rope"
    title = "p-RoPE"
    fraction: float = 0.75
    base: float = 1e4
    frequencies: int = 16

    def __post_init__(self) -> None:
        require_rotary(self)
        require_fraction(self.fraction, "turned fraction of p-RoPE")
        self.rates(self.frequencies, 1)

    @property
    def weight_meaning(self) -> str:
        """Its own: the turned pairs are others than in RoPE, and one weight belongs to what does not turn."""
        return self.name

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """base^(-k/pairs) of the turned pairs."""
        turned = int(self.fraction * 2 * pairs // 2)
        if turned < 1:
            raise InputError(
                f"p-RoPE turns none of {pairs} pairs at fraction {self.fraction}: give a larger fraction, or use nope."
            )
        return geometric_frequencies(self.base, pairs)[:turned]

    def plane_rates(self, pairs: int, length: int) -> Float[Tensor, " plane"]:
        """Every pair has a plane; those that do not turn have rate 0, so that pair k stays (k, k + D/2)."""
        rates = self.rates(pairs, length)
        return torch.cat([rates, rates.new_zeros(pairs - len(rates))])


@dataclass(frozen=True)
class XPos(RotaryEncoding):
    """xPos (arXiv 2212.10554): RoPE whose pairs decay with the offset, the fast ones sooner.

    Kappa(d) = sum_k zeta_k^(d / decay_length) (a_k cos(theta_k d) + b_k sin(theta_k d)),
    zeta_k = (k/frequencies + gamma) / (1 + gamma). For causal attention: at negative offsets the pairs grow.
    """

    name = "xpos"
    title = "xPos"
    base: float = 1e4
    frequencies: int = 16
    decay_length: float = 512.0
    gamma: float = 0.4

    def __post_init__(self) -> None:
        require_rotary(self)
        require_positive(self.decay_length, "decay length of xPos")
        require_positive(self.gamma, "gamma of xPos")

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """base^(-k/pairs)."""
        return geometric_frequencies(self.base, pairs)

    def log_decay(self, pairs: int) -> Float[Tensor, " pair"]:
        """ln(zeta_k) / decay_length: what a pair loses a position, in nats, negative."""
        share = torch.arange(pairs, dtype=torch.float64) / pairs
        return ((share + self.gamma) / (1 + self.gamma)).log() / self.decay_length

    def basis_at(self, offset: Int[Tensor, " offset"], length: int) -> Float[Tensor, "offset weight"]:
        """Damped cosines, then damped sines."""
        damping = (offset.double()[:, None] * self.log_decay(self.frequencies)).exp()
        return super().basis_at(offset, length) * torch.cat([damping, damping], dim=1)

    def module(self, shape: ModelShape) -> PositionModule:
        """Queries shrink as their position grows, keys grow: the product decays with the offset."""
        pairs = pairs_of(shape, self.title)
        return DampedRotaryTable(self.rates(pairs, 1), self.log_decay(pairs))


class RotaryTable(PositionModule):
    """Rotation by position times frequency, stretched by an attention factor; phases are computed in float64."""

    def __init__(self, frequency: Float[Tensor, " frequency"], attention_factor: float = 1.0) -> None:
        super().__init__()
        self.frequency: Tensor
        self.register_buffer("frequency", frequency, persistent=False)
        self.attention_factor = attention_factor

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """The same rotation for queries and keys, float32."""
        rotation = rotation_by(position, self.frequency, self.attention_factor)
        return Placement(query_rotation=rotation, key_rotation=rotation)


class LengthwiseRotaryTable(PositionModule):
    """Rotation whose frequencies follow from the length of the sequence at hand: last position + 1.

    It holds no state: a long sequence leaves nothing behind for the next one.
    """

    def __init__(self, encoding: RotaryEncoding, pairs: int) -> None:
        super().__init__()
        self.encoding, self.pairs = encoding, pairs
        for length in (1, 1 << 30):  # what the head's width forbids is said when the model is made
            encoding.plane_rates(pairs, length)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """The same rotation for queries and keys, float32."""
        rates = self.encoding.plane_rates(self.pairs, int(position.max()) + 1).to(position.device)
        rotation = rotation_by(position, rates, self.encoding.attention_factor)
        return Placement(query_rotation=rotation, key_rotation=rotation)


class DampedRotaryTable(PositionModule):
    """Rotation times exp(log_decay x position) for queries and its inverse for keys."""

    def __init__(self, frequency: Float[Tensor, " frequency"], log_decay: Float[Tensor, " frequency"]) -> None:
        super().__init__()
        self.frequency: Tensor
        self.log_decay: Tensor
        self.register_buffer("frequency", frequency, persistent=False)
        self.register_buffer("log_decay", log_decay, persistent=False)
        steepest = float(log_decay.abs().max())
        self.longest = 1 + int(2 * LARGEST_EXPONENT / steepest)
        """Positions whose factors float32 can hold."""

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Rotations of queries and of keys, float32; InputError where a sequence is too long for float32."""
        low, high = int(position.min()), int(position.max())
        if high - low >= self.longest:
            raise InputError(
                f"xPos scales positions {low} to {high} beyond float32: give sequences of at most {self.longest} "
                "positions or a larger decay_length."
            )
        # Products depend on differences alone: counted from the middle, factors stay as near 1 as they can.
        growth = (position.double() - (low + high) / 2)[:, None] * self.log_decay.double()
        cosine, sine = phases(position, self.frequency)
        shrink, grow = growth.exp(), (-growth).exp()
        return Placement(
            query_rotation=((shrink * cosine).float(), (shrink * sine).float()),
            key_rotation=((grow * cosine).float(), (grow * sine).float()),
        )


def phases(position: Int[Tensor, " position"], rate: Float[Tensor, " plane"]) -> Rotation:
    """Cosines and sines of rate x position, float64."""
    phase = position.double()[:, None] * rate.double()
    return phase.cos(), phase.sin()


def rotation_by(position: Int[Tensor, " position"], rate: Float[Tensor, " plane"], factor: float) -> Rotation:
    """Cosines and sines of rate x position, times a factor, float32."""
    cosine, sine = phases(position, rate)
    return (factor * cosine).float(), (factor * sine).float()


def pairs_of(shape: ModelShape, title: str) -> int:
    """Number of pairs of one head; InputError where one coordinate is left over."""
    if shape.head_width % 2:
        raise InputError(f"{title} needs an even head width, got {shape.head_width}: change the width or the heads.")
    return shape.head_width // 2


def require_rotary(encoding: RotaryEncoding) -> None:
    """InputError unless base and number of frequencies of a rotary encoding make sense."""
    require_positive(encoding.base, f"base of {encoding.title}")
    require_count(encoding.frequencies, f"number of frequencies of {encoding.title}")


def require_fraction(value: float, what: str) -> None:
    """InputError unless a parameter is a share above 0, up to 1."""
    if not 0 < value <= 1:
        raise InputError(f"{what} is {value}: give a number above 0, up to 1.")
