"""Kernels of rotary heads in closed form: at any length, any frequencies and any attention factor.

With q_k(t), k_k(s) the unrotated query and key of plane k as complex numbers, a rotary head's stationary kernel is

    g(d) = scale * (a^2 Re sum_k z_k(d) e^{i theta_k d} + c(d)),    z_k(d) = mean over t of q_k(t) conj(k_k(t - d))

exactly, where c(d) is what the dimensions that do not turn give. z and c are statistics of content: one FFT a plane, no
matrix of side T. A RoPE scaling changes theta_k and a alone. Beyond the measured offsets z_k(d) is the product of the
means of q_k and k_k over late positions. Means alone, as a series that ranks keys, are in TriAttention
(arXiv 2604.04921).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from poskernel.attention.extension.planes import PlaneBasis, Turning
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.rotary_probe import RotaryProbe
from poskernel.errors import InputError, RunError
from poskernel.kernel import PositionalKernel, StationaryKernel

LATE = 0.5
"""Share of the kept positions, the last ones, that the means of extrapolation are over."""
OFFSETS_PER_BLOCK = 1 << 14
"""Offsets evaluated at a time where nothing is measured: memory does not grow with the length."""


@dataclass(frozen=True, eq=False, repr=False)
class ClosedFormKernel(PositionalKernel):
    """The stationary kernel of one rotary head, in nats: measured moments near, products of late means beyond.

    `with_turning` gives the same head under another setting.
    """

    moments: Complex[Tensor, "plane offset"]
    """z_k(d) at offsets 0, 1, ..."""
    beyond: Complex[Tensor, " plane"]
    """Its value at every further offset: the product of late means."""
    content: Float[Tensor, " offset"]
    """c(d) of the dimensions that do not turn; 0 where all do."""
    content_beyond: float
    turning: Turning
    scale: float
    window: int | None = None
    """Offsets that the head attends to, where its layer has a sliding window; the kernel itself goes on."""

    @property
    def measured(self) -> int:
        """Number of offsets, from 0, at which the moments are measured."""
        return self.moments.shape[1]

    def with_turning(self, turning: Turning) -> "ClosedFormKernel":
        """The same content turned otherwise; InputError for another number of planes."""
        if len(turning.rates) != len(self.turning.rates):
            raise InputError(
                f"the head turns {len(self.turning.rates)} planes, not {len(turning.rates)}: give one rate a plane."
            )
        return replace(self, turning=turning)

    def means_alone(self) -> "ClosedFormKernel":
        """The kernel of the products of late means at every offset."""
        return replace(
            self,
            moments=self.beyond[:, None].expand_as(self.moments),
            content=torch.full_like(self.content, self.content_beyond),
        )

    def with_tail(self) -> "ClosedFormKernel":
        """The kernel whose further offsets have the mean moments of the last half of the measured ones.

        Unlike products of means these hold what a query and a far key of one text have in common.
        """
        tail = slice(self.measured // 2, None)
        content = float(self.content[tail].mean())
        return replace(self, beyond=self.moments[:, tail].mean(1), content_beyond=content)

    def covariance_part(self) -> Float[Tensor, " offset"]:
        """What the covariance of query and key content adds to g at the measured offsets, nats."""
        return self.profile(self.measured) - self.means_alone().profile(self.measured)

    @property
    def share_of_means(self) -> float:
        """Share of the variance of g over the measured offsets that the means alone give; a constant counts nothing."""
        g = self.profile(self.measured)
        return float(1 - self.covariance_part().var() / g.var()) if float(g.var()) > 0 else float("nan")

    def at(self, offset: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """g at offsets of at least 0."""
        flat = offset.flatten()
        return torch.cat([self._block(part) for part in flat.split(OFFSETS_PER_BLOCK)]).reshape(offset.shape)

    def _block(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, " offset"]:
        near = offset.clamp(max=self.measured - 1)
        held = offset < self.measured
        z = torch.where(held, self.moments[:, near], self.beyond[:, None])
        content = torch.where(held, self.content[near], self.content_beyond)
        phase = offset.double() * self.turning.rates[:, None]
        turned = (z.real * phase.cos() - z.imag * phase.sin()).sum(0)
        return self.scale * (self.turning.factor**2 * turned + content)

    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """g(query - key); keys after their query hold 0."""
        return StationaryKernel(self.at).logits(query, key)

    def profile(self, length: int) -> Float[Tensor, " offset"]:
        """g(0), ..., g(length - 1)."""
        self.require(length)
        return self.at(torch.arange(length))


@dataclass(frozen=True, eq=False)
class ContentMeans:
    """Means of unrotated queries and keys over some positions, a row a sequence: planes that turn, then those outside.

    Key heads are repeated, one a query head.
    """

    query: Complex[Tensor, "sequence head plane"]
    key: Complex[Tensor, "sequence head plane"]
    query_rest: Complex[Tensor, "sequence head rest"]
    key_rest: Complex[Tensor, "sequence head rest"]

    def products(
        self, weights: Float[Tensor, "resample sequence"]
    ) -> tuple[Complex[Tensor, "resample head plane"], Float[Tensor, "resample head"]]:
        """Mean query times conjugated mean key, under weights of the sequences that sum to 1; and of the rest."""
        query, key, query_rest, key_rest = (
            torch.einsum("rs,shp->rhp", weights.to(part), part)
            for part in (self.query, self.key, self.query_rest, self.key_rest)
        )
        return query * key.conj(), (query_rest * key_rest.conj()).real.sum(-1)

    @classmethod
    def joined(cls, parts: "list[ContentMeans]", dim: int) -> "ContentMeans":
        """Several, one after the other along sequences (0) or heads (1)."""
        names = ("query", "key", "query_rest", "key_rest")
        return cls(*(torch.cat([getattr(part, name) for part in parts], dim) for name in names))


@dataclass(frozen=True, eq=False)
class LayerForms:
    """The closed forms of one layer's heads, and what a bootstrap over sequences needs."""

    layer: int
    own: Turning
    scale: float
    window: int | None
    moments: Complex[Tensor, "head plane offset"]
    content: Float[Tensor, "head offset"]
    late: ContentMeans
    overall: ContentMeans
    """Means over every kept position: to compare with the late ones."""
    first: ContentMeans
    """Late queries, and the key of position 0: the sink's logit."""
    profiles: Mapping[str, Float[Tensor, "sequence head offset"]] = field(default_factory=dict)
    """g of every sequence at the measured offsets, under each turning that was asked for."""

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.moments.shape[0]

    def kernel(self, head: int, means: str = "late") -> ClosedFormKernel:
        """One head under its own turning; `means` are late or overall."""
        chosen: ContentMeans = getattr(self, means)
        sequences = chosen.query.shape[0]
        beyond, constant = chosen.products(torch.full((1, sequences), 1 / sequences, dtype=torch.float64))
        return ClosedFormKernel(
            self.moments[head], beyond[0, head], self.content[head], float(constant[0, head]),
            self.own, self.scale, self.window,
        )  # fmt: skip


