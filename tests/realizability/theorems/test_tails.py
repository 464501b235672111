"""What is said of every kernel of a family, on random kernels of it: winners of deep rows, and records."""

from dataclasses import dataclass

import pytest
import torch

from poskernel.encodings import (
    ENCODINGS,
    Alibi,
    KerplePower,
    NonlinearFamily,
    Nope,
    RelativeEncoding,
    RelativeFamily,
    Rope,
)
from poskernel.realizability.theorems.offsets import prefix_winners
from poskernel.realizability.theorems.tails import TAILS, tail_of


def profiles(encoding, length, kernels=20):
    family, stream = encoding.family(20, 20), torch.Generator().manual_seed(0)
    if isinstance(family, NonlinearFamily):
        weights = torch.randn(kernels, 2, dtype=torch.float64, generator=stream)
        return torch.stack([family.kernel(each).profile(length) for each in weights])
    assert isinstance(family, RelativeFamily)
    weights = torch.randn(kernels, family.size, dtype=torch.float64, generator=stream)
    return torch.minimum(weights, family.upper_bounds()) @ family.values(torch.arange(length)).T


KNOWN = [each for each in ENCODINGS.values() if type(each) in TAILS]


@pytest.mark.parametrize("encoding", [each for each in KNOWN if tail_of(each).settles], ids=lambda each: each.name)
def test_where_deep_rows_settle_they_do(encoding):
    winner = prefix_winners(profiles(encoding, 120_000, 8))
    assert bool((winner[:, 80_000:] == winner[:, -1:]).all())


@pytest.mark.parametrize("encoding", [each for each in KNOWN if not tail_of(each).settles], ids=lambda each: each.name)
def test_where_they_do_not_new_winners_become_rare(encoding):
    winner = prefix_winners(profiles(encoding, 40_000))
    new = (winner == torch.arange(40_000)).double()
    assert float(new[:, 20_000:].mean()) < 1e-2 < float(new[:, :20].mean())


def test_a_rotary_kernel_can_change_its_winner_for_ever():
    """Why no more is claimed: cos(d - pi) comes ever nearer to its supremum, and reaches it at no offset."""
    profile = (torch.arange(1_000_000, dtype=torch.float64) - torch.pi).cos()
    best = profile.cummax(0).values
    assert int((best[1:] > best[:-1]).sum()) >= 6


def test_every_relative_encoding_with_one_family_has_a_statement():
    unsaid = {
        each.name
        for each in ENCODINGS.values()
        if each.relative and not (each.depends_on_length or each.drawn or each.no_kernel) and tail_of(each) is None
    }
    assert unsaid == {Nope().name, Alibi().name}  # affine: proposition 1


def test_a_subclass_has_none():
    @dataclass(frozen=True)
    class Tilted(Rope):
        def basis_at(self, offset, length):
            return torch.cat([super().basis_at(offset, length), offset.double()[:, None]], 1)

    assert tail_of(Tilted()) is None and isinstance(Tilted(), RelativeEncoding)
    assert tail_of(KerplePower()).settles
