"""What a check says of itself."""

from poskernel.realizability.theorems import Check, Effort
from poskernel.realizability.theorems.check import SHOWN


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
