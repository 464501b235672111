"""Classes of words: their distances row by row, and losses after their tokens alone."""

import math

import pytest
import torch

from poskernel.attention.interventions.controls import consume_layers
from poskernel.attention.interventions.intervene import intervening
from poskernel.experiments.spectral.word_filters import ClassDistances, class_loss, class_parts, class_values


def test_distances_are_means_over_the_rows_of_a_class(rotary_model, token_windows) -> None:
    rows = {"low": token_windows < 6, "some": token_windows == 7}
    found, seen = ClassDistances(rows, dropped=4), []
    consume_layers(rotary_model, token_windows, found.consume, 4)
    consume_layers(rotary_model, token_windows, seen.append, 4)
    for name, mask in rows.items():
        heads = []
        for capture in seen:
            logits = [capture.logits(head, torch.arange(40), torch.arange(40)) for head in range(2)]
            for each in logits:
                values = []
                for x, t in mask.nonzero().tolist():
                    if t >= 4:
                        weights = each[x, t, 4 : t + 1].softmax(-1).tolist()
                        values.append(sum(w * math.log(1 + t - s) for s, w in enumerate(weights, 4)))
                heads.append(sum(values) / len(values))
        assert found.means()[name] == pytest.approx(sum(heads) / 4, rel=1e-5)


def test_losses_are_those_after_the_tokens_of_a_class(rotary_model, token_windows, band_changes) -> None:
    chosen = token_windows < 3
    losses = rotary_model(token_windows)[:, :-1].log_softmax(-1)
    picked = [
        -float(losses[x, t, token_windows[x, t + 1]]) for x, t in chosen.nonzero().tolist() if t + 1 < 40
    ]  # fmt: skip
    assert class_loss(rotary_model, token_windows, chosen, ()) == pytest.approx(sum(picked) / len(picked), rel=1e-5)
    change = band_changes.changes()["short x 0.5"][0]
    everywhere = torch.ones_like(chosen)
    with intervening(rotary_model, *change):
        whole = class_loss(rotary_model, token_windows, everywhere, ())
    assert class_loss(rotary_model, token_windows, everywhere, change) == pytest.approx(whole, rel=1e-6)


def test_every_part_has_a_value(rotary_model, token_windows, band_changes) -> None:
    classes = torch.arange(12) % 2
    found = class_values(rotary_model, token_windows, classes, band_changes, dropped=4)
    assert list(found) == [(tuple(where.items()), metric) for where, metric in class_parts()]
    assert {dict(where)["words"] for where, _ in found} == {"function", "content"}
