from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import reference
from poskernel.errors import InputError
from poskernel.tasks import (
    IGNORED_LABEL,
    NO_TARGET,
    POSITIONAL_TASKS,
    STUDY_TASKS,
    TASKS,
    Copy,
    Induction,
    OffsetRegime,
    Position,
    Reverse,
    Skip,
    Targets,
    Task,
    parse_task,
)

NAMED = tuple(POSITIONAL_TASKS)


@pytest.mark.parametrize("name", NAMED)
def test_targets_follow_the_definitions_at_every_length(name: str) -> None:
    for length in range(1, 61):
        targets = TASKS[name].targets(length)
        expected = {row: key for row in range(length) if (key := reference.target_key(name, row, length)) is not None}
        assert dict(zip(targets.query.tolist(), targets.key.tolist(), strict=True)) == expected
        assert targets.query.tolist() == sorted(expected)
        assert (targets.offset >= 0).all()
        assert (targets.key >= 0).all()


def test_the_registry_is_the_ten_tasks() -> None:
    assert list(TASKS) == [*reference.POSITIONAL_TASKS, "induction"]
    assert tuple(task.name for task in STUDY_TASKS) == reference.STUDY_TASKS
    assert all(task.name == name for name, task in TASKS.items())


def test_regimes() -> None:
    regimes = {name: task.regime for name, task in TASKS.items()}
    assert {name for name, regime in regimes.items() if regime is OffsetRegime.GROWING} == {"copy", "reverse"}
    assert {name for name, task in TASKS.items() if task.depends_on_length} == {"copy", "reverse"}
    assert regimes["first"] is regimes["pos5"] is OffsetRegime.FIXED_ABSOLUTE
    assert regimes["skip5"] is OffsetRegime.FIXED_RELATIVE
    assert regimes["induction"] is OffsetRegime.CONTENT


def test_first_starts_at_row_one_and_copy_and_reverse_at_half() -> None:
    assert TASKS["first"].targets(4).query.tolist() == [1, 2, 3]
    assert TASKS["copy"].targets(5).key.tolist() == [0, 1]
    assert TASKS["reverse"].targets(5).key.tolist() == [2, 1]
    assert TASKS["reverse"].targets(6).key.tolist() == [2, 1, 0]


@given(st.sampled_from(NAMED), st.integers(2, 30), st.data())
def test_labels_are_the_tokens_at_the_target_keys(name: str, length: int, data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.lists(st.integers(0, 11), min_size=length, max_size=length), min_size=1, max_size=3))
    labels = TASKS[name].labels(torch.tensor(tokens))
    for sequence, row_labels in zip(tokens, labels.tolist(), strict=True):
        for row, label in enumerate(row_labels):
            key = reference.target_key(name, row, length)
            assert label == (IGNORED_LABEL if key is None else sequence[key])


@given(st.integers(1, 25), st.data())
def test_induction_follows_the_most_recent_occurrence(length: int, data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.integers(0, 4), min_size=length, max_size=length))
    keys = Induction().sequence_targets(torch.tensor([tokens]))[0].tolist()
    assert keys == [
        NO_TARGET if (key := reference.induction_key(tokens, row)) is None else key for row in range(length)
    ]
    labels = Induction().labels(torch.tensor([tokens]))[0].tolist()
    assert labels == [IGNORED_LABEL if key == NO_TARGET else tokens[key] for key in keys]


def test_induction_has_no_positional_target() -> None:
    with pytest.raises(InputError, match="'induction' has no positional target: its targets depend on the tokens"):
        Induction().targets(20)


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("prev", Skip(1)),
        ("skip3", Skip(3)),
        ("skip:offset=7", Skip(7)),
        ("skip:7", Skip(7)),
        ("pos:position=4", Position(4)),
        ("first", Position(0)),
        ("copy", Copy()),
        ("reverse", Reverse()),
        ("induction", Induction()),
    ],
)
def test_tasks_are_named_by_text(text: str, task: Task) -> None:
    assert parse_task(text) == task


