"""Scalings of RoPE: the published definitions, transformers' own frequencies, and what they do to a fitted kernel."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from poskernel.encodings import (
    DynamicNtk,
    LinearInterpolation,
    Llama3,
    LongRope,
    ModelShape,
    Ntk,
    Rope,
    RotaryEncoding,
    Yarn,
    parse_encoding,
)
from poskernel.errors import InputError
from poskernel.realizability.alignment import alpha
from poskernel.tasks import parse_task

SHORT, LONG = tuple(1 + 0.01 * k for k in range(16)), tuple(1 + 0.4 * k for k in range(16))


def peak(target: int) -> Tensor:
    """Weights of sum_k cos(f_k (d - target)) under RoPE with 16 frequencies."""
    phase = target * Rope().rates(16, 1)
    return torch.cat([phase.cos(), phase.sin()])


@pytest.mark.parametrize(
    ("encoding", "alphas"),
    [
        (Rope(), (1, 1, 1)),
        (LinearInterpolation(8.0), (0, 0, 0)),
        (DynamicNtk(2.0, original=24), (1, 1, 0)),
        (Yarn(8.0, original=24), (1, 0.18, 0)),
        (Llama3(8.0, original=24), (1, 0, 0)),
    ],
)
def test_the_oracle_table(encoding: RotaryEncoding, alphas: tuple[float, ...]) -> None:
    """Peaks fitted at offsets 1, 4 and 12 under RoPE, trained at 24, evaluated to 192 without training."""
    for target, expected in zip((1, 4, 12), alphas, strict=True):
        kernel = encoding.family(24, 192).kernel(peak(target))
        assert round(alpha(kernel, parse_task(f"skip:offset={target}"), 24, 192), 2) == expected


@pytest.mark.parametrize("target", [1, 4, 12])
def test_linear_interpolation_moves_a_peak_from_t_to_s_t(target: int) -> None:
    profile = LinearInterpolation(8.0).family(24, 192).kernel(peak(target)).profile(192)
    assert profile is not None
    assert int(profile.argmax()) == 8 * target


def test_linear_interpolation_is_a_scale_of_rope() -> None:
    offset = torch.arange(200)
    torch.testing.assert_close(
        LinearInterpolation(4.0).basis(offset), Rope(scale=0.25).basis(offset), atol=1e-13, rtol=0
    )


def test_ntk_keeps_the_fastest_pair_and_divides_the_slowest() -> None:
    plain, scaled = Rope().rates(16, 1), Ntk(4.0).rates(16, 1)
    assert float(scaled[0]) == 1
    assert float(scaled[-1]) == pytest.approx(float(plain[-1]) / 4)
    # base' = base s^(D/(D-2)) with D = 32.
    torch.testing.assert_close(scaled, Rope(base=1e4 * 4 ** (32 / 30)).rates(16, 1))


def test_dynamic_ntk_starts_at_the_original_length_and_grows() -> None:
    encoding = DynamicNtk(2.0, original=24)
    plain = Rope().rates(16, 1)
    assert torch.equal(encoding.rates(16, 24), plain)
    assert torch.equal(encoding.rates(16, 3), plain)
    assert bool((encoding.rates(16, 25)[1:] < plain[1:]).all())
    # At n = 192, s n / L0 - (s - 1) = 15.
    torch.testing.assert_close(encoding.rates(16, 192), Ntk(15.0).rates(16, 1))
    assert encoding.depends_on_length


def test_the_dynamic_module_reads_the_length_off_the_positions() -> None:
    encoding = DynamicNtk(2.0, original=24)
    module = encoding.module(ModelShape(32, 1, 24))
    for position in (torch.arange(80), torch.tensor([3, 79]), torch.tensor([79])):
        rotation = module(position).query_rotation
        assert rotation is not None
        expected = (position.double()[:, None] * encoding.rates(16, 80)).cos().float()
        assert torch.equal(rotation[0], expected)


def test_yarn_at_tiny_original_lengths_does_what_the_published_code_does() -> None:
    """L0 = 4 at width 64 interpolates nothing; L0 = 24 leaves only pair 0 untouched."""
    plain = Rope().rates(32, 1)
    assert torch.equal(Yarn(8.0, original=4).rates(32, 1), plain)
    for pairs in (16, 32):
        plain, scaled = Rope().rates(pairs, 1), Yarn(8.0, original=24).rates(pairs, 1)
        assert torch.equal(scaled[:1], plain[:1])
        assert bool((scaled[1:] < plain[1:]).all())


def test_yarn_has_three_zones() -> None:
    """Of 64 pairs at L0 = 4096: those up to the ramp's low end as they are, beyond its high end divided by s."""
    encoding = Yarn(8.0, original=4096)
    low, high = encoding.ramp(64)
    # 128 ln(4096 / 64 pi) / (2 ln 10^4) = 20.94 and 128 ln(4096 / 2 pi) / (2 ln 10^4) = 45.03, rounded outwards.
    assert (low, high) == (20, 46)
    plain, scaled = Rope().rates(64, 1), encoding.rates(64, 1)
    assert torch.equal(scaled[:21], plain[:21])
    torch.testing.assert_close(scaled[46:], plain[46:] / 8, rtol=1e-14, atol=0)
    assert bool(((scaled < plain) & (scaled > plain / 8))[21:46].all())
    assert dataclasses.replace(encoding, truncate=False).ramp(64) == pytest.approx((20.944, 45.027), abs=1e-3)


