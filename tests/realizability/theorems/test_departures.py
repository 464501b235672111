"""Where the kernel note's form fails and ours holds; each check says so when nothing fails."""

import pytest
import torch

from poskernel.encodings.absolute import sinusoids
from poskernel.realizability.theorems import departures
from poskernel.realizability.theorems.check import Effort


@pytest.mark.parametrize("function", departures.DEPARTURE_CHECKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("seed", [0, 7])
def test_every_departure_holds(function, seed):
    check = function(Effort.DEFAULT, seed)
    assert check.holds, check
    assert check.name == function.__name__.replace("_", "-") and check.n > 0


@pytest.mark.parametrize(
    ("function", "restored"),
    [
        (departures.position_logits_not_stationary, {"commuting": True}),
        (departures.layer_norm_of_a_sum, {"opposed": 0.0}),
        (departures.rope_needs_four_terms, {"content": 0.0}),
        (departures.boundary_rate, {"decay": lambda offset, rate: (1 + offset) ** -2}),
        (departures.window_is_toeplitz, {"periodic": True}),
        (departures.window_is_not_a_circle, {"whole_turns": True}),
        (departures.normalised_sinusoids, {"centred": False}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_where_the_sources_form_is_right_the_check_says_so(function, restored):
    assert not function(Effort.DEFAULT, 0, **restored).holds


def test_the_commuting_part_commutes_with_every_shift_and_is_kept_whole():
    frequency = torch.tensor([1.0, 0.3, 0.01], dtype=torch.float64)
    form = departures.commuting_part(departures.normal(0, "form", 6, 6))
    shift = torch.linalg.lstsq(
        sinusoids(torch.arange(40), frequency), sinusoids(torch.arange(5, 45), frequency)
    ).solution
    assert torch.allclose(shift @ form, form @ shift)
    assert torch.allclose(departures.commuting_part(form), form)


def test_the_additive_form_explains_what_is_additive():
    offset = departures.signed_offsets(30)
    token = torch.arange(30) % 3
    logits = torch.sin(offset) + departures.normal(0, "pairs", 3, 3)[token][:, token]
    assert departures.additive_share(logits, token, 3) == pytest.approx(1)