def test_parameters_change_the_name() -> None:
    assert parse_task("skip:offset=7").name == "skip7"
    assert parse_task("skip:offset=1").name == "prev"
    assert parse_task("pos:position=0").name == "first"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("frist", "unknown task 'frist': did you mean 'first'"),
        ("skip:offset=-1", "offset -1, in the future: give 0 or more"),
        ("pos:position=-2", "position -2: give 0 or more"),
        ("skip:offset=half", "'half': give a whole number"),
        ("copy:offset=1", "'copy' takes no parameters"),
    ],
)
def test_what_is_no_task_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_task(text)


@dataclass(frozen=True)
class Broken(Task):
    regime = OffsetRegime.FIXED_RELATIVE
    name = "broken"
    mode: str = ""

    def target_key(self, query: Tensor, length: int) -> Tensor:
        if self.mode == "future":
            return torch.where(query == 3, 4, query)
        if self.mode == "beyond":
            return torch.where(query == 2, length + 5, 0)
        if self.mode == "short":
            return query[1:]
        if self.mode == "half":
            return query / 2
        return torch.full_like(query, NO_TARGET)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (
            "future",
            "target key 4 at query row 3 of length 10, after its query: causal attention cannot see it, give a key",
        ),
        ("beyond", "target key 15 at query row 2 of length 10, after its query"),
        ("short", r"gave \(9,\) target keys for 10 rows: give one a row"),
    ],
)
def test_impossible_targets_are_named(mode: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Broken(mode).targets(10)


def test_fractional_targets_are_refused() -> None:
    with pytest.raises(InputError, match=r"gave target keys of torch.float32: give whole numbers"):
        Broken("half").targets(10)


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(
        InputError, match=r"'broken' has no query row in \[20, 30\), so nothing is scored: give a longer"
    ):
        Broken().new_targets(20, 30)
    with pytest.raises(InputError, match=r"'skip40' has no query row in \[20, 30\)"):
        Skip(40).new_targets(20, 30)


@pytest.mark.parametrize("length", [20, 19, 0, -1])
def test_a_length_must_lie_beyond_the_training_length(length: int) -> None:
    with pytest.raises(InputError, match=f"length {length} is not beyond the training length 20: give a longer one"):
        TASKS["prev"].new_targets(20, length)


@pytest.mark.parametrize("length", [0, -4])
def test_a_length_must_be_positive(length: int) -> None:
    with pytest.raises(InputError, match=f"asked for length {length}: give a length of at least 1"):
        TASKS["prev"].targets(length)


def test_new_targets_are_the_rows_beyond_training() -> None:
    targets = TASKS["reverse"].new_targets(20, 30)
    assert targets.query.tolist() == list(range(20, 30))
    assert targets.key.tolist() == [29 - row for row in range(20, 30)]
    assert TASKS["copy"].new_targets(20, 50).query.tolist() == list(range(25, 50))


def test_rows_of_targets_are_a_half_open_range() -> None:
    targets = Targets(torch.tensor([1, 2, 5]), torch.tensor([0, 0, 0]))
    assert targets.rows(2, 5).query.tolist() == [2]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda query: 0, "gave a int for 5 rows: give a tensor"),
        (lambda query: [0] * 5, "gave a list for 5 rows: give a tensor"),
        (lambda query: query - 1 if query > 0 else -1, "decides with `if` in target_key, .* choose with torch.where"),
    ],
)
def test_target_keys_of_another_kind_are_named(rule, words):
    @dataclass(frozen=True)
    class Mine(Task):
        regime = OffsetRegime.FIXED_RELATIVE
        name = "mine"

        def target_key(self, query, length):
            return rule(query)

    with pytest.raises(InputError, match=f"task 'mine' {words}"):
        Mine().targets(5)
