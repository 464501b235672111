"""Kernel units on a tiny model: every column is there, an unchanged model predicts itself, parts against loops."""

import math

import pytest
import torch

pytest.importorskip("transformers")

from extension_world import ASKED, tiny_model
from poskernel.experiments.extension import cells
from poskernel.experiments.extension.cells import reach_of, screen_of, setting_of
from poskernel.experiments.extension.kernels import (
    ALPHA,
    BEYOND,
    KERNEL_MEANINGS,
    OF_HEADS,
    HeadUnit,
    KernelUnit,
    beyond_error,
    by_group,
    predictions,
    surviving_share,
)
from poskernel.study.units import Status


@pytest.fixture
def model(monkeypatch):
    yield tiny_model(monkeypatch)
    for cache in (cells.opened_model, cells.text_tokens, cells.unscaled_screen):
        cache.cache_clear()


def values(setting, lengths=(32, 64)):
    rows = KernelUnit(ASKED.cell(setting, "a"), lengths).run()
    assert all(row.status is Status.DONE for row in rows), rows[0].reason
    return {(row.metric, row.length): row.value for row in rows}


@pytest.mark.usefixtures("model")
def test_every_number_is_measured_at_the_lengths_that_have_it():
    found = values("linear:2", (32, 64, 80))
    assert {metric for metric, _ in found} == set(KERNEL_MEANINGS)
    assert {length for metric, length in found if metric in BEYOND} == {64, 80}
    assert {length for metric, length in found if metric in ALPHA} == {80}
    undefined = {metric for (metric, _), value in found.items() if value is None}
    assert all(
        metric.split("_correlation")[0] in {"undecided", "previous_token", "near", "far", "late"}
        for metric in undefined
    )


@pytest.mark.usefixtures("model")
def test_a_kernel_unit_predicts_itself_where_nothing_changes():
    found = values("none")
    assert found["correlation", 32] == pytest.approx(1, abs=1e-6) and found["rms", 32] == pytest.approx(0, abs=1e-4)
    assert found["loss", 32] > 0 and 0 < found["decided", 32] <= 1
    assert found["surviving_share", 32] == 1, "every decided head has its own peak at the measured length"


@pytest.mark.usefixtures("model")
def test_a_setting_is_predicted_better_than_by_nothing_in_the_first_third():
    found = values("linear:2")
    assert found["correlation", 32] > found["unchanged_correlation", 32]
    assert found["early_correlation", 32] == pytest.approx(1, abs=1e-3)
    assert found["early_correlation_p10", 32] <= found["early_correlation", 32]


def test_survivors_are_those_of_a_loop_over_rows(model):
    cell, length = ASKED.cell("linear:2", "a"), 60
    screen, setting = screen_of(cell), setting_of(model, cell)
    kept, number = 0, 0
    for forms in screen.layers:
        for head in range(forms.heads):
            own = screen.own_of([(forms.layer, head)])
            if not bool(own.decided[0]):
                continue
            number += 1
            g = forms.kernel(head).with_turning(setting.turnings(length)[forms.layer]).profile(length)
            peak = int(own.peak[0])
            kept += all(int(g[: row + 1].argmax()) == peak for row in range(32, length))
    assert number > 0 and surviving_share(screen, setting, length) == pytest.approx(kept / number)


def test_kernels_differ_beyond_the_measured_offsets_alone(model):
    cell = ASKED.cell("linear:2", "a")
    screen = screen_of(cell)
    known = reach_of(32, 2)
    found = predictions(screen.layers, setting_of(model, cell), 64, known + 10)
    for name in ("overall_beyond", "tail"):
        torch.testing.assert_close(found[name][:, :known], found["predicted"][:, :known])
        assert not torch.allclose(found[name][:, known:], found["predicted"][:, known:])


def test_the_level_of_near_offsets_is_taken_out_and_no_other():
    measured = torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert float(beyond_error(measured + 5, measured, 8).abs().max()) == pytest.approx(0, abs=1e-12)
    shifted = measured.clone()
    shifted[:, 8:] += 0.3
    torch.testing.assert_close(beyond_error(shifted, measured, 8), torch.full((3,), 0.3, dtype=torch.float64))


def test_groups_without_a_head_have_no_number():
    correlation = torch.tensor([0.1, 0.2, 0.3])
    found = by_group(correlation, {"near": torch.tensor([True, False, True]), "far": torch.zeros(3, dtype=torch.bool)})
    assert set(found) == {"near_correlation", "near_correlation_p10"}
    assert found["near_correlation"] == pytest.approx(0.2)


@pytest.mark.usefixtures("model")
def test_heads_have_their_covariance_part_and_their_text():
    unit = HeadUnit(ASKED.heads("b"), *ASKED.shape)
    rows = unit.run()
    assert len(rows) == 8 * len(OF_HEADS)
    kernel = screen_of(ASKED.cell("none", "b")).layers[1].kernel(2)
    part = ASKED.heads("b").at(1, 2).id
    found = {row.metric: row.value for row in rows if row.cell == part}
    assert found["share_of_means"] == pytest.approx(kernel.share_of_means)
    g, means = kernel.profile(kernel.measured), kernel.means_alone().profile(kernel.measured)
    assert found["covariance_rms"] == pytest.approx(math.sqrt(float((g - means).var(correction=0))))


def test_units_say_what_they_are():
    kernel, heads = KernelUnit(ASKED.cell("linear:2", "a")), HeadUnit(ASKED.heads("a"), 2, 4)
    assert (kernel.kind, heads.kind) == ("kernels", "heads") and heads.cost < kernel.cost
    assert "linear:2" in kernel.description and "on a" in heads.description
