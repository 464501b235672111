"""Captures with known answers, the estimates of their heads, and the same numbers by dense loops."""

import math

import numpy as np
import torch

from poskernel.attention.estimators.estimate import KernelEstimator
from poskernel.attention.sources.capture import LayerCapture

LENGTH, DROPPED = 40, 5


def capture_of(query, key, scale=1.0, **settings):
    return LayerCapture(0, query, key, scale, torch.arange(query.shape[2]), settings.pop("causal", True), **settings)


def random_capture(sequences, heads=4, keyheads=2, length=LENGTH, width=8, dtype=torch.float64, seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    drift = torch.linspace(0, 4, length, dtype=dtype)[:, None]
    query = torch.randn(sequences, heads, length, width, generator=generator, dtype=dtype) + 1
    key = torch.randn(sequences, keyheads, length, width, generator=generator, dtype=dtype) + drift.sin()
    return capture_of(query, key, 0.3, **settings)


def estimate(captures, length=LENGTH, dropped=DROPPED, **settings):
    """Estimates of every head from captures of one layer, a batch each."""
    sequences = sum(part.query.shape[0] for part in captures)
    settings = {"causal": captures[0].causal, "dtype": captures[0].query.dtype} | settings
    estimator = KernelEstimator(
        {0: captures[0].heads}, length, sequences, captures[0].query.shape[0], dropped=dropped, **settings
    )
    for part in captures:
        estimator.consume(part)
    return estimator.estimates()


def dense_logits(capture, head):
    """[sequence, query, key] logits, one number at a time."""
    group = capture.query.shape[1] // capture.key.shape[1]
    sequences, _, length, _ = capture.query.shape
    out = np.zeros((sequences, length, length))
    for x in range(sequences):
        for t in range(length):
            for s in range(length):
                value = capture.scale * float(capture.query[x, head, t] @ capture.key[x, head // group, s])
                if capture.softcap is not None:
                    value = capture.softcap * math.tanh(value / capture.softcap)
                if capture.bias is not None:
                    value += float(capture.bias[0, head, t, s])
                out[x, t, s] = value
    return out


def pairs_of(length, window, causal=True):
    """The pairs of a grid, one by one."""
    reach = window or length
    return [(t, s) for t in range(length) for s in range(length) if (0 if causal else 1 - reach) <= t - s < reach]


def dense(logits, dropped, window=None, causal=True):
    """Every reported number of one head by loops over pairs of positions and pairs of sequences."""
    logits = logits[:, dropped:, dropped:]
    n, length, _ = logits.shape
    pairs = pairs_of(length, window, causal)
    offsets = sorted({t - s for t, s in pairs})

    def profile(gram):
        return np.array([np.mean([gram[t, s] for t, s in pairs if t - s == d]) for d in offsets])

    def vector(gram, centred):
        values = np.array([gram[t, s] for t, s in pairs])
        rows = np.array([t for t, _ in pairs])
        if not centred:
            return values - values.mean()
        return values - np.array([values[rows == t].mean() for t in range(length)])[rows]

    def kernel(gram, centred):
        g = dict(zip(offsets, profile(gram), strict=True))
        return vector(np.array([[g.get(t - s, 0) for s in range(length)] for t in range(length)]), centred)

    def r2(forms):
        variance, residual = forms
        return 1 - residual / variance

    def form(x, y, centred):
        a, b = vector(x, centred), vector(y, centred)
        return np.array([a @ b, (a - kernel(x, centred)) @ (b - kernel(y, centred))])

    mean = logits.mean(0)
    crossed = {
        c: sum(form(logits[x], logits[y], c) for x in range(n) for y in range(n) if x != y) for c in (False, True)
    }
    row_signal = sum(kernel(logits[x], True) @ kernel(logits[y], True) for x in range(n) for y in range(n) if x != y)
    signal = sum(kernel(logits[x], False) @ kernel(logits[y], False) for x in range(n) for y in range(n) if x != y)
    single = np.mean([vector(logits[x], True) @ vector(logits[x], True) for x in range(n)])
    return {
        "g": profile(mean),
        "r2": r2(crossed[True]),
        "r2_raw": r2(crossed[False]),
        "r2_plugin": r2(form(mean, mean, False)),
        "r2_plugin_centred": r2(form(mean, mean, True)),
        "signal": math.copysign(math.sqrt(abs(signal) / (n * (n - 1)) / len(pairs)), signal),
        "signal_plugin": kernel(mean, False).std(),
        "share": row_signal / (n * (n - 1)) / single,
    }


def planted(sequences, heads, noise, generator, stationary=0.8):
    """Logits = a Toeplitz part + another part + independent noise, as queries against unit keys."""
    kept = LENGTH - DROPPED
    offset = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    kernel = torch.exp(-offset.abs() / 6.0)
    other = torch.sin(1.7 * torch.arange(LENGTH)[:, None] * torch.arange(LENGTH) / kept)
    kernel, other = stationary * kernel, (1 - stationary) * other
    truth = dense((kernel + other).double().numpy()[None].repeat(2, 0), DROPPED)
    logits = (kernel + other) + noise * torch.randn(sequences, heads, LENGTH, LENGTH, generator=generator)
    key = torch.eye(LENGTH).expand(sequences, heads, LENGTH, LENGTH)
    return capture_of(logits, key), truth
