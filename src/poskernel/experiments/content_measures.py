"""What E2 measures of the heads of a model: fits, exact split, cross-terms, class kernels, leakage, deposit, stages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.attention.content.class_kernels import Classes, FeatureClasses
from poskernel.attention.content.content_kernels import KERNELS, TOKEN
from poskernel.attention.content.cross_terms import (
    RANKS,
    RESIDUALS,
    HeadCrossTerms,
    measure_cross_terms,
    residual_ratio,
)
from poskernel.attention.content.leakage import LeakageEstimator
from poskernel.attention.content.product import HeadFits, ProductSettings, halves
from poskernel.attention.content.sparse_autoencoder import AutoencoderRecipe, fit_autoencoders, layer_inputs
from poskernel.attention.content.stages import STAGES, stage_kernels
from poskernel.attention.estimators.decompose import TERMS, HeadSplit, SplitEstimator
from poskernel.attention.sources.capture import AttentionSource, LayerCapture
from poskernel.experiments.experiment import Quantity
from poskernel.experiments.kernel_measures import number
from poskernel.experiments.language_units import Part

SPLIT, FEATURES, TAGS = "token split", "features", "tags"
"""What gives the classes: the tokens themselves, a sparse autoencoder, tags of the text."""
FEATURE_CLASSES = 8
KEPT_RANK = RANKS[-1]
FLAT = "undefined: the logits do not vary within rows"
NO_DEPOSIT = "undefined: one head, or none with a positional variance"
NO_STAGE = "undefined: nothing positional, or no stage before it"
POSITION_FIT = Quantity("fit_position", "held-out R2 of a kernel of the offset")
FITS: Mapping[str, tuple[Quantity, str | None]] = {
    "content": (Quantity("fit_content", "held-out R2 of the content kernel alone"), None),
    "fixed": (Quantity("fit_fixed", "held-out R2 of the product of both kernels, origins at their means"), None),
    "additive": (Quantity("fit_additive", "held-out R2 of offset kernel + content kernel + key-only term"), None),
    "free": (Quantity("fit_free", "held-out R2 of offset bins + content bins"), None),
    "product": (Quantity("gain_product", "R2 that the best product has over the sum of both kernels"), "sum"),
    "both": (Quantity("gain_both", "R2 that the fitted product adds to the additive form"), "additive"),
    "saturated": (Quantity("gain_saturated", "R2 that octave x content bins add to the free dictionary"), "free"),
}
"""By fit: what is measured, and over which other fit."""
SHARES = tuple(
    Quantity(f"{term}_share", f"variance of the {term} term over that of the logits, exact split") for term in TERMS
)
VARIANCE = Quantity("position_variance", "variance of the position term, exact split, nats squared")
LEAKS = (
    Quantity("leak_total", "share of the logits' variance that is a function of absolute positions alone"),
    Quantity("leak_mask", "the same without the first position as query or key"),
    Quantity("leak_first", "what the first position brings"),
)
CROSS = (
    Quantity("residual_ratio", "|r| / |A| of row-centred held-out logits, r what the fit leaves"),
    Quantity("rank", "effective rank of the residual, later queries on earlier keys"),
    Quantity("rank_null", "the same with the keys of another sequence"),
    Quantity("captured", f"share of the residual's squares in its first {KEPT_RANK} singular values"),
    Quantity("captured_null", "the same with the keys of another sequence"),
)
CLASS = (
    Quantity("class_gain", "R2 that kernels by query class, key class and octave add to the fit, on other sequences"),
    Quantity("class_null", "the same with the classes of another sequence"),
)
DEPOSIT = Quantity(
    "deposit", "entropy of the positional variance over a layer's heads over its largest: 1 even, 0 all in one head"
)
STAGE = (
    Quantity("stage_share", "share of a stage's variance that is position, from pairs of sequences"),
    Quantity("stage_stationary", "share of its positional kernel that is a function of the offset"),
    Quantity("stage_change", "total variation between its kernel's spectrum and that of the stage before"),
    Quantity("stage_noise", "the same between two halves of the sequences"),
)
CONTENT_MEASURES = (
    POSITION_FIT, *(quantity for quantity, _ in FITS.values()), *SHARES, VARIANCE, *LEAKS, *CROSS, *CLASS, DEPOSIT,
    *STAGE,
)  # fmt: skip
Where = tuple[Part, str]
"""Which part of the model, and which metric."""
Values = dict[Where, float | str]


@dataclass(frozen=True)
class Scope:
    """How much is measured of a model in one state."""

    kernels: tuple[str, ...] = (TOKEN,)
    classes: tuple[str, ...] = (SPLIT,)
    whole: bool = False
    """Whether the exact split, leakage, deposit and stages too."""


SCOPES = {
    "untrained": Scope(whole=True),
    "trained": Scope(KERNELS, (SPLIT, FEATURES), whole=True),
    "shuffled": Scope(),
}
"""By state; shuffled: the trained model with its positions in one random order."""
TAGGED = Scope(classes=(SPLIT, TAGS))


def planned(scope: Scope, layers: Sequence[int], heads: int) -> list[Where]:
    """Everything that is measured in a scope."""
    found: list[Where] = []
    for layer in layers:
        for head in range(heads):
            found += planned_head(scope, (("layer", layer), ("head", head)))
        if scope.whole:
            place: Part = (("layer", layer),)
            found.append((place, DEPOSIT.name))
            found += [((*place, ("stage", stage)), each.name) for stage in STAGES for each in STAGE]
    return found


def planned_head(scope: Scope, part: Part) -> Iterator[Where]:
    """The same of one head."""
    yield part, POSITION_FIT.name
    for kernel in scope.kernels:
        yield from (((*part, ("kernel", kernel)), quantity.name) for quantity, _ in FITS.values())
    for residual in RESIDUALS:
        left: Part = (*part, ("residual", residual))
        yield from ((left, each.name) for each in CROSS)
        yield from (((*left, ("classes", name)), each.name) for name in scope.classes for each in CLASS)
    if scope.whole:
        yield from ((part, each.name) for each in (*SHARES, VARIANCE, *LEAKS))


def content_values(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    layers: Sequence[int],
    dropped: int,
    scope: Scope,
    classes: Mapping[str, Classes],
    recipe: AutoencoderRecipe,
) -> Values:
    """A number for everything planned, or why there is none; `classes` gives all but the features."""
    given = {name: classes[name] for name in scope.classes if name != FEATURES}
    if FEATURES in scope.classes:
        given[FEATURES] = feature_classes(source, tokens, layers, dropped, recipe)
    settings = ProductSettings(dropped, scope.kernels)
    fits, crossed = measure_cross_terms(source, tokens, TOKEN, layers, settings, given)
    values: Values = {}
    for fit in fits:
        values |= fit_values(fit)
    for each in crossed:
        own = next(fit for fit in fits if (fit.layer, fit.head, fit.kernel) == (each.layer, each.head, each.kernel))
        values |= cross_values(own, each)
    if scope.whole:
        values |= whole_values(source, tokens, layers, dropped)
    return values


def feature_classes(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    layers: Sequence[int],
    dropped: int,
    recipe: AutoencoderRecipe,
) -> FeatureClasses:
    """Classes of a sparse autoencoder's features, learnt on the sequences that the fits are learnt on."""
    inputs = layer_inputs(source, halves(tokens)[0], layers, dropped)
    return FeatureClasses.of(fit_autoencoders(inputs, recipe), inputs, FEATURE_CLASSES)


