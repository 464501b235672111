"""Details of a head: sent where they were measured, refused where their lists do not fit."""

import math

import numpy as np
import pytest

from poskernel.errors import InputError
from poskernel.report.head_details import BINS, PARTS, details, pooled

LINES = {"line_frequencies": [1.0, 0.12345678], "line_amplitudes": [2.0, math.nan], "line_resolved": [True, np.False_]}
TOKENS = {"token_queries": [3, 9], "token_keys": [[2, 0], [9]], "token_weights": [[0.5, 0.25], [1.0]]}


def test_only_what_was_measured_is_sent_with_four_digits():
    assert details({"layer": 0}, 0) == {}
    assert details(LINES, 0) == {"lines": {"frequencies": [1.0, 0.1235], "amplitudes": [2.0, None], "resolved": [1, 0]}}
    assert details({name: [] for part in PARTS.values() for name in part.values()}, 0) == {}


def test_attended_rows_need_the_words_they_speak_of():
    assert details(TOKENS, 10)["tokens"] == {
        "queries": [3, 9], "keys": [[2, 0], [9]], "weights": [[0.5, 0.25], [1.0]]
    }  # fmt: skip
    with pytest.raises(InputError, match="speaks of position 9, but 9 words are given"):
        details(TOKENS, 9)


def test_lists_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"the lists of lines have \[1, 2\] entries"):
        details(LINES | {"line_amplitudes": [1.0]}, 0)
    bins = {name: [0.5, 0.5] for name in PARTS["distance"].values()}
    with pytest.raises(InputError, match="the lists of distance"):
        details(bins, 0)
    assert details(bins | {"distance_edges": [0, 1, 2]}, 0)["distance"]["edges"] == [0, 1, 2]


def test_a_pooled_spectrum_keeps_its_peak_and_leaves_out_frequency_zero():
    frequencies = np.linspace(0, math.pi, 20_001)
    power = np.exp(-(((frequencies - 0.7) / 0.001) ** 2))
    power[0] = 9.0
    across, values = pooled(frequencies.tolist(), power.tolist())
    assert len(across) <= BINS and across == sorted(across) and across[0] == frequencies[1]
    assert max(values) == power[1:].max()
    assert across[int(np.argmax(values))] == frequencies[1 + power[1:].argmax()]


def test_a_spectrum_that_is_undefined_has_no_bins():
    assert pooled([0.0, 1.0, 2.0], [math.nan] * 3) == ([], [])
    assert pooled([0.0], [1.0]) == ([], [])
