"""Time left and what is shown where."""

import sys

import pytest

from poskernel.study.progress import Bar, PlainLines, Silent, Standing, clock_text, progress_for


def standing(finished: int, cost: float, seconds: float, failed: int = 0) -> Standing:
    return Standing(units=10, finished=finished, failed=failed, cost=20.0, finished_cost=cost, seconds=seconds)


def test_time_left_goes_by_cost_of_what_this_run_did() -> None:
    assert standing(0, 0.0, 5.0).left is None
    assert standing(5, 5.0, 60.0).left == pytest.approx(180.0)
    assert standing(10, 20.0, 60.0).left == 0.0


def test_the_sentence_names_failures_only_if_there_are_any() -> None:
    assert standing(0, 0.0, 5.0).sentence == "0 of 10 units"
    assert standing(5, 5.0, 60.0).sentence == "5 of 10 units, 3:00 left"
    assert standing(5, 5.0, 60.0, failed=2).sentence == "5 of 10 units, 2 failed, 3:00 left"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (151.0, "2:31"), (3751.0, "1:02:31")])
def test_clock_texts(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_plain_lines_come_now_and_then_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = PlainLines(clock=lambda: now[0])
    for finished, moment in ((1, 0.0), (2, 4.0), (3, 9.9), (4, 10.1), (5, 12.0), (10, 13.0)):
        now[0] = moment
        lines.show(standing(finished, float(finished), moment), f"unit {finished}")
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.err.splitlines()] == ["1", "4", "10"]
    assert shown.err.splitlines()[-1].endswith("(last: unit 10)")
    assert shown.out == ""


def test_what_is_told_comes_at_once_and_stays(capsys: pytest.CaptureFixture[str]) -> None:
    for display in (PlainLines(), Bar(), Silent()):
        with display:
            display.tell("a [unit] failed: the loss is nan")
    shown = capsys.readouterr()
    assert shown.err.count("a [unit] failed: the loss is nan\n") == 2 and shown.out == ""


def test_the_display_fits_the_stream(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(progress_for(quiet=True), Silent)
    assert isinstance(progress_for(), PlainLines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = progress_for()
    assert isinstance(bar, Bar)
    with bar:
        bar.show(standing(5, 5.0, 60.0), "a unit")
    assert capsys.readouterr().out == ""  # standard output is for results
