"""Scalings of RoPE for longer contexts than a model was trained at: which frequencies slow down, and by how much.

Each has as many weights as RoPE with the same number of frequencies: a kernel fitted, or a model trained, under RoPE
can be evaluated under any of them. `original` is the length the model was trained at, `factor` the extension. Linear,
NTK, YaRN and llama3 are the same at every length; dynamic NTK and LongRoPE change with the sequence at hand.
"""

import math
import sys
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings.encoding import geometric_frequencies, require_positive
from poskernel.encodings.rotary import RotaryEncoding, require_rotary
from poskernel.errors import InputError

STUDY_LENGTH, STUDY_EXTENSION = 20, 4.0
"""Defaults of `original` and `factor`: the training length and the farthest test length of the realizability study."""


@dataclass(frozen=True)
class LinearInterpolation(RotaryEncoding):
    """Linear position interpolation (arXiv 2306.15595): every frequency divided by the factor.

    It moves a peak fitted at offset t to factor x t. `rope:scale=0.25` and `linear:factor=4` are the same kernels.
    """

    name = "linear"
    title = "linear interpolation"
    factor: float = STUDY_EXTENSION
    base: float = 1e4
    frequencies: int = 16

    def __post_init__(self) -> None:
        require_rotary(self)
        require_factor(self.factor, self.title)

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """base^(-k/pairs) / factor."""
        return geometric_frequencies(self.base, pairs) / self.factor


@dataclass(frozen=True)
class Ntk(RotaryEncoding):
    """Static NTK-aware scaling (bloc97 2023; arXiv 2309.00071, section 3.1): the base grows to base s^(D/(D-2)).

    The fastest pair stays, the slowest is divided by the factor s; D is the head's width.
    """

    name = "ntk"
    title = "NTK scaling"
    factor: float = STUDY_EXTENSION
    base: float = 1e4
    frequencies: int = 16

    def __post_init__(self) -> None:
        require_rotary(self)
        require_factor(self.factor, self.title)
        require_pairs(self.frequencies, self.title)

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """Geometric frequencies of the grown base."""
        require_pairs(pairs, self.title)
        return ntk_rates(self.base, self.factor, pairs)


@dataclass(frozen=True)
class DynamicNtk(RotaryEncoding):
    """Dynamic NTK scaling (emozilla 2023; arXiv 2309.00071, appendix B.3): NTK by s n/L0 - (s - 1) at length n > L0.

    Up to the original length L0 it is RoPE. Every position of a sequence turns as the sequence's length says.
    """

    name = "dynamic"
    title = "dynamic NTK scaling"
    depends_on_length = True
    factor: float = 2.0
    original: int = STUDY_LENGTH
    base: float = 1e4
    frequencies: int = 16

    def __post_init__(self) -> None:
        require_rotary(self)
        require_factor(self.factor, self.title)
        require_original(self.original, self.title)
        require_pairs(self.frequencies, self.title)

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """Geometric frequencies of the base that this length calls for."""
        require_pairs(pairs, self.title)
        extension = self.factor * max(length, self.original) / self.original - (self.factor - 1)
        return ntk_rates(self.base, extension, pairs)


def require_attention(attention: float, factor: float, title: str) -> None:
    """InputError where a^2, by which logits are multiplied, is 0 or infinite in float64."""
    if not sys.float_info.min <= factor * factor < math.inf:
        raise InputError(
            f"attention of {title} is {attention}, and logits are multiplied by its square: give 1e-150 to 1e150."
        )


