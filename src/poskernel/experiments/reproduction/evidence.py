"""What was measured, from a store or from committed rows, and what is missing from it.

Cells are looked up by their id, worked out from what they set, so that a number can never come from another cell.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.encodings import parse_encoding
from poskernel.errors import InputError, lookup
from poskernel.experiments.comparison import Comparison, compare
from poskernel.experiments.reproduction.agreement import Statistic
from poskernel.experiments.study_rows import DEFAULT_RULE, KEY, StudyRows, keyed
from poskernel.experiments.trained_kernels import NAME as TRAINED_KERNELS
from poskernel.models.training import Recipe
from poskernel.models.transformer import Architecture
from poskernel.statistics import Estimate, mean
from poskernel.study import STUDIES, Metric, PredictionCell, Store, TrainingCell
from poskernel.study.grid import TIERS, Cell
from poskernel.study.transfer import ROWS_FILE, read_results
from poskernel.study.units import NO_SEED
from poskernel.tasks import parse_task

if TYPE_CHECKING:
    import pandas as pd

TRAINED_AT = 20
PICTURED_LENGTH = 60
"""Length of the paper's tables: three times the training length."""
EXACT = "computed, nothing is sampled"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Rows of any number of studies, with what they say of one cell or one study."""

    tables: dict[str, "pd.DataFrame"]
    """Tidy rows by where they come from: a study's name, or the store."""
    source: str
    """Where the rows come from, in words."""
    seed: int = 0
    """Seed of every bootstrap and shuffle."""
    statistics: dict[tuple[str, int], dict[str, Statistic]] = field(default_factory=dict, init=False, repr=False)
    """Statistics by study and tier that were worked out already."""
    _studies: dict[str, StudyRows] = field(default_factory=dict, init=False, repr=False)
    _comparisons: dict[tuple[str, int, str], Comparison] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_store(cls, store: Store, seed: int = 0) -> "Evidence":
        """Everything a store holds."""
        return cls({"store": keyed(store.to_frame())}, f"the store {store.path}", seed)

    @classmethod
    def from_results(cls, folder: Path, seed: int = 0) -> "Evidence":
        """The committed rows of every study that is in a folder; InputError where there is none."""
        names = [name for name in (*STUDIES, TRAINED_KERNELS) if (folder / name / ROWS_FILE).exists()]
        if not names:
            raise InputError(f"'{folder}' holds no STUDY/{ROWS_FILE}: give the folder that `study run --out` wrote to.")
        return cls({name: keyed(read_results(folder / name)[1]) for name in names}, f"the folder {folder}", seed)

    @cached_property
    def every(self) -> "pd.DataFrame":
        """All rows, each measurement once."""
        import pandas as pd

        return pd.concat(self.tables.values(), ignore_index=True).drop_duplicates(KEY, ignore_index=True)

    @cached_property
    def clashes(self) -> int:
        """Measurements that two studies' files hold with different values: files of different machines or versions."""
        import pandas as pd

        together = pd.concat(self.tables.values(), ignore_index=True).dropna(subset=["value"])
        return int((together.groupby(KEY)["value"].agg(lambda held: held.max() - held.min()) > 0).sum())

    @cached_property
    def by_cell(self) -> dict[tuple[str, str, int], "pd.DataFrame"]:
        """The rows of each cell, metric and length."""
        return {
            (str(cell), str(metric), int(str(length))): rows
            for (cell, metric, length), rows in self.every.groupby(["cell", "metric", "length"])
        }

    def study(self, name: str) -> StudyRows:
        """A study's rows: its own file before what others hold of the same cells."""
        if name not in self._studies:
            import pandas as pd

            own = [self.tables[name]] if name in self.tables else []
            rows = pd.concat([*own, self.every], ignore_index=True).drop_duplicates(KEY)
            self._studies[name] = StudyRows.of(lookup(STUDIES, name, "study"), rows)
        return self._studies[name]

    def has_models(self, name: str) -> bool:
        """Whether any trained measurement of a study has a value."""
        return bool(self.study(name).only(Metric.LENGTH_GENERALIZATION)["value"].notna().any())

    def has_tier(self, name: str, tier: int) -> bool:
        """The same for one tier."""
        return bool(self.study(name).joined(tier)["accuracy"].notna().any())

    def comparison(self, name: str, tier: int, rule: str = DEFAULT_RULE) -> Comparison:
        """Predictions against models of one tier; RunError where none was trained."""
        key = (name, tier, rule)
        if key not in self._comparisons:
            self._comparisons[key] = compare(self.study(name).joined(tier, rule=rule), self.seed)
        return self._comparisons[key]

    def alpha(
        self, encoding: str, task: str, length: int, rule: str = DEFAULT_RULE, metric: Metric = Metric.ALPHA
    ) -> Estimate:
        """One prediction; nan with the reason where it is not there."""
        cell = PredictionCell(parse_encoding(encoding), parse_task(task), TRAINED_AT, rule)
        values = self.values(cell, metric, length)
        if not len(values):
            return missing(f"no alpha of {encoding} {task}, rule {rule}, length {length}")
        return Estimate(float(values.iloc[0]), math.nan, math.nan, 1, EXACT)

    def mean_alpha(self, encoding: str, task: str, lengths: Iterable[int]) -> Estimate:
        """Mean of the default rule's alpha over lengths."""
        parts = [self.alpha(encoding, task, length) for length in lengths]
        return Estimate(sum(part.value for part in parts) / len(parts), math.nan, math.nan, len(parts), EXACT)

    def accuracy(
        self,
        encoding: str,
        task: str,
        length: int,
        tier: int = 1,
        metric: Metric = Metric.LENGTH_GENERALIZATION,
        steps: int = 2000,
    ) -> Estimate:
        """Mean over the seeds of the default architecture's models, with a t interval."""
        values = self.values(trained_cell(encoding, task, tier, steps), metric, length)
        return mean(values) if len(values) else missing(f"no model of {encoding} {task}, tier {tier}, {steps} steps")

    def values(self, cell: Cell, metric: Metric, length: int) -> "pd.Series[float]":
        """The values of a cell's measurements at a length, by seed."""
        rows = self.by_cell.get((cell.id, str(metric), length), self.every.iloc[:0])
        return rows.set_index("seed")["value"].dropna().sort_index()

    def coverage(self, names: Iterable[str]) -> "pd.DataFrame":
        """One line a study: measurements planned, there, by status, and what is missing in words."""
        import pandas as pd

        lines = []
        for name in names:
            rows = self.study(name)
            there, status = len(rows.table), rows.table["status"].value_counts()
            lines.append(
                {
                    "study": name,
                    "planned": len(rows.planned),
                    "there": there,
                    "unlearned": int(status.get("unlearned", 0)),
                    "failed": int(status.get("failed", 0) + status.get("timeout", 0)),
                    "missing": missing_in_words(rows),
                }
            )
        return pd.DataFrame(lines)


