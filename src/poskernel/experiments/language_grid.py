"""The small language models that most experiments share: one shape, one recipe, five seeds.

An experiment asks for a condition here, so that two of them that mean the same model find the same weights. All recipes
keep the same checkpoints: the models whose training is looked at are not trained again.

Scaled down from the protocols: one depth (4 layers) instead of 2 to 6, width 128 with 4 heads, contexts of 256 tokens,
800 steps of 8 windows (1.6 million tokens, 3 core-minutes a model), one corpus. Five seeds, not three: see `judging`.
"""

import dataclasses
from dataclasses import dataclass

from poskernel.encodings import Encoding
from poskernel.experiments.experiment import Scale
from poskernel.models.language import LanguageRecipe, Objective, Text
from poskernel.models.language_training import Condition
from poskernel.models.optimization import Schedule
from poskernel.models.transformer import Architecture, Norm

SEEDS = (0, 1, 2, 3, 4)
QUICK_SEEDS = SEEDS[:2]


@dataclass(frozen=True)
class Grid:
    """Shape, recipe, seeds and how the models are measured."""

    shape: Architecture
    recipe: LanguageRecipe
    seeds: tuple[int, ...]
    sequences: int
    """Windows of held-out documents that heads are measured on."""
    dropped: int
    """First positions left out, as queries and as keys."""

    @property
    def description(self) -> str:
        """In words."""
        shape, recipe = self.shape, self.recipe
        text = recipe.source
        assert isinstance(text, Text)
        return (
            f"{shape.layers} layers of width {shape.width} with {shape.heads} heads, context {shape.train_length}, "
            f"{recipe.schedule.steps} steps of {recipe.schedule.batch} windows of the corpus {text.corpus} "
            f"({text.tokens}), split by document; {len(self.seeds)} seeds; heads measured on {self.sequences} windows "
            f"of test documents, the first {self.dropped} positions left out"
        )

    def condition(
        self,
        encoding: Encoding,
        norm: Norm = Norm.LAYER,
        attention_norm: Norm | None = None,
        causal: bool = True,
        objective: Objective = Objective.NEXT,
    ) -> Condition:
        """One model to train."""
        shape = dataclasses.replace(self.shape, norm=norm, attention_norm=attention_norm, causal=causal)
        return Condition(shape, encoding, dataclasses.replace(self.recipe, objective=objective))


# The vocabulary is spelt out, so that a plan can be made where the corpus is not installed; training checks it.
FULL = Grid(
    Architecture(width=128, layers=4, heads=4, vocabulary=1024, train_length=256),
    LanguageRecipe(
        Text("sotu", "byte-pair:1024"),
        schedule=Schedule(steps=800, batch=8, learning_rate=3e-3, warmup=80),
        checkpoints=(0, 25, 50, 100, 200, 400),
    ),
    SEEDS,
    sequences=32,
    dropped=16,
)
QUICK = Grid(
    Architecture(width=16, layers=2, heads=1, vocabulary=300, train_length=40),
    LanguageRecipe(
        Text("topics", "byte-pair:300"),
        schedule=Schedule(steps=20, batch=4, learning_rate=1e-2, warmup=4),
        checkpoints=(0, 10),
        evaluation_windows=4,
    ),
    QUICK_SEEDS,
    sequences=8,
    dropped=4,
)


def grid_of(scale: Scale) -> Grid:
    """The models of a scale."""
    return FULL if scale is Scale.FULL else QUICK
