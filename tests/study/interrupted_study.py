"""A study small enough to be killed many times, run as its own process: `python interrupted_study.py STORE`."""

import sys
from pathlib import Path

from poskernel.encodings import ENCODINGS
from poskernel.models.training import Recipe
from poskernel.study.grid import Axes, Study
from poskernel.study.runner import run
from poskernel.study.store import Store
from poskernel.tasks import TASKS

STUDY = Study(
    "interrupted",
    "Does a kill change anything?",
    (
        Axes(
            encodings=(ENCODINGS["rope"], ENCODINGS["learned"]),
            tasks=(TASKS["prev"], TASKS["copy"]),
            tiers=(1,),
            seeds=(0, 1, 2),
            lengths=(24, 30),
            existence=False,
            width=16,
            recipe=Recipe(steps=60, batch=16, evaluation_sequences=32),
        ),
    ),
)

if __name__ == "__main__":
    with Store(Path(sys.argv[1])) as store:
        summary = run(STUDY, store, workers=2, attempts=1000)
        print(summary.done, summary.skipped, summary.failed)
