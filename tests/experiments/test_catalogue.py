"""The experiments by id: names, lines written before, quick versions apart."""

import pytest

from poskernel.experiments.catalogue import EXPERIMENTS
from poskernel.experiments.judging import REPLICATES, least_effect
from poskernel.study.grid import canonical_json


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_every_experiment_says_what_it_has_to(experiment) -> None:
    assert EXPERIMENTS[experiment.id] is experiment
    for text in ("title", "question", "claim", "design", "falsified_by", "threats"):
        assert len(getattr(experiment, text)) > 10, text
    assert all(each.falsified_by and each.statement for each in experiment.predictions)
    measured = {metric for unit in experiment.units() for _, metric, _ in unit.measures}
    assert measured == {each.name for each in experiment.measures}
    assert canonical_json(experiment.config)
    keys = [key for unit in experiment.units() for key in unit.keys]
    assert len(keys) == len(set(keys))
    quick = {key for unit in experiment.quick.units() for key in unit.keys}
    assert quick and not quick & set(keys)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_full_runs_have_the_replicates_that_verdicts_need(experiment) -> None:
    seeds: dict[str, set[int]] = {}
    for unit in experiment.units():
        seeds.setdefault(unit.cell.id, set()).add(unit.run_seed)
    assert {len(each) >= REPLICATES for each in seeds.values()} == {True}
    assert least_effect(REPLICATES, len(experiment.predictions)) < 3.2
