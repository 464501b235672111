"""E4 on rows whose truth is known: what was expected comes out, and each broken hypothesis is noticed."""

import pandas as pd
import pytest

from language_rows import Truth, expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.experiments.positional_kernel import E1
from poskernel.experiments.results_page import write_report
from poskernel.experiments.spectral.word_filters import LOW_PASS
from poskernel.experiments.spectral_interventions import E4, loss_data, scatter_data

LAYERS = 4
METRICS = tuple(each.name for each in E4.measures)
LOSSES = {"short x 0.5": (0.05, 0.08), "middle x 0.5": (0.05, 0.03), "short x 0.5, where matched": (0.06, 0.06)}
ACCURACIES = {
    ("reordering", "short x 0.5"): 0.7,
    ("reordering", "middle x 0.5"): 0.95,
    ("dyck", "short x 0.5"): 0.95,
    ("dyck", "middle x 0.5"): 0.95,
}
CLASS_LOSSES = {
    ("function", "short x 0.5"): 3.1,
    ("content", "short x 0.5"): 3.02,
    ("function", "short x 0.5, where matched"): 3.08,
    ("content", "short x 0.5, where matched"): 3.04,
}


def some_rows(truth: Truth, spread: float = 0.004) -> pd.DataFrame:
    """All rows but those of most layers of the pretrained model, which would only take time."""
    rows = made_up_rows("E4", truth, METRICS, spread)
    return rows[~((rows["model"] == "SmolLM2-135M") & (rows["layer"] >= LAYERS))].reset_index(drop=True)


def said(columns) -> float:
    """Some number for every head and change, of either sign."""
    place = 7 * columns["layer"] + 3 * columns["head"] + (0 if str(columns["change"]).endswith("0.5") else 2)
    return (place % 11 - 5) / 40


def moved(columns) -> float:
    """What is said, but for a few heads with small changes, not the same ones in every replicate."""
    place = 7 * columns["layer"] + columns["head"] + columns["seed"] * (columns["seed"] + 1)
    wrong = place % 3 == 0 and abs(said(columns)) < 0.03
    return -said(columns) if wrong else said(columns)


def unrelated(columns) -> float:
    return ((5 * columns["layer"] * columns["layer"] + 2 * columns["head"]) % 7 - 3) / 40


def expected(columns, metric: str, length: int) -> float:
    """Kernels tell one layer's resolved planes, and nothing else."""
    change = columns.get("change")
    if metric in ("distance_change", "predicted_change", "kernel_change"):
        if columns.get("state") == "untrained":
            return 0.0
        told = columns["scope"] == "one layer" and not str(change).startswith("unresolved")
        if metric != "distance_change":
            return said(columns)
        return moved(columns) if told else unrelated(columns)
    if metric == "loss":
        return 3.0 + LOSSES.get(change, (0.0, 0.0))[length > 512]
    if metric == "accuracy":
        return ACCURACIES.get((columns["source"], change), 1.0)
    if metric == "class_distance":
        return 1.5 if columns["words"] == "function" else 1.8
    return CLASS_LOSSES.get((columns["words"], change), 3.0) if metric == "class_loss" else 0.05


def but(name: str, value, **where):
    """The same truth but for one metric in some rows; the value may depend on the columns."""

    def truth(columns, metric: str, length: int) -> float:
        if metric == name and all(columns.get(key) == wanted for key, wanted in where.items()):
            return value(columns) if callable(value) else value
        return expected(columns, metric, length)

    return truth


SMALL, LARGE = {"encoding": "rope", "scope": "one layer"}, {"model": "SmolLM2-135M", "scope": "one layer"}


def test_what_was_predicted_is_what_is_expected() -> None:
    rows = some_rows(expected)
    assert outcomes("E4", rows) == expected_outcomes("E4")
    assert str(E4.verdict(rows).outcome) == "held"
    assert {each.estimate.n for each in E4.verdict(rows).judgements.values()} == {5}


