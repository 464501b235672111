"""Ablated transformers against obvious loops: what their logits are made of, and that nothing else is changed."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models.ablated import AblatedTransformer, Ablation
from poskernel.models.ensemble import Ensemble
from poskernel.models.language import LanguageRecipe, Text
from poskernel.models.language_training import Condition, Place, read_model, train_language
from poskernel.models.optimization import Schedule
from poskernel.models.training import initial_model, under
from poskernel.models.transformer import Architecture, AttentionInputs

SHAPE = Architecture(width=16, layers=2, heads=2, vocabulary=7, train_length=8)
TAKEN = [Ablation.APART, Ablation.FROZEN, Ablation.BOTH]


def model_of(ablation: Ablation) -> AblatedTransformer:
    torch.manual_seed(3)
    model = AblatedTransformer(SHAPE, ENCODINGS["rope"], ablation).requires_grad_(False)
    for block in model.blocks:
        block.query_key_value.bias.mul_(8)  # kernels that are seen
    return model


def some_tokens(sequences: int = 3) -> Tensor:
    return torch.randint(7, (sequences, 8), generator=torch.Generator().manual_seed(0))


def turned(vector: Tensor, position: int) -> Tensor:
    """One head's vector, plane by plane."""
    planes, found = len(vector) // 2, vector.clone()
    for k in range(planes):
        angle = position * 1e4 ** (-k / planes)
        a, b = vector[k], vector[k + planes]
        found[k] = a * math.cos(angle) - b * math.sin(angle)
        found[k + planes] = a * math.sin(angle) + b * math.cos(angle)
    return found


def obvious(model: AblatedTransformer, tokens: Tensor) -> Tensor:
    """Logits over the vocabulary of one sequence, pair by pair."""
    first = stream = model.embedding(tokens)
    for block in model.blocks:
        project, norm = block.query_key_value, block.attention_norm
        read = first if model.ablation in (Ablation.FROZEN, Ablation.BOTH) else stream
        q, k, _ = project(norm(read)).split(16, -1)
        v, shared = project(norm(stream))[:, 32:], project.bias
        attended = torch.zeros_like(v)
        for head in range(2):
            part = slice(8 * head, 8 * head + 8)
            for t in range(len(tokens)):
                logits = []
                for s in range(t + 1):
                    if model.ablation is Ablation.FROZEN:
                        logits.append(turned(q[t, part], t) @ turned(k[s, part], s))
                    else:
                        both = shared[:16][part], shared[16:32][part]
                        logits.append(q[t, part] @ k[s, part] + turned(both[0], t) @ turned(both[1], s))
                weights = (torch.stack(logits) / math.sqrt(8)).softmax(0)
                attended[t, part] = weights @ v[: t + 1, part]
        stream = stream + block.output(attended)
        stream = stream + block.mlp(stream)
    return model.head(model.norm(stream))


@pytest.mark.parametrize("ablation", TAKEN)
def test_it_equals_the_obvious_one(ablation: Ablation) -> None:
    model, tokens = model_of(ablation), some_tokens()
    expected = torch.stack([obvious(model, sequence) for sequence in tokens])
    torch.testing.assert_close(model(tokens), expected)
    rows = torch.tensor([2, 7])
    torch.testing.assert_close(model(tokens, rows), expected[:, rows])
    plain = initial_model(SHAPE, ENCODINGS["rope"], 0).requires_grad_(False)
    plain.load_state_dict(model.state_dict())
    assert float((plain(tokens) - expected).abs().max()) > 1e-3


def logits_of(model: AblatedTransformer, tokens: Tensor, layer: int) -> Tensor:
    """A layer's logits before the mask."""
    found: list[Tensor] = []

    def note(given: AttentionInputs) -> None:
        if given.layer == layer:
            product = given.scale * given.query @ given.key.transpose(-1, -2)
            found.append(product if given.bias is None else product + given.bias)

    model(tokens, hook=note)
    return found[0]


def test_apart_no_logit_depends_on_content_and_offset_together() -> None:
    """What a pair of tokens adds to another pair does not depend on how far apart they are."""
    pairs = torch.cartesian_prod(torch.arange(7), torch.arange(7))
    near, far = torch.zeros(49, 8, dtype=torch.int64), torch.zeros(49, 8, dtype=torch.int64)
    near[:, 7], near[:, 6], far[:, 7], far[:, 1] = pairs[:, 0], pairs[:, 1], pairs[:, 0], pairs[:, 1]
    changes = {}
    for ablation in (Ablation.APART, Ablation.FROZEN):  # frozen, the first layer is as it always is
        model = model_of(ablation)
        changes[ablation] = logits_of(model, near, 0)[:, :, 7, 6] - logits_of(model, far, 0)[:, :, 7, 1]
    spread = {name: float((each - each.mean(0)).abs().max()) for name, each in changes.items()}
    assert spread[Ablation.APART] < 1e-5 and spread[Ablation.FROZEN] > 0.01
    assert float(changes[Ablation.APART].abs().min()) > 1e-4  # the kernel itself is there


def test_frozen_kernels_do_not_see_what_the_first_layer_makes() -> None:
    for ablation, seen in ((Ablation.FROZEN, False), (Ablation.BOTH, False), (Ablation.APART, True)):
        model, tokens = model_of(ablation), some_tokens()
        before, said = logits_of(model, tokens, 1), model(tokens)
        model.blocks[0].output.weight.mul_(3)
        assert torch.equal(logits_of(model, tokens, 1), before) is not seen
        assert not torch.allclose(model(tokens), said)


@pytest.mark.parametrize("ablation", TAKEN)
def test_captures_are_what_it_computes(ablation: Ablation) -> None:
    source = TransformerSource(model_of(ablation))
    assert self_test(source).causal
    captures: list = []
    source.forward(some_tokens(6), captures.append)
    assert all((each.rotation is None) is ablation.apart for each in captures)


def test_training_is_that_of_the_condition_and_comes_back(tmp_path) -> None:
    recipe = LanguageRecipe(Text("topics", "characters"), schedule=Schedule(6, 2, 1e-2, 2), evaluation_windows=2)
    shape = dataclasses.replace(SHAPE, vocabulary=recipe.source.vocabulary)
    plain = Condition(shape, ENCODINGS["rope"], recipe)
    other = dataclasses.replace(plain, ablation=Ablation.APART)
    start = plain.initial(1).state_dict()
    assert all(torch.equal(value, start[name]) for name, value in other.initial(1).state_dict().items())
    place = Place(tmp_path, "model")
    trained = train_language(other, 1, place)
    bias = trained.model.blocks[1].query_key_value.bias[:32]
    assert bool((bias != start["blocks.1.query_key_value.bias"][:32]).all())
    again = read_model(place.final, other, 1).model
    tokens = some_tokens()
    assert isinstance(again, AblatedTransformer) and again.ablation is Ablation.APART
    assert torch.equal(again(tokens), trained.model(tokens))
    with pytest.raises(InputError, match="is another model"):
        read_model(place.final, plain, 1)


def test_nothing_turns_it_into_a_plain_one() -> None:
    model = model_of(Ablation.APART)
    assert model.fresh().ablation is Ablation.APART
    assert isinstance(under(model, ENCODINGS["rope"]), AblatedTransformer)
    with pytest.raises(InputError, match="'nope' rotates nothing"):
        under(model, ENCODINGS["nope"])
    with pytest.raises(InputError, match="train ablated ones one by one"):
        Ensemble([model, model.fresh()])
