"""The circuit's measures against slow loops and against the whole model; heads chosen by the tables of kinds."""

import pytest
import torch

pytest.importorskip("transformers")

from families import HEADS, LAYERS, tiny, tokens
from planted_source import PositionSource
from poskernel.attention.estimators.probes import RepetitionEstimator, repeated_tokens
from poskernel.attention.interventions.changes import Translation
from poskernel.attention.interventions.planes import every_plane, rotary_planes
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.errors import InputError
from poskernel.experiments.pretrained.circuit import (
    FURTHEST,
    Circuit,
    carried_logits,
    carrying_planes,
    circuit_state,
    induction_heads,
    offset_masses,
    predicted_tokens,
    previous_token_heads,
)


def captures(source, given):
    found = []
    source.forward(given, found.append)
    return found


@pytest.mark.parametrize(("family", "layer"), [("llama", 1), ("mistral", 0)])
@pytest.mark.parametrize("offset", [1, 3])
def test_what_planes_carry_is_their_row_centred_logit(family: str, layer: int, offset: int) -> None:
    source, dropped = HuggingFaceSource(tiny(family)), 2
    rotary = rotary_planes(source)[layer]
    capture = captures(source, tokens(2, 20))[layer]
    for head in (0, HEADS - 1):
        found = carried_logits(capture, head, rotary, offset, dropped)
        reach = capture.window or capture.length
        for plane, pair in enumerate(rotary.planes):
            values = []
            for x in range(2):
                query, key = capture.query[x, head].double(), capture.key[x, capture.key_head(head)].double()
                logits = (query @ pair.T) @ (key @ pair.T).T * capture.scale
                for t in range(dropped + offset, capture.length):
                    seen = logits[t, max(dropped, t - reach + 1) : t + 1]
                    values.append(logits[t, t - offset] - seen.mean())
            assert float(found[plane]) == pytest.approx(float(torch.stack(values).mean()), abs=1e-5)


def test_planes_that_carry_most_are_taken() -> None:
    source = HuggingFaceSource(tiny("llama"))
    rotary, given = rotary_planes(source), tokens(2, 20)
    found = carrying_planes(source, given, rotary, [(1, 2), (0, 0)], 1, 2, 2)
    carried = carried_logits(captures(source, given)[1], 2, rotary[1], 1, 2)
    assert set(found) == {(1, 2), (0, 0)} and set(found[1, 2]) == set(carried.argsort()[-2:].tolist())


def test_attention_by_offset_is_that_of_the_pattern() -> None:
    capture = captures(HuggingFaceSource(tiny("llama")), tokens(3, 20))[0]
    pattern, found = capture.pattern(1).double().mean(0), offset_masses(capture, 1)
    rows = range(FURTHEST, 20)
    by_hand = [sum(float(pattern[t, t - d]) for t in rows) / len(rows) for d in range(FURTHEST + 1)]
    assert found.tolist() == pytest.approx(by_hand, abs=1e-6)


def test_predictions_are_those_of_the_whole_model() -> None:
    from transformers import LlamaForCausalLM

    inner = tiny("llama")
    inner.config.tie_word_embeddings = True
    whole = LlamaForCausalLM(inner.config).eval()
    whole.model.load_state_dict(inner.state_dict())
    whole.tie_weights()
    given = tokens(2, 12)
    source = HuggingFaceSource(whole)
    with torch.inference_mode():
        expected = whole(input_ids=given).logits.argmax(-1)
    assert torch.equal(predicted_tokens(source, source.forward(given, None)), expected)
    inner.config.tie_word_embeddings = False
    with pytest.raises(InputError, match="output layer of its own"):
        predicted_tokens(HuggingFaceSource(inner), torch.zeros(1, 1, 32))


def test_the_state_is_what_other_estimators_see_of_the_same_heads() -> None:
    module = tiny("llama")
    module.config.tie_word_embeddings = True
    source, period = HuggingFaceSource(module), 12
    circuit = Circuit(previous=((0, 1), (1, 0)), induction=((1, 2), (1, 3)))
    given = repeated_tokens(source, 4, period, seed=3)
    found = circuit_state(source, circuit, given, period)
    repetitions = RepetitionEstimator(dict.fromkeys(range(LAYERS), HEADS), period)
    source.forward(given, repetitions.consume)
    each = {(r.layer, r.head): r.induction.value for r in repetitions.estimates()}
    assert found.induction == pytest.approx((each[1, 2] + each[1, 3]) / 2, abs=1e-6)
    predicted = predicted_tokens(source, source.forward(given, None))
    rows = range(period, 2 * period - 1 - FURTHEST)
    for shift, share in found.copied.items():
        hits = [float(predicted[x, t] == given[x, t + 1 + shift]) for x in range(4) for t in rows]
        assert share == pytest.approx(sum(hits) / len(hits))
    masses = [offset_masses(captures(source, given)[layer], head) for layer, head in circuit.previous]
    assert list(found.attended.values()) == pytest.approx((sum(masses) / 2).tolist(), abs=1e-6)


def test_a_state_under_a_change_is_that_of_the_changed_model_and_leaves_no_trace() -> None:
    module = tiny("llama")
    module.config.tie_word_embeddings = True
    source, circuit = HuggingFaceSource(module), Circuit(((0, 1),), ((1, 2),))
    given = repeated_tokens(source, 2, 12, seed=3)
    moved = Translation(every_plane(rotary_planes(source), circuit.previous), 1.0, rotary_planes(source))
    before, changed = (circuit_state(source, circuit, given, 12, changes) for changes in ((), (moved,)))
    assert before.attended != changed.attended
    assert circuit_state(source, circuit, given, 12) == before


def test_previous_token_heads_are_those_planted() -> None:
    given = torch.randint(0, 50, (8, 40), generator=torch.Generator().manual_seed(1))
    assert (0, 0) in previous_token_heads(PositionSource(), given, 4)
    assert not {(0, 1), (0, 2)} & set(previous_token_heads(PositionSource(), given, 4))


def test_induction_heads_pass_the_threshold_of_their_kind() -> None:
    source, period = HuggingFaceSource(tiny("llama")), 12
    estimator = RepetitionEstimator(dict.fromkeys(range(LAYERS), HEADS), period)
    source.forward(repeated_tokens(source, 4, period, seed=5), estimator.consume)
    expected = tuple((e.layer, e.head) for e in estimator.estimates() if e.induction.value >= 0.3)
    assert induction_heads(source, 4, period, seed=5) == expected
