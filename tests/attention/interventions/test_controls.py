"""Random planes of equal energy, with the energies by loops over rows; means; both from our own transformer too."""

import pytest
import torch

pytest.importorskip("transformers")

from families import tiny, tokens
from poskernel.attention.interventions.changes import PlaneGain
from poskernel.attention.interventions.controls import (
    consume_layers,
    matched_draws,
    matched_planes,
    matched_sets,
    plane_energies,
    position_means,
    set_energy,
)
from poskernel.attention.interventions.intervene import intervening
from poskernel.attention.interventions.planes import every_plane, rotary_planes
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer

LENGTH, DROPPED = 70, 3


def own(encoding: str = "rope", width: int = 32) -> Transformer:
    torch.manual_seed(1)
    return Transformer(Architecture(width=width, layers=2, heads=2), ENCODINGS[encoding]).requires_grad_(False)


def own_text() -> torch.Tensor:
    return torch.randint(0, 12, (6, 24), generator=torch.Generator().manual_seed(1))


def row_variance(capture: LayerCapture, head: int, dropped: int, before: torch.Tensor | None = None) -> float:
    """Within-row variance of logits (less other logits) over the pairs that attend, row by row."""
    everywhere = torch.arange(capture.length)
    logits = capture.logits(head, everywhere, everywhere).double()
    logits = logits if before is None else before - logits
    total, pairs = 0.0, 0
    for sequence in range(logits.shape[0]):
        for t in range(dropped, capture.length):
            allowed = capture.allowed(head)[0, t].clone()
            allowed[:dropped] = False
            row = logits[sequence, t][allowed]
            total += float(((row - row.mean()) ** 2).sum())
            pairs += len(row)
    return total / pairs


@pytest.mark.parametrize("family", ["mistral", "modernbert", "gptj"])
def test_a_sets_energy_is_the_variance_that_its_removal_takes_from_the_rows(family: str) -> None:
    """Removed by an intervention, so that energies and gains speak of the same planes."""
    module, text = tiny(family), tokens(3, LENGTH)
    rotary, head = rotary_planes(module), (0, 2)
    energies = plane_energies(module, text, rotary, [head, (1, 1)], dropped=DROPPED, batch=2)
    seen: list[LayerCapture] = []
    HuggingFaceSource(module).forward(text, seen.append)
    chosen = (0, len(energies[head]) - 1)
    with intervening(module, PlaneGain({head: chosen}, 0.0, rotary)):
        HuggingFaceSource(module).forward(text, seen.append)
    everywhere = torch.arange(LENGTH)
    plain = seen[0].logits(2, everywhere, everywhere).double()
    expected = row_variance(seen[2], 2, DROPPED, before=plain)
    assert set_energy(energies[head], chosen) == pytest.approx(expected, rel=1e-4)
    assert set_energy(energies[head], chosen) != pytest.approx(sum(float(energies[head][k, k]) for k in chosen))


def test_all_planes_of_a_head_are_its_whole_energy() -> None:
    model, seen = own(), []
    rotary = rotary_planes(model)
    energies = plane_energies(model, own_text(), rotary, [(1, 0)], dropped=0)
    consume_layers(model, own_text(), seen.append, batch=6)
    assert float(energies[1, 0].sum()) == pytest.approx(row_variance(seen[1], 0, 0), rel=1e-4)


def test_controls_have_the_energy_of_what_they_control_and_other_planes() -> None:
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(24, 60, generator=generator, dtype=torch.float64)
    energies = {(0, 1): factors @ factors.T, (3, 2): torch.eye(24, dtype=torch.float64)}
    planes = {(0, 1): (4, 5, 6), (3, 2): (0, 9)}
    draws = matched_draws(energies, planes, draws=6, seed=5)
    assert len(draws) == 6
    assert draws == matched_draws(energies, planes, draws=6, seed=5)
    assert len({drawn[0, 1] for drawn in draws}) > 3
    for drawn in draws:
        assert drawn.keys() == planes.keys()
        assert len(drawn[3, 2]) == 2  # equal planes: as many of them
        for head, chosen in planes.items():
            assert not set(drawn[head]) & set(chosen)
            block = [[float(energies[head][a, b]) for b in drawn[head]] for a in drawn[head]]
            assert sum(map(sum, block)) == pytest.approx(set_energy(energies[head], chosen), rel=0.1)


def test_energies_that_cannot_be_matched_are_refused() -> None:
    strong, generator = torch.diag(torch.tensor([100.0, 1, 1, 1])).double(), torch.Generator()
    with pytest.raises(
        InputError, match=r"no set of the 3 other planes has the energy 100 of planes 0 within 10% \(nea"
    ):
        matched_planes(strong, (0,), generator)
    assert matched_planes(strong, (1, 2), generator, among=[1, 3]) == (1, 3)
    with pytest.raises(InputError, match="planes 1 add nothing to the logits"):
        matched_planes(torch.zeros(4, 4, dtype=torch.float64), (1,), generator)
    with pytest.raises(InputError, match="no set of the 0 other planes"):
        matched_planes(strong, (0, 1, 2, 3), generator)
    model = own()
    with pytest.raises(InputError, match="dropping 23 of 24 positions leaves no row with two keys"):
        plane_energies(model, own_text(), rotary_planes(model), [(0, 0)], dropped=23)
    with pytest.raises(InputError, match=r"vectors added to each key \(Shaw\)"):
        position_means(own("shaw"), own_text())


def test_a_control_that_does_not_exist_is_none() -> None:
    energies = torch.diag(torch.tensor([9.0, 1.0, 1.0, 1.0], dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    assert matched_sets(energies, (0,), 2, generator) is None
    assert matched_sets(energies, (1,), 2, generator) is not None


def test_energy_controls_run_as_interventions() -> None:
    model = own(width=64)
    rotary = rotary_planes(model)
    energies = plane_energies(model, own_text(), rotary, [(0, 0), (0, 1)], dropped=2)
    target = {head: planes[:3] for head, planes in every_plane(rotary, energies).items()}
    plain = model(own_text())
    for drawn in matched_draws(energies, target, draws=2, tolerance=0.5):
        with intervening(model, PlaneGain(drawn, 0.5, rotary)):
            assert not torch.equal(model(own_text()), plain)


@pytest.mark.parametrize("batch", [1, 4, 6])
def test_means_do_not_depend_on_the_batch(batch: int) -> None:
    model, seen = own("sinusoidal"), []
    consume_layers(model, own_text(), seen.append, batch=6)
    means = position_means(model, own_text(), batch)
    for layer, capture in enumerate(seen):
        for head in range(2):
            for t in (0, 11, 23):
                query = sum(capture.query[x, head, t].double() for x in range(6)) / 6
                torch.testing.assert_close(means.query[layer][head, t], query, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(means.key[1], seen[1].key.double().mean(0))
    assert means.group(0) == 1
    grouped = position_means(tiny("llama"), tokens(2, 16))
    assert grouped.group(1) == 2