def trained_cell(encoding: str, task: str, tier: int = 1, steps: int = 2000) -> TrainingCell:
    """A cell of the main study's architecture."""
    layers, heads = TIERS[tier]
    shape = Architecture(layers=layers, heads=heads, train_length=TRAINED_AT)
    return TrainingCell(parse_encoding(encoding), parse_task(task), shape, Recipe(steps=steps))


def missing(reason: str) -> Estimate:
    """No number, and why."""
    return Estimate(math.nan, math.nan, math.nan, 0, reason)


def missing_in_words(rows: StudyRows) -> str:
    """Which models and predictions of a study are not there: by tier, steps and seeds."""
    lost = rows.missing
    if lost.empty:
        return "nothing"
    if len(lost) == len(rows.planned):
        return "everything"
    words = []
    predictions = lost[lost["kind"] == "prediction"]
    if len(predictions):
        words.append(f"{predictions['cell'].nunique()} predictions")
    models = lost[lost["seed"] != NO_SEED].drop_duplicates(["cell", "seed"])
    for (tier, steps), group in models.groupby(["tier", "steps"]):
        by_seed = group.groupby("seed")["cell"].nunique()
        seeds = ", ".join(f"{count} of seed {seed}" for seed, count in by_seed.items())
        words.append(f"tier {tier} at {steps} steps: {len(group)} models ({seeds})")
    return "; ".join(words)
