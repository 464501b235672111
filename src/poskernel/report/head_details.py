"""What a page shows of one head beside its kernel, where it was measured: lines, Fourier power, distances, tokens.

Each is read from columns of the table of heads that hold lists; a head without them, or with empty ones, has no such
part.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poskernel.errors import InputError

PARTS: Mapping[str, Mapping[str, str]] = {
    "lines": {"frequencies": "line_frequencies", "amplitudes": "line_amplitudes", "resolved": "line_resolved"},
    "fourier": {"frequencies": "fourier_frequencies", "power": "fourier_power"},
    "distance": {
        "edges": "distance_edges", "mass": "distance_mass", "low": "distance_mass_low",
        "high": "distance_mass_high", "even": "distance_even",
    },
    "tokens": {"queries": "token_queries", "keys": "token_keys", "weights": "token_weights"},
}  # fmt: skip
"""Columns of each part, under the names by which the page knows them.

Frequencies are in radians a position, amplitudes in nats; bin i of distance holds edges[i] to edges[i + 1] - 1; token
keys and weights hold a list a query.
"""
BINS = 120
"""Bins of a Fourier spectrum that a page shows: more than it has room for."""


def details(record: Mapping[Any, Any], words: int) -> dict[str, Any]:
    """The parts that a row has, rounded to four digits.

    Raises InputError where lists of a part do not fit together, or rows speak of tokens beyond the `words` given.
    """
    found: dict[str, Any] = {}
    for part, columns in PARTS.items():
        if all(column in record for column in columns.values()):
            lists = {name: [short(value) for value in record[column]] for name, column in columns.items()}
            check_lengths(part, lists)
            if all(lists.values()):
                found[part] = lists
    if "tokens" in found:
        rows = zip(found["tokens"]["queries"], found["tokens"]["keys"], strict=True)
        last = max(position for query, keys in rows for position in (query, *keys))
        if last >= words:
            raise InputError(f"an attended row speaks of position {last}, but {words} words are given: give them all.")
    return found


def check_lengths(part: str, lists: Mapping[str, Sequence[Any]]) -> None:
    """InputError for lists of different lengths; there is one edge more than bins."""
    sizes = {len(values) - (name == "edges" and bool(values)) for name, values in lists.items()}
    if len(sizes) > 1:
        raise InputError(f"the lists of {part} have {sorted(sizes)} entries: give as many of each.")


def short(value: Any) -> Any:
    """Numbers with four digits, lists of such; null for what is not finite."""
    if isinstance(value, Sequence):
        return [short(each) for each in value]
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(f"{value:.4g}") if np.isfinite(value) else None


def pooled(frequencies: Sequence[float], power: Sequence[float], bins: int = BINS) -> tuple[list[float], list[float]]:
    """A spectrum on at most `bins` frequencies evenly spaced in their logarithm, the most power of each; without 0."""
    across, values = np.asarray(frequencies, dtype=float), np.asarray(power, dtype=float)
    across, values = across[across > 0], values[np.asarray(frequencies, dtype=float) > 0]
    if len(across) < 2 or not np.isfinite(values).all():
        return [], []
    place = (np.log(across / across[0]) / np.log(across[-1] / across[0]) * (bins - 1)).round().astype(int)
    best = [int(np.flatnonzero(place == each)[np.argmax(values[place == each])]) for each in np.unique(place)]
    return across[best].tolist(), values[best].tolist()
