"""What a language model sees and is scored on, its held-out loss, and the bigram it has to beat."""

import math

import pytest
import torch

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models.generated import Dyck, Reordering, Sequences
from poskernel.models.language import (
    ADD_K,
    LanguageRecipe,
    Objective,
    Text,
    bigram_loss,
    evaluation_lessons,
    held_out,
    lesson,
    lesson_loss,
    pair_counts,
    pair_losses,
    training_lesson,
)
from poskernel.models.optimization import Schedule
from poskernel.models.text import MASK, Split, tokenized
from poskernel.models.training import initial_model
from poskernel.models.transformer import Architecture
from poskernel.random_streams import random_stream
from poskernel.tasks import IGNORED_LABEL

TOPICS = Text("topics", "characters")
SHORT = Schedule(steps=10, batch=4, warmup=2)
RECIPE = LanguageRecipe(TOPICS, schedule=SHORT, evaluation_windows=20)
MASKED = LanguageRecipe(TOPICS, Objective.MASKED, SHORT, evaluation_windows=20)


def model_of(causal: bool = True):
    architecture = Architecture(16, 1, 2, vocabulary=TOPICS.vocabulary, train_length=12, causal=causal)
    return initial_model(architecture, ENCODINGS["rope"], 0).eval()


def test_a_next_lesson_is_the_sequence_one_further() -> None:
    sequences = Sequences(torch.tensor([[5, 6, 7, 8]]), torch.tensor([[True, True, False, True]]))
    found = lesson(sequences, Objective.NEXT, random_stream(0, "mask"))
    assert found.tokens.tolist() == [[5, 6, 7]] and found.labels.tolist() == [[6, IGNORED_LABEL, 8]]


def test_a_masked_lesson_hides_what_it_asks_for_and_nothing_else() -> None:
    drawn = TOPICS.draw(random_stream(0, "x"), 200, 41)
    found = lesson(drawn, Objective.MASKED, random_stream(0, "mask"))
    hidden = found.tokens == MASK
    assert torch.equal(hidden, found.labels != IGNORED_LABEL)
    assert torch.equal(torch.where(hidden, found.labels, found.tokens), drawn.tokens[:, :-1])
    assert hidden.any(dim=1).all() and float(hidden.double().mean()) == pytest.approx(0.15, abs=0.02)


def test_windows_are_stretches_of_their_split() -> None:
    text = tokenized("topics", "characters").streams
    for split in Split:
        rows = TOPICS.windows(split, random_stream(0, "x"), 5, 30).tokens
        stretches = text[split].unfold(0, 30, 1)
        assert all((stretches == row).all(dim=1).any() for row in rows)
    spread = TOPICS.spread(Split.VALIDATION, 3, 30).tokens
    assert torch.equal(spread[0], text[Split.VALIDATION][:30])
    assert torch.equal(spread[2], text[Split.VALIDATION][-30:])
    assert Split.TRAIN is not Split.VALIDATION


def test_lessons_follow_from_seed_and_step_and_are_shared_by_the_two_objectives() -> None:
    first, again = (training_lesson(RECIPE, 3, 7, 12).tokens for _ in range(2))
    assert torch.equal(first, again) and first.shape == (4, 12)
    masked = training_lesson(MASKED, 3, 7, 12)
    assert torch.equal(torch.where(masked.tokens == MASK, masked.labels, masked.tokens), first)
    others = [training_lesson(RECIPE, seed, step, 12).tokens for seed, step in ((3, 8), (4, 7))]
    assert not any(torch.equal(first, other) for other in others)


