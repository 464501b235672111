"""What a check says of itself."""

from poskernel.realizability.theorems import Check, Effort


def test_a_check_is_a_value() -> None:
    check = Check("a", "b", "c", "1", "1", 3, True)
    assert check == Check("a", "b", "c", "1", "1", 3, True, note="")
    assert Effort("long") is Effort.LONG