def fit_values(fit: HeadFits) -> Values:
    """R2 of the fits with one content kernel, and gains."""
    part: Part = (("layer", fit.layer), ("head", fit.head))
    values: Values = {(part, POSITION_FIT.name): number(fit.r2("position").value, FLAT)}
    for name, (quantity, over) in FITS.items():
        found = fit.r2(name) if over is None else fit.gain(name, over)
        values[(*part, ("kernel", fit.kernel)), quantity.name] = number(found.value, FLAT)
    return values


def cross_values(fits: HeadFits, crossed: HeadCrossTerms) -> Values:
    """Size, rank and class kernels of what one fit leaves."""
    place = RANKS.index(KEPT_RANK)
    numbers = (
        residual_ratio(fits, crossed.fit).value,
        crossed.effective_rank().value,
        crossed.null_rank().value,
        float(crossed.captured[:, place].mean()),
        float(crossed.captured_null[:, place].mean()),
    )
    part: Part = (("layer", crossed.layer), ("head", crossed.head), ("residual", crossed.fit))
    values: Values = {(part, each.name): number(value, FLAT) for each, value in zip(CROSS, numbers, strict=True)}
    for name, gain in crossed.class_gains.items():
        found = gain.value, crossed.class_nulls[name].value
        values |= {
            ((*part, ("classes", name)), each.name): number(value, FLAT)
            for each, value in zip(CLASS, found, strict=True)
        }
    return values


def whole_values(
    source: AttentionSource, tokens: Int[Tensor, "sequence position"], layers: Sequence[int], dropped: int
) -> Values:
    """Exact split, leakage, deposit and stages."""
    split = SplitEstimator(dict.fromkeys(layers, source.heads), tokens.shape[1], dropped)
    leakage = LeakageEstimator(layers)

    def consume(capture: LayerCapture) -> None:
        split.consume(capture)
        leakage.consume(capture)

    for batch in tokens.split(8):
        with torch.inference_mode():
            source.forward(batch, consume)
    splits, values = split.estimates(), Values()
    for each in splits:
        part: Part = (("layer", each.layer), ("head", each.head))
        values |= {(part, f"{term}_share"): number(each.shares[term].value, FLAT) for term in TERMS}
        values[part, VARIANCE.name] = positional_variance(each)
    for leak in leakage.estimates():
        part = (("layer", leak.layer), ("head", leak.head))
        numbers = leak.total.value, leak.mask.value, leak.first.value
        values |= {(part, each.name): number(value, FLAT) for each, value in zip(LEAKS, numbers, strict=True)}
    for layer in layers:
        variances = [positional_variance(each) for each in splits if each.layer == layer]
        values[(("layer", layer),), DEPOSIT.name] = number(evenness(variances), NO_DEPOSIT)
    for kernel in stage_kernels(source, tokens, dropped):
        if kernel.layer in layers:
            part = (("layer", kernel.layer), ("stage", kernel.stage))
            found = kernel.share, kernel.stationary, kernel.change, kernel.noise
            values |= {(part, each.name): number(value, NO_STAGE) for each, value in zip(STAGE, found, strict=True)}
    return values


def positional_variance(split: HeadSplit) -> float:
    """Variance of the position term over pairs, nats squared; below 0 by noise alone."""
    return float(split.gram[TERMS.index("position"), TERMS.index("position")])


def evenness(variances: Sequence[float]) -> float:
    """Entropy of the heads' shares of a layer's positional variance over log of their number; nan for one head.

    A variance that noise made negative counts as none.
    """
    positive = [max(0.0, variance) for variance in variances]
    total = sum(positive)
    if len(positive) < 2 or not total > 0:
        return math.nan
    shares = [value / total for value in positive if value > 0]
    return -sum(share * math.log(share) for share in shares) / math.log(len(positive))
