"""What the additive and the product fit leave of a head's logits: how much, of what rank, and what classes explain.

Ranks are measured on a rectangle of pairs that all attend: queries of the later half, keys of the earlier half. A
triangle of a low-rank matrix has high rank, and beyond it are logits that the model never uses. A rank says little by
itself: the null is the residual of queries of one sequence with keys of another, under the same fit. (With shuffled
entries every matrix looks structured.)
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.content.class_kernels import Classes, ClassRegression, class_gain
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.product import (
    Content,
    HeadFits,
    LayerFit,
    ProductEstimator,
    ProductSettings,
    TextBatch,
    fitted_products,
    halves,
    run,
    share,
)
from poskernel.attention.sources.capture import AttentionSource, Consumer, LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate, mean

DEFAULTS = ProductSettings()
NO_CLASSES: Mapping[str, Classes] = MappingProxyType({})
RESIDUALS = ("additive", "product")
RANKS = (1, 2, 4, 8)
"""Ranks of the truncated singular value decompositions."""


def singular_shares(matrices: Float[Tensor, "*batch row column"]) -> Float[Tensor, "*batch value"]:
    """Shares of the squared singular values, largest first; nan for a zero matrix."""
    squares = torch.linalg.svdvals(matrices) ** 2
    return squares / squares.sum(-1, keepdim=True)


def effective_rank(shares: Float[Tensor, "*batch value"]) -> Float[Tensor, "*batch"]:
    """exp of the entropy of the squared singular values' shares: k for k equal ones."""
    return torch.special.entr(shares).sum(-1).exp()


def captured(shares: Float[Tensor, "*batch value"], rank: int) -> Float[Tensor, "*batch"]:
    """Share of the squares that the best approximation of that rank holds."""
    return shares[..., :rank].sum(-1)


def residual_ratio(fits: HeadFits, fit: str) -> Estimate:
    """|r| / |A| on held-out row-centred logits: root of 1 - R2. On raw logits it would only show the mean logit."""
    left = share(fits.residual[fit], fits.total)
    if math.isnan(left.value):
        return left
    value, low, high = (
        end if math.isnan(end) else math.sqrt(max(0.0, end)) for end in (left.value, left.low, left.high)
    )
    return Estimate(value, low, high, left.n, f"root of: {left.method}")


@dataclass(frozen=True, eq=False)
class HeadCrossTerms:
    """Residuals of one head under one fit, a sequence each; `null` with keys of another sequence."""

    layer: int
    head: int
    kernel: str
    fit: str
    rank: Float[Tensor, " sequence"]
    rank_null: Float[Tensor, " sequence"]
    captured: Float[Tensor, "sequence rank"]
    """Share of the residual in the first RANKS singular values."""
    captured_null: Float[Tensor, "sequence rank"]
    class_gains: Mapping[str, Estimate]
    """R2 that kernels of (query class, key class, octave of the offset) add to the fit on other sequences, by what
    gives the classes."""
    class_nulls: Mapping[str, Estimate]
    """The same with the classes of another sequence."""

    def effective_rank(self) -> Estimate:
        """Mean over sequences."""
        return mean(self.rank.tolist())

    def null_rank(self) -> Estimate:
        """Mean of the null over sequences."""
        return mean(self.rank_null.tolist())

    def excess_rank(self) -> Estimate:
        """Mean over sequences of the rank less that with keys of another; below 0 where content structures it."""
        return mean((self.rank - self.rank_null).tolist())


@dataclass(frozen=True, eq=False)
class SequenceResiduals:
    """What one batch gives for one head and fit."""

    ranks: Float[Tensor, "side sequence"]
    captured: Float[Tensor, "side sequence rank"]
    total: Float[Tensor, " sequence"]
    moments: Mapping[tuple[str, bool], Float[Tensor, "sequence cell"]]
    """By what gives the classes, and whether they are those of another sequence."""


@dataclass(frozen=True, eq=False)
class ClassCells:
    """The regression of one way to give classes, and the cells of one batch's pairs."""

    regression: ClassRegression
    cells: Int[Tensor, "batch query offset"]


