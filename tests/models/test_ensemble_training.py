"""Models trained in one batch against the same models trained alone; failures, captures and evaluation."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from poskernel.encodings import ENCODINGS, STUDY_ENCODINGS
from poskernel.errors import InputError
from poskernel.models import ensemble_training
from poskernel.models.ensemble import Ensemble
from poskernel.models.ensemble_training import (
    Condition,
    Lessons,
    ensemble_steps,
    token_accuracies,
    train_ensemble,
)
from poskernel.models.training import Recipe, TrainedModel, initial_model, token_accuracy, train, training_batches
from poskernel.models.transformer import Architecture, Norm
from poskernel.tasks import IGNORED_LABEL, STUDY_TASKS, TASKS, Skip

SMALL = Architecture(width=16, train_length=8)
SHORT = Recipe(steps=50, batch=8, learning_rate=3e-3, evaluation_sequences=64)
TRAINED = [encoding for encoding in ENCODINGS.values() if encoding.trains]
DRAWS = Condition(ENCODINGS["randomized"], TASKS["prev"], 1)


def assert_trained_alike(found: Sequence[TrainedModel], expected: Sequence[TrainedModel]) -> None:
    """Losses of every step, logits, and accuracy up to rows whose two best logits are as good as equal."""
    vocabulary = found[0].model.architecture.vocabulary
    tokens = torch.randint(vocabulary, (16, 12), generator=torch.Generator().manual_seed(0))
    for one, other in zip(found, expected, strict=True):
        assert (one.task, one.recipe, one.seed, one.failure) == (other.task, other.recipe, other.seed, other.failure)
        assert one.model.encoding == other.model.encoding
        torch.testing.assert_close(one.history, other.history, rtol=2e-5, atol=2e-5)
        if one.model.encoding.name != "randomized":  # draws anew in every pass
            torch.testing.assert_close(one.model(tokens), other.model(tokens), rtol=1e-4, atol=1e-4)
        assert one.train_accuracy == pytest.approx(other.train_accuracy, abs=0.01)


def alone(shape: Architecture, conditions: Sequence[Condition], recipe: Recipe = SHORT) -> list[TrainedModel]:
    return [train(shape, each.encoding, each.task, recipe, each.seed) for each in conditions]


def test_encodings_tasks_and_seeds_in_one_batch_train_as_they_do_alone() -> None:
    conditions = [Condition(*each) for each in itertools.product(STUDY_ENCODINGS, STUDY_TASKS, (0, 1))]
    shape = Architecture(width=8, train_length=12)
    found = train_ensemble(shape, conditions, SHORT)
    assert all(each.failure is None and len(each.history) == 50 for each in found)
    assert_trained_alike(found, alone(shape, conditions))


def test_encodings_with_weights_lengths_or_draws_of_their_own_train_as_they_do_alone() -> None:
    names = [name for name, encoding in ENCODINGS.items() if encoding.trains and encoding not in STUDY_ENCODINGS]
    assert {"t5", "shaw", "kerple-log", "fire", "randomized", "dynamic", "xpos"} <= set(names)
    shape, few = Architecture(width=8, layers=2, heads=2, train_length=8), replace(SHORT, steps=25)
    conditions = [Condition(ENCODINGS[name], TASKS["prev"], seed) for name in names for seed in (1, 2)]
    assert_trained_alike(train_ensemble(shape, conditions, few), alone(shape, conditions, few))


@pytest.mark.parametrize(
    "changes", [{"norm": Norm.RMS}, {"norm": Norm.NONE}, {"mlp": False}, {"causal": False}, {"vocabulary": 5}], ids=str
)
def test_every_architecture_trains_as_it_does_alone(changes: dict[str, object]) -> None:
    shape = Architecture(**{"width": 16, "layers": 2, "heads": 2, "train_length": 8, **changes})  # type: ignore[arg-type]
    chosen = [("learned", "prev", 0), ("rope", "copy", 0), ("alibi", "induction", 3), ("shaw", "skip2", 3)]
    conditions = [Condition(ENCODINGS[encoding], TASKS[task], seed) for encoding, task, seed in chosen]
    assert_trained_alike(train_ensemble(shape, conditions, SHORT), alone(shape, conditions))


def test_the_batch_around_a_model_does_not_matter_beyond_rounding() -> None:
    condition = Condition(ENCODINGS["rope"], TASKS["skip2"], 4)
    others = [Condition(ENCODINGS["t5"], TASKS["copy"], 5), Condition(ENCODINGS["rope"], TASKS["first"], 6)]
    (single,) = train_ensemble(SMALL, [condition], SHORT)
    assert_trained_alike([train_ensemble(SMALL, [*others, condition], SHORT)[2]], [single])


def test_the_model_goes_on_drawing_where_its_training_stopped() -> None:
    tokens = torch.randint(12, (4, 8))
    models = [made[0].model for made in (train_ensemble(SMALL, [DRAWS], SHORT), alone(SMALL, [DRAWS]))]
    torch.testing.assert_close(models[0](tokens), models[1](tokens), rtol=1e-4, atol=1e-4)


def test_the_same_batch_gives_the_same_bits() -> None:
    conditions = [Condition(ENCODINGS[name], TASKS["prev"], seed) for name in ("rope", "t5") for seed in (0, 1)]
    first, again = (train_ensemble(SMALL, conditions, SHORT) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.history, other.history)
        assert all(torch.equal(*pair) for pair in zip(one.model.parameters(), other.model.parameters(), strict=True))


def test_conditions_differ_in_what_they_learn() -> None:
    seeds = train_ensemble(SMALL, [Condition(ENCODINGS["rope"], TASKS["prev"], seed) for seed in (0, 1)], SHORT)
    assert not torch.allclose(seeds[0].history, seeds[1].history, rtol=1e-3)


def poisoned(monkeypatch: pytest.MonkeyPatch, which: int, value: float) -> None:
    """The model of one seed starts with a weight that is no number."""

    def make(shape: Architecture, encoding: object, seed: int) -> object:
        model = initial_model(shape, encoding, seed)  # type: ignore[arg-type]
        if seed == which:
            model.head.bias.data[0] = value
        return model

    monkeypatch.setattr(ensemble_training, "initial_model", make)


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "nan"), (float("inf"), "nan")])
def test_a_loss_that_is_not_finite_fails_its_model_alone(
    monkeypatch: pytest.MonkeyPatch, value: float, word: str
) -> None:
    conditions = [Condition(ENCODINGS["rope"], TASKS["prev"], seed) for seed in (0, 1, 2)]
    sound = train_ensemble(SMALL, conditions, SHORT)
    poisoned(monkeypatch, 1, value)
    first, bad, last = train_ensemble(SMALL, conditions, SHORT)
    assert bad.train_accuracy is None
    assert bad.failure == f"the loss is {word} at step 1 of 50"
    assert len(bad.history) == 1
    for found, expected in ((first, sound[0]), (last, sound[2])):
        assert torch.equal(found.history, expected.history)
        assert found.train_accuracy == expected.train_accuracy
        assert all(w.isfinite().all() for w in found.model.parameters())


def test_failures_are_told_as_training_alone_tells_them() -> None:
    wild = Recipe(steps=60, batch=8, learning_rate=1e30)
    conditions = [Condition(ENCODINGS[name], TASKS["prev"]) for name in ("rope", "learned")]
    for found, expected in zip(train_ensemble(SMALL, conditions, wild), alone(SMALL, conditions, wild), strict=True):
        assert found.train_accuracy is None
        assert (found.failure, len(found.history)) == (expected.failure, len(expected.history))


def warming(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Like a graph's capture: the work is done some times before, and its answer is written over at each replay."""
    answer = work()
    work()

    def replay() -> Tensor:
        answer.copy_(work())
        return answer

    return replay


