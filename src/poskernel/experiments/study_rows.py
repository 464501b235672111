"""A study's own rows out of a table that may hold many studies, and predictions beside the models they speak of.

The tidy table's columns do not tell all cells apart: two recipes, widths or test encodings look alike there. So rows
are chosen and joined by cell ids, worked out from the study's definition: a model's alpha is that of the prediction
cell with its encoding, task, training length and test encoding, and nothing else can be mistaken for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from poskernel.errors import InputError
from poskernel.study.grid import PredictionCell, Study, TrainingCell
from poskernel.study.store import COLUMNS
from poskernel.study.units import NO_SEED, GridUnit, Metric, units_of

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_RULE = "adam"
CELL = ["encoding", "task"]
SETTING = ["tier", "train_length", "steps", "width", "vocabulary"]
"""What tells models of one encoding and task apart."""
KEY = ["cell", "metric", "length", "seed"]
JOINED = ["cell", *CELL, *SETTING, "length", "seed", "alpha", "alpha_reason", "exists", "accuracy", "train_accuracy",
          "status", "reason"]  # fmt: skip
"""Columns of predictions beside trained models: one line a model, seed and length."""


def prediction_of(cell: TrainingCell, rule: str = DEFAULT_RULE) -> PredictionCell:
    """The prediction that speaks of a trained cell."""
    return PredictionCell(cell.encoding, cell.task, cell.train_length, rule, test_encoding=cell.test_encoding)


def keyed(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table with a seed everywhere (NO_SEED for predictions); InputError where it lacks a column."""
    lacking = [name for name in COLUMNS if name not in table.columns]
    if lacking:
        raise InputError(f"the rows have no column '{lacking[0]}': give rows as `poskernel study export` writes them.")
    return table.assign(seed=table["seed"].fillna(NO_SEED).astype("int64"))


@dataclass(frozen=True, eq=False)
class StudyRows:
    """A study and those rows of a table that it asks for."""

    study: Study
    table: "pd.DataFrame"
    """Tidy rows, NO_SEED where there is none; nothing of any other study."""
    _joined: "dict[Any, pd.DataFrame]" = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, study: Study, table: "pd.DataFrame") -> "StudyRows":
        """The study's rows of a table; InputError where one measurement stands in it twice."""
        chosen = keyed(table).merge(planned_measurements(study)[KEY], on=KEY, how="inner")
        twice = chosen.duplicated(KEY)
        if twice.any():
            cell, metric, length, seed = chosen.loc[twice, KEY].iloc[0]
            raise InputError(
                f"{metric} of cell {cell}, length {length}, seed {seed} stands twice in the rows: give each row once."
            )
        return cls(study, chosen)

    @property
    def units(self) -> list[GridUnit]:
        """What the study asks for."""
        return study_units(self.study)

    @property
    def planned(self) -> "pd.DataFrame":
        """Every measurement it asks for: kind, tier, train_length, steps, rule and the key."""
        return planned_measurements(self.study)

    @cached_property
    def models(self) -> "pd.DataFrame":
        """One line a trained cell: cell, encoding, task, its setting, and the TrainingCell itself as `about`."""
        import pandas as pd

        cells = {cell.id: cell for unit in self.units for cell in unit.cells if isinstance(cell, TrainingCell)}
        rows = [
            {"cell": name, "encoding": cell.label, "task": cell.task.name, "about": cell, **setting_of(cell)}
            for name, cell in cells.items()
        ]
        return pd.DataFrame(rows, columns=["cell", *CELL, "about", *SETTING])

    def joined(
        self,
        tier: int | None = None,
        *,
        train_length: int | None = None,
        steps: int | None = None,
        rule: str = DEFAULT_RULE,
        metric: Metric = Metric.ALPHA,
    ) -> "pd.DataFrame":
        """LG of every model, seed and length beside its alpha under a rule and existence: columns JOINED.

        `tier`, `train_length` and `steps` narrow the models. `metric` is the alpha to show. Rows that were not
        measured are left out; a failed one stays without a value. The same table every time: do not write into it.
        """
        asked_for = (tier, train_length, steps, rule, metric)
        if asked_for not in self._joined:
            self._joined[asked_for] = self._join(*asked_for)
        return self._joined[asked_for]

    def _join(
        self, tier: int | None, train_length: int | None, steps: int | None, rule: str, metric: Metric
    ) -> "pd.DataFrame":
        import pandas as pd

        models = self.models
        for name, wanted in (("tier", tier), ("train_length", train_length), ("steps", steps)):
            models = models if wanted is None else models[models[name] == wanted]
        # Typed, so that no model at all still gives a table that joins.
        asked = pd.Series([prediction_of(cell, rule).id for cell in models["about"]], models.index, dtype=object)
        first = pd.Series([prediction_of(cell).id for cell in models["about"]], models.index, dtype=object)
        models = models.drop(columns="about").assign(asked=asked, first=first)
        trained = self.only(Metric.LENGTH_GENERALIZATION)[["cell", "length", "seed", "value", "status", "reason"]]
        learned = self.only(Metric.TRAIN_ACCURACY)[["cell", "seed", "value"]]
        alphas = self.only(metric)[["cell", "length", "value", "reason"]]
        exists = self.only(Metric.EXISTS)[["cell", "length", "reason"]]
        joined = (
            models.merge(trained.rename(columns={"value": "accuracy"}), on="cell")
            .merge(learned.rename(columns={"value": "train_accuracy"}), on=["cell", "seed"], how="left")
            .merge(renamed(alphas, "asked", value="alpha", reason="alpha_reason"), on=["asked", "length"], how="left")
            .merge(renamed(exists, "first", reason="exists"), on=["first", "length"], how="left")
        )
        return in_study_order(joined[JOINED])

    def only(self, metric: Metric) -> "pd.DataFrame":
        """The rows of one metric."""
        return self.table[self.table["metric"] == metric]

    @cached_property
    def missing(self) -> "pd.DataFrame":
        """The planned measurements that are not there."""
        there = self.planned.merge(self.table[KEY], on=KEY, how="left", indicator=True)
        return there[there["_merge"] == "left_only"].drop(columns="_merge")


