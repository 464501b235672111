"""Captures of hand-built rotary layers, whose means before the rotation are known."""

from dataclasses import replace

import torch

from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.rotary_calls import RotaryCall

WIDTH, LENGTH = 8, 24
FREQUENCIES = 10.0 ** -torch.arange(WIDTH // 2, dtype=torch.float64)


def half_split(vectors, cos, sin):
    first, second = vectors.chunk(2, -1)
    return vectors * cos + torch.cat([-second, first], -1) * sin


def turn(vectors, positions=None):
    """R_t of the vectors, [..., position, width], at the given positions (0, 1, ... without)."""
    positions = torch.arange(vectors.shape[-2]) if positions is None else positions
    angle = positions[:, None] * FREQUENCIES.to(vectors)
    angle = torch.cat([angle, angle], -1)
    return half_split(vectors, angle.cos(), angle.sin())


def rotary_capture(query, key, scale=0.5, layer=0, **settings):
    """A layer that rotates the given vectors, [batch, head, position, width], and records that it does."""
    angle = torch.arange(query.shape[2])[:, None] * FREQUENCIES.to(query)
    angle = torch.cat([angle, angle], -1)
    call = RotaryCall(
        lambda q, k, cos, sin: (half_split(q, cos.to(q), sin.to(q)), half_split(k, cos.to(k), sin.to(k))),
        (query, key, angle.cos(), angle.sin()),
        {},
        (turn(query), turn(key)),
    )
    window, causal = settings.pop("window", None), settings.pop("causal", True)
    capture = LayerCapture.assembled(layer, *call.outputs, scale, causal=causal, calls=[call], **settings)
    return replace(capture, window=window)


def means(length=LENGTH, heads=1, seed=5, dtype=torch.float64):
    """Smooth means of queries and keys by position, [head, position, width]."""
    generator = torch.Generator().manual_seed(seed)
    level = torch.randn(2, heads, 1, WIDTH, generator=generator, dtype=dtype)
    drift = torch.randn(2, heads, 1, WIDTH, generator=generator, dtype=dtype)
    return level + 0.4 * drift * torch.linspace(-1, 1, length, dtype=dtype)[:, None]


def noisy(sequences, generator, heads=1, keyheads=1, length=LENGTH, noise=1.0, dtype=torch.float64, **settings):
    """A rotary capture of those means plus independent normal noise on every query and key."""
    query, key = means(length, heads, dtype=dtype)[0], means(length, keyheads, seed=6, dtype=dtype)[1]

    def around(mean):
        return mean + noise * torch.randn(sequences, *mean.shape, generator=generator, dtype=dtype)

    return rotary_capture(around(query), around(key), **settings)
