"""What kill -9 costs a study: python benchmarks/interruption.py [KILLS] (30 unless said; some minutes).

The test's own random kills of workers and parents, many more of them, then one resume; the rows against those of a run
that nobody disturbed.
"""

import runpy
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from poskernel.study import Store, plan, run, units_of
from poskernel.study.transfer import FORMATS, encode
from random_kills import SCRIPT, gone, killed_at_random
from record import write

SEED, LONGEST_WAIT = 11, 10.0
STUDY = runpy.run_path(str(SCRIPT))["STUDY"]


def main() -> None:
    """Kill, resume, compare."""
    kills, units = int(sys.argv[1]) if len(sys.argv) > 1 else 30, units_of(STUDY)
    with tempfile.TemporaryDirectory() as folder:
        with Store(Path(folder) / "undisturbed.sqlite") as store:
            seconds = run(STUDY, store, workers=2).seconds
            expected, keys = store.rows(units), set(store.endings())
        began, path = time.monotonic(), Path(folder) / "killed.sqlite"
        done = killed_at_random(path, kills, SEED, LONGEST_WAIT)
        killed_seconds, left_behind = time.monotonic() - began, not gone(done.orphans)
        with Store(path) as store:
            rows, found, left = store.rows(units), set(store.endings()), len(plan(STUDY, store))
    same = all(encode(rows, form) == encode(expected, form) for form in FORMATS)
    measured = [
        ("kill -9 of workers", done.workers, ""),
        ("kill -9 of the parent", done.parents, ""),
        (
            "rows stored at a kill, median",
            statistics.median(done.stored),
            f"from {min(done.stored)} to {max(done.stored)}",
        ),
        (
            "starts of the study",
            done.runs,
            f"{done.completed} ended before the next kill and began again with an empty store",
        ),
        ("rows", len(rows), f"{len(units)} units"),
        ("rows lost", len(keys - found), ""),
        ("rows twice", len(rows) - len({tuple(map(str, row.values())) for row in rows}), ""),
        ("exports that differ from an undisturbed run", 0 if same else len(FORMATS), f"bytes of {', '.join(FORMATS)}"),
        ("units left after the resume", left, ""),
        ("workers left behind", int(left_behind), "20 s after the end"),
        ("seconds, undisturbed", round(seconds, 1), "two workers"),
        ("seconds, with the kills", round(killed_seconds, 1), "with what was begun again"),
    ]
    rows = [{"name": name, "value": value, **({"note": note} if note else {})} for name, value, note in measured]
    write("interruption", f"{kills} random kills, then one resume", f"python benchmarks/interruption.py {kills}", rows)


if __name__ == "__main__":
    main()
