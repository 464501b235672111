"""E7's predictions, written before any full run.

Informed: what throw-away runs had shown of SmolLM2 (kernels, shares and fits on CPython's help topics; the circuit on
one draw of random patterns) and of MiniLM (R2 on the help topics). They are confirmed on other texts (messages to
Congress) and other patterns. Of Gemma-3 nothing had been seen.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from poskernel.experiments.experiment import RegisteredPrediction
from poskernel.experiments.head_rows import by_seed, difference, mean, median, of_models, paired
from poskernel.experiments.judging import Side
from poskernel.experiments.pretrained.models import GEMMA, MINILM, SMOLLM2, PretrainedModel

if TYPE_CHECKING:
    import pandas as pd

Measured = Callable[["pd.DataFrame"], Sequence[float]]


def kernels(model: PretrainedModel, state: str = "trained") -> Mapping[str, object]:
    """Rows of E1's protocol."""
    return {"protocol": "kernel", "model": model.name, "state": state}


def median_r2(model: PretrainedModel) -> Measured:
    """Median R2 over all heads, a text each; a head without an R2 has no kernel, and counts as 0."""
    return lambda rows: by_seed(of_models(rows, "r2", median, kernels(model), undefined=0.0)).tolist()


def smaller(first: "pd.Series[float]", second: "pd.Series[float]") -> Sequence[float]:
    """The smaller number of each seed; nan where one of the two is missing."""
    import pandas as pd

    return pd.concat([first, second], axis=1).min(axis=1, skipna=False).tolist()


def trained_signal(rows: "pd.DataFrame") -> Sequence[float]:
    """Mean signal over heads, trained less untrained, of the weaker rotary model."""
    gains = []
    for model in (SMOLLM2, GEMMA):
        found = [of_models(rows, "signal", mean, kernels(model, state)) for state in ("trained", "untrained")]
        gains.append(by_seed(found[0]) - by_seed(found[1]))
    return smaller(gains[0], gains[1])


def less_stationary(rows: "pd.DataFrame") -> Sequence[float]:
    """SmolLM2's median R2 less MiniLM's."""
    first, second = (of_models(rows, "r2", median, kernels(each), undefined=0.0) for each in (SMOLLM2, MINILM))
    return difference(first, second)


def fits(model: PretrainedModel, first: str, second: str) -> Measured:
    """Held-out R2 of one fit less that of another, means over the heads of the selected layers."""

    def gain(rows: "pd.DataFrame") -> Sequence[float]:
        where = {"protocol": "product", "model": model.name}
        return difference(of_models(rows, first, mean, where), of_models(rows, second, mean, where))

    return gain


def token_decay(rows: "pd.DataFrame") -> Sequence[float]:
    """R2 of the additive fit with token embeddings in SmolLM2's first layer less that in its last."""
    layers = (SMOLLM2.product_layers[0], SMOLLM2.product_layers[-1])
    found = [
        of_models(rows, "additive_token", mean, {"protocol": "product", "model": SMOLLM2.name, "layer": layer})
        for layer in layers
    ]
    return difference(found[0], found[1])


def circuit(rows: "pd.DataFrame", model: PretrainedModel, change: str, metric: str) -> "pd.Series[float]":
    """A measure of the circuit under a change, mean over draws, a seed each."""
    where = {"protocol": "circuit", "model": model.name, "change": change}
    return by_seed(of_models(rows, metric, mean, where))


def circuit_gap(model: PretrainedModel, metric: str, first: str, second: str) -> Measured:
    """A measure under one change less that under another."""
    return lambda rows: (circuit(rows, model, first, metric) - circuit(rows, model, second, metric)).tolist()


def circuit_share(model: PretrainedModel, change: str, metric: str) -> Measured:
    """A measure under a change."""
    return lambda rows: circuit(rows, model, change, metric).tolist()


def further_moves(rows: "pd.DataFrame") -> Sequence[float]:
    """The smaller of two shares: two after the right token when moved by 2, the row's own token when moved by -1."""
    two, back = (
        circuit(rows, SMOLLM2, change, metric)
        for change, metric in (("moved by 2", "ahead_2"), ("moved by -1", "itself"))
    )
    return smaller(two, back)


