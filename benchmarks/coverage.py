"""How often intervals hold the truth: python benchmarks/coverage.py [HEADS] (600 unless said; about six minutes).

Heads are drawn again and again from worlds whose kernel is known (tests/simulated_heads.py) and measured by the
package's own estimator, at 4, 16 and 64 sequences.
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from poskernel.threads import one_thread
from record import write
from simulated_heads import STATISTICS, WORLDS, coverages, drawn_heads, true_values

SEQUENCES, NOMINAL, TOLERANCE = (4, 16, 64), 0.95, 0.03
PROMISED = 16
"""Sequences from which the nominal coverage is promised; below it is only stated."""
NAMES = {"r2": "R2", "r2_raw": "R2 raw", "signal": "signal", "share": "share", "r2_plugin": "plug-in R2", "g": "g"}


def measured(heads: int) -> list[dict[str, object]]:
    """A row for every world and number of sequences: percentages of intervals that hold the truth."""
    rows: list[dict[str, object]] = []
    for world in WORLDS.values():
        truth = true_values(world)
        for sequences in SEQUENCES:
            found = coverages(truth, drawn_heads(world, sequences, heads, 1000 * sequences))
            row: dict[str, object] = {"what": world.meaning, "sequences": sequences}
            row |= {NAMES[name]: round(100 * found[name].covered, 1) for name in STATISTICS}
            row["bias of R2"] = f"{found['r2'].bias:+.2f} standard deviations"
            row["R2 undefined, %"] = round(100 * found["r2"].undefined, 1)
            rows.append(row)
            print(row, flush=True)
    return rows


def summary(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Least and greatest coverage over worlds at each number of sequences."""
    found = []
    for sequences in SEQUENCES:
        row: dict[str, object] = {"what": "least and greatest of all worlds", "sequences": sequences}
        for name in NAMES.values():
            values = [float(str(each[name])) for each in rows if each["sequences"] == sequences]
            row[name] = f"{min(values)} to {max(values)}"
        row["target"] = (
            f"{100 * (NOMINAL - TOLERANCE):.0f} to {100 * (NOMINAL + TOLERANCE):.0f}" if sequences >= PROMISED else ""
        )
        found.append(row)
    return found


def main() -> None:
    """Simulate and write docs/benchmarks/coverage.json."""
    heads = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    with one_thread():
        rows = measured(heads)
    error = 100 * math.sqrt(NOMINAL * (1 - NOMINAL) / heads)
    title = (
        f"Percentage of 95% intervals that hold the truth, {heads} heads a row (standard error {error:.1f} points; "
        "R2 of the mean Gram, plug-in, against its own expectation; g offset by offset)"
    )
    write("coverage", title, f"python benchmarks/coverage.py {heads}", summary(rows) + rows)


if __name__ == "__main__":
    main()
