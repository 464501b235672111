"""A pretrained model's unit on a tiny one: losses tied to the embeddings, every measure given."""

import pytest
import torch

pytest.importorskip("transformers")

from families import tiny, tokens
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.experiments.pretrained.models import SMOLLM2, RealModelCell
from poskernel.experiments.spectral.band_changes import BandChanges
from poskernel.experiments.spectral.band_units import distance_parts, head_distances
from poskernel.experiments.spectral.pretrained_bands import DAMPING, PretrainedBandUnit, next_token_loss


def test_the_loss_is_that_of_the_tied_output_layer() -> None:
    source, text = HuggingFaceSource(tiny("llama")), tokens(2, 24)
    with torch.inference_mode():
        hidden = source.module(input_ids=text).last_hidden_state
    logits = hidden @ source.module.get_input_embeddings().weight.detach().T
    losses = [-float(logits[x, t].log_softmax(-1)[text[x, t + 1]]) for x in range(2) for t in range(23)]
    assert next_token_loss(source, text) == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_heads_of_a_model_with_shared_keys_are_all_measured() -> None:
    source, text = HuggingFaceSource(tiny("llama")), tokens(2, 40)
    changes = BandChanges.of(source, source.heads, text[:1], 4, seed=0)
    found = head_distances(source, changes, text, 4, DAMPING)
    heads = [(layer, head) for layer in range(source.layers) for head in range(source.heads)]
    assert len(found) == len(distance_parts(heads, DAMPING))


def test_a_plan_needs_no_model() -> None:
    unit = PretrainedBandUnit(RealModelCell(SMOLLM2, "sotu", 4, 512), seed=1)
    keys = unit.keys
    assert len(keys) == len(set(keys)) == 270 * (3 * 3 + 2 + 3) + 9
