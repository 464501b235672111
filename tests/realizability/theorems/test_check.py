"""What a check says of itself."""

from poskernel.realizability.theorems import Check, Effort
from poskernel.realizability.theorems.check import SHOWN, shown


def test_a_check_is_a_value() -> None:
    check = Check("a", "b", "c", "1", "1", 3, True)
    assert check == Check("a", "b", "c", "1", "1", 3, True, note="")
    assert Effort("long") is Effort.LONG


def test_what_is_unclear_is_neither_yes_nor_no() -> None:
    assert [SHOWN[Check("a", "b", "c", "1", "1", 3, holds).holds] for holds in (True, False, None)] == [
        "yes",
        "NO",
        "unclear",
    ]


def test_a_search_is_data_and_a_departure_says_both() -> None:
    assert shown(None, data=True) == "data" and shown(None) == "unclear"
    assert shown(True, departs=True) == "yes: source's form fails, ours holds"
    assert shown(False, departs=True) == "NO" and shown(None, departs=True) == "unclear"


def test_a_sample_size_has_its_unit() -> None:
    check = Check("a", "b", "c", "1", "1", 560_000, True, unit="rows")
    assert check.size == "560,000 rows" and Check("a", "b", "c", "1", "1", 3, True).size == "3"
