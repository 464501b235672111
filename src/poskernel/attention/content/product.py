"""Is a head's kernel a product of position and content? Fits on half of the sequences, R2 on the others.

Sequences pass three times: the fit half to learn each head's kernel of the offset and its bilinear content kernels,
the fit half again for the coefficients of the fits (`product_fits`), the other half to measure what each fit explains
of row-centred logits it has not seen. Only sums over pairs of positions are kept in between.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.content.content_kernels import (
    COSINE,
    INPUT,
    KERNELS,
    MATCH,
    TOKEN,
    BilinearRegression,
    Components,
    LearnedKernel,
    embedding_cosine,
    quantile_edges,
    token_match,
)
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.pair_statistics import BINS, OffsetBasis, PairStatistics, pair_statistics
from poskernel.attention.content.product_fits import FITS, FittedHead, fit_head
from poskernel.attention.sources.capture import AttentionSource, Consumer, LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate, undefined

PAIRS_AT_ONCE = 2**21
"""Pairs of positions, over sequences, that pass at once."""
FEWEST = 4
"""Sequences that leave two in each half."""


@dataclass(frozen=True)
class ProductSettings:
    """What is fitted: content kernels, principal components that learned ones work in, their largest rank."""

    dropped: int = 16
    kernels: tuple[str, ...] = KERNELS
    components: int = 32
    rank: int | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.kernels if name not in KERNELS]
        if unknown or not self.kernels:
            raise InputError(f"unknown content kernels {unknown}: choose from {', '.join(KERNELS)}.")
        for name in ("components", "rank"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} of the content kernels is {value}: give at least 1.")


@dataclass(frozen=True, eq=False)
class HeadFits:
    """Held-out sums of squares of one head under every fit with one content kernel, a sequence each."""

    layer: int
    head: int
    kernel: str
    total: Float[Tensor, " sequence"]
    residual: Mapping[str, Float[Tensor, " sequence"]]
    origin: float
    """c1 of the product, in the content kernel's own unit."""

    def r2(self, fit: str) -> Estimate:
        """Share of the within-row variance of held-out logits that the fit explains; negative if it misleads."""
        return share(self.total - self.residual[fit], self.total)

    def gain(self, fit: str, over: str) -> Estimate:
        """R2 of a fit less that of another, on the same sequences."""
        return share(self.residual[over] - self.residual[fit], self.total)

    def row(self) -> dict[str, float | int | str]:
        """One flat row: R2 of every fit with its interval, and the gains that speak for a product."""
        row: dict[str, float | int | str] = {"layer": self.layer, "head": self.head, "kernel": self.kernel}
        named = {fit: self.r2(fit) for fit in FITS}
        named["product_over_sum"] = self.gain("product", "sum")
        named["both_over_additive"] = self.gain("both", "additive")
        named["saturated_over_free"] = self.gain("saturated", "free")
        for name, estimate in named.items():
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        return row | {"origin": self.origin}