@pytest.mark.parametrize(
    ("encoding", "factor"),
    [
        (Yarn(4.0), 0.1 * math.log(4) + 1),
        (Yarn(1.0), 1.0),
        (Yarn(4.0, mscale=0.0), 1.0),
        (Yarn(4.0, mscale=0.0, attention=1.3), 1.3),
        (Yarn(40.0, mscale=1.0, mscale_all_dim=1.0), 1.0),
        (Yarn(40.0, mscale=0.707, mscale_all_dim=0.5), (0.0707 * math.log(40) + 1) / (0.05 * math.log(40) + 1)),
        (LongRope(32.0, original=4096), math.sqrt(1 + math.log(32) / math.log(4096))),
        (LongRope(1.0), 1.0),
        (LongRope(32.0, own_attention=False), 1.0),
        (LongRope(32.0, own_attention=False, attention=1.2), 1.2),
        (Llama3(), 1.0),
        (Ntk(), 1.0),
    ],
)
def test_the_attention_factor_enters_rotations_once_and_logits_squared(encoding: RotaryEncoding, factor: float) -> None:
    assert encoding.attention_factor == pytest.approx(factor)
    assert encoding.basis(torch.tensor([0]))[0, :16].tolist() == pytest.approx([factor**2] * 16)
    rotation = encoding.module(ModelShape(32, 1, 20))(torch.tensor([0, 1])).query_rotation
    assert rotation is not None
    assert rotation[0][0].tolist() == pytest.approx([factor] * 16)


def test_longrope_switches_lists_one_past_the_original_length() -> None:
    encoding = LongRope(8.0, original=24, short=SHORT, long=LONG)
    plain = Rope().rates(16, 1)
    torch.testing.assert_close(encoding.rates(16, 24), plain / torch.tensor(SHORT).double())
    torch.testing.assert_close(encoding.rates(16, 25), plain / torch.tensor(LONG).double())
    assert encoding.depends_on_length
    module = encoding.module(ModelShape(32, 1, 24))
    for length in (24, 25):
        rotation = module(torch.arange(length)).query_rotation
        assert rotation is not None
        expected = encoding.attention_factor * (torch.arange(length)[:, None] * encoding.rates(16, length)).sin()
        torch.testing.assert_close(rotation[1], expected.float())


@pytest.mark.parametrize(("bend", "same"), [(1.0, Ntk(8.0)), (0.0, LinearInterpolation(8.0))])
def test_longrope_s_ramp_runs_from_linear_to_ntk(bend: float, same: RotaryEncoding) -> None:
    encoding = LongRope(8.0, original=24, bend=bend)
    torch.testing.assert_close(encoding.rates(16, 25), same.rates(16, 25))
    assert torch.equal(encoding.rates(16, 24), Rope().rates(16, 24))


