"""Tidy tables with known answers, as a store gives them, made from real cells."""

import pandas as pd

from poskernel.encodings import parse_encoding
from poskernel.experiments.study_rows import StudyRows
from poskernel.study import STUDIES, PredictionCell, units_of
from poskernel.study.grid import Axes, TrainingCell
from poskernel.study.store import CellRow, frame
from poskernel.study.units import NO_SEED
from poskernel.tasks import parse_task

LENGTHS = (30, 60)
CELLS = {
    ("rope", "prev"): (1.0, 0.9, 1.0),
    ("rope", "copy"): (0.0, 0.1, 0.3),
    ("learned", "first"): (1.0, 1.0, 1.0),
    ("learned", "prev"): (0.0, 0.08, 1.0),
    ("alibi", "first"): (0.0, 0.2, 0.5),
}
"""(encoding, task) to (alpha, accuracy, train accuracy)."""


ABOUT = {}
"""What the store keeps of a cell, by its id: worked out once."""


def row(cell, metric, length, seed, value, status="done", reason=""):
    about = ABOUT.get(cell.id) or ABOUT.setdefault(cell.id, CellRow.of(cell))
    return {
        "cell": cell.id, "encoding": about.encoding, "task": about.task, "tier": about.tier, "rule": about.rule,
        "train_length": about.train_length, "seed": None if seed == NO_SEED else seed, "length": length,
        "metric": str(metric), "value": value, "status": status, "reason": reason, "versions": "test",
    }  # fmt: skip


def table(cells=CELLS, seeds=(0,), tier=1, lengths=LENGTHS):
    """Rows of the quick and paper studies' cells at some lengths; `cells` as CELLS."""
    rows = []
    for (encoding, task), (alpha, accuracy, trained) in cells.items():
        predicted = PredictionCell(parse_encoding(encoding), parse_task(task))
        axes = Axes((predicted.encoding,), (predicted.task,), tiers=(tier,), seeds=(0,), lengths=(30,))
        model = TrainingCell(predicted.encoding, predicted.task, axes.architecture(tier))
        status = "done" if trained > 0.8 else "unlearned"
        for length in lengths:
            rows.append(row(predicted, "alpha", length, NO_SEED, alpha))
            rows.append(row(predicted, "exists", length, NO_SEED, 1.0, reason="yes"))
            rows += [row(model, "length_generalization", length, seed, accuracy, status) for seed in seeds]
        rows += [row(model, "train_accuracy", 20, seed, trained, status) for seed in seeds]
    return frame(rows)


def joined(cells=CELLS, seeds=(0,), tier=1, **changes):
    """The same as predictions beside models; `changes` are columns to overwrite."""
    return StudyRows.of(STUDIES["paper"], table(cells, seeds, tier)).joined(tier).assign(**changes)


def study_table(name, answer):
    """Every row of a study; `answer(cell, metric, length, seed)` gives the value, None leaves the row out."""
    rows = {}
    for unit in units_of(STUDIES[name]):
        for cell, metric, length in unit.measures:
            value = answer(cell, str(metric), length, unit.run_seed)
            if value is not None:
                reason = ("yes" if value else "no") if metric == "exists" else ""
                rows[cell.id, metric, length, unit.run_seed] = row(
                    cell, metric, length, unit.run_seed, value, reason=reason
                )
    return pd.DataFrame(frame(list(rows.values())))
