"""Chance level of the attention on first positions, against weights written out."""

import pytest

from poskernel.attention.estimators.even_attention import even_masses


def slow(length, dropped, window, causal):
    """Row by row."""
    reach, first, early = window or length, 0.0, 0.0
    for row in range(dropped, length):
        keys = [key for key in range(length) if (0 if causal else 1 - reach) <= row - key < reach]
        first += (0 in keys) / len(keys)
        early += sum(key < dropped for key in keys) / len(keys)
    return first / (length - dropped), early / (length - dropped)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("length", "dropped", "window"), [(48, 16, None), (20, 0, None), (30, 4, 7), (30, 4, 40)])
def test_even_weights_row_by_row(length, dropped, window, causal):
    assert even_masses(length, dropped, window, causal) == pytest.approx(slow(length, dropped, window, causal))


def test_short_sequences_put_half_on_the_first_positions_by_chance():
    assert even_masses(48, 16, None, True)[1] == pytest.approx(0.54, abs=0.01)
    assert even_masses(512, 16, None, True)[1] == pytest.approx(0.11, abs=0.01)
