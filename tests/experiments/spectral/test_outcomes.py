"""Numbers a replicate: heads paired, failures passed on, shares and rank correlations by hand."""

import math

import pandas as pd
import pytest

from poskernel.experiments.spectral.outcomes import by_seed, chosen, per_head, rank_correlation, right_directions


def rows_of(values: dict[int, list[tuple[float, float]]]) -> pd.DataFrame:
    lines = []
    for seed, pairs in values.items():
        for head, pair in enumerate(pairs):
            for metric, value in zip(("predicted_change", "distance_change"), pair, strict=True):
                lines.append({
                    "encoding": "rope", "scope": "one layer", "change": "short x 0.5", "layer": 0, "head": head,
                    "metric": metric, "seed": seed, "value": value, "status": "done",
                })  # fmt: skip
    return pd.DataFrame(lines)


def test_heads_are_paired_and_undefined_ones_left_out() -> None:
    rows = rows_of({0: [(0.1, 0.2), (math.nan, math.nan), (0.3, -0.1)]})
    table = per_head(rows, {"encoding": "rope"}, ["short x 0.5"])
    assert table[["head", "said", "found"]].to_numpy().tolist() == [[0, 0.1, 0.2], [2, 0.3, -0.1]]
    assert per_head(rows, {"encoding": "rope"}, ["middle x 0.5"]).empty
    assert chosen(rows, {"model": "another"}).empty


def test_a_seed_that_lost_a_head_has_no_number() -> None:
    rows = rows_of({0: [(0.1, 0.2)], 1: [(0.1, 0.2), (0.3, 0.3)]})
    rows.loc[(rows["seed"] == 1) & (rows["head"] == 1), ["value", "status"]] = [math.nan, "failed"]
    found = by_seed(per_head(rows, {"encoding": "rope"}, ["short x 0.5"]), right_directions)
    assert found[0] == 1.0 and math.isnan(found[1])


def test_directions_count_where_something_is_said() -> None:
    lines = pd.DataFrame({"said": [0.1, -0.2, 0.005, 0.05], "found": [0.3, 0.1, -1.0, 0.01]})
    assert right_directions(lines) == pytest.approx(2 / 3)
    assert math.isnan(right_directions(lines.iloc[2:3]))


def test_ranks_need_variation() -> None:
    lines = pd.DataFrame({"said": [1.0, 2.0, 3.0], "found": [1.0, 9.0, 4.0]})
    assert rank_correlation(lines) == pytest.approx(0.5)
    assert math.isnan(rank_correlation(lines.assign(said=1.0))) and math.isnan(rank_correlation(lines.iloc[:2]))
