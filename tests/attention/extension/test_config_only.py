"""A config alone: frequencies, resolution, and alpha that agrees with `predict`."""

import math

import pytest
import torch

from poskernel.attention.extension.config_only import extend_config, resolution, trained_length_of
from poskernel.errors import InputError
from poskernel.realizability import predict

CONFIG = {"rope_theta": 1e4, "head_dim": 16, "num_hidden_layers": 2, "max_position_embeddings": 256}


def test_alpha_is_what_predict_says():
    found = extend_config(CONFIG, "c", ["linear:4", "yarn:4"], 32, 96)
    assert list(found.settings) == ["none", "linear:4", "yarn:4"]
    for text, test_encoding in (
        ("none", None),
        ("linear:4", "linear:factor=4,frequencies=8"),
        ("yarn:4", "yarn:factor=4,original=256,frequencies=8"),
    ):
        (kind,) = found.settings[text]
        for task in ("prev", "skip5", "first"):
            said = predict("rope:frequencies=8", task, 32, [96], existence=False, test_encoding=test_encoding)
            assert kind.alpha[task] == pytest.approx(said.rows[0].alpha)


def test_wavelengths_and_turns():
    (kind,) = extend_config(CONFIG, "c", ["linear:4"], 32, 96).settings["linear:4"]
    rates = 1e4 ** (-torch.arange(8, dtype=torch.float64) / 8) / 4
    assert kind.shortest_wavelength == pytest.approx(8 * math.pi)
    assert kind.longest_wavelength == pytest.approx(2 * math.pi / float(rates[-1]))
    assert kind.turning_once == sum(2 * math.pi / float(rate) <= 96 for rate in rates)


def test_resolution_is_how_far_one_offset_stands_out():
    rates = torch.tensor([1.0, 0.3], dtype=torch.float64)
    worst = max((math.cos(d) + math.cos(0.3 * d)) / 2 for d in range(1, 40))
    assert resolution(rates, 40) == pytest.approx(1 - worst)
    assert resolution(rates / 8, 40) < resolution(rates, 40)
    assert resolution(torch.zeros(2, dtype=torch.float64), 40) == 0


def test_documents_are_plain():
    document = extend_config(CONFIG, "c", ["none"], 16, 40).document()
    assert document["schema"] == "poskernel.extend-config/1" and document["settings"][0]["kinds"][0]["planes"] == 8
    assert "alpha_prev" in extend_config(CONFIG, "c", ["none"], 16, 40).to_frame()


def test_the_trained_length_is_that_before_an_extension():
    assert trained_length_of(CONFIG) == 256
    assert trained_length_of({**CONFIG, "rope_scaling": {"original_max_position_embeddings": 64}}) == 64
    assert trained_length_of({"text_config": CONFIG}) == 256 and trained_length_of({}) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"train_length": 4}, "take 8"),
        ({"train_length": 40, "length": 40}, "not beyond the training length"),
        ({"settings": ["yarn:0.5"]}, "give 1 or more"),
    ],
)
def test_what_makes_no_sense_is_said(options, words):
    with pytest.raises(InputError, match=words):
        extend_config(CONFIG, "c", **{"settings": ["none"], "train_length": 16, "length": 40, **options})
