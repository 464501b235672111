"""Numbers of models out of rows of heads, against plain loops."""

import math

import pandas as pd
import pytest

from poskernel.experiments.head_rows import (
    by_seed,
    difference,
    greatest,
    least,
    lines_gained,
    mean,
    median,
    of_models,
    paired,
)


def rows_of(values: dict[tuple[str, int, int], float], metric: str = "r2", failed: tuple[str, int] | None = None):
    return pd.DataFrame([
        {"cell": f"{name}{head}", "metric": metric, "length": 8, "seed": seed, "value": value, "reason": "",
         "status": "failed" if (name, seed) == failed else "done", "encoding": name, "layer": 0, "head": head}
        for (name, seed, head), value in values.items()
    ])  # fmt: skip


VALUES = {
    (name, seed, head): seed + 0.1 * head**2 + (name == "b") for name in "ab" for seed in (0, 1) for head in range(3)
}


def number(frame: pd.DataFrame, name: str, seed: int) -> float:
    (value,) = frame[(frame["encoding"] == name) & (frame["seed"] == seed)]["value"]
    return float(value)


def test_a_model_is_a_statistic_over_its_heads() -> None:
    found = of_models(rows_of(VALUES), "r2", mean, {})
    for name in "ab":
        for seed in (0, 1):
            heads = [VALUES[name, seed, head] for head in range(3)]
            assert number(found, name, seed) == pytest.approx(sum(heads) / 3)
            assert number(of_models(rows_of(VALUES), "r2", median, {}), name, seed) == pytest.approx(sorted(heads)[1])
    assert set(of_models(rows_of(VALUES), "r2", mean, {"encoding": "b"})["encoding"]) == {"b"}
    assert len(of_models(rows_of(VALUES), "r2", mean, {"encoding": ("a", "b"), "seed": 1})) == 2


def test_what_is_undefined_counts_as_said_and_what_failed_as_nothing() -> None:
    values = {**VALUES, ("a", 0, 2): math.nan}
    assert number(of_models(rows_of(values), "r2", mean, {}, undefined=0.0), "a", 0) == pytest.approx(0.1 / 3)
    assert math.isnan(number(of_models(rows_of(values), "r2", mean, {}), "a", 0))
    lost = {key: math.nan if key[:2] == ("a", 0) else value for key, value in VALUES.items()}
    found = of_models(rows_of(lost, failed=("a", 0)), "r2", mean, {}, undefined=0.0)
    assert math.isnan(number(found, "a", 0)) and not math.isnan(number(found, "a", 1))


def test_a_missing_head_or_model_is_not_passed_over() -> None:
    without_head = {key: value for key, value in VALUES.items() if key != ("a", 1, 0)}
    assert math.isnan(number(of_models(rows_of(without_head), "r2", mean, {}), "a", 1))
    without_model = {key: value for key, value in VALUES.items() if key[:2] != ("a", 1)}
    seeds = by_seed(of_models(rows_of(without_model), "r2", mean, {}))
    assert not math.isnan(seeds[0]) and math.isnan(seeds[1])


def test_seeds_combine_their_models() -> None:
    models = of_models(rows_of(VALUES), "r2", mean, {})
    a, b = (sum(VALUES[name, 0, head] for head in range(3)) / 3 for name in "ab")
    assert by_seed(models)[0] == pytest.approx((a + b) / 2)
    assert by_seed(models, least)[0] == pytest.approx(a) and by_seed(models, greatest)[0] == pytest.approx(b)
    first, second = (of_models(rows_of(VALUES), "r2", mean, {"encoding": name}) for name in "ba")
    assert difference(first, second) == pytest.approx([1, 1])


def test_pairs_belong_together_and_lone_ones_are_nothing() -> None:
    first = of_models(rows_of(VALUES), "r2", mean, {})
    second = of_models(rows_of(VALUES), "r2", median, {"encoding": "a"})
    both = paired(first, second, ["encoding"])
    assert number(both, "a", 0) == pytest.approx(number(first, "a", 0) - number(second, "a", 0))
    assert math.isnan(number(both, "b", 0))


def test_nothing_chosen_is_no_seed() -> None:
    assert by_seed(of_models(rows_of(VALUES), "other", mean, {})).empty


def test_lines_gain_what_random_ones_leave() -> None:
    own = rows_of({("a", 0, 0): 0.9, ("a", 0, 1): 0.7}, "lines_explained")
    random = rows_of({("a", 0, 0): 0.6, ("a", 0, 1): 0.6}, "lines_random")
    both = lines_gained(pd.concat([own, random]), {}, ["encoding"])
    assert number(both, "a", 0) == pytest.approx(1 - 0.2 / 0.4)
    equal = lines_gained(pd.concat([random.assign(metric="lines_explained"), random]), {}, ["encoding"])
    assert number(equal, "a", 0) == 0
