"""Units of E7: the protocols of E1, E2 and E6 on one pretrained model and one text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from poskernel.attention.content.content_kernels import INPUT, TOKEN
from poskernel.attention.content.head_products import HeadProducts, head_products
from poskernel.attention.content.leakage import LeakageEstimator
from poskernel.attention.content.product import batches as product_batches
from poskernel.attention.estimators.decompose import TERMS, SplitEstimator
from poskernel.attention.estimators.distance import kernel_boundary
from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.measuring import Subject, even_batches, measure
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.untrained import untrained_source
from poskernel.experiments.causal_boundary import RowSums, compared
from poskernel.experiments.experiment import ExperimentUnit, Quantity
from poskernel.experiments.kernel_measures import KERNEL, Values, kernel_values, number
from poskernel.experiments.pretrained.models import RealModelCell, opened, text_windows
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

TRAINED, UNTRAINED = "trained", "untrained"
SHARES = tuple(Quantity(f"{term}_share", f"share of within-row logit variance of the split's {term}") for term in TERMS)
SINK = Quantity("first_mass", "mean attention on the first token")
KEYS = "keys of the earlier row"
BOUNDARY = (
    Quantity("variation", "total variation between mean weights by offset of a row and one with twice its keys", KEYS),
    Quantity("noise", "the same between two halves of the sequences at the earlier row", KEYS),
)
SLOPE = Quantity("log_z_slope", "slope of log Z of g against log row, to the row with twice the keys; causal", KEYS)
WEIGHTS = Quantity("weights", "no number: its reason names the weights by their digest, and how they were quantized")
FITTED = (
    Quantity("position", "held-out R2 of row-centred logits by a kernel of the offset"),
    *(
        Quantity(f"{fit}_{kernel}", f"the same of the fit '{fit}' with a learned bilinear kernel of the {words}")
        for kernel, words in ((TOKEN, "token embeddings"), (INPUT, "layer's input"))
        for fit in ("product", "additive", "both", "free", "saturated")
    ),
)
RANKS = (
    Quantity("residual_rank", "effective rank of what the additive fit with token embeddings leaves"),
    Quantity("residual_rank_null", "the same with keys of another sequence"),
)
LEAKAGE = (
    Quantity("leakage", "share of the logits that is a function of absolute positions beyond any kernel of the offset"),
    Quantity("leakage_mask", "what remains of it without the first position"),
)
HEAD_MEASURES = (*KERNEL, *SHARES, SINK)
FRESH_MEASURES = tuple(each for each in KERNEL if each.name != "r2_null")
PRODUCT_MEASURES = (*FITTED, *RANKS, *LEAKAGE)
UNDEFINED = "undefined: the logits do not vary within rows"


@dataclass(frozen=True)
class KernelProtocolUnit(ExperimentUnit):
    """E1 and E6 on every head: kernels, exact split and rows under the mask; kernels with weights drawn anew."""

    cell: RealModelCell
    texts: int = 5
    dropped: int = 16
    layers: tuple[int, ...] | None = None
    """Those measured; None is all."""
    fresh: bool = True
    """Whether the same architecture is measured with weights drawn anew."""

    @property
    def cost(self) -> float:
        """Core-minutes, about."""
        return 4.0 if self.cell.model.layers > 10 else 1.0

    @property
    def aspect(self) -> str:
        """Kernels of heads, and rows under the mask."""
        return "kernels and boundary"

    @property
    def measured_layers(self) -> Sequence[int]:
        """Layers that are looked at."""
        return range(self.cell.model.layers) if self.layers is None else self.layers

    @property
    def keys_compared(self) -> list[int]:
        """Keys of the rows of E6."""
        return compared(self.cell.length - self.dropped)

    def part(self, state: str, layer: int, head: int) -> RealModelCell:
        """The cell of a head."""
        return self.cell.at(protocol="kernel", state=state, layer=layer, head=head)

    def rows_of(self, layer: int) -> RealModelCell:
        """The cell of a layer's rows."""
        return self.cell.at(protocol="rows", layer=layer)

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Of every head; the digest of the weights first."""
        length, model = self.cell.length, self.cell.model
        found: list[tuple[Cell, str, int]] = [(self.cell.at(protocol="kernel"), WEIGHTS.name, length)]
        rows = (*BOUNDARY, SLOPE) if model.causal else BOUNDARY
        for layer in self.measured_layers:
            whole = self.rows_of(layer)
            found += [(whole, each.name, keys) for each in rows for keys in self.keys_compared]
            for head in range(model.heads):
                trained, fresh = (self.part(state, layer, head) for state in (TRAINED, UNTRAINED))
                found += [(trained, each.name, length) for each in HEAD_MEASURES]
                found += [(fresh, each.name, length) for each in FRESH_MEASURES] if self.fresh else []
        return found

    def measure(self, weights: Path | None) -> list[Measurement]:
        """One pass for everything of the trained model, one for the same architecture untrained."""
        loaded, cell = opened(self.cell.model), self.cell
        tokens = text_windows(loaded, cell.source, self.seed % self.texts, self.texts, cell.sequences, cell.length)
        subject = Subject(
            loaded.source, tokens, self.measured_layers, self.dropped, self.seed, causal=cell.model.causal
        )
        digest = f"sha256 {loaded.weights_digest}, {loaded.quantization or 'not quantized'}"
        values: dict[tuple[Cell, str, int], float | str] = {
            (cell.at(protocol="kernel"), WEIGHTS.name, cell.length): digest
        }
        values |= self.trained_values(subject)
        if self.fresh:
            drawn = replace(subject, source=untrained_source(loaded.source, self.seed), null=False)
            for kernel in measure(drawn):
                part = self.part(UNTRAINED, kernel.layer, kernel.head)
                values |= {(part, name, cell.length): value for name, value in kernel_values(kernel).items()}
        return self.done(values)

    def trained_values(self, subject: Subject) -> dict[tuple[Cell, str, int], float | str]:
        """Kernels and split of the trained model, and its rows."""
        values: dict[tuple[Cell, str, int], float | str] = {}
        rows = RowSums(subject.length, self.dropped)
        splits = SplitEstimator(subject.heads, subject.length, self.dropped)

        def consume_rows(capture: LayerCapture) -> None:
            if capture.layer in subject.layers:
                rows.consume(capture)

        kernels = measure(subject, [splits.consume, consume_rows])
        for kernel, split in zip(kernels, splits.estimates(), strict=True):
            part = self.part(TRAINED, kernel.layer, kernel.head)
            shares: Values = {f"{term}_share": number(split.shares[term].value, UNDEFINED) for term in TERMS}
            head = {**kernel_values(kernel), **shares, SINK.name: kernel.first_mass}
            values |= {(part, metric, subject.length): value for metric, value in head.items()}
        return values | self.row_values(subject, kernels, rows)

    def row_values(
        self, subject: Subject, kernels: Sequence[HeadEstimate], rows: RowSums
    ) -> dict[tuple[Cell, str, int], float | str]:
        """E6's measures, means over the heads of a layer."""
        values: dict[tuple[Cell, str, int], float | str] = {}
        batches = len(even_batches(subject.tokens))
        for layer in subject.layers:
            g = [kernel.g for kernel in kernels if kernel.layer == layer]
            for keys in self.keys_compared:
                pairs = [rows.values(layer, head, keys, batches) for head in range(len(g))]
                for metric, found in zip(("variation", "noise"), zip(*pairs, strict=True), strict=True):
                    values[self.rows_of(layer), metric, keys] = sum(found) / len(found)
                if subject.causal:
                    slopes = [float(kernel_boundary(each).slope[keys - 1]) for each in g]
                    values[self.rows_of(layer), SLOPE.name, keys] = sum(slopes) / len(slopes)
        return values


