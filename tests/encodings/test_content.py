import pytest

from poskernel.encodings import Cope, ModelShape
from poskernel.errors import InputError


def test_cope_says_why_it_has_no_kernel() -> None:
    with pytest.raises(InputError, match="'cope' has no kernel family: CoPE counts positions by gates that depend on"):
        Cope().family(20, 40)


def test_cope_has_no_model_side() -> None:
    assert not Cope().trains
    with pytest.raises(InputError, match="'cope' has no model side"):
        Cope().module(ModelShape(8, 1, 20))