@dataclass(eq=False)
class LayerSums:
    """Running sums of one layer."""

    basis: PlaneBasis
    scale: float
    window: int | None
    moments: Complex[Tensor, "head plane offset"]
    content: Float[Tensor, "head offset"]
    sequences: int = 0
    late: list[ContentMeans] = field(default_factory=list)
    overall: list[ContentMeans] = field(default_factory=list)
    first: list[ContentMeans] = field(default_factory=list)
    profiles: dict[str, list[Tensor]] = field(default_factory=dict)

    def forms(self, layer: int) -> LayerForms:
        """Sums as means."""
        late, overall, first = (ContentMeans.joined(part, 0) for part in (self.late, self.overall, self.first))
        profiles = {name: torch.cat(parts) for name, parts in self.profiles.items()}
        moments, content = self.moments / self.sequences, self.content / self.sequences
        own = self.basis.own
        return LayerForms(layer, own, self.scale, self.window, moments, content, late, overall, first, profiles)


class ClosedFormEstimator:
    """Consumes captures and gives the closed forms of every layer that has a probe.

    `dropped` first positions are left out as queries and as keys; moments are kept at offsets 0 to reach - 1 (default:
    those that at least half of the kept positions hold). `turnings` are named sets of a turning a layer: g of each
    sequence is kept under each, and nothing else that grows with sequences times offsets.
    """

    def __init__(
        self,
        probes: Mapping[int, RotaryProbe],
        length: int,
        dropped: int = 16,
        reach: int | None = None,
        turnings: Mapping[str, Mapping[int, Turning]] | None = None,
    ) -> None:
        kept = length - dropped
        self.probes, self.length, self.dropped, self.turnings = probes, length, dropped, turnings or {}
        self.reach = (kept + 1) // 2 if reach is None else reach
        if not 1 <= self.reach <= kept:
            raise InputError(
                f"moments at {self.reach} offsets of {length} positions without the first {dropped}: "
                f"give 1 to {max(1, kept)}."
            )
        self.sums: dict[int, LayerSums] = {}

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer's queries and keys for one batch of sequences; layers without a probe are passed over."""
        if capture.layer not in self.probes or capture.rotation is None:
            return
        query, key = capture.before_rotation()
        if capture.length != self.length:
            raise InputError(f"sequences have {capture.length} tokens, not {self.length}: give all the same length.")
        with torch.inference_mode():
            sums = self.sums.get(capture.layer) or self.start(capture)
            sides = capture.rotation
            group = capture.heads // key.shape[1]
            for one in range(query.shape[0]):
                queries = sums.basis.read(query[one], sides.query.start)
                keys = sums.basis.read(key[one], sides.key.start)
                self.add(capture.layer, sums, queries, (repeated(keys[0], group), repeated(keys[1], group)))

    def start(self, capture: LayerCapture) -> LayerSums:
        """Empty sums for a layer seen for the first time."""
        basis = PlaneBasis.of(self.probes[capture.layer], capture)
        shape = (capture.heads, len(basis.pairs), self.reach)
        moments = torch.zeros(shape, dtype=torch.complex128)
        content = torch.zeros(capture.heads, self.reach, dtype=torch.float64)
        self.sums[capture.layer] = LayerSums(basis, capture.scale, capture.window, moments, content)
        return self.sums[capture.layer]

    def add(
        self,
        layer: int,
        sums: LayerSums,
        query: tuple[Complex[Tensor, "head position plane"], Complex[Tensor, "head position rest"]],
        key: tuple[Complex[Tensor, "head position plane"], Complex[Tensor, "head position rest"]],
    ) -> None:
        """Add one sequence."""
        first = [part[:, 0] for part in key]
        queries, keys = ([part[:, self.dropped :] for part in side] for side in (query, key))
        moments = cross_moments(queries[0], keys[0], self.reach)
        content = summed_moments(queries[1], keys[1], self.reach)
        sums.sequences += 1
        sums.moments += moments
        sums.content += content
        late = round((1 - LATE) * (self.length - self.dropped))
        mean_query, mean_key = ([part[:, late:].mean(1) for part in side] for side in (queries, keys))
        sums.late.append(means_of(mean_query, mean_key))
        sums.first.append(means_of(mean_query, first))
        sums.overall.append(means_of([part.mean(1) for part in queries], [part.mean(1) for part in keys]))
        for name, turnings in self.turnings.items():
            g = turned_profile(moments, content, turnings[layer], sums.scale)
            sums.profiles.setdefault(name, []).append(g[None])

    def layers(self) -> list[LayerForms]:
        """Every layer consumed, in order; RunError where something was no finite number."""
        found = [self.sums[layer].forms(layer) for layer in sorted(self.sums)]
        for forms in found:
            if not bool(torch.isfinite(torch.view_as_real(forms.moments)).all()):
                raise RunError(
                    f"layer {forms.layer} gave queries or keys that are not finite numbers: its weights or its "
                    "precision are broken."
                )
        return found


