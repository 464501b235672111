"""The named studies: their sizes, what they share, and that everything in them can be made."""

import itertools

import pytest

from poskernel.encodings import Rope, Sinusoidal
from poskernel.errors import InputError
from poskernel.study.grid import canonical
from poskernel.study.studies import STUDIES
from poskernel.study.units import PredictionUnit, TrainingUnit, units_of

SIZES = {
    "quick": (35, 175),
    "paper": (525, 2625),
    "interior": (150, 750),
    "scale": (140, 700),
    "train-length": (270, 270),
    "rules": (205, 1025),
    "sensitivity": (0, 0),
    "rope-scale": (44, 220),
    "content": (50, 250),
    "encodings": (9 * 7 * 3 + 9 * 3, 9 * 7 * 3 * 5 + 9 * 3 * 4 * 19),
}
"""Models trained and accuracies beyond the training length measured; paper, interior and scale as the paper states."""


@pytest.mark.parametrize("name", SIZES)
def test_studies_have_the_sizes_they_claim(name: str) -> None:
    units = units_of(STUDIES[name])
    trained, measured = SIZES[name]
    assert len([unit for unit in units if isinstance(unit, TrainingUnit)]) == trained
    metrics = [key[1] for unit in units for key in unit.keys]
    assert metrics.count("length_generalization") == measured
    # A model is also measured under every test encoding.
    tested = sum(1 + len(unit.test_encodings) for unit in units if isinstance(unit, TrainingUnit))
    assert metrics.count("train_accuracy") == tested


@pytest.mark.parametrize("name", ["quick", "paper"])
def test_the_35_cells_are_predicted_with_existence(name: str) -> None:
    metrics = [key[1] for unit in units_of(STUDIES[name]) for key in unit.keys]
    assert metrics.count("alpha") == metrics.count("exists") == 175


@pytest.mark.parametrize("name", STUDIES)
def test_nothing_is_measured_twice_and_every_study_has_a_canonical_form(name: str) -> None:
    units = units_of(STUDIES[name])
    keys, labels = [key for unit in units for key in unit.keys], [unit.description for unit in units]
    assert len(set(keys)) == len(keys)
    assert len(set(labels)) == len(labels), max(labels, key=labels.count)
    assert canonical(STUDIES[name], defaults=True)["name"] == name
    assert STUDIES[name].question.endswith("?")


def test_studies_share_cells_and_a_tier_can_be_taken_alone() -> None:
    paper, quick = set(units_of(STUDIES["paper"])), set(units_of(STUDIES["quick"]))
    assert quick < paper
    second = units_of(STUDIES["paper"].only([2]))
    assert {unit.cell.tier for unit in second} == {None, 2}
    assert len(second) == 35 + 175
    with pytest.raises(InputError, match="study 'quick' has no tier 2: choose from 1"):
        STUDIES["quick"].only([2])


@pytest.mark.parametrize(("name", "new"), [("rules", 30), ("train-length", 180), ("rope-scale", 39)])
def test_what_the_paper_study_trained_is_not_trained_again(name: str, new: int) -> None:
    held = {key for unit in units_of(STUDIES["paper"]) for key in unit.keys}
    training = [unit for unit in units_of(STUDIES[name]) if isinstance(unit, TrainingUnit)]
    assert len([unit for unit in training if not set(unit.keys) <= held]) == new


def test_all_cells_of_a_seed_come_before_the_next_seed() -> None:
    seeds = [unit.seed for unit in units_of(STUDIES["paper"]) if isinstance(unit, TrainingUnit)]
    assert [seed for seed, _ in itertools.groupby(seeds)] == [0, 1, 2, 3, 4]


def test_the_further_studies_vary_what_they_say() -> None:
    def cells(name: str) -> list[TrainingUnit]:
        return [unit for unit in units_of(STUDIES[name]) if isinstance(unit, TrainingUnit)]

    assert {(u.cell.architecture.vocabulary, u.cell.architecture.width) for u in cells("scale")} == {(64, 128)}
    assert {(u.cell.train_length, u.lengths) for u in cells("train-length")} == {(10, (30,)), (20, (60,)), (40, (120,))}
    assert {u.cell.recipe.steps for u in cells("rules")} == {2000, 8000, 32_000}
    assert {u.cell.encoding.scale for u in cells("rope-scale") if isinstance(u.cell.encoding, Rope)} >= {1.0, 0.01}
    assert {u.cell.tier for u in cells("content")} == {1, 2}
    swept = {u.cell.encoding for u in units_of(STUDIES["sensitivity"])}
    assert {type(encoding) for encoding in swept} == {Rope, Sinusoidal}
    assert len(swept) == 50


def test_only_the_content_study_asks_for_content_alphas() -> None:
    asking = {
        name for name, study in STUDIES.items() for u in units_of(study) if isinstance(u, PredictionUnit) and u.content
    }
    assert asking == {"content"}
