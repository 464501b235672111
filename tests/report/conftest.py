"""Synthetic tables that the report's tests draw."""

import numpy as np
import pandas as pd
import pytest

OFFSETS = [0, 1, 2, 4, 8, 16, 31]


@pytest.fixture
def heads():
    """3 layers of 4 heads; head h of layer l peaks at offset h with height l + 1; one statistic is undefined."""
    rows = []
    for layer in range(3):
        for head in range(4):
            g = (layer + 1) * np.exp(-np.abs(np.array(OFFSETS) - head) / 3)
            sentence = f"Layer {layer} head {head} looks {head} back."
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "kind": "local" if head else "mixed",
                    "sentence": sentence,
                    "g": g,
                    "g_low": g - 0.1,
                    "g_high": g + 0.1,
                }
            )
    table = pd.DataFrame(rows)
    return table.assign(r2=[np.nan, *np.linspace(0, 1, 11)], signal=np.arange(12.0))


@pytest.fixture
def cells():
    """2 encodings x 3 tasks; one cell failed, one has no prediction, one was never run."""
    return pd.DataFrame(
        [
            ("rope", "prev", 1.0, 0.9, "done", None, None),
            ("rope", "copy", 0.0, 0.1, "unlearned", None, None),
            ("rope", "induction", np.nan, 0.3, "done", "content task", None),
            ("alibi", "prev", 0.6, 0.2, "done", None, None),
            ("alibi", "copy", 0.0, np.nan, "failed", None, "failed"),
        ],
        columns=["encoding", "task", "alpha", "accuracy", "status", "alpha_reason", "accuracy_reason"],
    )
