"""A change of some queries: theirs alone, bit for bit, in our own transformer and in a Hugging Face model."""

import pytest
import torch

pytest.importorskip("transformers")

from families import tiny, tokens
from poskernel.attention.interventions.changes import LogitKernel, PlaneGain, Temperature
from poskernel.attention.interventions.intervene import intervening
from poskernel.attention.interventions.on_tokens import AtQueries
from poskernel.attention.interventions.planes import every_plane, rotary_planes
from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.kernel import constant
from poskernel.models.transformer import Architecture, Transformer

LENGTH = 12


def chosen(*places: tuple[int, int]) -> torch.Tensor:
    mask = torch.zeros(2, LENGTH, dtype=torch.bool)
    for sequence, position in places:
        mask[sequence, position] = True
    return mask


def own() -> tuple[Transformer, torch.Tensor]:
    torch.manual_seed(1)
    made = Transformer(Architecture(width=32, layers=2, heads=2), ENCODINGS["rope"]).requires_grad_(False)
    return made, torch.randint(0, 12, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def test_rows_before_and_of_other_sequences_stay() -> None:
    model, text = own()
    rotary = rotary_planes(model)
    gain = PlaneGain(every_plane(rotary, [(0, 0), (1, 1)]), 3.0, rotary)
    with intervening(model, gain):
        whole = model(text)
    with intervening(model, AtQueries(gain, chosen((1, 7)))):
        single = model(text)
    with intervening(model, AtQueries(gain, torch.ones(2, LENGTH, dtype=torch.bool))):
        everywhere = model(text)
    plain = model(text)
    torch.testing.assert_close(everywhere, whole, rtol=0, atol=0)
    torch.testing.assert_close(single[0], plain[0])
    torch.testing.assert_close(single[1, :7], plain[1, :7])
    assert (single[1, 7] - plain[1, 7]).abs().max() > 1e-4
    assert (single[1, 7] - whole[1, 7]).abs().max() > 1e-6  # earlier positions were not changed in layer 0


def test_in_a_first_layer_a_row_has_only_its_own_change() -> None:
    model, text = own()
    gain = Temperature([(1, 0), (1, 1)], 3.0)
    with intervening(model, gain):
        whole = model(text)
    with intervening(model, AtQueries(gain, chosen((0, 5), (1, 9)))):
        some = model(text)
    torch.testing.assert_close(some[0, 5], whole[0, 5])
    torch.testing.assert_close(some[1, 9], whole[1, 9])


def test_no_query_is_no_change() -> None:
    model, text = own()
    plain = model(text)
    with intervening(model, AtQueries(Temperature([(0, 0)], 3.0), chosen())):
        assert torch.equal(model(text), plain)
    assert AtQueries(Temperature([(0, 0)], 1.0), chosen((0, 1))).idle(LENGTH)


def test_a_hugging_face_model_changes_at_the_same_rows() -> None:
    module, text = tiny("llama"), tokens(2, LENGTH)
    with torch.inference_mode():
        plain = module(input_ids=text).last_hidden_state
        with intervening(module, AtQueries(Temperature([(0, 1)], 4.0), chosen((0, 6)))):
            found = module(input_ids=text).last_hidden_state
    assert torch.equal(found[1], plain[1]) and torch.equal(found[0, :6], plain[0, :6])
    assert not torch.allclose(found[0, 6], plain[0, 6])


def test_what_is_not_of_queries_or_of_this_batch_is_refused() -> None:
    model, text = own()
    with pytest.raises(InputError, match="LogitKernel changes more than queries"):
        AtQueries(LogitKernel([(0, 0)], constant(1.0)), chosen())
    with (
        intervening(model, AtQueries(Temperature([(0, 0)], 2.0), chosen((0, 1)))),
        pytest.raises(InputError, match="chosen in 2 x 12 tokens and the model is run on 1 x 12"),
    ):
        model(text[:1])
