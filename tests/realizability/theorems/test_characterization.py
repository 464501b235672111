"""characterize: the verdict, what stands beside it, and what cannot be asked."""

import json

import pytest

from own_tasks import is_square, usual_except
from poskernel.errors import InputError
from poskernel.realizability.theorems.characterization import characterize


def test_existence_and_selection_stand_side_by_side():
    found = characterize("sinusoidal", "prev", horizon=1000)
    assert (found.verdict, found.demanded, found.demanded_share) == ("transfers", 1, 1.0)
    assert found.kernel_alpha == 1 and found.selected_alpha == pytest.approx(0.45) and found.length == 60
    assert "selects" in found.scope and found.exists is None


def test_impossible_in_the_limit_is_not_impossible_at_a_length():
    found = characterize("rope", "copy", horizon=1000)
    assert (found.verdict, found.theorem, found.exact, found.exists) == ("cannot", "theorem 2", True, "yes")
    assert found.demanded is None and found.margin is None and "strict global peak" in found.scope


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