def means_of(query: list[Tensor], key: list[Tensor]) -> ContentMeans:
    """Means of one sequence, given as (planes, rest) of each side."""
    return ContentMeans(query[0][None], key[0][None], query[1][None], key[1][None])


def repeated(keys: Complex[Tensor, "keyhead position plane"], group: int) -> Complex[Tensor, "head position plane"]:
    """A key head for every query head."""
    return keys.repeat_interleave(group, 0)


def cross_moments(
    query: Complex[Tensor, "head position plane"], key: Complex[Tensor, "head position plane"], reach: int
) -> Complex[Tensor, "head plane offset"]:
    """Mean over t of query(t) conj(key(t - d)), d = 0 ... reach - 1, plane by plane: one FFT each."""
    length = query.shape[1]
    size = fast_size(length + reach - 1)
    product = torch.fft.fft(query.mT, size) * torch.fft.fft(key.mT, size).conj()
    return torch.fft.ifft(product)[..., :reach] / torch.arange(length, length - reach, -1)


def summed_moments(
    query: Complex[Tensor, "head position plane"], key: Complex[Tensor, "head position plane"], reach: int
) -> Float[Tensor, "head offset"]:
    """Real part of the moments summed over planes; zeros where there are none."""
    length = query.shape[1]
    if not query.shape[2]:
        return torch.zeros(query.shape[0], reach, dtype=torch.float64)
    size = fast_size(length + reach - 1)
    product = (torch.fft.fft(query.mT, size) * torch.fft.fft(key.mT, size).conj()).sum(1)
    return torch.fft.ifft(product)[..., :reach].real / torch.arange(length, length - reach, -1)


def turned_profile(
    moments: Complex[Tensor, "head plane offset"],
    content: Float[Tensor, "head offset"],
    turning: Turning,
    scale: float,
) -> Float[Tensor, "head offset"]:
    """g of every head at the measured offsets, nats."""
    phase = torch.arange(moments.shape[-1], dtype=torch.float64) * turning.rates[:, None]
    wave = torch.polar(torch.ones_like(phase), phase)
    return scale * (turning.factor**2 * torch.einsum("hpd,pd->hd", moments, wave).real + content)


def fast_size(least: int) -> int:
    """A size of at least `least` whose FFT is quick."""
    from scipy.fft import next_fast_len

    return int(next_fast_len(least))
