"""Committed rows come into a store by either verb; what differs is shown, all of it, and is a failure."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from poskernel import cli
from poskernel.errors import RunError
from poskernel.session import Session
from poskernel.verbs.merging import FIRST_CONFLICTS, print_merged

QUICK = Path(__file__).parents[2] / "results" / "quick"


@pytest.mark.parametrize("verb", ["study", "experiment"])
def test_committed_rows_come_in_once(verb, tmp_path, capsys):
    line = [verb, "import", str(QUICK), "--store", str(tmp_path / "store.sqlite"), "--json", "-q"]
    documents = []
    for _ in range(2):
        assert cli.main(line) == 0
        documents.append(json.loads(capsys.readouterr().out))
    (first,), (again,) = (document["rows"] for document in documents)
    assert {document["schema"] for document in documents} == {"poskernel.import/1"}
    assert first["rows"] == first["new"] == again["same"] > 0 and again["new"] == 0 and again["conflicts"] == []


def test_a_table_shows_the_first_conflicts_and_the_document_all(capsys):
    report = SimpleNamespace(conflicts=[SimpleNamespace(row={"metric": f"m{n}"}) for n in range(FIRST_CONFLICTS + 5)])
    with pytest.raises(RunError, match=f"{FIRST_CONFLICTS + 5} measurements ended differently"):
        print_merged([{"merged": "other"}], [report], "poskernel.merge/1", Session(json=True))
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert len(row["conflicts"]) == FIRST_CONFLICTS + 5
    with pytest.raises(RunError):
        print_merged([{"merged": "other"}], [report], "poskernel.merge/1", Session())
    shown = capsys.readouterr().out
    assert f"m{FIRST_CONFLICTS - 1}" in shown and f"m{FIRST_CONFLICTS}" not in shown
