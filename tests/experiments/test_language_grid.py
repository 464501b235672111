"""The shared grid: the same condition is the same model, sizes fit the budget, and the text has the vocabulary."""

from poskernel.encodings import Rope
from poskernel.experiments.experiment import Scale
from poskernel.experiments.language_grid import FULL, QUICK, grid_of
from poskernel.experiments.language_units import LanguageCell
from poskernel.models.language import Objective
from poskernel.models.transformer import Norm


def test_what_is_asked_for_is_what_the_condition_says() -> None:
    made = FULL.condition(Rope(), Norm.LAYER, Norm.NONE, causal=False, objective=Objective.MASKED)
    assert made.architecture.attention_norm is Norm.NONE and not made.architecture.causal
    assert made.recipe.objective is Objective.MASKED and made.recipe.checkpoints == FULL.recipe.checkpoints
    assert LanguageCell(FULL.condition(Rope())).id == LanguageCell(FULL.condition(Rope(), Norm.LAYER)).id


def test_scales_are_different_models_of_the_size_they_say() -> None:
    assert (grid_of(Scale.FULL), grid_of(Scale.QUICK)) == (FULL, QUICK)
    assert "4 layers of width 128 with 4 heads, context 256, 800 steps of 8 windows" in FULL.description
    assert FULL.recipe.checkpoints[0] == 0 and len(FULL.seeds) == 5 and len(QUICK.seeds) == 2


def test_the_quick_vocabulary_is_that_of_its_text() -> None:
    assert QUICK.recipe.source.vocabulary == QUICK.shape.vocabulary
