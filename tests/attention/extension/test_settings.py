"""Settings in words: what is the model's own stays, what is given wins, and what makes no sense is said."""

import json

import pytest
import torch

from poskernel.attention.extension.planes import Turning
from poskernel.attention.extension.rotary_layers import LayerKind
from poskernel.attention.extension.settings import automatic_settings, parse_setting
from poskernel.encodings import DynamicNtk, LinearInterpolation, Llama3, Rope, Yarn
from poskernel.errors import InputError

OWN = Rope(base=5e5, frequencies=8)


def kind(name="rotary", window=None, layers=(0, 1), own=OWN):
    return LayerKind(name, layers, 8, 16, window, own, Turning(OWN.rates(8, 1)))


def only(text, trained=4096):
    (encoding,) = parse_setting(text, [kind()], trained).changed.values()
    return encoding


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linear:4", LinearInterpolation(4.0, base=5e5, frequencies=8)),
        ("yarn:4", Yarn(4.0, 4096, base=5e5, frequencies=8)),
        ("yarn:factor=8,original=64,base=1e4", Yarn(8.0, 64, base=1e4, frequencies=8)),
        ("dynamic:2", DynamicNtk(2.0, 4096, base=5e5, frequencies=8)),
        ("llama3:8,low=2", Llama3(8.0, 4096, low=2.0, base=5e5, frequencies=8)),
        ("base:1e6", Rope(base=1e6, frequencies=8)),
        ("base:x4", Rope(base=2e6, frequencies=8)),
        ("rope:base=1e6,frequencies=8", Rope(base=1e6, frequencies=8)),
        ('{"rope_type": "linear", "factor": 4}', LinearInterpolation(4.0, base=5e5, frequencies=8)),
        ('{"type": "linear", "factor": 4.0, "rope_theta": 10000}', LinearInterpolation(4.0, base=1e4, frequencies=8)),
        ('{"rope_scaling": {"type": "yarn", "factor": 4}}', Yarn(4.0, 4096, base=5e5, frequencies=8)),
        ('{"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}', Rope(base=1e6, frequencies=8)),
    ],
)
def test_what_is_left_open_is_the_models_own(text, expected):
    assert only(text) == expected


def test_none_changes_nothing():
    setting = parse_setting("none", [kind()], 4096)
    assert setting.changed == {} and setting.encoding(kind()) == OWN
    torch.testing.assert_close(setting.turnings(9)[1].rates, OWN.rates(8, 1))
    assert not setting.effective["rotary"]["changed"]


def test_effective_parameters_are_echoed():
    said = parse_setting("yarn:4", [kind()], 4096).effective["rotary"]
    assert "original=4096" in said["encoding"] and "base=500000.0" in said["encoding"]
    assert said["attention_factor"] == pytest.approx(1.1386, abs=1e-4) and said["layers"] == [0, 1]


def test_windows_are_left_alone_where_other_layers_have_none():
    kinds = [kind("sliding_attention", window=64, layers=(0,)), kind("full_attention", layers=(1,))]
    assert set(parse_setting("yarn:4", kinds, 4096).changed) == {"full_attention"}
    assert set(parse_setting("yarn:4", kinds[:1], 4096).changed) == {"sliding_attention"}
    each = {"sliding_attention": {"rope_type": "linear", "factor": 2}}
    assert set(parse_setting(json.dumps({"rope_parameters": each}), kinds, 4096).changed) == {"sliding_attention"}


def test_length_matters_where_it_should():
    assert parse_setting("dynamic:2", [kind()], 64).depends_on_length
    assert parse_setting("longrope:2", [kind()], 64).depends_on_length
    assert not parse_setting("yarn:4", [kind()], 64).depends_on_length
    dynamic = parse_setting("dynamic:2", [kind()], 64)
    assert not dynamic.turnings(64)[0].same_as(dynamic.turnings(128)[0])
    own = kind(own=DynamicNtk(2.0, 64, base=5e5, frequencies=8))
    assert parse_setting("none", [own], 64).depends_on_length


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yarm:4", "did you mean 'yarn'"),
        ("alibi", "unknown setting 'alibi'"),
        ("yarn", "write yarn:4"),
        ("yarn:1", "factor of setting 'yarn:1' is 1"),
        ("linear:0.5", "give 1 or more"),
        ("none:4", "write none alone"),
        ("base:big", "give a number, or x4"),
        ("base:x0.5", "give more than 1"),
        ("base:-3", "give a positive number"),
        ("yarn:4,frequencies=3", "leave frequencies out"),
        ("yarn:4,orignal=64", "did you mean 'original'"),
        ('{"rope_type": "yarn", "factor": 4', "no valid JSON"),
        ('{"rope_type": "yarn", "factr": 4}', "did you mean 'factor'"),
        ('{"rope_type": "yarn", "factor": 1}', "give more than 1"),
        ('{"rope_type": "linear", "low_freq_factor": 4}', "does not read 'low_freq_factor'"),
        ('{"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.5}', "leave it out"),
        ('{"rope_type": "linear", "factor": 2, "head_dim": 64}', "leave it out"),
        ('{"rope_parameters": {"local": {"rope_type": "default"}}}', "kind of rotary layers 'local'"),
    ],
)
def test_what_makes_no_sense_is_said(text, words):
    with pytest.raises(InputError, match=words):
        parse_setting(text, [kind()], 4096)


def test_what_the_model_does_not_say_has_to_be_given():
    with pytest.raises(InputError, match="give original=8192"):
        parse_setting("yarn:4", [kind()], None)
    assert only("yarn:4,original=32", None).original == 32
    with pytest.raises(InputError, match="no base that is known"):
        parse_setting("yarn:4", [kind(own=None)], 64)
    (given,) = parse_setting("yarn:4,base=1e4", [kind(own=None)], 64).changed.values()
    assert given.base == 1e4


def test_auto_takes_the_factor_that_reaches_the_length():
    assert "yarn:2" in automatic_settings(8192, 16384) and "base:x4" in automatic_settings(8192, 16385)
    assert automatic_settings(8192, 100)[0] == "none" and automatic_settings(None, 100)[1] == "linear:2"
