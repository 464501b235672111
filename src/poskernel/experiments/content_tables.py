"""What E2 shows of its rows: fits by state, the decay of frozen content with depth, kinds of heads, stages."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from poskernel import statistics
from poskernel.attention.content.content_kernels import INPUT, TOKEN
from poskernel.attention.estimators.decompose import TERMS
from poskernel.decay import FEWEST, crossing, decay_fits
from poskernel.experiments.content_measures import STAGE
from poskernel.experiments.content_units import OWN
from poskernel.experiments.head_rows import by_seed, mean, of_models

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TRAINED: Mapping[str, object] = {"text": OWN, "state": "trained"}
DECAYING = {
    "token content": ("fit_content", {"kernel": TOKEN}),
    "content of the layer's input": ("fit_content", {"kernel": INPUT}),
    "product, origins at the means": ("fit_fixed", {"kernel": TOKEN}),
    "position": ("fit_position", {}),
}
"""What is followed over depth: metric and where."""
SHOWN_FITS = {
    "position": ("fit_position", {}),
    "token content": ("fit_content", {"kernel": TOKEN}),
    "product, origins at the means": ("fit_fixed", {"kernel": TOKEN}),
    "additive": ("fit_additive", {"kernel": TOKEN}),
    "best product over the sum": ("gain_product", {"kernel": TOKEN}),
    "product beside the additive form": ("gain_both", {"kernel": TOKEN}),
    "free dictionary": ("fit_free", {"kernel": TOKEN}),
}
LEVEL = 0.5


def short(model: str) -> str:
    """A model's name for a figure."""
    return model.removeprefix("package:llm-")


def fits_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Mean over heads of each fit's held-out R2 in every state, RoPE models; means over seeds with intervals."""
    import pandas as pd

    lines = []
    for name, (metric, where) in SHOWN_FITS.items():
        for state in ("untrained", "trained", "shuffled"):
            wanted = {"text": OWN, "state": state, "encoding": "rope", **where}
            found = by_seed(of_models(rows, metric, mean, wanted, undefined=0.0))
            lines.append({"fit": name, "state": state, "estimate": statistics.mean(there(found.tolist()))})
    return pd.DataFrame(lines)


def draw_fits(table: "pd.DataFrame") -> "Figure":
    """An interval a fit and state."""
    from poskernel.report.intervals import forest

    return forest(
        table, title="What explains logits that were not fitted", axis_label="held-out R2, mean over heads",
        label="fit", series="state",
    )  # fmt: skip


def there(values: Sequence[float]) -> list[float]:
    """Those that are numbers."""
    return [value for value in values if not math.isnan(value)]


def head_values(rows: "pd.DataFrame", metric: str, where: Mapping[str, object]) -> "pd.DataFrame":
    """One trained head a row, on the models' own text."""
    chosen = rows[rows["metric"] == metric]
    for column, wanted in {**TRAINED, **where}.items():
        chosen = chosen[chosen[column] == wanted]
    return chosen.dropna(subset="value")


def depth_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """R2 of frozen token content by layer, mean over heads and seeds, a series a model."""
    heads = head_values(rows, "fit_content", {"kernel": TOKEN})
    found = heads.groupby(["encoding", "layer"], sort=False)["value"].mean().reset_index()
    return found.assign(model=found["encoding"].map(short)).rename(columns={"value": "r2"})[["model", "layer", "r2"]]


def draw_depth(table: "pd.DataFrame") -> "Figure":
    """R2 over layers."""
    from poskernel.report.curves import curves

    return curves(
        table, title="Token content by depth", x="layer", y="r2", series="model",
        labels=("layer", "held-out R2 of token content, mean over heads"), points=table, level=(LEVEL, "one half"),
    )  # fmt: skip


def decay_table(rows: "pd.DataFrame") -> "pd.DataFrame":
    """The form of decay over depth that AIC chooses, its lead over a constant, and where one half is crossed."""
    import pandas as pd

    lines = []
    for name, (metric, where) in DECAYING.items():
        for model, heads in head_values(rows, metric, where).groupby("encoding", sort=False):
            layer, value = heads["layer"].to_numpy(dtype=float), heads["value"].to_numpy(dtype=float)
            if len(heads) < FEWEST or len(set(layer)) < 3:
                continue
            fits = decay_fits(layer, value)
            constant = next(fit for fit in fits if fit.form == "constant")
            lines.append({
                "what": name, "model": short(str(model)), "form": fits[0].form,
                "coefficients": ", ".join(f"{part:.3g}" for part in fits[0].coefficients),
                "AIC below a constant": constant.aic - fits[0].aic,
                "layer of one half": crossing(layer, value, level=LEVEL, clusters=heads["seed"].to_numpy()),
            })  # fmt: skip
    return pd.DataFrame(lines)


def kinds_table(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Share of trained heads by the largest term of the exact split, and by K's rule: which fit explains most."""
    import pandas as pd

    lines = []
    for rule, named in (("largest exact share", led_by(rows)), ("best fit (K)", best_fit(rows))):
        for model, heads in named.groupby("encoding", sort=False):
            for kind, number in heads["kind"].value_counts().items():
                share = {"share": number / len(heads), "heads": number}
                lines.append({"rule": rule, "model": short(str(model)), "kind": kind, **share})
    return pd.DataFrame(lines)


def largest(rows: "pd.DataFrame", named: Mapping[str, tuple[str, Mapping[str, object]]]) -> "pd.DataFrame":
    """Each trained head with the name of the metric that is its largest."""
    import pandas as pd

    keys = ["encoding", "seed", "layer", "head"]
    columns = {
        name: head_values(rows, metric, where).set_index(keys)["value"] for name, (metric, where) in named.items()
    }
    table = pd.DataFrame(columns).dropna()
    return table.idxmax(axis=1).rename("kind").reset_index() if len(table) else pd.DataFrame(columns=[*keys, "kind"])


def led_by(rows: "pd.DataFrame") -> "pd.DataFrame":
    """By the exact split."""
    return largest(rows, {term: (f"{term}_share", {}) for term in TERMS})


def best_fit(rows: "pd.DataFrame") -> "pd.DataFrame":
    """By K's three models."""
    where: dict[str, object] = {"kernel": TOKEN}
    return largest(rows, {
        "positional": ("fit_position", {}), "content": ("fit_content", where), "mixed (product)": ("fit_fixed", where),
    })  # fmt: skip


def stage_table(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Stage kernels of trained models, means over layers, and over seeds with intervals."""
    import pandas as pd

    lines = []
    stages = rows[rows["metric"] == STAGE[0].name]
    for model in stages["encoding"].unique():
        for stage in stages["stage"].unique():
            line: dict[str, object] = {"model": short(str(model)), "stage": stage}
            for each in STAGE:
                where = {**TRAINED, "encoding": model, "stage": stage}
                found = of_models(rows, each.name, mean, where, undefined=0.0)
                known = head_values(rows, each.name, {"encoding": model, "stage": stage})
                line[each.name] = statistics.mean(there(by_seed(found).tolist()) if len(known) else [])
            lines.append(line)
    return pd.DataFrame(lines)
