import pytest

from poskernel.errors import InputError, MissingExtraError, RunError, first_line, lookup


def test_lookup_returns_the_item() -> None:
    assert lookup({"rope": 1}, "rope", "encoding") == 1


@pytest.mark.parametrize(("typo", "near"), [("rpoe", "rope"), ("ROPE", "rope"), ("sinusoid", "sinusoidal")])
def test_a_typo_gets_the_nearest_match(typo: str, near: str) -> None:
    with pytest.raises(InputError, match=f"unknown encoding '{typo}': did you mean '{near}'"):
        lookup({"rope": 1, "sinusoidal": 2, "alibi": 3}, typo, "encoding")


def test_a_name_unlike_any_gets_the_whole_choice() -> None:
    with pytest.raises(InputError, match="choose from rope, alibi"):
        lookup({"rope": 1, "alibi": 2}, "zzzzzz", "encoding")


def test_errors_are_told_apart_and_catchable_as_what_they_are() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(RunError, RuntimeError)
    assert not issubclass(RunError, InputError)


def test_a_missing_extra_names_the_pip_line() -> None:
    error = MissingExtraError("the max-margin rule", "solvers")
    assert isinstance(error, InputError)
    assert "pip install 'poskernel[solvers]'" in str(error)


def test_of_many_names_some_are_listed_and_the_rest_counted() -> None:
    with pytest.raises(InputError) as caught:
        lookup({f"column {number}": number for number in range(452)}, "zzzzzz", "column")
    assert str(caught.value).endswith("column 29 and 422 more.")


def test_the_first_line_of_an_error_says_enough() -> None:
    assert first_line(ValueError("It failed.\nAnd went on.")) == "It failed"
    assert first_line(KeyError()) == "KeyError"
