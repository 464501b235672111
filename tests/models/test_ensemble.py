"""Logits of an ensemble against those of each model alone: every encoding, norm, mask, padding, and what comes back."""

import itertools

import pytest
import torch
from torch import Tensor

from poskernel.encodings import ENCODINGS, Encoding
from poskernel.errors import InputError
from poskernel.models.ensemble import Ensemble
from poskernel.models.training import random_stream
from poskernel.models.transformer import Architecture, Norm, Transformer

TRAINED = [encoding for encoding in ENCODINGS.values() if encoding.trains]
SHAPES = [{"layers": 1, "heads": 1}, {"layers": 2, "heads": 2}]


def models_of(encodings: list[Encoding], **changes: object) -> list[Transformer]:
    """Models with weights far from where they start, norms' scales and shifts among them."""
    torch.manual_seed(3)
    architecture = Architecture(**{"width": 16, "train_length": 6, **changes})  # type: ignore[arg-type]
    models = [Transformer(architecture, encoding) for encoding in encodings]
    for model in models:
        for weight in model.parameters():
            weight.data += 0.2 * torch.randn(weight.shape)
    return models


def alone(models: list[Transformer], order: list[int], tokens: Tensor, seed: int = 0) -> Tensor:
    """Logits of each model by itself; whatever an encoding draws comes from one stream."""
    found = []
    for index, each in zip(order, tokens, strict=True):
        with models[index].position_module.drawing_from(random_stream(seed, "draws")):
            found.append(models[index](each))
    return torch.stack(found)


def together(ensemble: Ensemble, tokens: Tensor, **options: object) -> Tensor:
    for group in ensemble.groups:
        if (generator := getattr(group.module, "generator", None)) is not None:
            generator.set_state(random_stream(0, "draws").get_state())
    return ensemble.logits(tokens, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [3, 20])  # distinct rows computed one by one, and looked up
def test_all_encodings_in_one_ensemble_give_the_logits_they_give_alone(shape: dict[str, int], batch: int) -> None:
    models = models_of([*TRAINED, *TRAINED], **shape)
    ensemble = Ensemble(models)
    assert sorted(ensemble.order) == list(range(len(models)))
    tokens = torch.randint(12, (len(models), batch, 9))
    expected = alone(models, ensemble.order, tokens)
    torch.testing.assert_close(together(ensemble, tokens), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(together(ensemble, tokens, first=4), expected[:, :, 4:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("encoding", TRAINED, ids=lambda encoding: encoding.name)
def test_each_encoding_has_an_ensemble_of_its_own(encoding: Encoding) -> None:
    models = models_of([encoding] * 3, layers=2, heads=2)
    ensemble, tokens = Ensemble(models), torch.randint(12, (3, 16, 7))
    expected = alone(models, ensemble.order, tokens)
    torch.testing.assert_close(together(ensemble, tokens), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("norm", "mlp", "causal"), list(itertools.product((Norm.LAYER, Norm.RMS, Norm.NONE), [True, False], [True, False]))
)
def test_every_norm_mask_and_mlp(norm: Norm, mlp: bool, causal: bool) -> None:
    encodings = [ENCODINGS[name] for name in ("rope", "alibi", "learned", "shaw", "nope")]
    models = models_of(encodings, layers=2, heads=2, norm=norm, mlp=mlp, causal=causal)
    ensemble, tokens = Ensemble(models), torch.randint(12, (5, 14, 7))
    expected = alone(models, ensemble.order, tokens)
    torch.testing.assert_close(ensemble.logits(tokens), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_no_row_before_it(causal: bool) -> None:
    encodings = [ENCODINGS[name] for name in ("rope", "alibi", "learned", "dynamic", "shaw", "xpos", "randomized")]
    models = models_of(encodings, layers=2, heads=2, causal=causal)
    ensemble = Ensemble(models)
    lengths = [4, 9, 6, 8, 5, 9, 7]
    tokens = torch.randint(12, (7, 14, 9))
    got = together(ensemble, tokens, lengths=lengths)
    for place, (index, length) in enumerate(zip(ensemble.order, lengths, strict=True)):
        expected = alone(models, [index], tokens[place : place + 1, :, :length])[0]
        torch.testing.assert_close(got[place, :, :length], expected, rtol=1e-4, atol=1e-4)


def test_a_placement_that_follows_the_length_is_worked_out_for_each_model() -> None:
    models = models_of([ENCODINGS["dynamic"]] * 2, train_length=4)
    ensemble, tokens = Ensemble(models), torch.randint(12, (2, 14, 64))
    got = ensemble.logits(tokens, lengths=[64, 33])
    torch.testing.assert_close(got[1, :, :33], models[1](tokens[1, :, :33]), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got[1, :, :33], models[1](tokens[1])[:, :33], rtol=1e-4, atol=1e-4)


def test_models_do_not_touch_one_another() -> None:
    models = models_of([ENCODINGS["rope"], ENCODINGS["t5"], ENCODINGS["rope"]])
    ensemble, tokens = Ensemble(models), torch.randint(12, (3, 16, 7))
    before = ensemble.logits(tokens)
    place = ensemble.order.index(2)
    for weight in ensemble.weights.values():
        weight.data[place] = float("nan")
    after = ensemble.logits(tokens)
    others = [each for each in range(3) if each != place]
    assert torch.equal(before[others], after[others])
    assert after[place].isnan().all()
    gradients = torch.autograd.grad(after.sum((1, 2, 3))[others].sum(), ensemble.leaves)
    shared = gradients[: len(ensemble.weights)]
    assert all(gradient[others].isfinite().all() for gradient in shared)


def test_weights_are_read_from_models_and_given_back() -> None:
    models = models_of([*TRAINED, *TRAINED])
    ensemble = Ensemble(models)
    assert ensemble.flat.numel() == sum(w.numel() for model in models for w in model.parameters())
    before = [[weight.clone() for weight in model.parameters()] for model in models]
    ensemble.give_back()
    for model, weights in zip(models, before, strict=True):
        assert all(torch.equal(*pair) for pair in zip(model.parameters(), weights, strict=True))
    ensemble.flat.data += 1
    assert all(torch.equal(*pair) for pair in zip(models[0].parameters(), before[0], strict=True))
    ensemble.give_back()
    for model, weights in zip(models, before, strict=True):
        assert all(torch.equal(a, b + 1) for a, b in zip(model.parameters(), weights, strict=True))


def test_what_depends_on_lengths_is_not_repeatable() -> None:
    assert Ensemble(models_of([ENCODINGS["rope"], ENCODINGS["fire"]])).repeatable
    assert not Ensemble(models_of([ENCODINGS["rope"], ENCODINGS["dynamic"]])).repeatable
    assert not Ensemble(models_of([ENCODINGS["rope"], ENCODINGS["randomized"]])).repeatable
    assert not Ensemble(models_of([ENCODINGS["rope"]], causal=False)).repeatable


def test_models_of_two_architectures_are_refused() -> None:
    models = models_of([ENCODINGS["rope"]]) + models_of([ENCODINGS["rope"]], layers=2)
    with pytest.raises(ValueError, match="need one architecture"):
        Ensemble(models)


@pytest.mark.parametrize("changes", [{"norm": Norm.SCALE}, {"attention_norm": Norm.NONE}], ids=["scale", "removed"])
def test_norms_that_an_ensemble_does_not_have_are_refused(changes: dict[str, Norm]) -> None:
    with pytest.raises(InputError, match="an ensemble has one norm"):
        Ensemble(models_of([ENCODINGS["rope"]], **changes))