def test_llama3_has_three_zones_by_wavelength() -> None:
    encoding, plain = Llama3(8.0, original=8192, base=5e5), Rope(base=5e5).rates(64, 1)
    for frequency, scaled in zip(plain.tolist(), encoding.rates(64, 1).tolist(), strict=True):
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            assert scaled == frequency
        elif wavelength > 8192 / 1:
            assert scaled == frequency / 8
        else:
            share = (8192 / wavelength - 1) / (4 - 1)
            assert scaled == pytest.approx((1 - share) * frequency / 8 + share * frequency, rel=1e-14)


@pytest.mark.parametrize(("original", "untouched"), [(25, 0), (26, 1)])
def test_llama3_leaves_a_pair_alone_from_8_pi_positions_on(original: int, untouched: int) -> None:
    assert int((Llama3(original=original).rates(16, 1) == Rope().rates(16, 1)).sum()) == untouched


def transformers_says(parameters: dict[str, Any], width: int, length: int, n: int | None) -> tuple[Tensor, float]:
    """Frequencies and attention factor of transformers for a Llama of these rotary parameters."""
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.LlamaConfig(
        hidden_size=2 * width, num_attention_heads=2, head_dim=width, max_position_embeddings=length,
        rope_parameters=parameters,
    )  # fmt: skip
    frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, None, seq_len=n)
    return frequencies.double(), float(factor)


original_lengths, factors = st.integers(32, 1 << 15), st.floats(1.5, 64)
widths, bases = st.sampled_from([8, 32, 64, 128]), st.floats(500, 1e6)


