"""Committed rows of the validation of `extend`, beside what was planned, and numbers over texts with intervals.

What a row speaks of comes from the plan, whose cells are known by their id: a number can never come from another cell.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel.experiments.extension.cells import ABOUT_FILE, GEMMA, MODEL, SHAPES, ExtensionCell, HeadCell
from poskernel.experiments.extension.validation import ExtensionValidation
from poskernel.experiments.extension.verdicts import ExtensionVerdicts, VerdictCell
from poskernel.statistics import Estimate, mean
from poskernel.study.transfer import ROWS_FILE, read_results
from poskernel.study.units import NO_SEED

if TYPE_CHECKING:
    import pandas as pd

KEY = ["cell", "metric", "length", "seed"]
LOST = ("failed", "timeout")
MODULE = "python -m poskernel.experiments.extension."


@dataclass(frozen=True)
class Run:
    """One run: what it was to measure, the folder of its rows, and the command that makes them."""

    asked: ExtensionValidation | ExtensionVerdicts
    folder: str
    command: str


VALIDATION = Run(
    ExtensionValidation(),
    "extension",
    f"{MODULE}validation --store out/extension.sqlite --out results/extension",
)
VERDICTS = Run(
    ExtensionVerdicts(),
    "extension-verdicts",
    f"{MODULE}verdicts --store out/extension.sqlite --out results/extension-verdicts",
)
GEMMA_VALIDATION = Run(
    ExtensionValidation(model=GEMMA, shape=SHAPES[GEMMA]),
    "extension-gemma",
    f"{MODULE}validation --model {GEMMA} --store out/gemma.sqlite --out results/extension-gemma",
)
NAMES = {MODEL: "SmolLM2-135M", GEMMA: "Gemma-3 270M"}


@dataclass(frozen=True, eq=False)
class ExtensionRows:
    """The planned measurements that are there, with what each speaks of."""

    run: Run
    table: "pd.DataFrame"
    """Columns setting, text, held_out, layer, head, metric, length, value, status and reason; a line a measurement."""
    planned: int
    about: dict[str, Any] = field(default_factory=dict)
    """Digests of weights and texts, where the run left them."""

    @classmethod
    def of(cls, run: Run, rows: "pd.DataFrame", about: dict[str, Any] | None = None) -> "ExtensionRows":
        """From a tidy table; rows that were not planned are left out."""
        plan = planned_frame(run.asked)
        keyed = rows.assign(seed=rows["seed"].fillna(NO_SEED).astype("int64"))[[*KEY, "value", "status", "reason"]]
        return cls(run, plan.merge(keyed, on=KEY), len(plan), about or {})

    @classmethod
    def read(cls, run: Run, results: Path) -> "ExtensionRows":
        """From the run's folder in `results`: nothing where it is not there; InputError where it is damaged."""
        from poskernel.study.store import frame

        folder = results / run.folder
        if not (folder / ROWS_FILE).exists():
            return cls.of(run, frame([]))
        about = json.loads((folder / ABOUT_FILE).read_text("utf-8")) if (folder / ABOUT_FILE).exists() else {}
        return cls.of(run, read_results(folder)[1], about)

    @property
    def validation(self) -> ExtensionValidation:
        """What was asked of a validation."""
        assert isinstance(self.run.asked, ExtensionValidation)
        return self.run.asked

    @property
    def missing(self) -> int:
        """Planned measurements that are not there."""
        return self.planned - len(self.table)

    @property
    def lost(self) -> "pd.DataFrame":
        """Measurements that failed."""
        found: pd.DataFrame = self.table[self.table["status"].isin(LOST)]
        return found

    def wide(self, keys: Sequence[str], metrics: Sequence[str]) -> "pd.DataFrame":
        """One line for each of the keys at which any of the metrics has a value, a column a metric."""
        held = self.table[self.table["metric"].isin(list(metrics)) & self.table["value"].notna()]
        wide = held.pivot(index=list(keys), columns="metric", values="value").reindex(columns=list(metrics))
        wide.columns.name = None
        return in_plan_order(wide.reset_index(), self.run.asked)

    def coverage_words(self) -> str:
        """What is there, and how to make what is not."""
        there = len(self.table) - len(self.lost)
        parts = [f"{there} of {self.planned} planned measurements of results/{self.run.folder} are there."]
        if self.missing or not there:
            parts.append(f"The rest is made by `{self.run.command}`.")
        if len(self.lost):
            parts.append(f"{len(self.lost)} failed, for instance: {self.lost['reason'].iloc[0]}")
        return " ".join(parts)


@lru_cache(maxsize=8)
def planned_frame(asked: ExtensionValidation | ExtensionVerdicts) -> "pd.DataFrame":
    """Every planned measurement, with what it speaks of."""
    import pandas as pd

    lines = [
        {**spoken_of(cell), "cell": cell.id, "metric": metric, "length": length, "seed": unit.run_seed}
        for unit in asked.units()
        for cell, metric, length in unit.measures
    ]
    return pd.DataFrame(lines)


def spoken_of(cell: Any) -> dict[str, Any]:
    """Setting, text and head of a cell's rows."""
    empty = {"setting": "", "text": "", "held_out": "", "layer": -1, "head": -1}
    if isinstance(cell, HeadCell):
        return {**empty, "setting": "none", "text": cell.text, "layer": cell.layer, "head": cell.head}
    if isinstance(cell, VerdictCell):
        return {**empty, "setting": cell.setting, "text": cell.text, "held_out": cell.held_out}
    assert isinstance(cell, ExtensionCell)
    return {**empty, "setting": cell.setting, "text": cell.text}


def in_plan_order(table: "pd.DataFrame", asked: ExtensionValidation | ExtensionVerdicts) -> "pd.DataFrame":
    """Lines in the order of the plan's settings and texts, then lengths."""
    order = {name: place for place, name in enumerate([*asked.settings, *asked.texts])}
    columns = [name for name in ("setting", "length", "text", "held_out") if name in table]
    ordered = table.sort_values(columns, key=lambda held: held if held.name == "length" else held.map(order))
    return ordered.reset_index(drop=True)


def over_texts(values: "pd.Series[float]", low: float = -math.inf, high: float = math.inf) -> Estimate:
    """Mean over texts with a t interval, cut at the bounds of what the number can be; texts without a value left out.

    Undefined where no text has one; one text alone has no interval.
    """
    found = mean(values.dropna().to_numpy(dtype=float))
    if math.isnan(found.low):
        return found
    cut = found.low < low or found.high > high
    words = f"{found.method}, cut at its bounds" if cut else found.method
    return replace(found, low=max(found.low, low), high=min(found.high, high), method=words)


def summary_table(
    wide: "pd.DataFrame", keys: Sequence[str], numbers: Sequence[str], unbounded: Sequence[str] = ()
) -> "pd.DataFrame":
    """One line for each of the keys: every number's estimate over texts, and how many texts there are."""
    import pandas as pd

    lines = []
    for held, group in wide.groupby(list(keys), sort=False):
        line: dict[str, Any] = dict(zip(keys, held, strict=True))
        for name in numbers:
            top = math.inf if name in unbounded else 1.0
            line[name] = over_texts(group[name], -1.0 if "correlation" in name else 0.0, top)
        line["texts"] = int(group[list(numbers)].notna().any(axis=1).sum())
        lines.append(line)
    return pd.DataFrame(lines, columns=[*keys, *numbers, "texts"])
