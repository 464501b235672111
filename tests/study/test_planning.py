"""Plans, shards and counts: every unit with its reason, every shard a part, every measurement counted once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models.training import Recipe
from poskernel.study import STUDIES
from poskernel.study.grid import Axes, Study
from poskernel.study.planning import Retry, Shard, plan, status
from poskernel.study.store import CellRow, Store
from poskernel.study.units import Measurement, Status, Unit, units_of
from poskernel.tasks import TASKS

AXES = Axes(
    (ENCODINGS["rope"], ENCODINGS["alibi"]), (TASKS["prev"],), tiers=(1,), seeds=(0, 1), lengths=(30, 40),
    existence=False, width=8, recipe=Recipe(steps=2, batch=2, evaluation_sequences=4),
)  # fmt: skip
STUDY = Study("small", "?", (AXES,))
UNITS = units_of(STUDY)  # 2 predictions, then 4 models


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def put(store: Store, unit: Unit, status: Status = Status.DONE, reason: str = "", transient: bool = False) -> None:
    value = 0.5 if status is Status.DONE else None
    measurements = [Measurement(*key, value, status, reason, transient) for key in unit.keys]
    store.add([CellRow.of(cell) for cell in unit.cells], measurements)


def test_each_unit_has_its_reason(store: Store) -> None:
    assert [(item.unit, item.reason) for item in plan(STUDY, store)] == [(unit, "new") for unit in UNITS]
    put(store, UNITS[0])
    put(store, UNITS[1], Status.TIMEOUT, "too long", transient=True)
    put(store, UNITS[2], Status.FAILED, "the loss is nan")
    partial = Measurement(*UNITS[3].keys[0], 0.5, Status.DONE)
    store.add([CellRow.of(UNITS[3].cell)], [partial])
    reasons = {item.unit: item.reason for item in plan(STUDY, store)}
    assert reasons == {
        UNITS[1]: "timeout before: too long",
        UNITS[3]: "not measured yet: length_generalization at 30, length_generalization at 40",
        UNITS[4]: "new",
        UNITS[5]: "new",
    }
    assert {item.unit for item in plan(STUDY, store, Retry.NEVER)} == set(UNITS[3:])
    assert {item.unit for item in plan(STUDY, store, Retry.FAILED)} == set(UNITS[1:])


def test_weights_that_are_not_there_are_a_reason(store: Store, tmp_path: Path) -> None:
    for unit in UNITS:
        put(store, unit)
    kept = UNITS[3].weights_file(tmp_path)
    assert kept is not None
    kept.write_text("")
    planned = plan(STUDY, store, weights=tmp_path)
    assert [(item.unit, item.reason) for item in planned] == [
        (unit, "its weights are not kept") for unit in (UNITS[2], *UNITS[4:])
    ]


@given(st.lists(st.integers()), st.integers(1, 12))
def test_shards_are_a_partition_of_nearly_equal_parts(items: list[int], of: int) -> None:
    parts = [Shard(number, of).part(items) for number in range(1, of + 1)]
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("of", [2, 3, 4, 5, 7, 8])
def test_shards_of_the_paper_are_nearly_equal_work_and_do_not_depend_on_the_store(store: Store, of: int) -> None:
    units = units_of(STUDIES["paper"])
    costs = [sum(unit.cost for unit in Shard(number, of).part(units)) for number in range(1, of + 1)]
    assert max(costs) - min(costs) <= 0.08 * sum(costs) / of
    put(store, UNITS[1])
    planned = [[item.unit for item in plan(STUDY, store, shard=Shard(number, 2))] for number in (1, 2)]
    assert planned == [[UNITS[0], UNITS[2], UNITS[4]], [UNITS[3], UNITS[5]]]


@pytest.mark.parametrize("text", ["1", "0/4", "5/4", "1/0", "-1/4", "a/b", "1/4/2", "", "1.5/4"])
def test_what_is_no_shard_is_named(text: str) -> None:
    with pytest.raises(InputError, match="shard"):
        Shard.parse(text)
    assert Shard.parse("2/4") == Shard(2, 4)


def test_status_counts_every_measurement_once(store: Store) -> None:
    put(store, UNITS[0])
    put(store, UNITS[2], Status.FAILED, "the loss is nan")
    table = status(STUDY, store)
    assert table.drop(columns="tier").to_dict("list") == {
        "kind": ["prediction", "training"], "wanted": [4, 12], "done": [2, 0],
        "unlearned": [0, 0], "failed": [0, 3], "timeout": [0, 0], "missing": [2, 9],
    }  # fmt: skip
    assert table["tier"].fillna(0).tolist() == [0, 1]
