"""E4's predictions, written before any full run.

Informed: throw-away runs on SmolLM2 with another text had shown, one layer at a time, directions right in .93 of heads
and a rank correlation of .95 (.68 and .51 for unresolved planes), and .49 with all layers changed at once. Nothing had
been seen of the small models, the generated tasks, lengths, filters of means and classes of words.
"""

from poskernel.experiments.experiment import RegisteredPrediction
from poskernel.experiments.judging import Outcome, Side
from poskernel.experiments.spectral.outcomes import (
    ABSOLUTE,
    HIGH_PASS,
    LARGE,
    MEANS,
    SMALL,
    agreement,
    band_over_random,
    class_over_random,
    classes_differ,
    directions,
    extrapolation_cost,
    kernels_alone,
    local_over_global,
    lost_together,
    lost_unresolved,
    nearer_needs_more,
    over_random,
    untrained_move,
)
from poskernel.experiments.spectral.word_filters import LOW_PASS

HEAD_OF_SMALL = 1 / 32
"""Step of a share of a small model's heads: one of 16, in one of two bands."""
HEAD_OF_SMOLLM2 = 1 / 540
"""Step of a share of SmolLM2's heads, likewise."""
TOKEN = 1 / 4096
"""Step of an accuracy: one of 64 tokens of 64 sequences."""
DISTANCE_PREDICTIONS = (
    RegisteredPrediction(
        "directions, small models",
        "With short or middle planes damped in one layer, attention distance moves the way the kernel says in more "
        "than 80 of 100 heads for which it says a change of at least 0.01 nats.",
        directions(SMALL),
        Side.ABOVE,
        0.8,
        "heads that move against their kernel as often as with it",
        informed=True,
        step=HEAD_OF_SMALL,
    ),
    RegisteredPrediction(
        "sizes, small models",
        "The rank correlation of predicted with measured changes over heads and both bands is above 0.8.",
        agreement(SMALL),
        Side.ABOVE,
        0.8,
        "changes whose size the kernel does not tell",
        informed=True,
    ),
    RegisteredPrediction(
        "directions, SmolLM2",
        "The same share of directions, above 80 of 100, on texts that were not used before.",
        directions(LARGE),
        Side.ABOVE,
        0.8,
        "heads that move against their kernel as often as with it",
        informed=True,
        step=HEAD_OF_SMOLLM2,
    ),
    RegisteredPrediction(
        "sizes, SmolLM2",
        "The same rank correlation, above 0.8, on texts that were not used before.",
        agreement(LARGE),
        Side.ABOVE,
        0.8,
        "changes whose size the kernel does not tell",
        informed=True,
    ),
    RegisteredPrediction(
        "low-pass reaches further",
        "Damping the short planes lengthens attention more than damping random planes of equal energy does, by more "
        "than 0.01 nats (K: low-pass filtering makes kernels more global).",
        over_random,
        Side.ABOVE,
        0.01,
        "other planes of the same energy that lengthen attention as much",
        informed=False,
    ),
    RegisteredPrediction(
        "together it fails, SmolLM2",
        "With all layers changed at once the rank correlation is lower by more than 0.2: queries and keys of deeper "
        "layers change too.",
        lost_together(LARGE),
        Side.ABOVE,
        0.2,
        "kernels of the unchanged model that tell what all layers do together",
        informed=True,
        deciding=False,
    ),
    RegisteredPrediction(
        "together it fails, small models",
        "The same in small models, by more than 0.1.",
        lost_together(SMALL),
        Side.ABOVE,
        0.1,
        "kernels of the unchanged model that tell what all layers do together",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "unresolved planes are content, SmolLM2",
        "For planes whose wavelength exceeds the length the rank correlation is lower by more than 0.2.",
        lost_unresolved(LARGE),
        Side.ABOVE,
        0.2,
        "kernels that tell as well what unresolved planes do",
        informed=True,
        deciding=False,
    ),
    RegisteredPrediction(
        "kernels without content",
        "What kernels alone say, without any content in the logits, has a rank correlation above 0.5 with what is "
        "measured in small models.",
        kernels_alone,
        Side.ABOVE,
        0.5,
        "changes that the kernel does not tell without the content around it",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "filtered means are filtered kernels",
        "With sinusoidal positions, taking a band out of the means of queries and keys does what taking it out of g "
        "says, with a rank correlation above 0.5 over heads and both bands.",
        agreement(ABSOLUTE, MEANS),
        Side.ABOVE,
        0.5,
        "filters of the means that act otherwise than filters of the kernel",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "untrained heads do not move",
        "Before training the mean size of the change by damped short planes is below 0.02 nats.",
        untrained_move,
        Side.BELOW,
        0.02,
        "untrained heads that move as trained ones do",
        informed=True,
        deciding=False,
    ),
)
BEHAVIOUR_PREDICTIONS = (
    RegisteredPrediction(
        "low-pass helps long texts",
        "Damping the short planes costs less loss at four training lengths than at one, by more than 0.02 nats (K). We "
        "expect this to fail: what fails at length are phases that training never saw, and those are of long waves.",
        extrapolation_cost(LOW_PASS),
        Side.BELOW,
        -0.02,
        "a low-pass that costs as much, or more, on long texts",
        informed=False,
        expected=Outcome.FAILED,
        deciding=False,
    ),
    RegisteredPrediction(
        "high-pass harms long texts",
        "Damping the middle planes costs more loss at four training lengths than at one, by more than 0.02 nats (K). "
        "We expect this to fail.",
        extrapolation_cost(HIGH_PASS),
        Side.ABOVE,
        0.02,
        "a high-pass that costs as little, or less, on long texts",
        informed=False,
        expected=Outcome.FAILED,
        deciding=False,
    ),
    RegisteredPrediction(
        "the band matters to the loss",
        "Damping the short planes costs more loss than damping random planes of equal energy, by more than 0.01 nats.",
        band_over_random,
        Side.ABOVE,
        0.01,
        "random planes of equal energy that cost as much",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "low-pass harms local reordering",
        "Damping the short planes costs the reordering models more accuracy than the bracket models, by more than "
        "0.05 (K: low-pass filtering harms what needs local resolution).",
        local_over_global(LOW_PASS),
        Side.ABOVE,
        0.05,
        "bracket matching that suffers as much",
        informed=False,
        step=TOKEN,
        deciding=False,
    ),
    RegisteredPrediction(
        "high-pass harms bracket matching",
        "Damping the middle planes costs the bracket models more accuracy than the reordering models, by more than "
        "0.05 (K). We expect this to fail: most brackets close near by.",
        local_over_global(HIGH_PASS, sign=-1),
        Side.ABOVE,
        0.05,
        "reordering that suffers as much",
        informed=False,
        step=TOKEN,
        expected=Outcome.FAILED,
        deciding=False,
    ),
    RegisteredPrediction(
        "word classes look at different distances",
        "Queries of function words and of content words attend at mean log distances that differ by more than 0.05 "
        "nats (K's sixth follow-up).",
        classes_differ,
        Side.ABOVE,
        0.05,
        "classes that attend at the same distance",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "the nearer class needs the short planes",
        "With the short planes damped at queries of one class alone, the class that attends nearer loses more, by more "
        "than 0.01 nats a token (K's sixth follow-up).",
        nearer_needs_more,
        Side.ABOVE,
        0.01,
        "a class that attends further and loses as much: the structure is there and nothing rests on it",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "a class needs its short planes more than others",
        "At queries of one class, damped short planes cost more than random planes of equal energy, by more than 0.01 "
        "nats a token, mean of both classes.",
        class_over_random,
        Side.ABOVE,
        0.01,
        "random planes of equal energy that cost as much",
        informed=False,
        deciding=False,
    ),
)
PREDICTIONS = (*DISTANCE_PREDICTIONS, *BEHAVIOUR_PREDICTIONS)
