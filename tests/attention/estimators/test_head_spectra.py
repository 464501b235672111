"""Spectra of measured kernels: planted lines are found, windows and layers without a rotation are said."""

import math

import pytest
import torch

from captures import capture_of, estimate
from poskernel.attention.estimators.head_spectra import UNROTATED, head_spectra

KEPT = 120
OWN = torch.tensor([1.1, 0.37, 0.09], dtype=torch.float64)


def kernels(window=None, causal=True, heads=2):
    """Heads whose logits are lines at OWN, from the rotation of one vector at every position, and a little noise."""
    generator = torch.Generator().manual_seed(0)
    position = torch.arange(KEPT)[:, None] * OWN
    turned = torch.cat([position.cos(), position.sin()], -1).expand(6, heads, -1, -1)
    noise = 0.01 * torch.randn(2, 6, heads, KEPT, 6, generator=generator, dtype=torch.float64)
    capture = capture_of(turned + noise[0], turned + noise[1], window=window, causal=causal)
    return estimate([capture], KEPT, 0, null=False)


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("causal", [True, False])
def test_planted_lines_are_found_within_the_offsets_there_are(window, causal):
    spectra = head_spectra(kernels(window, causal), {0: OWN}, KEPT)
    assert [(each.layer, each.head) for each in spectra] == [(0, 0), (0, 1)]
    for each in spectra:
        assert each.undefined is None
        assert each.lines.explained == pytest.approx(1, abs=1e-3)
        torch.testing.assert_close(each.lines.amplitude, torch.ones(3, dtype=torch.float64), atol=0.05, rtol=0)
        reach = window or KEPT
        assert each.lines.resolved.tolist() == [2 * math.pi / frequency <= reach for frequency in OWN.tolist()]
        assert each.fourier.resolution == pytest.approx(2 * math.pi / reach)
        assert each.lines.p < 0.05
        assert each.alignment.share > (0.9 if window is None else 0.75)  # the slowest line is resolved without window


def test_a_window_takes_no_pair_from_the_offsets_within_it():
    """The fit to lines plus a step weights offsets by the pairs there are: 120, 119, ... and not 40, 39."""
    (kernel, _) = kernels(40)
    g = kernel.g + 0.3 * (torch.arange(40) < 5)
    (found,) = head_spectra([type(kernel)(**{**vars(kernel), "g": g})], {0: OWN}, KEPT)
    offsets = torch.arange(40, dtype=torch.float64)
    columns = torch.cat([torch.ones(40, 1), (offsets[:, None] * OWN).cos(), (offsets[:, None] * OWN).sin()], 1)
    weights = (KEPT - offsets).sqrt()[:, None]
    solved = torch.linalg.lstsq(columns * weights, g[:, None] * weights).solution[:, 0]
    torch.testing.assert_close(found.lines.amplitude, solved[1:4].square().add(solved[4:] ** 2).sqrt())


def test_what_cannot_be_had_is_none_and_said():
    (plain, _) = head_spectra(kernels(), {}, KEPT)
    assert (plain.lines, plain.alignment, plain.undefined) == (None, None, UNROTATED)
    assert plain.fourier is not None
    (short, _) = head_spectra(kernels(window=7), {0: OWN}, KEPT)
    assert short.lines is None
    assert "3 lines have 7 parameters" in short.undefined
    (tiny, _) = head_spectra(kernels(window=3), {0: OWN}, KEPT)
    assert (tiny.fourier, tiny.lines, tiny.alignment) == (None, None, None)
    assert "a kernel of 3 offsets has no spectrum" in tiny.undefined
    slow = torch.tensor([0.01], dtype=torch.float64)
    (still, _) = head_spectra(kernels(), {0: slow}, KEPT)
    assert still.alignment is None
    assert "none of the 1 frequencies is resolved" in still.undefined


def test_layers_keep_their_own_frequencies():
    first, second = kernels()
    other = type(second)(**{**vars(second), "layer": 1})
    found = head_spectra([other, first], {0: OWN, 1: OWN[:2]}, KEPT)
    assert [(each.layer, each.head, len(each.lines.frequencies)) for each in found] == [(0, 0, 3), (1, 1, 2)]
