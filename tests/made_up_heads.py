"""Made-up heads for the map: a table of any size with every detail a page can show, and how to read what was sent."""

import base64
import gzip
import json
import re

import numpy as np
import pandas as pd

from poskernel.report.head_map import HeadStatistic

EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
KINDS = {"local": "near", "fixed-offset": "at one offset", "mixed": "none of these"}
STATISTICS = [
    HeadStatistic("r2", "R²", "kernel", "how far logits are a function of the offset"),
    HeadStatistic("signal", "signal, nats", "kernel", "how large it is"),
]


def listed(horizon):
    """0 to 64, then 192 log-spaced offsets, as an atlas lists them."""
    far = np.logspace(np.log10(65), np.log10(horizon - 1), 192).round().astype(int)
    return sorted({*range(65), *far.tolist()})


def many_heads(layers, heads, offsets, statistics=0, words=40):
    """Random curves with bands and every detail, and their statistics: `statistics` more than two, with intervals."""
    random = np.random.default_rng(0)
    edges = [0, *(2**power for power in range(13)), max(offsets) + 1]
    across = np.array(offsets)
    rows = []
    for layer in range(layers):
        for head in range(heads):
            g = -np.log1p(np.abs(across)) * random.random() + random.normal(size=len(across)) * 0.2
            error = 0.05 + 0.1 * random.random(len(across))
            values = random.random(3 * statistics)
            columns = {
                f"statistic_{number // 3}{('', '_low', '_high')[number % 3]}": value
                for number, value in enumerate(values)
            }
            mass = random.random(len(edges) - 1)
            rows.append(
                {
                    "layer": layer, "head": head, "kind": list(KINDS)[(layer + head) % 3],
                    "sentence": f"Layer {layer} head {head}: positional kernel peaks at offset {head}, position 93%",
                    "g": g, "g_low": g - error, "g_high": g + error, "r2": random.random(), "signal": random.random(),
                    "line_frequencies": np.geomspace(1, 1e-4, 32).tolist(),
                    "line_amplitudes": random.random(32).tolist(), "line_resolved": [True] * 16 + [False] * 16,
                    "fourier_frequencies": np.geomspace(1e-3, 3.14, 120).tolist(),
                    "fourier_power": random.random(120).tolist(),
                    "distance_edges": edges, "distance_mass": mass.tolist(),
                    "distance_mass_low": (mass - 0.01).tolist(), "distance_mass_high": (mass + 0.01).tolist(),
                    "distance_even": mass[::-1].tolist(),
                    "token_queries": [words - 1], "token_keys": [[0, words - 2]], "token_weights": [[0.5, 0.25]],
                    **columns,
                }
            )  # fmt: skip
    more = [
        HeadStatistic(f"statistic_{number}", f"statistic {number}", "more", "made up") for number in range(statistics)
    ]
    return pd.DataFrame(rows), [*STATISTICS, *more]


def unpacked(page):
    """The data that a page carries."""
    packed = re.search(r'<script type="text/plain">([A-Za-z0-9+/=]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
