import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import reference
from cells import LENGTHS, alphas, kernel
from poskernel.encodings import AbsoluteEncoding, Encoding, KernelFamily, RelativeEncoding, Rope, Sinusoidal
from poskernel.errors import InputError
from poskernel.realizability import certificate, predict, predict_all, screen, screen_document
from poskernel.realizability.prediction import PREDICT_SCHEMA, SCREEN_SCHEMA, Prediction
from poskernel.realizability.selection import Selection, SelectionRule
from poskernel.tasks import TASKS, OffsetRegime, Targets, Task


def quick(encoding: Encoding | str, task: Task | str, **options: object) -> Prediction:
    return predict(encoding, task, **{"existence": False, "horizon": 500, **options})  # type: ignore[arg-type]


def test_the_command_of_the_readme() -> None:
    found = predict("rope", "first", 20, [30, 40, 60, 128, 256, 512], existence=False)
    assert [row.alpha for row in found.rows] == alphas("rope", "first", (30, 40, 60, 128, 256, 512))
    assert [row.scored for row in found.rows] == [10, 20, 40, 108, 236, 492]
    assert found.encoding == "rope:base=10000.0,frequencies=16,scale=1.0"
    assert (found.task, found.train_length, found.horizon) == ("first", 20, 1_000_000)
    assert found.realized
    assert found.reach == 28  # rows 20 to 27 of 30: alpha .8
    assert found.train_margin is not None
    assert found.train_margin > 0


@pytest.mark.parametrize(
    ("encoding", "task"), [("rope", "prev"), ("rope", "copy"), ("sinusoidal", "prev"), ("learned", "first")]
)
def test_rows_agree_with_the_functions_beneath(encoding: str, task: str) -> None:
    found, picked = quick(encoding, task), kernel(encoding, task)
    for row in found.rows:
        proof = certificate(picked, TASKS[task], 20, row.length)
        assert row.margin == pytest.approx(proof.new_margin, abs=1e-9)
        assert row.certified == proof.holds
        assert found.realized == proof.realized
        assert found.train_margin == pytest.approx(proof.train_margin, abs=1e-12)
    assert [row.alpha for row in found.rows] == alphas(encoding, task)


def test_lengths_come_back_in_their_order() -> None:
    assert [row.length for row in quick("rope", "prev", lengths=[60, 30, 40]).rows] == [60, 30, 40]
    found = quick("rope", "first", lengths=[60, 30])
    assert [row.alpha for row in found.rows] == alphas("rope", "first", (60, 30))


def test_documents_are_plain_json() -> None:
    document = quick("rope", "prev").document()
    assert document["schema"] == PREDICT_SCHEMA
    assert set(document) == {
        "schema", "encoding", "task", "train_length", "rule", "train_margin", "realized", "reach", "horizon", "rows"
    }  # fmt: skip
    assert set(document["rows"][0]) == {"length", "scored", "alpha", "margin", "certified", "exists", "reason"}
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_existence_stands_beside_alpha() -> None:
    found = predict("rope", "copy", 20, [30, 60, 80], horizon=100)
    assert [row.exists for row in found.rows] == ["conflict", "yes", "yes"]
    assert [row.alpha for row in found.rows] == [0.0, 0.0, 0.0]
    assert not any(row.certified for row in found.rows)
    assert "offset grows" in found.rows[1].reason
    assert "exists" in found.rows[1].reason


def test_existence_is_null_where_it_is_not_asked() -> None:
    assert [row.exists for row in quick("rope", "prev").rows] == [None] * 5
    far = predict("learned", "first", 20, [60, 200], horizon=300)
    assert [row.exists for row in far.rows] == ["yes", None]
    assert [row.exists for row in predict("rope", "prev", 20, [60, 200], horizon=300).rows] == ["yes", "yes"]


def test_the_longest_answer_is_given_to_shorter_lengths_only_if_yes() -> None:
    assert [row.exists for row in predict("rope", "first", 20, [30, 80], horizon=100).rows] == ["yes", "yes"]
    # One frequency, turning half round in 40 positions: first is possible to 30 and no longer to 80.
    slow = Rope(frequencies=1, scale=torch.pi / 40)
    assert [row.exists for row in predict(slow, "first", 20, [30, 80], horizon=100).rows] == ["yes", "no"]


