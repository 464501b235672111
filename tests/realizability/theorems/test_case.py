"""What the statements ask of a case."""

from dataclasses import dataclass

from own_cases import RISING, Own, answer, case
from own_tasks import ByOffset
from poskernel.encodings import Encoding, Fire, Shaw
from poskernel.realizability.existence import Exists
from poskernel.realizability.theorems.verdicts import SOLVABLE, Verdict
from poskernel.tasks import NO_TARGET


def test_programmes_need_one_linear_family():
    linear = {"rope": True, "learned": True, "dynamic": False, "learned-iid": False, "cope": False, "fire": False}
    assert {name: case(name, "prev").linear for name in linear} == linear


def test_a_family_says_itself_whether_it_is_of_the_offset():
    """Somebody's encoding that returns a family of the offset need not subclass anything, nor set the flag."""

    @dataclass(frozen=True)
    class Bare(Encoding):
        name = "bare"

        def family(self, train_length, length):
            return Shaw().family(train_length, length)

    assert case(Bare(), "prev").relative and not Bare().relative
    assert answer(Bare(), "prev", 200).verdict is answer("shaw", "prev", 200).verdict is Verdict.TRANSFERS
    assert answer(Bare(), "first", 200).theorem == answer("shaw", "first", 200).theorem
    assert case("rope", "prev").relative and case("fire", "prev").relative == Fire().relative
    assert not case("learned", "prev").relative


def test_tails_are_known_by_exact_class():
    assert case("rope", "prev").known_tail and case("learned", "prev").known_tail
    assert not case(RISING["logarithm"], "prev").known_tail


def test_the_training_length_comes_first():
    assert case("rope", "prev").unsolved() is None
    found = case("rope", "reverse").unsolved()
    assert (found.verdict, found.theorem, found.exact) == (Verdict.CANNOT, SOLVABLE, True)
    slow = case("rope:scale=1e-9", "prev").unsolved()
    assert slow.verdict is Verdict.UNDECIDED and "float64 does not resolve it" in slow.reason


def test_rounding_is_no_reason_for_a_no():
    """Three features on a line, none a simple multiple: float64 bounds the margin by rounding and no more."""
    import torch

    sines = Own(lambda offset: torch.stack([(offset / 7).sin(), 0.3 * (offset / 7).sin()], 1))
    found = case(sines, "skip3").unsolved()
    assert found.verdict is Verdict.UNDECIDED and "neither found nor excluded" in found.reason


class Early(ByOffset):
    """No query row in [20, 60)."""

    name = "early"

    def target_key(self, query, length):
        key = super().target_key(query, length)
        return key.masked_fill((query >= 20) & (query < 60), NO_TARGET)


def test_without_a_row_to_score_there_is_no_alpha():
    asked = case("rope", Early(lambda query: 0 * query + 1))
    weights = asked.feature_table(2)[1]
    assert not asked.scores(60) and asked.alpha_of(weights, 60) is None
    assert asked.scores(80) and asked.alpha_of(weights, 80) == 1 and asked.alpha_of(None, 80) is None
    assert asked.exists(60) is Exists.YES
