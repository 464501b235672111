"""What a verb leaves in its folder, whatever it writes itself."""

import hashlib
import json

import pytest

from poskernel.errors import InputError, RunError
from poskernel.storage import write_whole
from poskernel.verbs.saving import saved_with_manifest

LINE = ["poskernel", "verb"]


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_the_manifest_lists_what_this_run_wrote_and_its_configuration(tmp_path):
    write_whole(tmp_path / "older.csv", "x")
    write_whole(tmp_path / "rows.csv", "before")
    with saved_with_manifest(tmp_path, "seed = 3\n", LINE):
        write_whole(tmp_path / "rows.csv", "a,b")
        write_whole(tmp_path / "figures" / "one.svg", "<svg/>")
    about = manifest(tmp_path)
    assert set(about["sha256"]) == {"rows.csv", "figures/one.svg"} and about["config"] == {"seed": 3}
    assert about["sha256"]["rows.csv"] == hashlib.sha256(b"a,b").hexdigest() and about["command"] == LINE
    assert (tmp_path / "config.toml").read_text() == "seed = 3\n" and "result" not in about


def test_a_verb_s_own_manifest_is_kept(tmp_path):
    with saved_with_manifest(tmp_path / "own", "", LINE):
        write_whole(tmp_path / "own" / "manifest.json", json.dumps({"model": "tiny"}))
    assert manifest(tmp_path / "own")["result"] == {"model": "tiny"}
    kept = {"schema": "poskernel.manifest/1", "rows": 7}
    with saved_with_manifest(tmp_path / "kind", "", LINE):
        write_whole(tmp_path / "kind" / "manifest.json", json.dumps(kept))
    assert manifest(tmp_path / "kind") == kept


def test_results_that_say_no_have_a_manifest_too_and_faults_have_none(tmp_path):
    with pytest.raises(RunError), saved_with_manifest(tmp_path / "no", "", LINE):
        write_whole(tmp_path / "no" / "rows.csv", "a")
        raise RunError("it does not hold.")
    assert list(manifest(tmp_path / "no")["sha256"]) == ["rows.csv"]
    for error in (RunError("nothing came of it."), InputError("no such name.")):
        with pytest.raises(type(error)), saved_with_manifest(tmp_path / "fault", "", LINE):
            raise error
    assert not (tmp_path / "fault" / "manifest.json").exists()
    with pytest.raises(InputError, match="a file: give a folder"):
        saved_with_manifest(tmp_path / "no" / "rows.csv", "", LINE).__enter__()


def test_a_refusal_leaves_no_trace(tmp_path):
    deep = tmp_path / "new" / "deeper"
    with pytest.raises(InputError), saved_with_manifest(deep, "seed = 3\n", LINE):
        raise InputError("no such name.")
    assert list(tmp_path.iterdir()) == []
    deep.mkdir(parents=True)
    (deep / "config.toml").write_text("seed = 1\n")
    (deep / "rows.csv").write_text("a")
    with pytest.raises(InputError), saved_with_manifest(deep, "seed = 3\n", LINE):
        raise InputError("no such name.")
    assert sorted(path.name for path in deep.iterdir()) == ["config.toml", "rows.csv"]
    assert (deep / "config.toml").read_text() == "seed = 1\n"


def test_what_a_verb_wrote_before_it_refused_stays(tmp_path):
    with pytest.raises(InputError), saved_with_manifest(tmp_path / "some", "seed = 3\n", LINE):
        write_whole(tmp_path / "some" / "rows.csv", "a")
        raise InputError("no such name.")
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == ["config.toml", "rows.csv"]