class CrossTermEstimator:
    """Consumes the captures of test sequences after a `ProductEstimator` has been fitted on others."""

    def __init__(self, products: ProductEstimator, kernel: str, classes: Mapping[str, Classes] = NO_CLASSES) -> None:
        if kernel not in products.settings.kernels:
            raise InputError(
                f"content kernel '{kernel}' was not fitted: choose from {', '.join(products.settings.kernels)}."
            )
        products.finish_combining()
        self.products, self.kernel, self.classes = products, kernel, classes
        self.found: dict[tuple[int, int, str], list[SequenceResiduals]] = {}
        self.normals: dict[tuple[str, bool, object], list[Tensor]] = {}

    def testing(self, tokens: Int[Tensor, "batch position"]) -> Consumer:
        """Consumer of one batch of at least two sequences, which are each other's null."""
        if len(tokens) < 2:
            raise InputError("1 sequence in a batch has no other to be its null: give batches of at least 2.")
        text = self.products.text(tokens)
        return lambda capture: self.measure(capture, text)

    def measure(self, capture: LayerCapture, text: TextBatch) -> None:
        """Add one layer's residuals."""
        if capture.layer not in self.products.layers:
            return
        fit = self.products.fits[capture.layer]
        inputs = self.products.input_vectors(capture, fit)
        own: Content = (text, inputs)
        other: Content = (text.rolled(), None if inputs is None else inputs.roll(1, 0))
        cells = self.class_cells(capture, fit, text)
        rolled = replace(capture, key=capture.key.roll(1, 0))
        for head in range(self.products.heads):
            for name in RESIDUALS:
                matched = self.residual(capture, fit, head, name, (own, own))
                crossed = self.residual(rolled, fit, head, name, (own, other))
                blocks = torch.stack([rectangle(matched, fit.layout), rectangle(crossed, fit.layout)])
                centred = fit.layout.centred(matched)
                shares = singular_shares(blocks)
                found = SequenceResiduals(
                    effective_rank(shares),
                    torch.stack([captured(shares, rank) for rank in RANKS], -1),
                    self.products.centred(capture, head, fit.layout).square().sum((1, 2)),
                    {
                        key: each.regression.moments(each.cells, fit.layout.by_offset(centred))
                        for key, each in cells.items()
                    },
                )
                self.found.setdefault((capture.layer, head, name), []).append(found)

    def class_cells(self, capture: LayerCapture, fit: LayerFit, text: TextBatch) -> dict[tuple[str, bool], ClassCells]:
        """Cells of a batch's pairs under all classes, their own and another sequence's; notes their normal matrices."""
        found = {}
        for name, classes in self.classes.items():
            labels = classes.labels(capture, text.tokens, self.products.settings.dropped)
            regression = ClassRegression(fit.layout, classes.count)
            where = self.shared(name, capture.layer)
            fresh = where not in text.classed
            text.classed.add(where)
            for null in (False, True):
                cells = regression.cells(labels.roll(1, 0) if null else labels)
                found[name, null] = ClassCells(regression, cells)
                if fresh:
                    self.normals.setdefault((name, null, where), []).append(regression.normals(cells))
        return found

    def shared(self, name: str, layer: int) -> object:
        """What tells normal matrices apart: the layer where it sees classes of its own, else what it attends."""
        return (name, layer) if self.classes[name].by_layer else (name, self.products.fits[layer].key)

    def residual(
        self, capture: LayerCapture, fit: LayerFit, head: int, name: str, sides: tuple[Content, Content]
    ) -> Float[Tensor, "batch query key"]:
        """Logits less a fit's prediction, not centred; meaningful at the layout's pairs alone."""
        fitted = self.products.fitted[capture.layer, head, self.kernel].coefficients[name]
        basis, layout = fit.bases[head], fit.layout
        count, position = basis.count, torch.arange(layout.length)
        column = torch.searchsorted(layout.offsets, position[:, None] - position).clamp(max=len(layout.offsets) - 1)
        plain = (basis.functions @ fitted[:count])[column]
        slope = (basis.functions @ fitted[count : 2 * count])[column]
        content = fit.content(self.kernel, head, *sides)
        key_term = fit.key_term(self.kernel, head, sides[1])[:, None]
        # The content kernel itself is the sum of its products with all bins, so `slope` holds it already.
        kept = position + self.products.settings.dropped
        return capture.logits(head, kept, kept).double() - plain - slope * content - fitted[2 * count] * key_term

    def results(self) -> list[HeadCrossTerms]:
        """One entry a head and fit."""
        out = []
        for (layer, head, name), batches in sorted(self.found.items()):
            ranks = torch.cat([batch.ranks for batch in batches], 1)
            shares = torch.cat([batch.captured for batch in batches], 1)
            total = torch.cat([batch.total for batch in batches])
            gains: dict[bool, dict[str, Estimate]] = {False: {}, True: {}}
            for key in batches[0].moments:
                normals = torch.cat(self.normals[(*key, self.shared(key[0], layer))])
                gains[key[1]][key[0]] = class_gain(normals, torch.cat([batch.moments[key] for batch in batches]), total)
            both = ranks[0], ranks[1], shares[0], shares[1]
            out.append(HeadCrossTerms(layer, head, self.kernel, name, *both, gains[False], gains[True]))
        return out


def rectangle(residual: Float[Tensor, "batch query key"], layout: PairLayout) -> Float[Tensor, "batch row column"]:
    """Queries of the later half against keys of the earlier half, within the window; rows and columns centred.

    Columns too: what all queries share about a key is no cross-term but a key-only one.
    """
    reach = int(layout.offsets.max()) + 1
    side, middle = reach // 2, layout.length // 2
    block = residual[:, middle : middle + side, max(0, middle - side) : middle]
    block = block - block.mean(-1, keepdim=True)
    return block - block.mean(-2, keepdim=True)


def measure_cross_terms(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    kernel: str,
    layers: Iterable[int] | None = None,
    settings: ProductSettings = DEFAULTS,
    classes: Mapping[str, Classes] = NO_CLASSES,
) -> tuple[list[HeadFits], list[HeadCrossTerms]]:
    """The fits of every head and what they leave: fitted on the first half of the sequences, measured on the second.

    `classes` are ways to give classes, by name; without any no class kernels are fitted.
    """
    fit_half, test_half = halves(tokens)
    products = fitted_products(source, fit_half, layers, settings)
    cross = CrossTermEstimator(products, kernel, classes)

    def both(batch: Int[Tensor, "batch position"]) -> Consumer:
        consumers = products.testing(batch), cross.testing(batch)

        def consume(capture: LayerCapture) -> None:
            for consumer in consumers:
                consumer(capture)

        return consume

    run(source, test_half, both)
    return products.results(), cross.results()