def test_held_out_loss_is_the_mean_over_scored_tokens() -> None:
    for recipe, model in ((RECIPE, model_of()), (MASKED, model_of(causal=False))):
        found = held_out(model, recipe, seed=0)
        total, right, number = 0.0, 0, 0
        for given in evaluation_lessons(recipe, 0, 12, Split.VALIDATION):
            for tokens, labels in zip(given.tokens, given.labels, strict=True):
                logits = model(tokens[None])[0].log_softmax(-1).detach()
                for row, label in enumerate(labels.tolist()):
                    if label != IGNORED_LABEL:
                        total, number = total - float(logits[row, label]), number + 1
                        right += int(logits[row].argmax()) == label
        assert found.tokens == number and found.accuracy == right / number
        assert found.loss == pytest.approx(total / number, rel=1e-5)
        assert found == held_out(model, recipe, seed=5)  # held-out text is the same for all seeds
        assert found != held_out(model, recipe, seed=0, split=Split.TEST)
    assert held_out(model_of(), RECIPE, 0, length=24).tokens == 2 * held_out(model_of(), RECIPE, 0).tokens


def test_a_loss_of_a_step_is_the_mean_over_its_scored_rows() -> None:
    model, given = model_of(), training_lesson(RECIPE, 0, 0, 12)
    expected = -model(given.tokens).log_softmax(-1).gather(-1, given.labels[..., None]).mean()
    torch.testing.assert_close(lesson_loss(model, given), expected)


@pytest.mark.parametrize("source", [Dyck(), Reordering()], ids=lambda source: source.name)
def test_generated_sources_are_scored_where_they_say(source) -> None:
    recipe = LanguageRecipe(source, schedule=SHORT, evaluation_windows=20)
    drawn = source.draw(random_stream(2, "data/5"), 4, 13)
    found = training_lesson(recipe, 2, 5, 12)
    assert torch.equal(found.tokens, drawn.tokens[:, :-1])
    assert torch.equal(found.labels != IGNORED_LABEL, drawn.scored[:, 1:])


def test_the_bigram_predicts_by_counts_and_its_k_comes_from_the_training_text() -> None:
    text = tokenized("topics", "characters").streams[Split.TRAIN]
    counts = pair_counts(text[:500], TOPICS.vocabulary)
    pairs = list(zip(text[:499].tolist(), text[1:500].tolist(), strict=True))
    first, second = pairs[17]
    n, of_first = pairs.count((first, second)), sum(pair[0] == first for pair in pairs)
    (loss,) = pair_losses(counts, 0.1, torch.tensor([first]), torch.tensor([second])).tolist()
    assert loss == pytest.approx(-math.log((n + 0.1) / (of_first + 0.1 * (TOPICS.vocabulary - 1))))
    found = bigram_loss(TOPICS, RECIPE, 12)
    tokens = TOPICS.spread(Split.VALIDATION, 20, 13).tokens
    everything = pair_counts(text, TOPICS.vocabulary)
    losses = [
        float(pair_losses(everything, k, tokens[:, :-1].flatten(), tokens[:, 1:].flatten()).mean()) for k in ADD_K
    ]
    assert min(losses) <= found <= max(losses)
    unigram = torch.bincount(text).double() / len(text)
    assert found < float(-(unigram[unigram > 0] * unigram[unigram > 0].log()).sum())


def test_probabilities_of_the_bigram_add_up_to_one() -> None:
    counts = pair_counts(tokenized("topics", "characters").streams[Split.TRAIN], TOPICS.vocabulary)
    possible = torch.tensor([token for token in range(TOPICS.vocabulary) if token != MASK])
    losses = pair_losses(counts, 0.3, torch.full_like(possible, 20), possible)
    assert float((-losses).exp().sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LanguageRecipe(TOPICS, schedule=SHORT, checkpoints=(10,)), "checkpoint after step 10"),
        (lambda: LanguageRecipe(TOPICS, schedule=SHORT, evaluation_windows=0), "0 windows"),
        (lambda: LanguageRecipe(Dyck(), Objective.MASKED, SHORT), "'dyck' has no token to stand for a masked one"),
        (lambda: RECIPE.check_vocabulary(12), "the architecture has 12 tokens"),
        (lambda: TOPICS.spread(Split.TEST, 1, 10**6), "fewer than a window of 1000000"),
    ],
)
def test_recipes_that_cannot_be(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()