def test_an_infeasible_rule_leaves_alpha_undefined() -> None:
    found = quick("rope", "reverse", rule="max-margin")
    assert (found.train_margin, found.realized, found.reach) == (None, None, None)
    for row in found.rows:
        assert (row.alpha, row.margin, row.certified) == (None, None, False)
        assert row.scored > 0
        assert row.reason.startswith("undefined: no kernel of the family has a positive margin at length 20")


def test_content_tasks_are_listed_with_alpha_undefined() -> None:
    found = predict("rope", "induction")
    assert [row.alpha for row in found.rows] == [None] * 5
    assert {row.exists for row in found.rows} == {"not-applicable"}
    assert "the targets depend on the tokens" in found.rows[0].reason


@dataclass(frozen=True)
class FirstButOneRow(SelectionRule):
    """A user's rule: key 0 everywhere, except that row 5 looks at itself."""

    name = "first-but-one-row"

    def select(self, family: KernelFamily, targets: Sequence[Targets], train_length: int) -> list[Selection]:
        weights = torch.zeros(family.shape, dtype=torch.float64)
        weights[:, 0], weights[5, 5] = 1.0, 2.0
        return [Selection(weights) for _ in targets]


def test_nothing_is_certified_where_the_training_length_is_not_solved() -> None:
    found = quick("learned", "first", rule=FirstButOneRow())
    assert found.rule == "first-but-one-row"
    assert found.realized is False
    assert found.train_margin == -1.0
    for row in found.rows:
        assert row.alpha == 1.0
        assert not row.certified
        assert "the training length itself is not solved" in row.reason


def test_reach_of_growing_tasks_is_the_first_failing_length() -> None:
    assert quick("rope", "copy").reach == 21


def test_reasons_say_what_happens() -> None:
    assert quick("rope", "prev").rows[0].reason.startswith("generalizes: right on every row, margin")
    assert "the first wrong new row is 28" in quick("rope", "first").rows[0].reason
    assert "a tie" in quick("nope", "prev").rows[0].reason
    assert "generalizes in part" in quick("rope", "first", lengths=[30]).rows[0].reason
    assert "will not generalize" in quick("rope", "first", lengths=[60]).rows[0].reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoding": "rop"}, "unknown encoding 'rop': did you mean 'rope'"),
        ({"task": "revers"}, "unknown task 'revers': did you mean 'reverse'"),
        ({"rule": "adamm"}, "unknown selection rule 'adamm': did you mean 'adam'"),
        ({"train_length": 1}, "train_length is 1: give at least 2"),
        ({"lengths": []}, "no length to predict: give at least one beyond train_length"),
        ({"lengths": [30, 20]}, "length 20 is not beyond the training length 20"),
        ({"lengths": [30, -5]}, "length -5 is not beyond"),
        ({"task": "induction", "lengths": [20]}, "length 20 is not beyond"),
        (
            {"task": "skip:offset=25", "lengths": [30]},
            "no query row at training length 20: give a longer one",
        ),
        ({"horizon": 20}, "horizon 20 is not beyond the training length 20"),
        ({"horizon": -1}, "horizon -1 is not beyond"),
        ({"horizon": 0}, "horizon 0 is not beyond"),
        ({"encoding": "rope:base=-1"}, "base of RoPE is -1.0: give a positive number"),
        ({"encoding": "rope:base=nan"}, "base of RoPE is nan"),
    ],
)
def test_bad_input_is_named_before_any_work(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        quick(**{"encoding": "rope", "task": "prev", **change})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Parity(Task):
    """Odd lengths look one back, even ones two: depends on the length, and forgets to say so."""

    regime = OffsetRegime.FIXED_RELATIVE
    name = "parity"

    def target_key(self, query: Tensor, length: int) -> Tensor:
        return query - 1 - (length + 1) % 2


def test_a_task_that_hides_its_dependence_on_the_length_is_caught() -> None:
    with pytest.raises(
        InputError, match="'parity' has other targets at length 31 than at 40: set depends_on_length = True"
    ):
        quick("rope", Parity(), lengths=[31, 40])


@dataclass(frozen=True)
class Logarithm(RelativeEncoding):
    """A user's encoding: -r log(1 + d), defined at causal offsets only."""

    name = "logarithm"

    def basis(self, offset: Tensor) -> Tensor:
        return (1 + offset.double()).log()[:, None]

    def bounded_weights(self) -> tuple[int, ...]:
        return (0,)


@dataclass(frozen=True)
class Halves(AbsoluteEncoding):
    """A user's encoding: one-hot of the position modulo a period."""

    name = "halves"
    period: int = 4

    def features(self, position: Tensor, train_length: int) -> Tensor:
        return torch.nn.functional.one_hot(position % self.period, self.period)


@dataclass(frozen=True)
class Itself(Task):
    """A user's task: attend to oneself."""

    regime = OffsetRegime.FIXED_RELATIVE
    name = "itself"

    def target_key(self, query: Tensor, length: int) -> Tensor:
        return query


@pytest.mark.parametrize("rule", ["adam", "optimum", "adam0", "max-margin", "min-norm"])
def test_a_user_s_encoding_and_task_work_end_to_end(rule: str) -> None:
    found = predict(Logarithm(), Itself(), 20, [30, 60], rule)
    # The target's own basis value is 0, so least squares has nothing to fit: min-norm picks weight 0, all ties.
    assert [row.alpha for row in found.rows] == ([0.0, 0.0] if rule == "min-norm" else [1.0, 1.0])
    assert [row.exists for row in found.rows] == ["yes", "yes"]
    assert found.encoding == "logarithm"
    assert found.horizon == 1_000_000
    assert kernel_is_causal_only(Logarithm())


def kernel_is_causal_only(encoding: RelativeEncoding) -> bool:
    """Transfer asks for no future offset, at which this basis is not defined."""
    grid = encoding.family(20, 30).kernel(torch.tensor([-1.0], dtype=torch.float64)).transfer(30)
    return bool(grid.tril().isfinite().all())


def test_a_user_s_absolute_encoding_fails_where_its_features_repeat() -> None:
    found = predict(Halves(), "prev", 8, [16], horizon=64)
    assert found.rows[0].exists == "no"
    assert found.rows[0].alpha == 0.0
    assert predict(Halves(period=16), "prev", 8, [16], horizon=64).rows[0].exists == "yes"
    assert found.encoding == "halves:period=4"


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (
            lambda offset: torch.full((len(offset), 1), float("nan")),
            "basis of encoding 'mine' is nan at offset 0, column 0",
        ),
        (lambda offset: torch.ones(len(offset), 1, dtype=torch.complex64), "basis of encoding 'mine' is complex"),
        (lambda offset: torch.ones(len(offset)), r"basis of encoding 'mine' has shape \(1,\) for 1 positions"),
        (lambda offset: torch.log(offset.double() - 25)[:, None], "basis of encoding 'mine' is nan"),
    ],
)
def test_a_user_s_broken_encoding_is_named(basis: object, words: str) -> None:
    class Mine(RelativeEncoding):
        name = "mine"

        def basis(self, offset: Tensor) -> Tensor:
            return basis(offset)  # type: ignore[operator, no-any-return]

    with pytest.raises(InputError, match=words):
        quick(Mine(), "prev")


