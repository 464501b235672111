"""An experiment's rows, verdict and configuration, on a made-up one whose truth is known."""

import dataclasses
import math

import pandas as pd
import pytest

from made_up_experiment import EXPERIMENT, MadeUpCell, MadeUpUnit, table
from poskernel.errors import InputError
from poskernel.experiments.experiment import by_seed, overall
from poskernel.experiments.judging import Outcome
from poskernel.study import Status, Store, run, status
from poskernel.study.planning import plan


def test_rows_carry_what_their_cells_set_and_no_other_cells() -> None:
    rows = EXPERIMENT.rows(table())
    assert set(rows["condition"]) == {"right", "wrong"} and len(rows) == 8 and EXPERIMENT.missing(rows) == 0
    foreign = pd.concat([table(), table().assign(cell="another")], ignore_index=True)
    pd.testing.assert_frame_equal(EXPERIMENT.rows(foreign), rows)
    fewer = EXPERIMENT.rows(table().iloc[:-3])
    assert len(fewer) == 5 and EXPERIMENT.missing(fewer) == 3
    with pytest.raises(InputError, match="poskernel experiment run made-up"):
        EXPERIMENT.rows(table().assign(cell="another"))
    with pytest.raises(InputError, match="poskernel experiment run made-up --quick makes them"):
        EXPERIMENT.quick.rows(table())


def test_the_verdict_follows_the_rows_either_way() -> None:
    held = EXPERIMENT.verdict(EXPERIMENT.rows(table()))
    assert held.outcome is Outcome.HELD and held.judgements["higher"].outcome is Outcome.HELD
    assert held.sentence.startswith("held, because higher: held (")
    # The broken hypothesis: the two conditions do not differ as predicted.
    turned = EXPERIMENT.verdict(EXPERIMENT.rows(table(right=0.1, wrong=0.9)))
    assert turned.outcome is Outcome.FAILED
    level = EXPERIMENT.verdict(EXPERIMENT.rows(table(right=0.5, wrong=0.5, spread=0.2)))
    assert level.outcome is Outcome.INCONCLUSIVE


def test_what_does_not_decide_leaves_the_verdict_alone() -> None:
    verdict = EXPERIMENT.verdict(EXPERIMENT.rows(table(right=0.9, wrong=0.4)))
    assert verdict.judgements["low"].outcome is Outcome.FAILED and verdict.outcome is Outcome.HELD


def test_a_failed_model_is_not_passed_over() -> None:
    broken = table()
    broken.loc[broken.index[0], "value"] = math.nan
    verdict = EXPERIMENT.verdict(EXPERIMENT.rows(broken))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    gone = EXPERIMENT.verdict(EXPERIMENT.rows(table().iloc[1:]))
    assert gone.outcome is Outcome.INCONCLUSIVE


def test_one_number_a_seed_and_none_where_one_is_missing() -> None:
    rows = pd.DataFrame({
        "metric": ["a", "a", "a", "a", "b"], "kind": ["x", "y", "x", "y", "x"], "seed": [0, 0, 1, 1, 0],
        "value": [1.0, 3.0, 2.0, math.nan, 9.0],
    })  # fmt: skip
    assert by_seed(rows, "a", lambda v: v.mean(), kind="x").tolist() == [1.0, 2.0]
    both = by_seed(rows, "a", lambda v: v.mean(), kind=("x", "y"))
    assert both[0] == 2.0 and math.isnan(both[1])
    assert math.isnan(by_seed(rows.iloc[:3], "a", lambda v: v.mean(), kind=("x", "y"))[1])
    assert by_seed(rows, "c", lambda v: v.mean()).empty


def test_all_must_hold_and_one_failure_is_enough() -> None:
    held, failed, open_ = Outcome.HELD, Outcome.FAILED, Outcome.INCONCLUSIVE
    assert overall([held, held]) is held
    assert overall([held, open_, failed]) is failed and overall([held, open_]) is open_


def test_the_configuration_holds_every_line_that_was_written_before() -> None:
    config = EXPERIMENT.config
    assert [each["name"] for each in config["predictions"]] == ["higher", "low"]
    assert {"threshold", "side", "informed", "expected", "falsified_by"} <= set(config["predictions"][0])
    assert EXPERIMENT.quick.config["scale"] == "quick" and config["scale"] == "full"


def test_predictions_have_names_of_their_own_and_one_decides() -> None:
    first, second = EXPERIMENT.predictions
    with pytest.raises(InputError, match="predicts 'higher' twice"):
        dataclasses.replace(EXPERIMENT, predictions=(first, first))
    with pytest.raises(InputError, match="nothing decides experiment 'made-up'"):
        dataclasses.replace(EXPERIMENT, predictions=(second,))


def test_it_is_planned_run_and_counted_as_a_study_is(tmp_path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        assert len(plan(EXPERIMENT, store)) == 4
        units = EXPERIMENT.units()
        assert run(EXPERIMENT, store, executor=InThisProcess()).done == 4
        assert plan(EXPERIMENT, store) == []
        counts = status(EXPERIMENT, store)
        assert counts[["kind", "wanted", "done"]].to_numpy().tolist() == [["measuring", 8, 8]]
        rows = EXPERIMENT.rows(store.to_frame(units))
        assert EXPERIMENT.verdict(rows) == EXPERIMENT.verdict(EXPERIMENT.rows(store.to_frame(units)))
        assert [each.unit for each in plan(EXPERIMENT.quick, store)] == EXPERIMENT.quick.units()


def test_a_number_that_is_undefined_has_its_reason() -> None:
    unit = MadeUpUnit(MadeUpCell("undefined"), 0)
    (first, second) = unit.run()
    assert (first.value, first.status, first.reason) == (None, Status.DONE, "there is no such thing")
    assert second.value == 0.0


class InThisProcess:
    """The least an executor has to do."""

    def __new__(cls):
        from concurrent.futures import Executor, Future

        class Here(Executor):
            def submit(self, function, /, *args, **kwargs):
                future = Future()
                future.set_result(function(*args, **kwargs))
                return future

        return Here()
