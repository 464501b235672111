"""The studies by name: the grids of the realizability paper's empirical part, and what goes beyond it.

Seeds, lengths and budgets were fixed here before anything ran. Studies share cells where they ask the same: the rules
study reads the paper study's one-layer models, and a store that holds them is not asked to train them again.
"""

from poskernel.encodings import (
    ENCODINGS,
    STUDY_ENCODINGS,
    T5,
    DynamicNtk,
    Encoding,
    Fire,
    KerpleLog,
    KerplePower,
    LinearInterpolation,
    Llama3,
    LongRope,
    Ntk,
    PartialRope,
    ProportionalRope,
    Randomized,
    Rope,
    Shaw,
    Sinusoidal,
    XPos,
    Yarn,
)
from poskernel.models.training import Recipe
from poskernel.study.grid import Axes, Study
from poskernel.tasks import POSITIONAL_TASKS, STUDY_TASKS, Induction, Task

STUDY_LENGTHS = (30, 40, 50, 60, 80)
FIVE_SEEDS = (0, 1, 2, 3, 4)
FIVE_RULES = ("adam", "optimum", "adam0", "max-margin", "min-norm")
ADAM_STEPS = (100, 200, 1000, 1500, 3000, 10_000)
"""Stopping steps of the adam rule beside its default of 400."""
BUDGETS = (8000, 32_000)
"""Training steps beside the default of 2000."""
ROPE_SCALES = (1.0, 0.5, 0.3, 0.1, 0.05, 0.03, 0.01)
FREQUENCY_COUNTS = (4, 8, 16, 32, 64)
BASES = (1e2, 1e3, 1e4, 1e5, 1e6)


def tasks(*names: str) -> tuple[Task, ...]:
    """Positional tasks by name."""
    return tuple(POSITIONAL_TASKS[name] for name in names)


QUICK = Study(
    "quick",
    "Does alpha, computed before training, tell which one-layer transformers generalize in length?",
    (Axes(STUDY_ENCODINGS, STUDY_TASKS, tiers=(1,), seeds=(0,), lengths=STUDY_LENGTHS),),
)

PAPER = Study(
    "paper",
    "Does alpha tell it for three depths and five seeds?",
    (Axes(STUDY_ENCODINGS, STUDY_TASKS, tiers=(1, 2, 3), seeds=FIVE_SEEDS, lengths=STUDY_LENGTHS),),
)

INTERIOR = Study(
    "interior",
    "Is the verdict on absolute targets an accident of position 0, the causal boundary?",
    (Axes(STUDY_ENCODINGS, tasks("pos2", "pos5"), tiers=(1, 2, 3), seeds=FIVE_SEEDS, lengths=STUDY_LENGTHS),),
)

SCALE = Study(
    "scale",
    "Does the verdict hold for a vocabulary of 64 and a width of 128?",
    (Axes(STUDY_ENCODINGS, STUDY_TASKS, tiers=(1, 2), seeds=(0, 1), lengths=STUDY_LENGTHS, width=128, vocabulary=64),),
)

# skip5 has no query row at length 5, which training at 10 reaches down to.
TRAIN_LENGTH = Study(
    "train-length",
    "Does the verdict depend on the training length, at three times that length?",
    tuple(
        Axes(
            STUDY_ENCODINGS,
            tasks("prev", "skip2", "skip3", "copy", "reverse", "first"),
            tiers=(1,),
            seeds=(0, 1, 2),
            lengths=(3 * train_length,),
            train_length=train_length,
        )
        for train_length in (10, 20, 40)
    ),
)

