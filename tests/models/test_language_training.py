"""Language models are trained, kept and taken up: bit for bit, and never another model's file."""

import dataclasses
import math

import pytest
import torch

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models import language_training
from poskernel.models.generated import Reordering
from poskernel.models.language import LanguageRecipe, Objective, Text, bigram_loss
from poskernel.models.language_training import Condition, Place, Training, read_model, running, train_language
from poskernel.models.optimization import Schedule
from poskernel.models.transformer import Architecture, Norm

TOPICS = Text("topics", "characters")
SCHEDULE = Schedule(steps=24, batch=4, learning_rate=1e-2, warmup=4)
RECIPE = LanguageRecipe(TOPICS, schedule=SCHEDULE, checkpoints=(0, 10), evaluation_windows=16)
SHAPE = Architecture(16, 1, 2, vocabulary=TOPICS.vocabulary, train_length=16)
CONDITION = Condition(SHAPE, ENCODINGS["rope"], RECIPE)
VARIANTS = {
    "layer norm": SHAPE,
    "global scale": dataclasses.replace(SHAPE, norm=Norm.SCALE),
    "no norm before attention": dataclasses.replace(SHAPE, attention_norm=Norm.NONE),
}


@pytest.fixture(autouse=True)
def _states_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_training, "STATE_EVERY", 5)


class Killed(BaseException):
    """What no handler of ours catches."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The training dies before it takes that step."""
    lesson = language_training.training_lesson

    def dying(recipe, seed, at, length):
        if at == step:
            raise Killed
        return lesson(recipe, seed, at, length)

    monkeypatch.setattr(language_training, "training_lesson", dying)


@pytest.mark.parametrize("shape", VARIANTS.values(), ids=list(VARIANTS))
@pytest.mark.parametrize("step", [3, 12, 23])
def test_a_killed_training_goes_on_bit_for_bit(tmp_path, monkeypatch: pytest.MonkeyPatch, shape, step: int) -> None:
    condition = dataclasses.replace(CONDITION, architecture=shape)
    expected = train_language(condition, 1, Place(tmp_path / "whole", "model"))
    place = Place(tmp_path / "parts", "model")
    with monkeypatch.context() as patched:
        kill_at(patched, step)
        with pytest.raises(Killed):
            train_language(condition, 1, place)
    assert place.state.exists() == (step > 5) and not place.final.exists()
    begun = Training.begun(condition, 1, place)
    assert begun.optimization.steps == step // 5 * 5 == len(begun.history)
    found = train_language(condition, 1, place)
    assert torch.equal(found.history, expected.history) and found.held_out == expected.held_out
    for name, weight in expected.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], weight), name
    files = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in place.folder.iterdir()} == files
    assert set(files) == {"model.safetensors", "model-step0.safetensors", "model-step10.safetensors"}


def test_what_is_trained_is_not_trained_again_and_checkpoints_are_what_it_was(tmp_path, monkeypatch) -> None:
    place = Place(tmp_path, "model")
    trained = train_language(CONDITION, 1, place)
    with monkeypatch.context() as patched:
        kill_at(patched, 0)
        again = train_language(CONDITION, 1, place)
        assert again.held_out == trained.held_out and set(again.held_out) == {0, 10, 24}
        assert not again.model.training and torch.equal(again.history, trained.history)
        place.checkpoint(10).unlink()
        with pytest.raises(Killed):
            train_language(CONDITION, 1, place)
    shorter = dataclasses.replace(RECIPE, schedule=dataclasses.replace(SCHEDULE, steps=25), checkpoints=(10,))
    train_language(CONDITION, 1, place)
    middle = read_model(place.checkpoint(10))
    assert middle.step == 10 and len(middle.history) == 10
    # The cosine is another one with more steps, but the warm-up is the same: so is everything before it ends.
    other = train_language(dataclasses.replace(CONDITION, recipe=shorter), 1)
    assert torch.equal(other.history[:5], trained.history[:5])