def renamed(table: "pd.DataFrame", cell: str, **columns: str) -> "pd.DataFrame":
    """A table to be joined: its cell column and others under new names."""
    return table.rename(columns={"cell": cell, **columns})


def setting_of(cell: TrainingCell) -> dict[str, Any]:
    """The columns SETTING of a trained cell."""
    shape = cell.architecture
    values = (cell.tier or 0, cell.train_length, cell.recipe.steps, shape.width, shape.vocabulary)
    return dict(zip(SETTING, values, strict=True))


@lru_cache(maxsize=32)
def study_units(study: Study) -> list[GridUnit]:
    """The units of a study, made once: checking them all takes a while. Not to be written into."""
    return units_of(study)


@lru_cache(maxsize=32)
def planned_measurements(study: Study) -> "pd.DataFrame":
    """Every measurement of a study, made once; not to be written into."""
    return planned_keys(study_units(study))


def planned_keys(units: Iterable[GridUnit]) -> "pd.DataFrame":
    """One line a measurement that these units make: its key, and what a reader calls the cell."""
    import pandas as pd

    rows = [
        {
            "kind": "model" if isinstance(cell, TrainingCell) else "prediction",
            "encoding": cell.label,
            "task": cell.task.name,
            "tier": cell.tier or 0,
            "train_length": cell.train_length,
            "steps": cell.recipe.steps if isinstance(cell, TrainingCell) else 0,
            "rule": cell.selection_rule or "",
            "cell": cell.id,
            "metric": str(metric),
            "length": length,
            "seed": unit.run_seed,
        }
        for unit in units
        for cell, metric, length in unit.measures
    ]
    columns = ["kind", *CELL, "tier", "train_length", "steps", "rule", *KEY]
    return pd.DataFrame(rows, columns=columns).drop_duplicates(KEY, ignore_index=True)


def in_study_order(table: "pd.DataFrame") -> "pd.DataFrame":
    """Encodings and tasks in the order of the registries, not of the alphabet."""
    from poskernel.encodings import ENCODINGS
    from poskernel.tasks import TASKS

    def place(names: list[str], column: "pd.Series[str]") -> "pd.Series[int]":
        return column.map(lambda name: names.index(name.split(":")[0]) if name.split(":")[0] in names else len(names))

    keys = {"encoding": list(ENCODINGS), "task": list(TASKS)}
    order = table.assign(**{f"_{name}": place(names, table[name]) for name, names in keys.items()})
    by = ["_encoding", "encoding", "_task", "task", "length", "seed"]
    order = order.sort_values([name for name in by if name in order.columns], kind="stable")
    return order.drop(columns=["_encoding", "_task"]).reset_index(drop=True)