@dataclass(frozen=True)
class Yarn(RotaryEncoding):
    """YaRN (arXiv 2309.00071): pairs of many turns in L0 stay, those of less than one are interpolated, a ramp between.

    f'_k = gamma_k f_k + (1 - gamma_k) f_k / s, gamma_k = 1 - clamp((k - low) / (high - low), 0, 1), where the ends are
    the pairs that turn `fast` and `slow` times in L0, rounded outwards. Cosines and sines are multiplied by
    a = attention (0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1), logits by a^2.
    """

    name = "yarn"
    title = "YaRN"
    factor: float = STUDY_EXTENSION
    original: int = STUDY_LENGTH
    base: float = 1e4
    frequencies: int = 16
    fast: float = 32.0
    """Turns in the original length from which a pair is left alone."""
    slow: float = 1.0
    """Turns in the original length up to which a pair is fully interpolated."""
    truncate: bool = True
    """Round the ramp's ends outwards to whole pairs."""
    mscale: float = 1.0
    """0 leaves the attention factor at `attention`."""
    mscale_all_dim: float = 0.0
    """As in DeepSeek's configurations."""
    attention: float = 1.0

    def __post_init__(self) -> None:
        require_rotary(self)
        require_factor(self.factor, self.title)
        require_original(self.original, self.title)
        require_positive(self.attention, "attention of YaRN")
        require_positive(self.slow, "slow of YaRN")
        if self.base <= 1:
            raise InputError(f"base of YaRN is {self.base}: give more than 1, its ramp divides by the logarithm.")
        if not self.slow < self.fast < math.inf:
            raise InputError(f"fast of YaRN is {self.fast} and slow {self.slow}: give more turns for fast.")
        for field in ("mscale", "mscale_all_dim"):
            if not 0 <= getattr(self, field) < math.inf:
                raise InputError(f"{field} of YaRN is {getattr(self, field)}: give 0 or more.")
        require_attention(self.attention, self.attention_factor, self.title)

    @property
    def attention_factor(self) -> float:
        """a."""
        top, bottom = (0.1 * scale * math.log(self.factor) + 1 for scale in (self.mscale, self.mscale_all_dim))
        return self.attention * top / bottom

    def ramp(self, pairs: int) -> tuple[float, float]:
        """The pairs between which interpolation sets in: the last untouched one and the first wholly interpolated one.

        At tiny original lengths the second lies before the first and nothing is interpolated, as in the published code.
        """
        width = 2 * pairs
        low, high = (
            width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.base))
            for turns in (self.fast, self.slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        return float(max(low, 0)), float(min(high, width - 1))

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """gamma f + (1 - gamma) f / factor."""
        low, high = self.ramp(pairs)
        if low == high:
            high += 1e-3  # as in the published code
        interpolated = ((torch.arange(pairs, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        frequency = geometric_frequencies(self.base, pairs)
        return (1 - interpolated) * frequency + interpolated * frequency / self.factor


@dataclass(frozen=True)
class LongRope(RotaryEncoding):
    """LongRoPE (arXiv 2402.13753): f_k / lambda_k, with the short list up to the original length and the long beyond.

    Cosines and sines are multiplied by a = attention sqrt(1 + ln s / ln L0) at every length. The published lists come
    from a search on each model. Without lists, short is all ones and long is lambda_k = s^((k/(D/2 - 1))^bend), which
    the search may start from: bend 1 is NTK scaling, bend 0 linear interpolation. It is nobody's searched list.
    """

    name = "longrope"
    title = "LongRoPE"
    depends_on_length = True
    factor: float = STUDY_EXTENSION
    original: int = STUDY_LENGTH
    base: float = 1e4
    frequencies: int = 16
    bend: float = 1.0
    """Shape of the long list where none is given."""
    short: tuple[float, ...] = ()
    """Divisor of each pair up to the original length."""
    long: tuple[float, ...] = ()
    """Divisor of each pair beyond it."""
    own_attention: bool = True
    """Whether sqrt(1 + ln s / ln L0) is part of the attention factor."""
    attention: float = 1.0

    def __post_init__(self) -> None:
        require_rotary(self)
        require_factor(self.factor, self.title)
        require_original(self.original, self.title)
        require_positive(self.attention, "attention of LongRoPE")
        if self.original < 2:
            raise InputError(
                "original of LongRoPE is 1: give 2 or more, its attention factor divides by the logarithm."
            )
        if not 0 <= self.bend < math.inf:
            raise InputError(f"bend of LongRoPE is {self.bend}: give 0 or more.")
        for divisor in (*self.short, *self.long):
            require_positive(divisor, "a divisor of LongRoPE")
        self.divisors(self.frequencies, 1)
        self.divisors(self.frequencies, self.original + 1)
        require_attention(self.attention, self.attention_factor, self.title)

    @property
    def attention_factor(self) -> float:
        """a."""
        own = math.sqrt(1 + math.log(self.factor) / math.log(self.original)) if self.own_attention else 1.0
        return self.attention * own

    def divisors(self, pairs: int, length: int) -> Float[Tensor, " pair"]:
        """lambda of each pair at that length."""
        name, given = ("long", self.long) if length > self.original else ("short", self.short)
        if given:
            if len(given) != pairs:
                raise InputError(
                    f"the {name} list of LongRoPE has {len(given)} divisors for {pairs} pairs: give one a pair, half "
                    "the head's width."
                )
            return torch.tensor(given, dtype=torch.float64)
        if name == "short":
            return torch.ones(pairs, dtype=torch.float64)
        require_pairs(pairs, self.title)
        share = torch.arange(pairs, dtype=torch.float64) / (pairs - 1)
        return self.factor ** (share**self.bend)

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """base^(-k/pairs) / lambda."""
        return geometric_frequencies(self.base, pairs) / self.divisors(pairs, length)


@dataclass(frozen=True)
class Llama3(RotaryEncoding):
    """Llama 3.1's scaling (arXiv 2407.21783 and its published configuration), by wavelength w = 2 pi / f.

    W > L0/low: f/s; w < L0/high: f; between: (1 - g) f/s + g f, g = (L0/w - low) / (high - low).
    It leaves a pair untouched only where L0 > 2 pi high: 25.1 positions at high = 4.
    """

    name = "llama3"
    title = "llama3 scaling"
    factor: float = STUDY_EXTENSION
    original: int = STUDY_LENGTH
    low: float = 1.0
    """Turns in the original length below which a pair is fully interpolated."""
    high: float = 4.0
    """Turns in the original length above which a pair is left alone."""
    base: float = 1e4
    frequencies: int = 16

    def __post_init__(self) -> None:
        require_rotary(self)
        require_factor(self.factor, self.title)
        require_original(self.original, self.title)
        require_positive(self.low, "low of llama3 scaling")
        if not self.low < self.high < math.inf:
            raise InputError(f"low of llama3 scaling is {self.low} and high {self.high}: give a higher high than low.")

    def rates(self, pairs: int, length: int) -> Float[Tensor, " turning"]:
        """g f + (1 - g) f / factor, with g clamped to 0 ... 1: the three cases in one."""
        frequency = geometric_frequencies(self.base, pairs)
        turns = self.original * frequency / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return kept * frequency + (1 - kept) * frequency / self.factor


def ntk_rates(base: float, extension: float, pairs: int) -> Float[Tensor, " pair"]:
    """Geometric frequencies of the base that is base x extension^(D/(D-2)), for a head of D = 2 x pairs coordinates.

    Written as divisors extension^(k/(pairs - 1)), so that no base overflows: the slowest pair slows by the extension.
    """
    share = torch.arange(pairs, dtype=torch.float64) / (pairs - 1)
    return geometric_frequencies(base, pairs) * extension**-share


def require_factor(value: float, title: str) -> None:
    """InputError unless a context extension is a finite number of at least 1."""
    if not 1 <= value < math.inf:
        raise InputError(f"factor of {title} is {value}: give 1 or more.")


def require_original(value: int, title: str) -> None:
    """InputError unless an original length is a whole number of at least 1."""
    if isinstance(value, bool) or value != int(value) or value < 1:
        raise InputError(f"original of {title} is {value}: give the trained length, a whole number of at least 1.")


def require_pairs(pairs: int, title: str) -> None:
    """InputError where one pair is all there is: the exponent D/(D-2) divides by zero."""
    if pairs < 2:
        raise InputError(f"{title} divides by zero with one pair (head width 2): give 2 frequencies or a wider head.")
