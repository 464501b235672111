"""doctor: what is missing comes with its remedy."""

import sqlite3

from poskernel import installation


def test_what_is_installed_is_fine_and_what_is_not_has_a_remedy(tmp_path):
    rows = {row["what"]: row for row in installation.examine(tmp_path / "results.sqlite")}
    assert rows["torch"]["fine"] and rows["cache folder"]["fine"] and rows["store"]["found"].endswith("not there yet")
    absent = installation.package("no-such-distribution", "pip install it")
    assert absent == {
        "what": "no-such-distribution",
        "fine": False,
        "found": "not installed",
        "remedy": "pip install it",
    }


def test_a_store_that_is_none_is_named(tmp_path):
    (tmp_path / "notes.sqlite").write_text("notes")
    assert "notes.sqlite" in installation.store_row(tmp_path / "notes.sqlite")["remedy"]
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    assert not installation.store_row(other)["fine"]


def test_a_file_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    assert not installation.writable("cache", tmp_path / "taken" / "deeper")["fine"]
