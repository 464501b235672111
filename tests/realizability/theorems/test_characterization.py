"""characterize: the verdict, what stands beside it, and what cannot be asked."""

import json
from dataclasses import dataclass

import pytest
import torch

from own_cases import Own
from own_tasks import ByOffset, is_square, usual_except
from poskernel.encodings import RelativeEncoding, Rope
from poskernel.errors import InputError
from poskernel.realizability.theorems.characterization import characterize, check_question, in_words
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
    assert lines[0].endswith("on copy, trained at 20: cannot (theorem 2, proved)") and len(lines) == 9
    assert lines[1].startswith("  why: no offset settles") and lines[7].startswith("  exists for 20 and 60: yes: ")
    assert lines[4:6] == ["  margin of a kernel: no such kernel", "  its alpha at 60: no such kernel"]
    assert lines[8].startswith("  its checks: poskernel theory theorem-2-deep-rows")


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


def test_why_existence_was_not_asked_is_said():
    for encoding, task, words in (
        ("cope", "prev", "gates that depend on the tokens"),
        ("rope", "induction", "the targets depend on the tokens"),
        ("fire", "prev", "no one family that is linear"),
    ):
        found = characterize(encoding, task, horizon=1000)
        assert found.exists is None and words in found.exists_scope
        assert "exists for 20 and 60: not asked: " in str(found)
    late = characterize("rope", Late(lambda query: 0 * query + 1), horizon=20_000)
    assert late.exists is None and "verdict rests on" in late.exists_scope


def test_what_cannot_be_solved_at_one_length_is_not_at_two():
    found = characterize("rope", "reverse", horizon=1000)
    assert (found.exists, found.exists_scope) == ("no", "none solves 20 alone")


def test_a_scope_speaks_of_a_figure_only_if_there_is_one():
    for encoding, task in (("cope", "prev"), ("rope", "induction")):
        found = characterize(encoding, task, horizon=1000)
        assert found.verdict == "undecided" and "figure" not in found.scope
    assert "the figure beside" in characterize("dynamic", "prev", horizon=1000).scope


def test_features_that_differ_from_call_to_call_are_refused():
    with pytest.raises(InputError, match="basis of encoding 'own' differ from one call to the next"):
        characterize(Own(lambda offset: torch.randn(len(offset), 3)), "prev", horizon=1000)
    with pytest.raises(InputError, match="differ from one call"):  # also where the first ones are the same
        characterize(Own(lambda offset: (offset * torch.rand(len(offset)))[:, None]), "prev", horizon=1000)


def test_a_basis_that_overflows_names_the_offset_and_a_horizon_that_serves():
    own = Own(lambda offset: torch.stack([offset.exp(), offset], 1))
    with pytest.raises(InputError, match=r"at offset 710, column 0: .*horizon=700\)"):
        characterize(own, "first", horizon=10_000)
    assert characterize(own, "first", horizon=700).verdict in ("transfers", "undecided")


def test_a_margin_that_is_tiny_beside_its_logits_is_said():
    tiny = characterize("rope:scale=1e-3", "prev", horizon=1000)
    assert tiny.margin < 1e-6 and "is tiny beside its logits" in tiny.reason
    assert "tiny" not in characterize("rope", "prev", horizon=1000).reason


def test_a_kernel_without_a_peak_is_named_as_such():
    found = characterize(Own(lambda offset: torch.log1p(offset)[:, None]), "first", horizon=10_000)
    assert (found.verdict, found.theorem) == ("transfers", "no global peak")
    assert found.page.endswith("#theorem-2-no-global-peak") and found.claims == ("theorem-2-no-global-peak",)


class FirstLike(ByOffset):
    """Key 0, of which no formula is known."""

    name = "first-like"


def test_no_offset_is_named_that_hardly_any_row_asks_for():
    found = characterize("rope", FirstLike(lambda query: query), horizon=10_000)
    assert "none is asked of more than 0.01% of the scored rows" in found.reason and "than 20" not in found.reason
    assert "right on under 0.1% of the rows" in found.reason


def test_a_training_length_that_is_too_short_names_its_flag():
    with pytest.raises(InputError, match=r"'skip30' has no query row at training length 20: .*--train-length"):
        characterize("rope", "skip:offset=30")


def test_lines_say_what_is_missing():
    document = characterize("rope", "copy", horizon=1000).document()
    title, lines = in_words(document | {"margin": 0.5, "exists": None, "exists_scope": "because", "claims": ()})
    assert title.endswith("cannot (theorem 2, proved)") and lines["its alpha at 60"].startswith("not shown")
    assert lines["exists for 20 and 60"] == "not asked: because" and lines["its checks"].startswith("none")
