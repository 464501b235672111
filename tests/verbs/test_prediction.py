"""predict and screen as a user sees them."""

import json

from poskernel import cli
from poskernel.encodings import ENCODINGS

PREDICT_FIELDS = {
    "schema", "encoding", "task", "train_length", "rule", "train_margin", "realized", "reach", "horizon", "rows",
}  # fmt: skip
ROW_FIELDS = {"length", "scored", "alpha", "margin", "certified", "exists", "reason"}


def document(capsys, *arguments):
    assert cli.main([*arguments, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def test_predict_has_the_documented_fields(capsys):
    found = document(capsys, "predict", "rope", "first", "--train-length", "20", "--lengths", "30,40,60,128,256,512")
    assert set(found) == PREDICT_FIELDS
    assert all(set(row) == ROW_FIELDS for row in found["rows"])
    assert [round(row["alpha"], 3) for row in found["rows"]] == [0.8, 0.4, 0.2, 0.12, 0.055, 0.039]
    assert found["reach"] == 28 and found["horizon"] == 1_000_000 and found["realized"] is True


def test_undefined_is_null_with_a_reason(capsys):
    found = document(capsys, "predict", "rope", "induction")
    assert all(row["alpha"] is None and "tokens" in row["reason"] for row in found["rows"])
    infeasible = document(capsys, "predict", "alibi", "prev", "--rule", "max-margin", "--lengths", "30")
    assert infeasible["reach"] is None and infeasible["horizon"] is None
    assert infeasible["realized"] is None and "no kernel" in infeasible["rows"][0]["reason"]


def test_tables_say_it_in_words(capsys):
    assert cli.main(["predict", "alibi", "copy", "--lengths", "40", "--no-existence"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "will not generalize: the target's offset grows" in out


def test_screen_rows_are_one_a_length_with_the_same_fields(capsys):
    arguments = ["--encodings", "rope,nope", "--tasks", "prev,induction", "--lengths", "30,60", "--no-existence"]
    found = document(capsys, "screen", *arguments)
    assert len(found["rows"]) == 8
    assert set(found["rows"][0]) == (PREDICT_FIELDS | ROW_FIELDS) - {"schema", "rows"}
    assert [row["alpha"] for row in found["rows"] if row["encoding"] == "nope" and row["task"] == "prev"] == [0, 0]
    assert cli.main(["screen", *arguments, "-q"]) == 0
    assert "will not generalize" in capsys.readouterr().out.replace("\n", " ")


def test_inline_json_in_the_form_of_a_hugging_face_config(capsys):
    config = '{"rope_theta": 500000, "head_dim": 32, "rope_scaling": {"type": "linear", "factor": 2}}'
    found = document(capsys, "predict", config, "prev", "--lengths", "30", "--no-existence")
    assert found["encoding"] == "linear:factor=2.0,base=500000.0,frequencies=16"


def test_a_test_encoding_evaluates_the_fit_elsewhere(capsys):
    found = document(
        capsys, "predict", "rope", "prev", "--test-encoding", "yarn:factor=4,original=20", "--lengths", "30,80"
    )
    assert " at yarn:factor=4.0,original=20" in found["encoding"]
    assert [row["alpha"] for row in found["rows"]] == [1, 1]
    assert not any(row["certified"] for row in found["rows"])
    lost = document(capsys, "predict", "rope", "prev", "--test-encoding", "linear", "--lengths", "30", "--no-existence")
    assert [row["alpha"] for row in lost["rows"]] == [0]
    assert cli.main(["predict", "rope", "prev", "--test-encoding", "alibi"]) == 2
    assert "means alibi by its weights" in capsys.readouterr().err


def test_screen_takes_a_test_encoding_and_says_so_in_every_line(capsys):
    arguments = ["screen", "--encodings", "rope,rope:scale=0.5", "--tasks", "copy", "--lengths", "40", "--no-existence"]
    found = document(capsys, *arguments, "--test-encoding", "ntk:factor=4")
    assert len(found["rows"]) == 2
    assert all(" at ntk:factor=4.0" in row["encoding"] for row in found["rows"])
    assert cli.main([*arguments, "--test-encoding", "ntk:factor=4", "-q"]) == 0
    out = capsys.readouterr().out
    assert "rope at ntk:factor=4" in out
    assert "rope:scale=0.5 at ntk:factor=4" in out


def test_screen_of_all_encodings_lists_every_registered_one(capsys):
    arguments = ["screen", "--encodings", "all", "--tasks", "copy,induction", "--lengths", "40", "--no-existence"]
    found = document(capsys, *arguments)
    assert [row["encoding"].partition(":")[0] for row in found["rows"]] == [name for name in ENCODINGS for _ in "12"]
    undefined = {row["encoding"] for row in found["rows"] if row["task"] == "copy" and row["alpha"] is None}
    assert undefined == {"cope"}
    drawn = {row["encoding"].partition(":")[0] for row in found["rows"] if "mean of 32 draws" in row["reason"]}
    assert drawn == {"randomized", "learned-iid"}


def test_what_is_drawn_has_no_reach(capsys):
    assert cli.main(["predict", "learned-iid", "prev", "--lengths", "30"]) == 0
    assert "no reach: every draw is another kernel" in capsys.readouterr().out.replace("\n", " ")
