"""The experiments by id: names, lines written before, quick versions apart, replicates enough for a verdict."""

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
    full, quick = planned(units), planned(experiment.quick.units())
    assert {metric for _, metric, _, _ in full} == {each.name for each in experiment.measures}
    assert len(full) == len(set(full)) and quick and not set(quick) & set(full)
    seeds: dict[object, set[int]] = {}
    for unit in units:
        seeds.setdefault(unit.cell, set()).add(unit.run_seed)
    assert all(len(each) >= REPLICATES for each in seeds.values())
    assert least_effect(REPLICATES, len(experiment.predictions)) < 3.2