def share(part: Float[Tensor, " sequence"], total: Float[Tensor, " sequence"]) -> Estimate:
    """Ratio of two sums over sequences with its 95% interval (delta method, Student's t); never clipped."""
    from scipy.stats import t as student

    n = len(total)
    if not total.sum() > 0:
        return undefined(n, "undefined: the logits do not vary within rows")
    value = float(part.sum() / total.sum())
    if n < 2:
        return Estimate(value, math.nan, math.nan, n, "no interval: 1 sequence")
    error = float((part - value * total).std() / total.mean()) / math.sqrt(n)
    half = float(student.ppf(0.975, n - 1)) * error
    return Estimate(value, value - half, value + half, n, "held-out sequences, ratio of sums, delta method, t")


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Tokens of some sequences without their dropped positions, and the content that no layer changes."""

    tokens: Int[Tensor, "batch position"]
    embedded: Float[Tensor, "batch position width"]
    vectors: Float[Tensor, "batch position component"]
    fixed: dict[str, Float[Tensor, "batch query key"]] = field(default_factory=dict)
    """Kernels that no head changes, made once."""
    seen: set[tuple[bool, int | None]] = field(default_factory=set)
    """Layouts whose normal matrix already holds this batch."""
    classed: set[object] = field(default_factory=set)
    """Classes whose normal matrix already holds this batch."""

    def rolled(self) -> "TextBatch":
        """Each sequence in the place of the next."""
        return TextBatch(self.tokens.roll(1, 0), self.embedded.roll(1, 0), self.vectors.roll(1, 0))

    def fixed_kernel(self, name: str, other: "TextBatch") -> Float[Tensor, "batch query key"]:
        """Token match or embedding cosine of this text's queries with another's keys."""
        if other is not self:
            return self.made(name, other)
        if name not in self.fixed:
            self.fixed[name] = self.made(name, self)
        return self.fixed[name]

    def made(self, name: str, other: "TextBatch") -> Float[Tensor, "batch query key"]:
        """The same, computed."""
        return (
            token_match(self.tokens, other.tokens) if name == MATCH else embedding_cosine(self.embedded, other.embedded)
        )


@dataclass(eq=False)
class LayerFit:
    """What is known of one layer so far."""

    layout: PairLayout
    place: int
    """Of the layer's first head among the heads of the token regression."""
    key: tuple[bool, int | None]
    components: Components | None = None
    inputs: BilinearRegression | None = None
    bases: list[OffsetBasis] = field(default_factory=list)
    learned: dict[str, list[LearnedKernel]] = field(default_factory=dict)

    def content(self, name: str, head: int, query: "Content", key: "Content") -> Float[Tensor, "batch query key"]:
        """A head's content kernel of one text's queries with another's keys."""
        if name in (MATCH, COSINE):
            return query[0].fixed_kernel(name, key[0])
        return self.learned[name][head].content(vectors_of(name, query), vectors_of(name, key))

    def key_term(self, name: str, head: int, key: "Content") -> Float[Tensor, "batch key"]:
        """The key-only term beside that kernel."""
        return self.learned[name][head].key_term(vectors_of(name, key))


Content = tuple[TextBatch, Tensor | None]
"""A batch's text, and the components of one layer's input for it where they are used."""


def vectors_of(name: str, content: Content) -> Float[Tensor, "batch position component"]:
    """The vectors that a learned kernel works on."""
    text, inputs = content
    if name != INPUT:
        return text.vectors
    assert inputs is not None
    return inputs


