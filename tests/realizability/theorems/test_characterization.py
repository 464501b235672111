"""characterize: the verdict, what stands beside it, and what cannot be asked."""

import json
from dataclasses import dataclass

import pytest

from own_tasks import ByOffset, is_square, usual_except
from poskernel.encodings import RelativeEncoding, Rope
from poskernel.errors import InputError
from poskernel.realizability.theorems.characterization import characterize, check_question
from poskernel.realizability.theorems.table import claims
from poskernel.realizability.theorems.verdicts import CLAIMS, PAGES
from poskernel.tasks import NO_TARGET, OffsetRegime, Skip, Task


def test_existence_and_selection_stand_side_by_side():
    found = characterize("sinusoidal", "prev", horizon=1000)
    assert (found.verdict, found.demanded, found.demanded_share) == ("transfers", 1, 1.0)
    assert found.kernel_alpha == 1 and found.selected_alpha == pytest.approx(0.45) and found.length == 60
    assert "selects" in found.scope and found.exists == "yes"
    assert found.claims == tuple(name for name in claims() if name.startswith("proposition-3")) != ()


def test_a_characterization_prints_as_sentences():
    lines = str(characterize("rope", "copy", horizon=1000)).splitlines()
    assert lines[0].endswith("on copy, trained at 20: cannot (theorem 2, proved)") and len(lines) == 4
    assert lines[1].startswith("  why: no offset settles") and "exists: yes" in lines[3] and "none of that" in lines[3]


def test_every_statement_names_claims_there_are():
    assert all(any(name.startswith(begin) for name in claims()) for begin in CLAIMS.values())
    assert set(CLAIMS) < set(PAGES)


@dataclass(frozen=True)
class Nameless(Task):
    """A task whose name is no text."""

    regime = OffsetRegime.FIXED_RELATIVE
    name = None

    def target_key(self, query, length):
        return query - 1


class NamelessRope(RelativeEncoding):
    """An encoding without a name."""

    def basis(self, offset):
        return offset.double()[:, None]


def test_what_has_no_name_is_told_so():
    with pytest.raises(InputError, match="Nameless has no name: give the class a line such as"):
        characterize("rope", Nameless())
    with pytest.raises(InputError, match="NamelessRope has no name"):
        characterize(NamelessRope(), "prev")


def test_impossible_in_the_limit_is_not_impossible_at_a_length():
    found = characterize("rope", "copy", horizon=1000)
    assert (found.verdict, found.theorem, found.exact, found.exists) == ("cannot", "theorem 2", True, "yes")
    assert found.demanded is None and found.margin is None
    assert "every kernel" in found.scope and "single length" in found.scope


def test_a_rule_and_a_training_length_of_ones_own():
    found = characterize("sinusoidal", "prev", 10, 1000, "optimum")
    assert (found.train_length, found.length, found.rule) == (10, 30, "optimum")


def test_a_task_of_ones_own():
    found = characterize("rope", usual_except(lambda query: is_square(query) & (query > 20)), horizon=20_000)
    assert found.verdict == "transfers" and not found.exact and 0.99 < found.demanded_share < 1
    assert "20000" in found.reason


def test_content_tasks_have_no_figures():
    found = characterize("rope", "induction", horizon=1000)
    assert found.verdict == "undecided" and found.selected_alpha is None and found.kernel_alpha is None


def test_the_document_is_plain_json():
    document = json.loads(json.dumps(characterize("nope", "prev", horizon=1000).document(), allow_nan=False))
    assert document["schema"] == "poskernel.characterize/1" and document["verdict"] == "cannot"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rop", "prev"), "did you mean 'rope'"),
        (("rope", "perv"), "did you mean 'prev'"),
        (("rope", "prev", 20, 50), "horizon is 50"),
        (("rope", "prev", 1), "train_length is 1"),
    ],
)
def test_what_cannot_be_asked(arguments, words):
    with pytest.raises(InputError, match=words):
        characterize(*arguments)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"encoding": Rope}, "the class Rope: give an instance"),
        ({"encoding": None}, "the encoding is None"),
        ({"task": Skip}, "the class Skip"),
        ({"task": 3}, "the task is 3: give an instance or a name, like .*; one of your own subclasses Task"),
        ({"train_length": 7.5}, "train_length is 7.5"),
        ({"train_length": True}, "train_length is True"),
        ({"horizon": 1e5}, "horizon is 100000.0"),
        ({"existence_seconds": -1.0}, "time limit of existence is -1"),
        ({"existence_seconds": float("nan")}, "time limit of existence is nan"),
        ({"existence_seconds": "60"}, "existence_seconds is '60'"),
    ],
)
def test_what_is_no_question(changed, words):
    given = {
        "encoding": Rope(),
        "task": Skip(1),
        "train_length": 20,
        "horizon": 1000,
        "existence_seconds": 1.0,
    } | changed
    with pytest.raises(InputError, match=words):
        check_question(*given.values())
    if isinstance(given["existence_seconds"], float) and changed.keys() == {"existence_seconds"}:
        with pytest.raises(InputError, match=words):  # and it is asked before any work
            characterize("rope", "prev", existence_seconds=given["existence_seconds"])


def test_the_page_is_that_of_the_statement():
    assert characterize("rope", "copy", horizon=1000).page == "docs/theory.md#theorem-2"


class Late(ByOffset):
    """Rows ask below 20 and from `first` on."""

    name = "late"
    first = 60

    def target_key(self, query, length):
        return super().target_key(query, length).masked_fill((query >= 20) & (query < self.first), NO_TARGET)


class Never(Late):
    """No row below 300 asks."""

    name = "never"

    def target_key(self, query, length):
        return super().target_key(query, length).masked_fill(query < 300, NO_TARGET)


def test_a_verdict_needs_no_row_at_three_times_the_training_length():
    for encoding, verdict in (("rope", "transfers"), ("alibi", "cannot"), ("learned", "cannot")):
        found = characterize(encoding, Late(lambda query: 0 * query + 1), horizon=20_000)
        assert found.verdict == verdict
        assert (found.selected_alpha, found.kernel_alpha) == (None, None)


def test_a_task_that_asks_nothing_at_the_training_length_is_refused():
    with pytest.raises(InputError, match="'never' has no query row at training length 20"):
        characterize("rope", Never(lambda query: 0 * query + 1), horizon=20_000)


def test_drawn_rows_are_not_called_changing_ones():
    found = characterize("learned-iid", "prev", horizon=1000)
    assert found.theorem == "proposition 2" and "drawn at random" in found.reason
    assert "drawn at random" in characterize("randomized", "prev", horizon=1000).reason
    assert "changes with it" in characterize("dynamic", "prev", horizon=1000).reason