def agree(encoding: RotaryEncoding, parameters: dict[str, Any], width: int, length: int, n: int | None = None) -> None:
    """Ours in float64, theirs in float32."""
    frequencies, factor = transformers_says({**parameters, "rope_theta": encoding.base}, width, length, n)
    torch.testing.assert_close(encoding.rates(width // 2, n or 1), frequencies, rtol=2e-5, atol=1e-12)
    assert encoding.attention_factor == pytest.approx(factor, rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(factors, bases, widths)
def test_linear_frequencies_are_those_of_transformers(factor: float, base: float, width: int) -> None:
    agree(LinearInterpolation(factor, base=base), {"rope_type": "linear", "factor": factor}, width, 4096)


@settings(deadline=None, max_examples=25)
@given(factors, bases, widths, original_lengths, st.floats(0.1, 40))
def test_dynamic_frequencies_are_those_of_transformers(
    factor: float, base: float, width: int, original: int, times: float
) -> None:
    n = max(1, int(times * original))
    agree(DynamicNtk(factor, original, base), {"rope_type": "dynamic", "factor": factor}, width, original, n)


@settings(deadline=None, max_examples=40)
@given(factors, bases, widths, st.integers(4, 1 << 15), st.booleans(), st.sampled_from([None, (1.0, 0.5)]))
def test_yarn_frequencies_are_those_of_transformers(
    factor: float, base: float, width: int, original: int, truncate: bool, scales: tuple[float, float] | None
) -> None:
    parameters = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "truncate": truncate,
    }
    encoding = Yarn(factor, original, base, truncate=truncate)
    if scales is not None:
        parameters |= dict(zip(("mscale", "mscale_all_dim"), scales, strict=True))
        encoding = dataclasses.replace(encoding, mscale=scales[0], mscale_all_dim=scales[1])
    low, high = encoding.ramp(width // 2)
    assume(truncate or abs(high - low) > 1e-3)  # a ramp of no length is a matter of float32's last digit
    agree(encoding, parameters, width, original)


@settings(deadline=None, max_examples=25)
@given(factors, bases, original_lengths, st.floats(0.1, 20))
def test_longrope_frequencies_are_those_of_transformers(
    factor: float, base: float, original: int, times: float
) -> None:
    parameters = {
        "rope_type": "longrope",
        "factor": factor,
        "original_max_position_embeddings": original,
        "short_factor": list(SHORT),
        "long_factor": list(LONG),
    }
    encoding = LongRope(factor, original, base, short=SHORT, long=LONG)
    agree(encoding, parameters, 32, original, max(1, int(times * original)))


@settings(deadline=None, max_examples=25)
@given(factors, bases, widths, original_lengths, st.floats(0.5, 2), st.floats(2.5, 8))
def test_llama3_frequencies_are_those_of_transformers(
    factor: float, base: float, width: int, original: int, low: float, high: float
) -> None:
    parameters = {
        "rope_type": "llama3",
        "factor": factor,
        "original_max_position_embeddings": original,
        "low_freq_factor": low,
        "high_freq_factor": high,
    }
    agree(Llama3(factor, original, low, high, base), parameters, width, 1 << 20)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("linear:factor=0.5", "factor of linear interpolation is 0.5: give 1 or more"),
        ("linear:nan", "factor of linear interpolation is nan"),
        ("ntk:factor=0", "factor of NTK scaling is 0.0"),
        ("ntk:frequencies=1", "NTK scaling divides by zero with one pair .*: give 2 frequencies or a wider head"),
        ("dynamic:frequencies=1", "dynamic NTK scaling divides by zero with one pair"),
        ("dynamic:original=0", "original of dynamic NTK scaling is 0: give the trained length"),
        ("dynamic:factor=inf", "factor of dynamic NTK scaling is inf"),
        ("yarn:original=-3", "original of YaRN is -3"),
        ("yarn:factor=0.99", "factor of YaRN is 0.99"),
        ("yarn:base=1", "base of YaRN is 1.0: give more than 1"),
        ("yarn:fast=1", "fast of YaRN is 1.0 and slow 1.0: give more turns for fast"),
        ("yarn:slow=0", "slow of YaRN is 0.0: give a positive number"),
        ("yarn:mscale=-1", "mscale of YaRN is -1.0: give 0 or more"),
        ("yarn:attention=0", "attention of YaRN is 0.0"),
        ("yarn:attention=1e-200", "its square: give 1e-150 to 1e150"),
        ("longrope:attention=1e200", "its square: give 1e-150 to 1e150"),
        ("longrope:original=1", "original of LongRoPE is 1: give 2 or more"),
        ("longrope:bend=-1", "bend of LongRoPE is -1.0: give 0 or more"),
        ("longrope:long=1/2", "the long list of LongRoPE has 2 divisors for 16 pairs: give one a pair"),
        ("longrope:short=1/2,frequencies=3", "the short list of LongRoPE has 2 divisors for 3 pairs"),
        ("longrope:frequencies=2,short=1/0", "a divisor of LongRoPE is 0.0"),
        ("longrope:long=1/two", "'1/two': give numbers between slashes"),
        ("longrope:frequencies=1", "LongRoPE divides by zero with one pair"),
        ("llama3:low=4", "low of llama3 scaling is 4.0 and high 4.0: give a higher high than low"),
        ("llama3:low=0", "low of llama3 scaling is 0.0"),
        ("llama3:original=0", "original of llama3 scaling is 0"),
    ],
)
def test_what_scales_nothing_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_encoding(text)


@pytest.mark.parametrize("encoding", [Ntk(), DynamicNtk(), LongRope()])
def test_a_head_of_one_pair_is_refused_when_the_model_is_made(encoding: RotaryEncoding) -> None:
    with pytest.raises(InputError, match="divides by zero with one pair"):
        encoding.module(ModelShape(2, 1, 20))


def test_lists_of_another_head_are_refused_when_the_model_is_made() -> None:
    encoding = LongRope(frequencies=16, short=SHORT, long=LONG)
    with pytest.raises(InputError, match="the short list of LongRoPE has 16 divisors for 8 pairs"):
        encoding.module(ModelShape(16, 1, 20))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("linear:factor=4", LinearInterpolation(4.0)),
        ("ntk:8,base=1e6", Ntk(8.0, base=1e6)),
        ("dynamic:factor=2,original=24", DynamicNtk(2.0, 24)),
        ("yarn:4", Yarn(4.0)),
        ("yarn:factor=4,original=8192,truncate=no", Yarn(4.0, 8192, truncate=False)),
        (
            "longrope:factor=4,frequencies=2,short=1/1.5,long=2/3",
            LongRope(4.0, frequencies=2, short=(1.0, 1.5), long=(2.0, 3.0)),
        ),
        ("llama3:factor=8,original=8192,base=5e5,frequencies=64", Llama3(8.0, 8192, base=5e5, frequencies=64)),
    ],
)
def test_names_with_parameters_and_their_echo(text: str, encoding: RotaryEncoding) -> None:
    assert parse_encoding(text) == encoding
    assert parse_encoding(encoding.effective) == encoding
