"""Training against a plain loop, its random streams, evaluation by loops, failures and checkpoints."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cells import TRAINED_NAMES
from poskernel.encodings import ENCODINGS, Randomized
from poskernel.errors import InputError, RunError
from poskernel.models.training import (
    QueryRows,
    Recipe,
    evaluate,
    initial_model,
    load_checkpoint,
    random_stream,
    save_checkpoint,
    shortest_length,
    token_accuracy,
    train,
    training_batches,
    training_steps,
    under,
)
from poskernel.models.transformer import Architecture, Transformer
from poskernel.tasks import IGNORED_LABEL, TASKS, Skip, Task

SMALL = Architecture(width=16, train_length=8)
SHORT = Recipe(steps=12, batch=8, evaluation_sequences=40)


def plain_losses(encoding: str, task: Task, recipe: Recipe) -> list[float]:
    """The recipe by the book: every row computed, labels ignored where not scored, one tensor at a time."""
    model = initial_model(SMALL, ENCODINGS[encoding], 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    losses = []
    for tokens in training_batches(SMALL, recipe, 5):
        logits = model(tokens)
        rows = [
            nn.functional.cross_entropy(logits[b, i], label)
            for b, labels in enumerate(task.labels(tokens))
            for i, label in enumerate(labels)
            if label != IGNORED_LABEL
        ]
        loss = torch.stack(rows).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("encoding", TRAINED_NAMES)
@pytest.mark.parametrize("task", ["prev", "copy", "induction"])
def test_training_equals_the_plain_loop(encoding: str, task: str) -> None:
    recipe = Recipe(steps=8, batch=8, learning_rate=1e-2)
    expected = plain_losses(encoding, TASKS[task], recipe)
    model = initial_model(SMALL, ENCODINGS[encoding], 5)
    assert list(training_steps(model, TASKS[task], recipe, 5)) == pytest.approx(expected, rel=2e-4)


def test_a_model_is_the_same_every_time_and_another_with_another_seed() -> None:
    first, again, other = (train(SMALL, ENCODINGS["rope"], TASKS["prev"], SHORT, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.history, again.history)
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
    assert first.train_accuracy == again.train_accuracy
    assert not torch.equal(first.history, other.history)


def test_randomized_positions_follow_from_the_seed_alone() -> None:
    """Training twice is the same; what is measured at a length does not depend on the lengths measured before."""
    encoding, task = Randomized("alibi", positions=40), TASKS["prev"]
    first, again = (train(SMALL, encoding, task, SHORT, seed=1) for _ in range(2))
    assert torch.equal(first.history, again.history)
    model = first.model
    alone = evaluate(model, task, 12, sequences=200, seed=1)
    assert evaluate(again.model, task, 16, sequences=200, seed=1) != alone
    assert evaluate(again.model, task, 12, sequences=200, seed=1) == alone
    tokens = torch.randint(12, (4, 8))
    assert not torch.equal(model(tokens), model(tokens))  # a sample a forward pass
    assert torch.equal(under(model, Randomized("alibi", 30))(tokens), under(model, Randomized("alibi", 30))(tokens))


def test_training_neither_reads_nor_moves_the_callers_random_state() -> None:
    histories = []
    for state in (11, 12):
        torch.manual_seed(state)
        before = torch.get_rng_state()
        histories.append(train(SMALL, ENCODINGS["learned"], TASKS["prev"], SHORT).history)
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*histories)


def test_conditions_with_one_seed_see_the_same_sequences() -> None:
    deep = Architecture(width=32, layers=2, heads=2, train_length=8)
    for a, b in zip(training_batches(SMALL, SHORT, 3), training_batches(deep, SHORT, 3), strict=True):
        assert torch.equal(a, b)


@given(st.integers(2, 60))
def test_lengths_go_from_half_the_training_length_to_it(train_length: int) -> None:
    shortest = shortest_length(train_length)
    assert shortest == math.ceil(train_length / 2)
    shape = Architecture(width=2, train_length=train_length)
    lengths = {tokens.shape[1] for tokens in training_batches(shape, Recipe(steps=30, batch=1), 0)}
    assert shortest <= min(lengths) <= max(lengths) <= train_length


def test_every_length_and_token_occurs_about_equally_often() -> None:
    batches = list(training_batches(Architecture(), Recipe(steps=2200, batch=2), 0))
    lengths = torch.bincount(torch.tensor([tokens.shape[1] for tokens in batches]))
    assert lengths[:10].sum() == 0
    assert len(lengths) == 21
    assert 140 < lengths[10:].min() <= lengths.max() < 260  # 200 each on average
    tokens = torch.bincount(torch.cat([tokens.flatten() for tokens in batches]))
    assert len(tokens) == 12
    assert tokens.max() / tokens.min() < 1.1


def test_streams_of_purposes_and_seeds_differ() -> None:
    streams = [random_stream(seed, purpose) for seed in (0, 1) for purpose in ("init", "data", "evaluation/30")]
    draws = [torch.randint(1 << 40, (4,), generator=stream) for stream in streams]
    assert len({tuple(draw.tolist()) for draw in draws}) == len(draws)


@pytest.mark.parametrize("task", ["prev", "skip3", "copy", "first", "induction"])
def test_accuracy_equals_a_count_row_by_row(task: str) -> None:
    model = initial_model(SMALL, ENCODINGS["sinusoidal"], 0)
    tokens = torch.randint(12, (70, 14), generator=random_stream(4, "evaluation/14"))
    logits, labels = model(tokens), TASKS[task].labels(tokens)
    for first in (0, 8):
        right = scored = 0
        for sequence in range(70):
            for row in range(first, 14):
                if labels[sequence, row] != IGNORED_LABEL:
                    scored += 1
                    right += int(logits[sequence, row].argmax() == labels[sequence, row])
        found = token_accuracy(model, TASKS[task], 14, first=first, sequences=70, seed=4)
        assert found == right / scored


class Oracle(Transformer):
    """Answers `prev` up to a row, and token 0 from there on."""

    def __init__(self, until: int) -> None:
        super().__init__(SMALL, ENCODINGS["nope"])
        self.until = until

    def forward(self, tokens: Tensor, rows: Tensor | None = None, *rest: object, **more: object) -> Tensor:
        answers = torch.where(torch.arange(tokens.shape[1]) < self.until, tokens.roll(1, 1), 0)
        logits = nn.functional.one_hot(answers, 12).float()
        return logits if rows is None else logits[:, rows]


def test_length_generalization_scores_new_rows_alone() -> None:
    assert evaluate(Oracle(until=8), TASKS["prev"], 16) == pytest.approx(1 / 12, abs=0.02)
    assert evaluate(Oracle(until=12), TASKS["prev"], 16) == pytest.approx(0.5 + 1 / 24, abs=0.02)
    assert evaluate(Oracle(until=16), TASKS["prev"], 16) == 1.0


def test_evaluation_needs_rows_to_score() -> None:
    model = initial_model(SMALL, ENCODINGS["nope"], 0)
    with pytest.raises(InputError, match="length 8 is not beyond the training length 8"):
        evaluate(model, TASKS["prev"], 8)
    with pytest.raises(InputError, match=r"scores no row in \[8, 9\)"):
        evaluate(model, Skip(9), 9)


def test_rows_of_content_tasks_are_all_from_the_first_on() -> None:
    tokens = torch.tensor([[1, 2, 1, 3]])
    rows, labels = QueryRows(TASKS["induction"], first=1)(tokens)
    assert rows.tolist() == [1, 2, 3]
    assert labels.tolist() == [[IGNORED_LABEL, 2, IGNORED_LABEL]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_not_finite_ends_the_training_with_the_reason() -> None:
    trained = train(SMALL, ENCODINGS["rope"], TASKS["prev"], Recipe(steps=200, batch=8, learning_rate=1e30))
    assert trained.train_accuracy is None
    assert trained.failure is not None
    assert trained.failure.startswith(f"the loss is nan at step {len(trained.history)} of 200")
    assert trained.history[:-1].isfinite().all()


def test_a_model_learns() -> None:
    recipe = Recipe(steps=150, batch=32, learning_rate=1e-2)
    trained = train(Architecture(width=32, train_length=8), ENCODINGS["rope"], TASKS["prev"], recipe)
    assert trained.train_accuracy is not None
    assert trained.train_accuracy > 0.9
    assert trained.history[-10:].mean() < 0.5 < trained.history[:10].mean()


@pytest.mark.parametrize("encoding", TRAINED_NAMES)
def test_checkpoints_come_back_as_they_went(tmp_path: Path, encoding: str) -> None:
    trained = train(SMALL, ENCODINGS[encoding], TASKS["skip3"], SHORT, seed=4)
    path = tmp_path / "folder" / "model.safetensors"
    save_checkpoint(trained, path)
    assert [file.name for file in path.parent.iterdir()] == ["model.safetensors"]
    loaded = load_checkpoint(path)
    for name in ("task", "recipe", "seed", "train_accuracy", "failure"):
        assert getattr(loaded, name) == getattr(trained, name)
    assert loaded.model.architecture == SMALL
    assert loaded.model.encoding == ENCODINGS[encoding]
    assert torch.equal(loaded.history, trained.history)
    tokens = torch.randint(12, (20, 15))
    assert torch.equal(loaded.model(tokens), trained.model(tokens))


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    text, other = tmp_path / "text.safetensors", tmp_path / "other.safetensors"
    text.write_text("no checkpoint")
    save_file({"weight": torch.ones(2)}, other)
    with pytest.raises(InputError, match=r"text.safetensors' is no readable checkpoint"):
        load_checkpoint(text)
    with pytest.raises(InputError, match=r"has format 'None', this version reads 'poskernel.checkpoint/1'"):
        load_checkpoint(other)


def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    trained = train(SMALL, ENCODINGS["nope"], TASKS["prev"], SHORT)
    with pytest.raises(RunError, match="cannot write"):
        save_checkpoint(trained, tmp_path / "file" / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps of the recipe is 0"),
        ({"batch": -1}, "batch of the recipe is -1"),
        ({"learning_rate": float("nan")}, "learning_rate of the recipe is nan"),
        ({"weight_decay": -0.1}, "weight_decay of the recipe is -0.1"),
    ],
)
def test_impossible_recipes_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe(**changes)  # type: ignore[arg-type]
