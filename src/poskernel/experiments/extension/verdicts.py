"""Does a held-out text give the same verdicts? Two screens of one model, each on a text of its own, head by head.

A screen on one text says of every head and setting whether the head keeps, moves or loses its peak; a screen on another
text says so again. Of the heads that both decide: the share with the same verdict, the share with the same own peak,
and what heads that were paired at random would share.
`python -m poskernel.experiments.extension.verdicts --help` says how to run it; it resumes, a text at a time.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from poskernel.attention.extension.results import HeadExtension
from poskernel.attention.extension.screen import extend
from poskernel.experiments.extension.cells import MEASURED, MODEL, opened_model, text_tokens
from poskernel.experiments.extension.limits import LIMIT_SETTINGS
from poskernel.experiments.extension.texts import TEXTS
from poskernel.statistics import Estimate, mean
from poskernel.study import Store, progress_for
from poskernel.study.grid import Cell, canonical
from poskernel.study.runner import run
from poskernel.study.transfer import write_results
from poskernel.study.units import Measurement, Status, Unit

LENGTH, SEQUENCES = 16384, 8
UNDECIDED = "undecided"
SAME, CHANCE, PEAK, BOTH = "same_verdict", "same_by_chance", "same_peak", "decided_in_both"
MEANINGS = {
    SAME: "share of the heads decided on both texts that have the same verdict (kept, moved or lost) on both",
    f"{SAME}_low": "lower end of its 95% interval, whole layers drawn",
    f"{SAME}_high": "upper end of it",
    CHANCE: "the share that would have if heads were paired at random",
    PEAK: "share of the same heads that have the same own peak on both",
    f"{PEAK}_low": "lower end of its 95% interval, whole layers drawn",
    f"{PEAK}_high": "upper end of it",
    BOTH: "share of all heads that are decided on both texts",
}
MEASURES = tuple(MEANINGS)


@dataclass(frozen=True)
class VerdictCell(Cell):
    """A setting of a model, judged on a text and again on a held-out one."""

    kind = "extension-verdict"
    model: str
    setting: str
    text: str
    held_out: str
    measured_length: int = MEASURED
    sequences: int = SEQUENCES

    @property
    def label(self) -> str:
        """Model and setting."""
        return f"{self.model} under {self.setting}"

    @property
    def task_name(self) -> str:
        """The held-out text, and the one that it is compared with."""
        return f"{self.held_out} against {self.text}"

    @property
    def train_length(self) -> int:
        """The measured length."""
        return self.measured_length


@dataclass(frozen=True)
class VerdictUnit(Unit):
    """Every setting on one held-out text: one pass of the model over it."""

    cell: VerdictCell
    settings: tuple[str, ...]
    length: int = LENGTH

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Agreement under each setting."""
        return [(self.under(setting), name, self.length) for setting in self.settings for name in MEASURES]

    @property
    def kind(self) -> str:
        """What it is."""
        return "verdicts"

    @property
    def cost(self) -> float:
        """About a minute."""
        return 1.0

    @property
    def description(self) -> str:
        """Both texts."""
        return f"verdicts on {self.cell.task_name}"

    def under(self, setting: str) -> VerdictCell:
        """The cell of one setting."""
        cell = self.cell
        return VerdictCell(cell.model, setting, cell.text, cell.held_out, cell.measured_length, cell.sequences)

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Two screens, side by side."""
        cell = self.cell
        screens = [
            heads_of(cell.model, text, self.settings, self.length, cell.measured_length, cell.sequences)
            for text in (cell.text, cell.held_out)
        ]
        values = {
            (self.under(setting).id, name): value
            for setting in self.settings
            for name, value in agreement(*(screen[setting] for screen in screens)).items()
        }
        return [measured(key, values.get((key[0], key[1]))) for key in self.keys]


@lru_cache(maxsize=2)
def heads_of(
    model: str, text: str, settings: tuple[str, ...], length: int, measured_length: int, sequences: int
) -> dict[str, tuple[HeadExtension, ...]]:
    """Every head's verdict under every setting, from a text's first windows."""
    tokens = text_tokens(model, text)
    found = extend(opened_model(model), settings, length, measured_length, sequences, text=tokens)
    return {report.setting: tuple(report.heads) for report in found.settings}


def agreement(first: Sequence[HeadExtension], second: Sequence[HeadExtension]) -> dict[str, float]:
    """MEASURES of two screens of the same heads, but for those that need a head that both decide where none is."""
    pairs = [(one, two) for one, two in zip(first, second, strict=True) if UNDECIDED not in (one.verdict, two.verdict)]
    found = {BOTH: len(pairs) / len(first)}
    if not pairs:
        return found
    layers = [one.layer for one, _ in pairs]
    counts = [Counter(pair[side].verdict for pair in pairs) for side in (0, 1)]
    found[CHANCE] = sum(counts[0][word] * counts[1][word] for word in counts[0]) / len(pairs) ** 2
    alike = {
        SAME: [float(one.verdict == two.verdict) for one, two in pairs],
        PEAK: [float(one.peak_offset == two.peak_offset) for one, two in pairs],
    }
    for name, values in alike.items():
        share: Estimate = mean(values, clusters=layers, interval="percentile")
        found |= {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
    return found


def measured(key: tuple[str, str, int, int], value: float | None) -> Measurement:
    """A number as a row; where no head is decided on both texts, there is none."""
    return Measurement(*key, value, Status.DONE, "" if value is not None else "no head is decided on both texts")


@dataclass(frozen=True)
class ExtensionVerdicts:
    """Every held-out text against the first one."""

    model: str = MODEL
    texts: tuple[str, ...] = tuple(TEXTS)
    """The first is what the others are compared with."""
    settings: tuple[str, ...] = LIMIT_SETTINGS
    length: int = LENGTH
    measured_length: int = MEASURED
    sequences: int = SEQUENCES
    name: str = "extension-verdicts"

    @property
    def config(self) -> Any:
        """Every field."""
        return canonical(self, defaults=True)

    def units(self) -> list[VerdictUnit]:
        """One a held-out text."""
        first, *others = self.texts
        cells = [
            VerdictCell(self.model, self.settings[0], first, other, self.measured_length, self.sequences)
            for other in others
        ]
        return [VerdictUnit(cell, self.settings, self.length) for cell in cells]


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing, then write the rows."""
    parser = argparse.ArgumentParser(prog="python -m poskernel.experiments.extension.verdicts", description=__doc__)
    default = ExtensionVerdicts()
    parser.add_argument("--store", type=Path, default=Path("out/extension.sqlite"))
    parser.add_argument("--out", type=Path, default=Path("results/extension-verdicts"))
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--texts", nargs="+", default=list(default.texts), help="the first is the reference")
    parser.add_argument("--settings", nargs="+", default=list(default.settings))
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--measured-length", type=int, default=MEASURED)
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    given = parser.parse_args(arguments)
    asked = ExtensionVerdicts(
        given.model, tuple(given.texts), tuple(given.settings), given.length, given.measured_length, given.sequences
    )
    if len(asked.texts) < 2:
        parser.error("one text has nothing to be compared with: give two or more.")
    with Store(given.store) as store:
        summary = run(asked, store, 1, progress_for())
        command = ["python", "-m", "poskernel.experiments.extension.verdicts", *(arguments or sys.argv[1:])]
        write_results(asked, store, given.out, command)
    sys.stderr.write(f"{summary}\n")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
