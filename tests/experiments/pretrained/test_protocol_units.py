"""Units of E7 on tiny models: what they say is what the estimators find on the same windows."""

import pytest

pytest.importorskip("transformers")

from families import HEADS, LAYERS, loaded
from poskernel.attention.content.head_products import head_products
from poskernel.attention.measures import measure_with
from poskernel.attention.measuring import Subject
from poskernel.experiments.pretrained import protocol_units
from poskernel.experiments.pretrained.models import PretrainedModel, RealModelCell, text_windows
from poskernel.experiments.pretrained.protocol_units import (
    HEAD_MEASURES,
    PRODUCT_MEASURES,
    KernelProtocolUnit,
    ProductProtocolUnit,
    relative_depth,
)


def cell(causal: bool = True) -> RealModelCell:
    """Of a tiny model."""
    return RealModelCell(PretrainedModel("tiny", "package:tiny", LAYERS, HEADS, causal, (1,), "-"), "topics", 6, 40)


@pytest.mark.parametrize(("family", "causal"), [("llama", True), ("bert", False)])
def test_heads_and_rows_are_measured(monkeypatch, family: str, causal: bool) -> None:
    words = loaded(family)
    monkeypatch.setattr(protocol_units, "opened", lambda model: words)
    unit = KernelProtocolUnit(cell(causal), 1, texts=2, dropped=4)
    found = {m.key: m for m in unit.run()}
    assert list(found) == list(unit.keys) and {str(m.status) for m in found.values()} == {"done"}
    weights = found[unit.cell.at(protocol="kernel").id, "weights", 40, 1]
    assert weights.value is None and weights.reason == f"sha256 {'0' * 64}, not quantized"
    tokens = text_windows(words, "topics", 1, 2, 6, 40)
    kernels, other = measure_with(Subject(words.source, tokens, range(LAYERS), 4, 1, causal=causal), ["split"])
    for kernel in kernels:
        part = unit.part("trained", kernel.layer, kernel.head).id
        split = other[kernel.layer, kernel.head]["split"]
        expected = {"share": kernel.share.value, "key_share": split.shares["key"].value}
        for name, value in {**expected, "first_mass": kernel.first_mass}.items():
            assert found[part, name, 40, 1].value == pytest.approx(value), name
    fresh, own = (found[unit.part(state, 0, 0).id, "signal", 40, 1] for state in ("untrained", "trained"))
    assert (fresh.value, fresh.reason) != (own.value, own.reason)
    slopes = [key for key in found if key[1] == "log_z_slope"]
    assert bool(slopes) is causal and {key[2] for key in slopes} <= set(unit.keys_compared)
    assert {key[1] for key in found if key[0] == part} == {each.name for each in HEAD_MEASURES}


def test_chosen_layers_alone_without_a_control(monkeypatch) -> None:
    monkeypatch.setattr(protocol_units, "opened", lambda model: loaded("llama"))
    unit = KernelProtocolUnit(cell(), 1, texts=2, dropped=4, layers=(1,), fresh=False)
    assert {str(m.status) for m in unit.run()} == {"done"}
    parts = {dict(each.part).get("layer") for each, _, _ in unit.measures}
    assert parts == {None, 1} and "untrained" not in {dict(each.part).get("state") for each, _, _ in unit.measures}


def test_products_are_those_of_the_selected_layers(monkeypatch) -> None:
    words = loaded("llama")
    monkeypatch.setattr(protocol_units, "opened", lambda model: words)
    unit = ProductProtocolUnit(cell(), 0, texts=2, dropped=4)
    found = {m.key: m for m in unit.run()}
    assert list(found) == list(unit.keys) and {str(m.status) for m in found.values()} == {"done"}
    assert {metric for _, metric, _ in unit.measures} == {each.name for each in PRODUCT_MEASURES}
    tokens = text_windows(words, "topics", 0, 2, 6, 40)
    for each in head_products(words.source, tokens, (1,), 4):
        part = unit.part(1, each.head).id
        assert found[part, "both_input", 40, 0].value == pytest.approx(each.fits["input"].r2("both").value)
        assert found[part, "residual_rank", 40, 0].value == pytest.approx(
            each.cross_terms["additive"].effective_rank().value
        )


def test_depth_runs_from_0_to_1() -> None:
    assert [relative_depth(layer, 5) for layer in (0.0, 2.0, 4.0)] == [0, 0.5, 1]