def test_conditions_with_one_seed_share_data_and_initial_weights() -> None:
    seen = []
    for encoding, shape in (("rope", SHAPE), ("nope", VARIANTS["no norm before attention"])):
        training = Training.begun(Condition(shape, ENCODINGS[encoding], RECIPE), 1, None)
        seen.append(training.model.blocks[0].query_key_value.weight.detach().clone())
    assert torch.equal(*seen)


def test_a_loss_that_is_not_finite_is_a_failure() -> None:
    wild = dataclasses.replace(RECIPE, schedule=dataclasses.replace(SCHEDULE, learning_rate=1e30, clip=1e30))
    found = train_language(dataclasses.replace(CONDITION, recipe=wild))
    assert found.failure is not None and f"at step {len(found.history)} of 24" in found.failure
    assert not math.isfinite(found.history[-1]) and 24 not in found.held_out


def test_files_of_another_model_are_refused(tmp_path) -> None:
    place = Place(tmp_path, "model")
    train_language(CONDITION, 1, place)
    with pytest.raises(InputError, match="is another model"):
        train_language(CONDITION, 2, place)
    other = dataclasses.replace(CONDITION, encoding=ENCODINGS["nope"])
    with pytest.raises(InputError, match="is another model"):
        train_language(other, 1, place)
    begun = Training.begun(other, 1, None)
    begun.keep_state(place)
    with pytest.raises(InputError, match="is the state of another model"):
        Training.begun(CONDITION, 1, place)
    place.final.write_bytes(b"no such thing")
    with pytest.raises(InputError, match="is no readable checkpoint"):
        read_model(place.final)
    with pytest.raises(InputError, match="the architecture has 5 tokens"):
        train_language(dataclasses.replace(CONDITION, architecture=dataclasses.replace(SHAPE, vocabulary=5)))


def test_a_global_scale_is_kept_with_the_weights(tmp_path) -> None:
    condition = dataclasses.replace(CONDITION, architecture=VARIANTS["global scale"])
    place = Place(tmp_path, "model")
    trained = train_language(condition, 0, place).model
    found = read_model(place.final).model
    assert running(found).keys() == running(trained).keys() and len(running(found)) == 3
    for name, value in running(trained).items():
        assert float(value) != 1.0 and torch.equal(value, running(found)[name])
    assert running(read_model(place.checkpoint(0)).model)["norm.mean_square"] == 1.0


def test_a_model_learns_text_better_than_a_bigram_does() -> None:
    """Without attention and positions it cannot: it is a bigram that has yet to be learnt."""
    recipe = LanguageRecipe(TOPICS, schedule=Schedule(steps=150, batch=16, learning_rate=1e-2, warmup=20))
    shape = dataclasses.replace(SHAPE, width=32, layers=2, train_length=32)
    found = train_language(Condition(shape, ENCODINGS["rope"], recipe))
    bigram = bigram_loss(TOPICS, recipe, 32)
    assert found.held_out[150].loss < bigram
    alone = dataclasses.replace(shape, train_length=1)
    assert train_language(Condition(alone, ENCODINGS["nope"], recipe)).held_out[150].loss > bigram_loss(
        TOPICS, recipe, 1
    )


def test_masked_and_generated_models_learn() -> None:
    masked = dataclasses.replace(RECIPE, objective=Objective.MASKED, schedule=Schedule(40, 16, 1e-2, 10))
    found = train_language(Condition(dataclasses.replace(SHAPE, causal=False), ENCODINGS["rope"], masked))
    assert found.held_out[40].loss < found.held_out[0].loss - 0.3
    source = Reordering(order=(1, 0), symbols=4)
    blocks = LanguageRecipe(source, schedule=Schedule(150, 16, 1e-2, 20), evaluation_windows=32)
    shape = dataclasses.replace(SHAPE, vocabulary=source.vocabulary, width=32, layers=2)
    assert train_language(Condition(shape, ENCODINGS["rope"], blocks)).held_out[150].accuracy > 0.9