def test_a_captured_step_on_fixed_buffers_trains_as_the_others_do() -> None:
    conditions = [Condition(ENCODINGS[name], TASKS["prev"], seed) for name in ("rope", "t5") for seed in (0, 1)]
    losses = []
    for capture in (None, warming):
        ensemble = Ensemble([initial_model(SMALL, each.encoding, each.seed) for each in conditions])
        ordered = [conditions[index] for index in ensemble.order]
        tasks, seeds = [each.task for each in ordered], [each.seed for each in ordered]
        losses.append(torch.stack(list(ensemble_steps(ensemble, tasks, seeds, SHORT, capture))))
    torch.testing.assert_close(*losses, rtol=2e-4, atol=2e-5)


def test_what_lengths_change_cannot_be_captured() -> None:
    ensemble = Ensemble([initial_model(SMALL, DRAWS.encoding, DRAWS.seed)])
    with pytest.raises(ValueError, match="without a capture"):
        next(ensemble_steps(ensemble, [DRAWS.task], [DRAWS.seed], SHORT, warming))


@pytest.mark.parametrize("task", ["prev", "skip3", "copy", "reverse", "first", "induction"])
def test_lessons_are_the_tasks_labels_padded(task: str) -> None:
    lessons = Lessons([TASKS[task], TASKS["prev"], TASKS[task]], [3, 3, 4], torch.device("cpu"))
    steps = [list(training_batches(SMALL, SHORT, seed)) for seed in (3, 4)]
    assert any(a.shape != b.shape for a, b in zip(*steps, strict=True))
    for one, other in zip(*steps, strict=True):
        batch = lessons.batch([one, other], 8)
        assert batch.lengths == (one.shape[1], one.shape[1], other.shape[1])
        for place, tokens, own in ((0, one, task), (1, one, "prev"), (2, other, task)):
            length = tokens.shape[1]
            assert torch.equal(batch.tokens[place, :, :length], tokens)
            assert torch.equal(batch.labels[place, :, :length], TASKS[own].labels(tokens))
            assert (batch.labels[place, :, length:] == IGNORED_LABEL).all()


@pytest.mark.parametrize(("length", "first"), [(8, 0), (12, 8), (21, 8)])
def test_accuracies_of_many_are_those_of_each(length: int, first: int) -> None:
    conditions = [
        Condition(encoding, TASKS[task], seed)
        for encoding in TRAINED
        for task, seed in (("prev", 2), ("copy", 2), ("induction", 5))
    ]
    models = [initial_model(SMALL, each.encoding, each.seed) for each in conditions]
    tasks, seeds = [each.task for each in conditions], [each.seed for each in conditions]
    found = token_accuracies(models, tasks, seeds, length, first=first, sequences=100)
    expected = [
        token_accuracy(model, task, length, first=first, sequences=100, seed=seed)
        for model, task, seed in zip(models, tasks, seeds, strict=True)
    ]
    assert found == pytest.approx(expected, abs=0.003)
    assert len(set(found)) > 7  # so that one in the place of another would show


def test_no_models_have_no_accuracies_and_no_conditions_no_training() -> None:
    assert token_accuracies([], [], [], 12, first=8, sequences=4) == []
    with pytest.raises(InputError, match="an ensemble of 0 models"):
        train_ensemble(SMALL, [])


def test_accuracy_needs_rows_to_score_for_every_model() -> None:
    models = [initial_model(SMALL, ENCODINGS["nope"], seed) for seed in (0, 1)]
    with pytest.raises(InputError, match=r"task 'skip9' scores no row in \[8, 9\)"):
        token_accuracies(models, [TASKS["prev"], Skip(9)], [0, 1], 9, first=8, sequences=4)