RULES = Study(
    "rules",
    "Which selection rule predicts trained models, and does the answer depend on how long either is trained?",
    (
        Axes(
            STUDY_ENCODINGS,
            STUDY_TASKS,
            tiers=(1,),
            seeds=FIVE_SEEDS,
            lengths=STUDY_LENGTHS,
            rules=(*FIVE_RULES, *(f"adam:steps={steps}" for steps in ADAM_STEPS)),
        ),
        *(
            Axes(
                (encoding,),
                chosen,
                tiers=(1,),
                seeds=(0, 1, 2),
                lengths=STUDY_LENGTHS,
                recipe=Recipe(steps=steps),
            )
            for steps in BUDGETS
            for encoding, chosen in (
                (Sinusoidal(), tasks("prev", "skip2", "skip3", "skip5")),
                (Rope(), tasks("first")),
            )
        ),
    ),
)

SENSITIVITY = Study(
    "sensitivity",
    "Does alpha's verdict depend on the number of frequencies or on the base?",
    (
        Axes(
            tuple(
                kind(base=base, frequencies=count)
                for kind in (Rope, Sinusoidal)
                for count in FREQUENCY_COUNTS
                for base in BASES
            ),
            tasks("prev", "skip3", "copy", "reverse", "first"),
            tiers=(),
            seeds=(),
            lengths=STUDY_LENGTHS,
            existence=False,
        ),
    ),
)

ROPE_SCALE = Study(
    "rope-scale",
    "Why does alpha miss that low-frequency RoPE learns and extends skip3?",
    (
        Axes(
            tuple(Rope(scale=scale) for scale in ROPE_SCALES),
            tasks("skip3"),
            tiers=(1,),
            seeds=FIVE_SEEDS,
            lengths=STUDY_LENGTHS,
            rules=(*FIVE_RULES, *(f"adam:steps={steps}" for steps in ADAM_STEPS)),
        ),
        Axes(
            tuple(Rope(scale=scale) for scale in ROPE_SCALES if scale < 0.1),
            tasks("skip3"),
            tiers=(1,),
            seeds=(0, 1, 2),
            lengths=STUDY_LENGTHS,
            recipe=Recipe(steps=8000),
        ),
    ),
)

CONTENT = Study(
    "content",
    "Does counting token matching as a way to the target close alpha's blind spot?",
    (Axes(STUDY_ENCODINGS, (Induction(),), tiers=(1, 2), seeds=FIVE_SEEDS, lengths=STUDY_LENGTHS, content=True),),
)

TRAINED_BEYOND_THE_PAPER: tuple[Encoding, ...] = (
    *(T5(), Shaw(), KerpleLog(), KerplePower(), Fire()),
    *(XPos(), PartialRope(), ProportionalRope(), Randomized()),
)
EXTENSIONS: tuple[Encoding, ...] = tuple(
    scaled
    for factor in (2.0, 4.0, 8.0)
    for scaled in (
        LinearInterpolation(factor=factor),
        Ntk(factor=factor),
        DynamicNtk(factor=factor, original=20),
        Yarn(factor=factor, original=20),
        LongRope(factor=factor, original=20),
        Llama3(factor=factor, original=20),
    )
)
"""Every way of scaling RoPE, by 2, 4 and 8, of a model trained at length 20."""

# RoPE itself stands in the last product, at lengths that are the scalings' own multiples of 20.
BEYOND = Study(
    "encodings",
    "What does alpha say of encodings the paper does not have, and do trained models and RoPE scaled zero-shot agree?",
    (
        Axes(
            tuple(encoding for encoding in ENCODINGS.values() if encoding != Rope()),
            tuple(POSITIONAL_TASKS.values()),
            tiers=(),
            seeds=(),
            lengths=STUDY_LENGTHS,
        ),
        Axes(TRAINED_BEYOND_THE_PAPER, STUDY_TASKS, tiers=(1,), seeds=(0, 1, 2), lengths=STUDY_LENGTHS),
        Axes(
            (Rope(),),
            tuple(POSITIONAL_TASKS.values()),
            tiers=(1,),
            seeds=(0, 1, 2),
            lengths=(40, 60, 80, 160),
            test_encodings=EXTENSIONS,
        ),
    ),
)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (QUICK, PAPER, INTERIOR, SCALE, TRAIN_LENGTH, RULES, SENSITIVITY, ROPE_SCALE, CONTENT, BEYOND)
}