@dataclass(frozen=True)
class ProductProtocolUnit(ExperimentUnit):
    """E2 on selected layers: fits on half of the sequences, R2 on the others, residual rank, absolute positions."""

    cell: RealModelCell
    texts: int = 5
    dropped: int = 16

    @property
    def cost(self) -> float:
        """Core-minutes, about."""
        return 3.0

    @property
    def aspect(self) -> str:
        """Products and sums."""
        return "products"

    def part(self, layer: int, head: int) -> RealModelCell:
        """The cell of a head."""
        return self.cell.at(protocol="product", layer=layer, head=head)

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Of every head of the selected layers."""
        model = self.cell.model
        parts = [self.part(layer, head) for layer in model.product_layers for head in range(model.heads)]
        return [(part, each.name, self.cell.length) for part in parts for each in PRODUCT_MEASURES]

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Three passes for the fits, one for absolute positions."""
        loaded, cell = opened(self.cell.model), self.cell
        tokens = text_windows(loaded, cell.source, self.seed % self.texts, self.texts, cell.sequences, cell.length)
        layers = cell.model.product_layers
        leakage = LeakageEstimator(layers)
        for batch in product_batches(tokens):
            loaded.source.forward(batch, leakage.consume)
        values: dict[tuple[Cell, str, int], float | str] = {}
        for product in head_products(loaded.source, tokens, layers, self.dropped):
            part = self.part(product.layer, product.head)
            values |= {(part, name, cell.length): value for name, value in product_values(product).items()}
        for each in leakage.estimates():
            part = self.part(each.layer, each.head)
            values[part, "leakage", cell.length] = number(each.total.value, UNDEFINED)
            values[part, "leakage_mask", cell.length] = number(each.mask.value, UNDEFINED)
        return self.done(values)


def product_values(product: HeadProducts) -> Values:
    """What FITTED and RANKS list."""
    rank = product.cross_terms["additive"]
    values: Values = {
        "position": number(product.fits[TOKEN].r2("position").value, UNDEFINED),
        "residual_rank": number(rank.effective_rank().value, UNDEFINED),
        "residual_rank_null": number(rank.null_rank().value, UNDEFINED),
    }
    for each in FITTED[1:]:
        fit, kernel = each.name.split("_")
        values[each.name] = number(product.fits[kernel].r2(fit).value, UNDEFINED)
    return values


def relative_depth(layer: float, layers: int) -> float:
    """0 of the first layer, 1 of the last."""
    return layer / (layers - 1)
