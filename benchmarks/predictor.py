"""Speed and memory of the predictor: python benchmarks/predictor.py (two to three minutes)."""

import os
import sys
import tempfile
from pathlib import Path

import torch

from poskernel.encodings import ENCODINGS
from poskernel.realizability import SELECTION_RULES, alpha, row_margins, screen
from poskernel.tasks import STUDY_TASKS, TASKS
from poskernel.threads import one_thread
from record import apart, median_seconds, write

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import reference

TRAIN_LENGTH, LENGTHS = 20, (30, 40, 50, 60, 80)


def fit_and_transfer() -> list[torch.Tensor]:
    """The 35 cells: weights in one batch per encoding, then alpha at five lengths."""
    fitted = []
    with one_thread():
        for encoding in ENCODINGS.values():
            family = encoding.family(TRAIN_LENGTH, TRAIN_LENGTH)
            targets = [task.targets(TRAIN_LENGTH) for task in STUDY_TASKS]
            for task, selection in zip(
                STUDY_TASKS, SELECTION_RULES["adam"].select(family, targets, TRAIN_LENGTH), strict=True
            ):
                assert selection.weights is not None
                fitted.append(selection.weights)
                kernel = family.kernel(selection.weights)
                for length in LENGTHS:
                    alpha(kernel, task, TRAIN_LENGTH, length)
    return fitted


def reference_loop() -> list[torch.Tensor]:
    """The same cells by the plain autograd loop that the tests hold as the reference, and the same alphas."""
    fitted = []
    with one_thread():
        for encoding in ENCODINGS.values():
            family = encoding.family(TRAIN_LENGTH, TRAIN_LENGTH)
            for task in STUDY_TASKS:
                weights = reference.adam_fit(encoding.name, task.name, TRAIN_LENGTH)
                fitted.append(weights)
                kernel = family.kernel(weights)
                for length in LENGTHS:
                    alpha(kernel, task, TRAIN_LENGTH, length)
    return fitted


def rope_at_a_million() -> float:
    """Alpha of a fitted RoPE kernel at length 1,000,000."""
    family = ENCODINGS["rope"].family(TRAIN_LENGTH, TRAIN_LENGTH)
    weights = SELECTION_RULES["adam"].select(family, [TASKS["prev"].targets(TRAIN_LENGTH)], TRAIN_LENGTH)[0].weights
    return alpha(family.kernel(weights), TASKS["prev"], TRAIN_LENGTH, 1_000_000)


def sinusoidal_at_65536() -> float:
    """Alpha of a fitted sinusoidal kernel at length 65,536."""
    family = ENCODINGS["sinusoidal"].family(TRAIN_LENGTH, TRAIN_LENGTH)
    weights = SELECTION_RULES["adam"].select(family, [TASKS["first"].targets(TRAIN_LENGTH)], TRAIN_LENGTH)[0].weights
    return row_margins(family.kernel(weights), TASKS["first"].new_targets(TRAIN_LENGTH, 65_536)).share


def default_screen() -> int:
    """The default screen with existence; undecided rows."""
    return sum(row.exists == "undecided" for prediction in screen() for row in prediction.rows)


def main() -> None:
    """Measure and write docs/benchmarks/predictor.json."""
    ours, theirs = median_seconds(fit_and_transfer), median_seconds(reference_loop, runs=3)
    largest = max(float((a - b).abs().max()) for a, b in zip(fit_and_transfer(), reference_loop(), strict=True))
    million, wide = apart(rope_at_a_million), apart(sinusoidal_at_65536)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POSKERNEL_CACHE"] = folder
        cold, warm = apart(default_screen), apart(default_screen)
    rows = [
        {"what": "35 cells x 5 lengths, fit and transfer", "seconds": round(ours, 3), "target": "under 0.5"},
        {"what": "the same by a plain autograd loop per cell", "seconds": round(theirs, 2), "ratio": round(theirs / ours, 1), "target": "at least 10"},
        {"what": "largest difference of their weights", "value": f"{largest:.1e}", "target": "at most 1e-9"},
        {"what": "alpha of RoPE at L = 1,000,000", "seconds": round(million[1], 2), "extra peak MB": round(million[2]), "target": "under 2 s"},
        {"what": "alpha of sinusoidal at L = 65,536", "seconds": round(wide[1], 1), "extra peak MB": round(wide[2]), "target": "under 30 s, 1 GB"},
        {"what": "default screen with existence, no cache", "seconds": round(cold[1], 1), "extra peak MB": round(cold[2]), "value": f"{cold[0]} undecided", "target": "under 90 s"},
        {"what": "the same from the cache", "seconds": round(warm[1], 1)},
    ]  # fmt: skip
    write("predictor", "The predictor", "python benchmarks/predictor.py", rows)


if __name__ == "__main__":
    main()
