"""What study and experiment share on the command line."""

import dataclasses
import json

import pytest

from made_up_experiment import EXPERIMENT
from poskernel.errors import InputError, RunError
from poskernel.experiments.experiment import Experiment
from poskernel.session import Session
from poskernel.verbs.running import Running, export_rows, print_plan, print_status, run_units, weights_folder


@pytest.fixture
def session(tmp_path) -> Session:
    return Session(json=True, quiet=True, store=tmp_path / "store.sqlite")


def said(capsys):
    return json.loads(capsys.readouterr().out)["rows"]


def test_from_plan_to_export(session: Session, capsys, tmp_path) -> None:
    print_plan(EXPERIMENT, "experiment 'made-up'", Running(shard="1/2"), None, session)
    assert len(said(capsys)) == 2 and not session.store.exists()
    run_units(EXPERIMENT, "experiment", Running(workers=1), None, dataclasses.replace(session, out=tmp_path / "kept"))
    assert said(capsys) == [
        {"experiment": "made-up", "store": str(session.store), "done": 4, "skipped": 0, "failed": 0}
    ]
    assert json.loads((tmp_path / "kept" / "manifest.json").read_text())["config"] == EXPERIMENT.config
    print_status(EXPERIMENT, session)
    assert [row["missing"] for row in said(capsys)] == [0]
    export_rows(EXPERIMENT, "csv", None, session)
    assert len(said(capsys)) == 8


def test_a_run_in_which_all_failed_says_so(session: Session, monkeypatch) -> None:
    from made_up_experiment import MadeUpCell, MadeUpUnit

    nothing = dataclasses.replace(EXPERIMENT, build=lambda scale: [MadeUpUnit(MadeUpCell("unheard of"), 0)])
    assert isinstance(nothing, Experiment)
    with pytest.raises(RunError, match="all 1 units of experiment 'made-up' failed"):
        run_units(nothing, "experiment", Running(workers=1), None, session)


def test_weights_lie_beside_the_store(session: Session, tmp_path) -> None:
    assert weights_folder(session, True) == tmp_path / "weights" and weights_folder(session, False) is None


def test_limits_are_checked(session: Session) -> None:
    with pytest.raises(InputError, match="0 attempts"):
        run_units(EXPERIMENT, "experiment", Running(attempts=0), None, session)
