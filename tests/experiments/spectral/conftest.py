"""One small rotary model and text for all tests of spectral interventions."""

import pytest
import torch

from poskernel.encodings import ENCODINGS
from poskernel.experiments.spectral.band_changes import BandChanges
from poskernel.models.transformer import Architecture, Transformer

LENGTH, DROPPED = 40, 4


@pytest.fixture(scope="session")
def rotary_model() -> Transformer:
    torch.manual_seed(1)
    shape = Architecture(width=64, layers=2, heads=2, train_length=LENGTH)
    return Transformer(shape, ENCODINGS["rope"]).requires_grad_(False)


@pytest.fixture(scope="session")
def token_windows() -> torch.Tensor:
    return torch.randint(0, 12, (4, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def band_changes(rotary_model, token_windows) -> BandChanges:
    return BandChanges.of(rotary_model, 2, token_windows, DROPPED, seed=0)
