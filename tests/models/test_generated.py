"""Generated data against slow and obvious readings of it."""

import pytest
import torch

from poskernel.errors import InputError
from poskernel.models.generated import Convolution, Dyck, Reordering
from poskernel.random_streams import random_stream


def closing_of(tokens: list[int], kinds: int, deepest: int) -> list[tuple[int, int]]:
    """Reads brackets with a stack: (place, kind) of every closing bracket; an assertion fails on a wrong word."""
    stack: list[int] = []
    closed = []
    for place, token in enumerate(tokens):
        if 1 <= token <= kinds:
            stack.append(token - 1)
            assert len(stack) <= deepest
        elif token > kinds:
            assert stack.pop() == token - 1 - kinds
            closed.append((place, token - 1 - kinds))
    return closed


@pytest.mark.parametrize(("kinds", "deepest"), [(2, 6), (1, 1), (3, 2)])
def test_brackets_are_well_formed_and_closing_ones_are_scored(kinds: int, deepest: int) -> None:
    drawn = Dyck(kinds, deepest).draw(random_stream(0, "x"), 40, 61)
    assert int(drawn.tokens.max()) < Dyck(kinds, deepest).vocabulary
    for tokens, scored in zip(drawn.tokens.tolist(), drawn.scored.tolist(), strict=True):
        assert tokens[0] == 0
        closed = closing_of(tokens, kinds, deepest)
        assert [place for place, score in enumerate(scored) if score] == [place for place, _ in closed]
    closing = drawn.tokens[drawn.scored]
    counts = torch.bincount(closing - 1 - kinds, minlength=kinds) / len(closing)
    assert counts.tolist() == pytest.approx([1 / kinds] * kinds, abs=0.1)


def test_a_bracket_that_does_not_match_is_noticed() -> None:
    with pytest.raises(AssertionError):
        closing_of([0, 1, 4], 2, 6)


def test_blocks_come_back_in_the_other_order() -> None:
    task = Reordering(order=(2, 0, 1), symbols=5)
    drawn = task.draw(random_stream(0, "x"), 3, 21)
    for tokens, scored in zip(drawn.tokens.tolist(), drawn.scored.tolist(), strict=True):
        assert tokens[0] == 0 and tokens[4] == 1 and tokens[8] == 2 and tokens[12] == 1
        for start in (1, 9):
            block = tokens[start : start + 3]
            assert all(3 <= token < task.vocabulary for token in block)
            assert tokens[start + 4 : start + 7] == [block[2], block[0], block[1]]
        assert [place for place, score in enumerate(scored) if score] == [5, 6, 7, 13, 14, 15]


def test_a_convolution_is_the_sum_it_says() -> None:
    task = Convolution((0.5, 0.2, 0.0, 0.3))
    x, y = task.draw(random_stream(0, "x"), 2, 9)
    for row in range(2):
        for t in range(9):
            total = sum(w * float(x[row, t - d]) for d, w in enumerate(task.weights) if t >= d)
            assert float(y[row, t]) == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize("task", [Dyck(), Reordering(), Convolution((0.5, 0.5))], ids=lambda task: task.name)
def test_data_follow_from_the_stream_alone(task) -> None:
    first, again, other = (task.draw(random_stream(seed, "data"), 4, 20) for seed in (1, 1, 2))
    one, same, different = ((f.tokens if hasattr(f, "tokens") else f[0]) for f in (first, again, other))
    assert torch.equal(one, same) and not torch.equal(one, different)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Dyck(kinds=0), "brackets of 0 kinds"),
        (lambda: Reordering(order=(0, 2)), r"order \(0, 2\) is no permutation"),
        (lambda: Reordering(symbols=0), "0 symbols"),
        (lambda: Convolution((0.5, 0.6)), "no row of attention"),
        (lambda: Convolution((1.5, -0.5)), "no row of attention"),
    ],
)
def test_tasks_that_cannot_be(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()