class ProductEstimator:
    """Consumes captures in three rounds: `learning`, `combining` (the fit half twice), `testing` (the other half)."""

    def __init__(
        self,
        embedding: Float[Tensor, "vocabulary width"],
        layers: Sequence[int],
        heads: int,
        fit_tokens: Int[Tensor, "sequence position"],
        settings: ProductSettings = ProductSettings(),
    ) -> None:
        self.embedding, self.layers, self.heads, self.settings = embedding, list(layers), heads, settings
        self.components = Components.of(embedding[fit_tokens[:, settings.dropped :]], settings.components)
        self.token: dict[tuple[bool, int | None], BilinearRegression] = {}
        self.fits: dict[int, LayerFit] = {}
        self.edges: dict[tuple[int, int, str], Float[Tensor, " edge"]] = {}
        self.sums: dict[tuple[int, int, str], PairStatistics] = {}
        self.fitted: dict[tuple[int, int, str], FittedHead] = {}
        self.tested: dict[tuple[int, int, str], list[dict[str, Tensor]]] = {}

    def learning(self, tokens: Int[Tensor, "batch position"]) -> Consumer:
        """First round: kernels of the offset and learned content kernels."""
        text = self.text(tokens)
        return lambda capture: self.learn(capture, text)

    def combining(self, tokens: Int[Tensor, "batch position"]) -> Consumer:
        """Second round, the same sequences: statistics of the fits."""
        self.finish_learning()
        text = self.text(tokens)
        return lambda capture: self.measure(capture, text, self.combine)

    def testing(self, tokens: Int[Tensor, "batch position"]) -> Consumer:
        """Third round, other sequences: what the fits leave of them."""
        self.finish_combining()
        text = self.text(tokens)
        return lambda capture: self.measure(capture, text, self.test)

    def finish_combining(self) -> None:
        """Solve the fits."""
        if not self.fitted:
            self.fitted = {name: fit_head(self.basis(*name[:2]), sums) for name, sums in self.sums.items()}

    def results(self) -> list[HeadFits]:
        """One entry a head and content kernel."""
        out = []
        for (layer, head, kernel), batches in sorted(self.tested.items()):
            joined = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
            total = joined.pop("total")
            out.append(HeadFits(layer, head, kernel, total, joined, self.fitted[layer, head, kernel].origin))
        return out

    def text(self, tokens: Int[Tensor, "batch position"]) -> TextBatch:
        """The batch's content that no layer changes."""
        kept = tokens[:, self.settings.dropped :]
        embedded = self.embedding[kept].double()
        return TextBatch(kept, embedded, self.components.of_vectors(embedded))

    def learn(self, capture: LayerCapture, text: TextBatch) -> None:
        """Add one layer and batch to the regressions."""
        if capture.layer not in self.layers:
            return
        fit = self.layer(capture)
        tokens = self.token[fit.key]
        if fit.key not in text.seen:
            tokens.add_vectors(text.vectors)
            text.seen.add(fit.key)
        inputs = self.input_vectors(capture, fit)
        if fit.inputs is not None and inputs is not None:
            fit.inputs.add_vectors(inputs)
        for head in range(self.heads):
            centred = self.centred(capture, head, fit.layout)
            tokens.add_logits(fit.place + head, centred, text.vectors)
            if fit.inputs is not None and inputs is not None:
                fit.inputs.add_logits(head, centred, inputs)

    def layer(self, capture: LayerCapture) -> LayerFit:
        """The layer's state, made when its first capture comes."""
        if capture.layer not in self.fits:
            layout, key = PairLayout.of_capture(capture, self.settings.dropped), (capture.causal, capture.window)
            width = self.components.axes.shape[1]
            if key not in self.token:
                self.token[key] = BilinearRegression(layout, width, self.heads * len(self.layers))
            fit = LayerFit(layout, self.layers.index(capture.layer) * self.heads, key)
            if INPUT in self.settings.kernels:
                if capture.inputs is None:
                    raise InputError(
                        f"layer {capture.layer} does not give the input of its attention, which the content kernel "
                        f"'{INPUT}' needs: choose the kernels {', '.join(name for name in KERNELS if name != INPUT)}."
                    )
                fit.components = Components.of(self.inputs(capture), self.settings.components)
                fit.inputs = BilinearRegression(layout, fit.components.axes.shape[1], self.heads)
            self.fits[capture.layer] = fit
        return self.fits[capture.layer]

    def inputs(self, capture: LayerCapture) -> Float[Tensor, "batch position width"]:
        """The layer's input without the dropped positions."""
        assert capture.inputs is not None
        return capture.inputs[:, self.settings.dropped :]

    def input_vectors(self, capture: LayerCapture, fit: LayerFit) -> Float[Tensor, "batch position component"] | None:
        """Components of the layer's input, where a kernel of it is fitted."""
        return None if fit.components is None else fit.components.of_vectors(self.inputs(capture))

    def centred(self, capture: LayerCapture, head: int, layout: PairLayout) -> Float[Tensor, "batch query key"]:
        """One head's row-centred logits."""
        kept = torch.arange(self.settings.dropped, capture.length)
        return layout.centred(capture.logits(head, kept, kept).double())

    def finish_learning(self) -> None:
        """Solve the regressions; their sums are not needed any more."""
        for fit in self.fits.values():
            if fit.bases:
                continue
            tokens, own = self.token[fit.key], slice(fit.place, fit.place + self.heads)
            fit.bases = [OffsetBasis.of(fit.layout, profile) for profile in tokens.profiles()[own]]
            fit.learned[MATCH] = fit.learned[COSINE] = tokens.kernels(content=False)[own]
            fit.learned[TOKEN] = tokens.kernels()[own]
            if fit.inputs is not None:
                fit.learned[INPUT] = fit.inputs.kernels()
                fit.inputs = None
            if self.settings.rank is not None:
                for name in {TOKEN, INPUT} & set(fit.learned):
                    fit.learned[name] = [kernel.of_rank(self.settings.rank) for kernel in fit.learned[name]]

    def basis(self, layer: int, head: int) -> OffsetBasis:
        """Functions of the offset that a head's kernels are made of."""
        return self.fits[layer].bases[head]

    def measure(self, capture: LayerCapture, text: TextBatch, use: "Use") -> None:
        """Hand every head's statistics of one layer and batch, with each content kernel, to `use`."""
        if capture.layer not in self.layers:
            return
        fit = self.fits[capture.layer]
        inputs = self.input_vectors(capture, fit)
        for head in range(self.heads):
            logits = fit.layout.by_offset(self.centred(capture, head, fit.layout))
            for name in self.settings.kernels:
                kernel = fit.layout.by_offset(fit.content(name, head, (text, inputs), (text, inputs)))
                where = (capture.layer, head, name)
                if where not in self.edges:
                    self.edges[where] = quantile_edges(kernel[:, fit.layout.valid.bool()].flatten(), BINS)
                bins = torch.bucketize(kernel, self.edges[where], right=True)
                key_term = fit.layout.of_key(fit.key_term(name, head, (text, inputs)))
                use(where, pair_statistics(fit.bases[head], logits, kernel, key_term, bins))

    def combine(self, where: tuple[int, int, str], statistics: PairStatistics) -> None:
        """Add to the statistics of the fit half."""
        summed = statistics.summed()
        self.sums[where] = self.sums[where].plus(summed) if where in self.sums else summed

    def test(self, where: tuple[int, int, str], statistics: PairStatistics) -> None:
        """What the fits leave of each sequence."""
        fitted = self.fitted[where].coefficients
        left = {name: statistics.residual(coefficients) for name, coefficients in fitted.items()}
        self.tested.setdefault(where, []).append({"total": statistics.square, **left})