def above_noise(rows: "pd.DataFrame", model: PretrainedModel, keys: int) -> "pd.DataFrame":
    """Variation less its noise at rows with so many keys, mean over layers."""
    where = {"protocol": "rows", "model": model.name, "length": keys}
    found, noise = (of_models(rows, metric, mean, where) for metric in ("variation", "noise"))
    return paired(found, noise, ["model"])


def ends(rows: "pd.DataFrame") -> tuple[int, int]:
    """Keys of the first and the last row compared."""
    keys = rows.loc[rows["metric"] == "variation", "length"]
    return int(keys.min()), int(keys.max())


def fall(model: PretrainedModel) -> Measured:
    """Variation above noise at the first row less that at the last."""

    def fallen(rows: "pd.DataFrame") -> Sequence[float]:
        first, last = ends(rows)
        return difference(above_noise(rows, model, first), above_noise(rows, model, last))

    return fallen


def mask_effect(rows: "pd.DataFrame") -> Sequence[float]:
    """SmolLM2 less MiniLM at the first row."""
    first, _ = ends(rows)
    return difference(above_noise(rows, SMOLLM2, first), above_noise(rows, MINILM, first))


KERNEL_PREDICTIONS = (
    RegisteredPrediction(
        "SmolLM2 is stationary", "The median R2 over SmolLM2's heads is above 0.9.", median_r2(SMOLLM2),
        Side.ABOVE, 0.9, "a text on which most heads' mean logits are no function of the offset", informed=True,
    ),
    RegisteredPrediction(
        "Gemma-3 is stationary", "The median R2 over Gemma-3's heads is above 0.8.", median_r2(GEMMA),
        Side.ABOVE, 0.8, "a second rotary model most of whose heads have no kernel of the offset", informed=False,
    ),
    RegisteredPrediction(
        "training makes the signal",
        "In both rotary models the mean signal over heads is above that of weights drawn anew by more than 0.3 nats.",
        trained_signal, Side.ABOVE, 0.3, "kernels no larger than random weights make them", informed=True,
        deciding=False,
    ),
    RegisteredPrediction(
        "learned positions are less stationary",
        "MiniLM's median R2 is below SmolLM2's by more than 0.1 (the negative control).",
        less_stationary, Side.ABOVE, 0.1, "a model with absolute positions that is as stationary", informed=True,
        deciding=False,
    ),
)  # fmt: skip
PRODUCT_PREDICTIONS = (
    RegisteredPrediction(
        "content adds",
        "In SmolLM2 a key term and a bilinear kernel of the layer's input raise the held-out R2 of the kernel of the "
        "offset by more than 0.15.",
        fits(SMOLLM2, "additive_input", "position"), Side.ABOVE, 0.15, "logits that position alone explains as well",
        informed=True, deciding=False,
    ),
    RegisteredPrediction(
        "SmolLM2 is no product",
        "Adding the product of position and content to their sum gains less than 0.02 of held-out R2 (K's product "
        "kernel says otherwise).",
        fits(SMOLLM2, "both_input", "additive_input"), Side.BELOW, 0.02,
        "a product that explains what the sum does not", informed=True,
    ),
    RegisteredPrediction(
        "Gemma-3 is no product", "The same in Gemma-3.", fits(GEMMA, "both_input", "additive_input"),
        Side.BELOW, 0.02, "a product that explains what the sum does not", informed=False,
    ),
    RegisteredPrediction(
        "frozen tokens are left behind",
        "With token embeddings as content, the additive fit's R2 falls from SmolLM2's first layer to its last by more "
        "than 0.1.",
        token_decay, Side.ABOVE, 0.1, "deep layers that token embeddings describe as well as the first", informed=True,
        deciding=False,
    ),
)  # fmt: skip
ROW = 1 / 196
"""Step of a share of predictions: one row of the repeats of four patterns of 50 tokens."""
CIRCUIT_PREDICTIONS = (
    RegisteredPrediction(
        "damping breaks the copy",
        "Halving the three planes that carry offset 1 in SmolLM2's previous-token heads lowers the share of right "
        "copies by more than 0.3.",
        circuit_gap(SMOLLM2, "copied", "none", "damped"), Side.ABOVE, 0.3, "a circuit that goes on copying",
        informed=True, step=ROW,
    ),
    RegisteredPrediction(
        "not any planes break it",
        "In heads that have random planes of equal energy, halving those leaves the share of right copies above that "
        "with the carrying planes halved by more than 0.1.",
        circuit_gap(SMOLLM2, "copied", "energy-matched", "damped, heads with a control"), Side.ABOVE, 0.1,
        "random planes of the same energy that break the circuit as well", informed=True, step=ROW,
    ),
    RegisteredPrediction(
        "moving the kernel moves the copy",
        "With the previous-token heads' kernels moved by one position, more than 0.2 of predictions are the token "
        "after the right one.",
        circuit_share(SMOLLM2, "moved by 1", "ahead_1"), Side.ABOVE, 0.2,
        "a circuit that breaks, or stays, when its kernel moves", informed=True, step=ROW,
    ),
    RegisteredPrediction(
        "by two, and back",
        "Moved by two, more than 0.2 are two after the right one; moved by -1, more than 0.2 repeat the row's own "
        "token.",
        further_moves, Side.ABOVE, 0.2, "moves that do not go where the kernel does", informed=True,
        step=ROW, deciding=False,
    ),
    RegisteredPrediction(
        "other heads move nothing",
        "The same move in as many other heads makes less than 0.05 of predictions the token after the right one.",
        circuit_share(SMOLLM2, "other heads moved by 1", "ahead_1"), Side.BELOW, 0.05,
        "a copy that moves with heads outside the circuit", informed=True, step=ROW,
    ),
    RegisteredPrediction(
        "matching lives in unresolved planes",
        "Without the planes whose wavelength fits into the pattern, SmolLM2's induction heads keep more than 0.2 more "
        "attention on their targets than without those that are longer.",
        circuit_gap(
            SMOLLM2, "induction", "induction without resolved planes", "induction without unresolved planes"
        ),
        Side.ABOVE, 0.2, "induction that needs short planes as much as long ones", informed=True, deciding=False,
    ),
    RegisteredPrediction(
        "Gemma-3's copy moves too",
        "With Gemma-3's previous-token heads moved by one position, more than 0.1 of predictions are the token after "
        "the right one.",
        circuit_share(GEMMA, "moved by 1", "ahead_1"), Side.ABOVE, 0.1, "a second model whose circuit does not move",
        informed=False, step=ROW, deciding=False,
    ),
    RegisteredPrediction(
        "damping breaks Gemma-3's copy",
        "Halving the planes that carry offset 1 in Gemma-3 lowers the share of right copies by more than 0.1.",
        circuit_gap(GEMMA, "copied", "none", "damped"), Side.ABOVE, 0.1, "a circuit that goes on copying",
        informed=False, step=ROW, deciding=False,
    ),
)  # fmt: skip
BOUNDARY_PREDICTIONS = (
    RegisteredPrediction(
        "SmolLM2's early rows are not stationary",
        "The total variation between a row of 8 keys and one of 16, above its noise, is larger than at the last row "
        "compared by more than 0.05, mean over layers.",
        fall(SMOLLM2), Side.ABOVE, 0.05, "early rows that differ from later ones no more than late rows do",
        informed=True,
    ),
    RegisteredPrediction(
        "Gemma-3's neither", "The same in Gemma-3, by more than 0.02.", fall(GEMMA), Side.ABOVE, 0.02,
        "early rows that differ from later ones no more than late rows do", informed=False,
    ),
    RegisteredPrediction(
        "without a mask they are",
        "At the first row SmolLM2's variation above noise is larger than that of bidirectional MiniLM by more than "
        "0.02.",
        mask_effect, Side.ABOVE, 0.02, "a bidirectional model whose early rows differ as much", informed=False,
        deciding=False,
    ),
)  # fmt: skip
PREDICTIONS = (*KERNEL_PREDICTIONS, *PRODUCT_PREDICTIONS, *CIRCUIT_PREDICTIONS, *BOUNDARY_PREDICTIONS)
