"""What a head that attends evenly puts on the first positions: the chance level of attention sinks."""

from functools import lru_cache

import torch


@lru_cache(maxsize=16)
def even_masses(length: int, dropped: int, window: int | None, causal: bool) -> tuple[float, float]:
    """(on position 0, on the `dropped` first positions) of weights spread evenly over the keys that each row sees.

    Means over the rows that are measured, `dropped` to length - 1. Short sequences put much there by chance: of 48
    positions the first 16 get 54%.
    """
    row, reach = torch.arange(dropped, length, dtype=torch.float64), window or length
    first_key = (row - reach + 1).clamp(min=0)
    key_stop = row + 1 if causal else (row + reach).clamp(max=length)
    seen = key_stop - first_key
    early = (dropped - first_key).clamp(min=0)
    return float(((first_key == 0) / seen).mean()), float((early / seen).mean())