def test_many_tasks_of_one_encoding_are_predicted_in_order() -> None:
    names = ["first", "induction", "prev"]
    found = list(predict_all("rope", names, lengths=[30], horizon=100))
    assert [each.task for each in found] == names
    assert [each.rows[0].alpha for each in found] == [0.8, None, 1.0]


def test_the_screen_lists_every_cell() -> None:
    seen: list[Prediction] = []
    found = screen(["nope", "rope"], ["prev", "first", "induction"], existence=False, horizon=100, progress=seen.append)
    assert found == seen
    assert len(found) == 6
    document = screen_document(found)
    assert document["schema"] == SCREEN_SCHEMA
    assert len(document["rows"]) == 6 * len(LENGTHS)
    first = document["rows"][0]
    assert {"encoding", "task", "length", "alpha", "reach", "exists", "reason", "rule"} <= set(first)
    assert "rows" not in first
    json.dumps(document, allow_nan=False)


def test_the_default_screen_is_five_encodings_by_ten_tasks() -> None:
    found = screen(existence=False, horizon=100)
    assert len(found) == 5 * 10
    assert [row.length for row in found[0].rows] == list(reference.LENGTHS)
    whole = {(each.encoding.partition(":")[0], each.task) for each in found if all(row.alpha == 1 for row in each.rows)}
    assert len([cell for cell in whole if cell[1] in reference.STUDY_TASKS]) == 6


def test_the_default_horizon_lies_beyond_the_training_length() -> None:
    assert quick(Sinusoidal(frequencies=2), "prev", horizon=None).horizon == 4096
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sinusoidal, "reach_horizon", 15)
        assert quick(Sinusoidal(frequencies=2), "prev", horizon=None).horizon == 40
