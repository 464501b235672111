"""A study small enough to be run by every executor, and what the process pool makes of it."""

import functools
import tempfile
from pathlib import Path

from poskernel.encodings import ENCODINGS
from poskernel.models.training import Recipe
from poskernel.study import Axes, Store, Study, run, units_of
from poskernel.study.transfer import FORMATS, encode
from poskernel.tasks import TASKS

SMALL = Study(
    "small",
    "Do all executors give the same rows?",
    (
        Axes(
            encodings=(ENCODINGS["rope"],),
            tasks=(TASKS["prev"],),
            tiers=(2,),
            seeds=(0, 1),
            lengths=(24, 30),
            existence=False,
            width=16,
            recipe=Recipe(steps=20, batch=8, evaluation_sequences=32),
        ),
    ),
)
ENDLESS = Study(
    "endless",
    "Does work end when it has to?",
    (
        Axes(
            encodings=(ENCODINGS["rope"],),
            tasks=(TASKS["prev"],),
            tiers=(1,),
            seeds=(0,),
            lengths=(24,),
            rules=(),
            width=16,
            recipe=Recipe(steps=10**8, batch=2),
        ),
    ),
)
"""One model whose training does not end."""


def exports(store: Store, study: Study = SMALL) -> dict[str, bytes]:
    """A study's rows in every format."""
    return {form: encode(store.rows(units_of(study)), form) for form in FORMATS}


@functools.cache
def exports_of_the_pool() -> dict[str, bytes]:
    """What the process pool gives."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "pool.sqlite") as store:
        run(SMALL, store, workers=2)
        return exports(store)