@pytest.mark.parametrize(
    ("truth", "changed", "outcome"),
    [
        (but("distance_change", unrelated, **SMALL), "sizes, small models", "failed"),
        (but("distance_change", lambda c: -moved(c), **SMALL), "directions, small models", "failed"),
        (but("distance_change", unrelated, **LARGE), "sizes, SmolLM2", "failed"),
        (but("distance_change", lambda c: -moved(c), **LARGE), "directions, SmolLM2", "failed"),
        (but("over_random", 0.0), "low-pass reaches further", "failed"),
        (but("distance_change", moved, model="SmolLM2-135M"), "together it fails, SmolLM2", "failed"),
        (but("distance_change", moved, model="SmolLM2-135M"), "unresolved planes are content, SmolLM2", "failed"),
        (but("distance_change", moved, encoding="rope"), "together it fails, small models", "failed"),
        (but("kernel_change", unrelated, encoding="rope"), "kernels without content", "failed"),
        (but("distance_change", unrelated, encoding="sinusoidal"), "filtered means are filtered kernels", "failed"),
        (but("distance_change", 0.1, state="untrained"), "untrained heads do not move", "failed"),
        (but("loss", 3.0, change=LOW_PASS), "the band matters to the loss", "held"),
        (but("loss", 3.06, change="random for short x 0.5"), "the band matters to the loss", "failed"),
        (but("accuracy", 0.6, source="dyck", change=LOW_PASS), "low-pass harms local reordering", "failed"),
        (but("accuracy", 0.6, source="dyck", change="middle x 0.5"), "high-pass harms bracket matching", "held"),
        (but("class_distance", 1.5), "word classes look at different distances", "failed"),
        (but("class_loss", 3.2, words="content", change=LOW_PASS), "the nearer class needs the short planes", "failed"),
        (
            but("class_loss", 3.2, change="random for short x 0.5"),
            "a class needs its short planes more than others",
            "failed",
        ),
    ],
)
def test_another_truth_is_noticed(truth, changed: str, outcome: str) -> None:
    assert outcomes("E4", some_rows(truth))[changed] == outcome


def test_losses_at_length_decide_both_ways() -> None:
    def turned(columns, metric: str, length: int) -> float:
        if metric == "loss":
            return 3.0 + {LOW_PASS: (0.1, 0.0), "middle x 0.5": (0.0, 0.1)}.get(columns["change"], (0, 0))[length > 512]
        return expected(columns, metric, length)

    found = outcomes("E4", some_rows(turned))
    assert found["low-pass helps long texts"] == found["high-pass harms long texts"] == "held"


def test_a_head_without_control_is_left_out_and_a_lost_model_decides_nothing() -> None:
    rows = some_rows(expected)
    unmatched = (rows["metric"] == "over_random") & (rows["head"] == 1)
    rows.loc[unmatched, "value"] = float("nan")
    assert outcomes("E4", rows) == expected_outcomes("E4")
    lost = (rows["seed"] == 2) & (rows["source"] == "sotu")
    rows.loc[lost, ["value", "status"]] = [float("nan"), "failed"]
    found = outcomes("E4", rows)
    assert found["low-pass harms local reordering"] == "held"
    assert set(found.values()) == {"held", "failed", "inconclusive"}
    assert found["sizes, small models"] == found["low-pass reaches further"] == "inconclusive"
    assert found["the band matters to the loss"] == found["word classes look at different distances"] == "inconclusive"


def test_pictures_show_means_of_replicates() -> None:
    rows = some_rows(expected, spread=0)
    shown = scatter_data(rows).set_index(["planes", "series"])["estimate"]
    where = (rows["model"] == "SmolLM2-135M") & (rows["scope"] == "one layer") & (rows["change"] == LOW_PASS)
    means = rows[where].groupby("metric")["value"].mean()
    for series, metric in (("predicted", "predicted_change"), ("measured, one layer", "distance_change")):
        assert shown["SmolLM2, short x 0.5", series].value == pytest.approx(means[metric])
    assert shown["small models, middle x 0.5", "measured, all layers"].n == 5
    losses = loss_data(rows).set_index(["change", "length"])["estimate"]
    assert losses[LOW_PASS, "1 x the training length"].value == pytest.approx(0.05)
    assert losses[LOW_PASS, "4 x the training length"].value == pytest.approx(0.08)


def test_it_shares_its_language_models_with_e1(tmp_path) -> None:
    theirs = {unit.weights_file(tmp_path) for unit in E1.units()}
    mine = {unit.weights_file(tmp_path) for unit in E4.units()} - {None}
    assert len(mine) == 5 + 5 + 10 and len(mine & theirs) == 10


def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    rows = quick_rows(E4, tmp_path)
    assert set(rows["status"]) == {"done"}
    judged = {name: each.estimate.n for name, each in E4.quick.verdict(rows).judgements.items()}
    assert {n for name, n in judged.items() if name.endswith("SmolLM2")} == {0}
    assert judged["sizes, small models"] == judged["filtered means are filtered kernels"] == 2
    page = write_report(E4.quick, rows, tmp_path / "report").read_text()
    assert page.count("<figure") == len(E4.pictures)
