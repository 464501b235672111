"""Opening a model for the screen: what is refused, and what is read."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from families import tiny, tokens
from poskernel.attention.extension.measurement import measure_forms, open_rotary, text_windows
from poskernel.errors import InputError


@pytest.mark.parametrize(
    ("family", "words"),
    [("gpt2", "learned table of 128 positions"), ("bloom", "a bias on its logits"), ("modernbert", "sees later keys")],
)
def test_models_without_rotary_layers_say_what_they_have(family, words):
    with pytest.raises(InputError, match=words):
        open_rotary(tiny(family))


def test_what_is_read_of_a_model():
    found = open_rotary(tiny("cohere2"))
    assert list(found.probes) == [0] and found.without == [1] and found.trained_length == 128
    assert found.kinds[0].window == 9 and found.kinds[0].own.base == 10000.0
    capped = open_rotary(tiny("gemma2"))
    assert capped.softcap and [kind.window for kind in capped.kinds] == [9, None]
    assert open_rotary(tiny("gpt_oss")).trained_length == 4096  # before the extension that it declares


def test_forms_are_measured_in_batches_of_any_size(monkeypatch):
    model = open_rotary(tiny("llama"))
    whole = measure_forms(model, tokens(5, 24), 4, {})
    monkeypatch.setattr("poskernel.attention.extension.measurement.BATCH", 2)
    parts = measure_forms(model, tokens(5, 24), 4, {})
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one.moments, other.moments, rtol=1e-4, atol=1e-5)
        assert one.late.query.shape == other.late.query.shape == (5, 4, 4)


def test_a_window_is_kept_where_sequences_are_shorter():
    model = open_rotary(tiny("mistral"))
    forms = measure_forms(model, tokens(4, 16), 4, {})
    assert [each.window for each in forms] == [9, 9]
    model = replace(model, kinds=[replace(kind, window=5) for kind in model.kinds])
    assert measure_forms(model, tokens(4, 16), 4, {})[0].window == 5


@pytest.mark.parametrize(
    ("sequences", "length", "dropped", "words"),
    [(3, 32, 4, "3 sequences"), (4, 12, 4, "measured length 12"), (4, 32, 20, "dropping 20"), (4, 200, 4, "128")],
)
def test_sizes_that_leave_nothing_are_refused(sequences, length, dropped, words):
    model = open_rotary(tiny("llama"))
    with pytest.raises(InputError, match=words):
        measure_forms(model, tokens(sequences, length), dropped, {})


def test_a_live_module_needs_tokens():
    model = open_rotary(tiny("llama"))
    with pytest.raises(InputError, match="without a tokenizer"):
        text_windows(model, "words", 4, 16)
    found, digest = text_windows(model, tokens(1, 80), 5, 16)
    assert found.shape == (5, 16) and len(digest) == 64
