"""What units ask is what they give; distances and scores are those of the model under the very change."""

import dataclasses

import pytest
import torch

from poskernel.attention.interventions.bands import Band
from poskernel.attention.interventions.controls import consume_layers
from poskernel.attention.interventions.distance_changes import LogDistances
from poskernel.attention.interventions.intervene import intervening
from poskernel.experiments.spectral import band_units
from poskernel.experiments.spectral.band_changes import BandChanges, gained
from poskernel.experiments.spectral.band_units import (
    EMPTY,
    UNMATCHED,
    FilterUnit,
    SpectralUnit,
    distance_parts,
    head_distances,
    of_name,
    scored_changes,
    scores,
)
from poskernel.experiments.spectral_interventions import E4
from poskernel.models.generated import Dyck
from poskernel.models.language_training import train_language
from poskernel.models.text import Split

HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_names_are_read_back() -> None:
    assert of_name("unresolved x 1.5") == (Band.UNRESOLVED, 1.5)
    assert "random for short x 0.5" in scored_changes((0.5,)) and "all x 0.5" in scored_changes((0.5,), stretch=4)
    assert not any("random" in name for name in scored_changes((0.5, 1.5), stretch=2))


def test_distances_are_those_under_the_change(band_changes, rotary_model, token_windows) -> None:
    found = head_distances(rotary_model, band_changes, token_windows, 4, (0.5,))
    assert list(found) == [(tuple(where.items()), metric) for where, metric in distance_parts(HEADS, (0.5,))]

    def distances(*changes):
        seen = LogDistances(4)
        with intervening(rotary_model, *changes):
            consume_layers(rotary_model, token_windows, seen.consume, 4)
        return seen.means()

    before = distances()
    for band in Band:
        name = gained(band, 0.5)
        together = distances(*band_changes.changes()[name][0])
        single = distances(*band_changes.changes([1])[name][0])
        for layer, head in HEADS:
            where = {"change": name, "layer": layer, "head": head}
            whole = found[tuple({"scope": "all layers", **where}.items()), "distance_change"]
            assert whole == pytest.approx(together[layer, head] - before[layer, head], abs=1e-6)
            if layer == 1:
                one = found[tuple({"scope": "one layer", **where}.items()), "distance_change"]
                assert one == pytest.approx(single[layer, head] - before[layer, head], abs=1e-6)


def test_heads_without_planes_or_controls_say_so(band_changes, rotary_model, token_windows) -> None:
    bare = dataclasses.replace(
        band_changes,
        bands={**band_changes.bands, Band.MIDDLE: dict.fromkeys(HEADS, ())},
        random=dict.fromkeys(band_changes.random, [{}] * 5),
    )
    assert isinstance(bare, BandChanges)
    found = head_distances(rotary_model, bare, token_windows, 4, (0.5,))
    for (where, metric), value in found.items():
        change = dict(where)["change"]
        if change == "middle x 0.5":
            assert value == EMPTY
        elif metric == "over_random":
            assert value == UNMATCHED
        else:
            assert isinstance(value, float)


def test_a_random_change_is_scored_by_its_mean(rotary_model) -> None:
    given = iter([1.0, 2.0, 4.0])
    found = scores(rotary_model, {"a": [(), ()]}, ["none", "a", "b"], lambda: next(given))
    assert found["none"] == 1.0 and found["a"] == 3.0 and isinstance(found["b"], str)


def test_units_give_what_they_ask(tmp_path) -> None:
    units = [unit for unit in E4.quick.units() if unit.seed == 0]
    task = next(u for u in units if isinstance(u, SpectralUnit) and isinstance(u.cell.condition.recipe.source, Dyck))
    filters = next(unit for unit in units if isinstance(unit, FilterUnit))
    for unit in (task, filters):
        values = unit.measured(train_language(unit.cell.condition, 0))
        assert list(dict.fromkeys(unit.measures)) == list(unit.measures)
        assert set(values) == set(unit.measures)
    assert {length for _, _, length in task.measures} == {40, 80, 160}


def test_filters_are_learnt_on_other_documents_than_they_are_judged_on(monkeypatch) -> None:
    unit = next(unit for unit in E4.quick.units() if isinstance(unit, FilterUnit))
    condition, learnt, judged = unit.cell.condition, [], []
    source, means, tokens = condition.recipe.source, band_units.position_means, band_units.held_out_tokens

    def noted(into, windows: torch.Tensor) -> torch.Tensor:
        into.append(windows)
        return windows

    monkeypatch.setattr(band_units, "position_means", lambda model, windows: means(model, noted(learnt, windows)))
    monkeypatch.setattr(band_units, "held_out_tokens", lambda *given: noted(judged, tokens(*given)))
    unit.measured(train_language(condition, 0))
    assert [windows.shape[1] for windows in learnt] == [windows.shape[1] for windows in judged] == [40, 80, 160]
    text = source.stream(Split.TEST, 160)
    for own, others in zip(learnt, judged, strict=True):
        places = text.unfold(0, own.shape[1], 1)
        assert all(bool((places == window).all(1).any()) for window in others)
        assert not any(bool((places == window).all(1).any()) for window in own)
        assert len(own) >= 2 * len(others)