Use = Callable[[tuple[int, int, str], PairStatistics], None]


def fit_products(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    layers: Iterable[int] | None = None,
    settings: ProductSettings = ProductSettings(),
) -> list[HeadFits]:
    """All fits of every head of the layers: coefficients from the first half of the sequences, R2 on the second.

    Raises InputError for fewer than 4 sequences, and where the source does not give the content a kernel needs.
    """
    fit_half, test_half = halves(tokens)
    estimator = fitted_products(source, fit_half, layers, settings)
    run(source, test_half, estimator.testing)
    return estimator.results()


def halves(
    tokens: Int[Tensor, "sequence position"],
) -> tuple[Int[Tensor, "fit position"], Int[Tensor, "test position"]]:
    """The sequences to fit on and those to test on; InputError for fewer than 4."""
    if len(tokens) < FEWEST:
        raise InputError(f"{len(tokens)} sequences leave no two in each half: give at least {FEWEST}.")
    fit, test = tokens.tensor_split(2)
    return fit, test


def fitted_products(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    layers: Iterable[int] | None = None,
    settings: ProductSettings = ProductSettings(),
) -> ProductEstimator:
    """All fits of every head of the layers, ready for `testing` on other sequences."""
    chosen = list(range(source.layers) if layers is None else layers)
    estimator = ProductEstimator(source.embedding(), chosen, source.heads, tokens, settings)
    run(source, tokens, estimator.learning)
    run(source, tokens, estimator.combining)
    return estimator


def run(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    consumer: Callable[[Int[Tensor, "batch position"]], Consumer],
) -> None:
    """Pass the sequences through the model in batches, each with a consumer of its own."""
    for batch in batches(tokens):
        with torch.inference_mode():
            source.forward(batch, consumer(batch))


def batches(tokens: Int[Tensor, "sequence position"]) -> Iterator[Int[Tensor, "sequence position"]]:
    """The sequences in batches of bounded size, two at least."""
    size = max(2, PAIRS_AT_ONCE // tokens.shape[1] ** 2)
    yield from tokens.tensor_split(max(1, len(tokens) // size))
