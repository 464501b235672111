"""Units of E1: what they measure of small models, and of a pretrained one."""

import pytest
import torch

from poskernel.encodings import Rope
from poskernel.experiments.kernel_units import (
    HEAD_MEASURES,
    KERNEL_MEASURES,
    KernelUnit,
    PretrainedCell,
    PretrainedKernelUnit,
    measured_model,
)
from poskernel.experiments.language_grid import QUICK
from poskernel.experiments.language_units import LanguageCell
from poskernel.models.language_training import train_language
from poskernel.models.training import initial_model
from poskernel.models.transformer import Architecture, Transformer
from poskernel.study import Status

CONDITION = QUICK.condition(Rope())
UNIT = KernelUnit(LanguageCell(CONDITION), 1, QUICK)


def test_both_states_are_measured_as_they_are(tmp_path) -> None:
    measured = {m.key: m for m in UNIT.run(tmp_path)}
    assert list(measured) == list(UNIT.keys) and {m.status for m in measured.values()} == {Status.DONE}
    assert {metric for _, metric, _ in UNIT.measures} == {each.name for each in KERNEL_MEASURES}
    models = {
        "untrained": initial_model(CONDITION.architecture, Rope(), 1).eval(),
        "trained": train_language(CONDITION, 1).model,
    }
    for state, model in models.items():
        found = measured_model(model, CONDITION.recipe.source, QUICK, variants=True)
        for (layer, head), numbers in found.values.items():
            cell = UNIT.cell.at(state=state, layer=layer, head=head)
            for metric in (each.name for each in HEAD_MEASURES):
                m = measured[cell.id, metric, 40, 1]
                assert (m.reason if isinstance(numbers[metric], str) else m.value) == numbers[metric]
        g = [measured[UNIT.cell.at(state=state).id, "g", d, 1].value for d in range(36)]
        assert g == pytest.approx(found.strongest.tolist())


class Words:
    """What loading gives, of a model of our own."""

    def __init__(self, source) -> None:
        self.source, self.seen = source, []

    def encode(self, text: str) -> list[int]:
        self.seen.append(text)
        return [ord(letter) % 20 for letter in text]


def test_a_pretrained_model_is_measured_beside_itself_drawn_anew(monkeypatch) -> None:
    from poskernel.attention.sources import loading
    from poskernel.attention.sources.small_source import TransformerSource

    torch.manual_seed(0)
    words = Words(TransformerSource(Transformer(Architecture(16, 2, 2, vocabulary=20), Rope()).eval()))
    monkeypatch.setattr(loading, "load", lambda model: words)
    cell = PretrainedCell("made-up", "topics", sequences=8, length=24)
    units = [PretrainedKernelUnit(cell, seed, texts=2, layers=2, heads=2, dropped=4) for seed in (0, 1)]
    found = [{m.key: m.value for m in unit.run()} for unit in units]
    assert [list(each) for each in found] == [list(unit.keys) for unit in units]
    assert words.seen[0] != words.seen[1]
    trained, untrained = (cell.at(state=state, layer=0, head=0).id for state in ("trained", "untrained"))
    assert found[0][trained, "signal", 24, 0] != found[0][untrained, "signal", 24, 0]
    assert found[0][trained, "r2", 24, 0] > 0.5


def test_a_model_of_another_shape_is_a_failure_and_no_half_measured_one(monkeypatch) -> None:
    from poskernel.attention.sources import loading
    from poskernel.attention.sources.small_source import TransformerSource

    words = Words(TransformerSource(Transformer(Architecture(16, 1, 2, vocabulary=20), Rope()).eval()))
    monkeypatch.setattr(loading, "load", lambda model: words)
    cell = PretrainedCell("made-up", "topics", sequences=8, length=24)
    assert {m.status for m in PretrainedKernelUnit(cell, layers=2, heads=2, dropped=4).run()} == {Status.FAILED}
