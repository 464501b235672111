"""Validation of `extend` on real weights: predicted against measured kernels, surviving heads against loss.

Kernel units apply a setting to the live model, run it at 1, 2 and 4 times the measured length and compare every head's
kernel with the one that a pass of the unscaled model predicted. Limit units run one long sequence and put the loss just
before each length beside the predicted share of surviving heads; the control gives the same tokens a fresh context.
`python -m poskernel.experiments.extension.validation --help` says how to run them; they resume.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poskernel.attention.extension.settings import NONE
from poskernel.errors import InputError
from poskernel.experiments.extension.cells import (
    DROPPED,
    MEASURED,
    MODEL,
    SEQUENCES,
    SHAPES,
    ExtensionCell,
    HeadCell,
    shape_of,
    write_about,
)
from poskernel.experiments.extension.kernels import KERNEL_MEANINGS, LENGTHS, OF_HEADS, HeadUnit, KernelUnit
from poskernel.experiments.extension.limits import (
    FRESH,
    LIMIT_LENGTHS,
    LIMIT_MEANINGS,
    LIMIT_SETTINGS,
    WINDOW,
    LimitUnit,
)
from poskernel.experiments.extension.texts import TEXTS
from poskernel.study import Store
from poskernel.study.grid import canonical
from poskernel.study.progress import PlainLines
from poskernel.study.runner import run
from poskernel.study.transfer import write_results
from poskernel.study.units import Unit

TYPES = ("linear", "ntk", "dynamic", "yarn", "llama3", "base")
FACTORS = (2, 4, 8)
SETTINGS = (
    NONE,
    *(
        f"{kind}:{'x' if kind == 'base' else ''}{factor}{f',original={MEASURED}' if kind == 'dynamic' else ''}"
        for kind in TYPES
        for factor in FACTORS
    ),
)
"""`dynamic` has the measured length as its original one: otherwise it would change nothing at these lengths."""
MEANINGS: Mapping[str, str] = {**KERNEL_MEANINGS, **LIMIT_MEANINGS, **OF_HEADS}
"""What each metric of the rows is."""


@dataclass(frozen=True)
class ExtensionValidation:
    """The whole validation: heads, settings by factors by texts, then long contexts.

    Raises InputError for a length that is among `lengths` and `limit_lengths`: it would be measured twice.
    """

    model: str = MODEL
    texts: tuple[str, ...] = tuple(TEXTS)
    settings: tuple[str, ...] = SETTINGS
    limit_settings: tuple[str, ...] = LIMIT_SETTINGS
    lengths: tuple[int, ...] = LENGTHS
    limit_lengths: tuple[int, ...] = LIMIT_LENGTHS
    measured_length: int = MEASURED
    sequences: int = SEQUENCES
    dropped: int = DROPPED
    fresh: int = FRESH
    window: int = WINDOW
    shape: tuple[int, int] = SHAPES[MODEL]
    """Layers and heads."""
    name: str = "extension"

    def __post_init__(self) -> None:
        twice = set(self.lengths) & set(self.limit_lengths)
        if twice:
            raise InputError(f"length {min(twice)} is among the long ones too: leave it out of one of the two.")

    @property
    def config(self) -> Any:
        """Every field."""
        return canonical(self, defaults=True)

    def cell(self, setting: str, text: str) -> ExtensionCell:
        """The cell of a setting and a text."""
        return ExtensionCell(self.model, setting, text, self.measured_length, self.sequences, self.dropped)

    def heads(self, text: str) -> HeadCell:
        """The cell of the heads of the unscaled model on a text."""
        return HeadCell(
            self.model, text, measured_length=self.measured_length, sequences=self.sequences, dropped=self.dropped
        )

    def units(self) -> list[Unit]:
        """Heads and kernels first, text by text, then long contexts."""
        near: list[Unit] = []
        for text in self.texts:
            near.append(HeadUnit(self.heads(text), *self.shape))
            near += [KernelUnit(self.cell(setting, text), self.lengths) for setting in self.settings]
        limits = [
            LimitUnit(self.cell(setting, text), self.limit_lengths, setting == NONE, self.fresh, self.window)
            for text in self.texts
            for setting in self.limit_settings
        ]
        return [*near, *limits]


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing, then write the rows."""
    parser = argparse.ArgumentParser(prog="python -m poskernel.experiments.extension.validation", description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("out/extension.sqlite"))
    parser.add_argument("--out", type=Path, default=Path("results/extension"))
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--texts", nargs="+", default=list(TEXTS))
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--limit-settings", nargs="*", default=list(LIMIT_SETTINGS))
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--limit-lengths", nargs="+", type=int, default=list(LIMIT_LENGTHS))
    parser.add_argument("--measured-length", type=int, default=MEASURED)
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument(
        "--progress", type=Path, default=Path("out/extension.log"), help="file of lines that say how far it is"
    )
    given = parser.parse_args(arguments)
    asked = ExtensionValidation(
        model=given.model,
        texts=tuple(given.texts),
        settings=tuple(given.settings),
        limit_settings=tuple(given.limit_settings),
        lengths=tuple(given.lengths),
        limit_lengths=tuple(given.limit_lengths),
        measured_length=given.measured_length,
        sequences=given.sequences,
        shape=shape_of(given.model),
    )
    given.progress.parent.mkdir(parents=True, exist_ok=True)
    with Store(given.store) as store, given.progress.open("a", encoding="utf-8") as lines:
        summary = run(asked, store, given.workers, PlainLines(lines))
        command = ["python", "-m", "poskernel.experiments.extension.validation", *(arguments or sys.argv[1:])]
        write_results(asked, store, given.out, command)
    write_about(asked.model, asked.texts, given.out)
    sys.stderr.write(f"{summary}\n")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
