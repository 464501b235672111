"""Propositions 1 to 5 of the note on attention as a kernel (K), as checks: norms, positive definiteness, stationarity.

Propositions are counted in their order of appearance. Each function takes its hypotheses as parameters, so that a test
can break one and see the check fail.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import (
    Encoding,
    LinearInterpolation,
    Llama3,
    Ntk,
    PartialRope,
    ProportionalRope,
    Rope,
    Shaw,
    XPos,
    Yarn,
)
from poskernel.encodings.absolute import sinusoids
from poskernel.encodings.bias import alibi_slopes
from poskernel.encodings.encoding import ModelShape, Placement, Rotation, geometric_frequencies
from poskernel.random_streams import random_stream
from poskernel.realizability.theorems.check import Check, CheckFunction, Effort

Normalise = Callable[[Tensor, float], Tensor]
"""Vectors (row, width) and epsilon to normalised vectors, without learned gains."""
OffsetFunction = Callable[[Tensor, float], Tensor]
"""Signed offsets and a slope to kernel values."""

EXACT = 1e-9
"""Relative error within which an identity holds: far above float64 rounding, far below any effect."""
FLOAT32 = 1e-5
"""The same where rotations are held in float32, as models hold them."""
SUMMED = 1e-8
"""The same for a Fourier sum: ten thousand terms against a density of a thousandth."""
TOKENS, BASE, PLANES = 256, 1e4, 16
"""Positions, base and rotary planes of the stationarity checks: those of the realizability study's heads."""


def normal(seed: int, purpose: str, *shape: int) -> Tensor:
    """Standard normal numbers in float64, by seed and purpose."""
    return torch.randn(*shape, generator=random_stream(seed, purpose), dtype=torch.float64)


def layer_norm(vectors: Float[Tensor, "row width"], epsilon: float) -> Float[Tensor, "row width"]:
    """PyTorch's LayerNorm without gains."""
    return torch.nn.functional.layer_norm(vectors, vectors.shape[-1:], eps=epsilon)


def rms_norm(vectors: Float[Tensor, "row width"], epsilon: float) -> Float[Tensor, "row width"]:
    """PyTorch's RMSNorm without gains."""
    return torch.nn.functional.rms_norm(vectors, vectors.shape[-1:], eps=epsilon)


def hidden_states(seed: int, purpose: str, rows: int, width: int) -> Float[Tensor, "row width"]:
    """Vectors of sizes from 1e-3 to 1e3 about a mean of the same size: epsilon matters for some, not for others."""
    size = 10 ** (6 * torch.rand(rows, 1, generator=random_stream(seed, f"{purpose} size"), dtype=torch.float64) - 3)
    return size * (normal(seed, f"{purpose} mean", rows, 1) + normal(seed, purpose, rows, width))


def layer_norm_sphere(
    effort: Effort,
    seed: int,
    *,
    normalise: Normalise = layer_norm,
    epsilon: float = 1e-5,
    samples: int | None = None,
) -> Check:
    """LayerNorm's outputs have mean 0 and squared norm d v / (v + epsilon), v the variance of the input."""
    rows, widths = samples or effort.size(2000, 20_000), (2, 64, 512)
    mean, error, shortfall, ranks = 0.0, 0.0, 0.0, []
    for width in widths:
        states = hidden_states(seed, f"layer norm {width}", rows, width)
        out, variance = normalise(states, epsilon), states.var(1, correction=0)
        square = (out**2).sum(1)
        mean = max(mean, float(out.mean(1).abs().max()))
        error = max(error, float((square / width - variance / (variance + epsilon)).abs().max()))
        shortfall = max(shortfall, float(1 - square.min() / width))
        ranks.append(int(torch.linalg.matrix_rank(out)))
    wanted = [min(rows, width - 1) for width in widths]
    return Check(
        name="layer-norm-sphere",
        claim="LayerNorm puts every vector on the sphere of radius sqrt(d) in the hyperplane of mean 0, short of it "
        "by exactly epsilon / (variance + epsilon) of the squared radius.",
        source="kernel note, proposition 1",
        measured=f"|mean| <= {mean:.0e}; squared radius off by <= {error:.0e} of d from the formula; short of d by up "
        f"to {shortfall:.0%} of it; dimensions {', '.join(map(str, ranks))}",
        expected=f"0 within {EXACT:g}; 0 within {EXACT:g}; some short of d, by more than {EXACT:g}; dimensions "
        f"{', '.join(map(str, wanted))}",
        n=rows * len(widths),
        unit="vectors",
        holds=mean < EXACT and error < EXACT and shortfall > EXACT and ranks == wanted,
        note=f"widths {', '.join(map(str, widths))}, sizes 1e-3 to 1e3, epsilon {epsilon:g}; in the source 0",
    )


def rms_norm_sphere(
    effort: Effort,
    seed: int,
    *,
    normalise: Normalise = rms_norm,
    epsilon: float = 1e-5,
    samples: int | None = None,
) -> Check:
    """RMSNorm's outputs have squared norm d m / (m + epsilon), m the mean square, and keep their mean component."""
    rows, width = samples or effort.size(2000, 20_000), 64
    states = hidden_states(seed, "rms norm", rows, width)
    out, power = normalise(states, epsilon), (states**2).mean(1)
    error = float(((out**2).mean(1) - power / (power + epsilon)).abs().max())
    kept = float((out.mean(1) - states.mean(1) / (power + epsilon).sqrt()).abs().max())
    constant = float((out.mean(1) ** 2).mean())
    rank = int(torch.linalg.matrix_rank(out))
    return Check(
        name="rms-norm-sphere",
        claim="RMSNorm puts every vector on the full sphere of radius sqrt(d) and keeps its mean component, which "
        "adds a constant to inner products that LayerNorm removes.",
        source="kernel note, proposition 2",
        measured=f"squared radius off by <= {error:.0e} of d; mean off by <= {kept:.0e}; constant {constant:.2f} d; "
        f"dimensions {rank}",
        expected=f"0 within {EXACT:g}; 0 within {EXACT:g}; above 0.01 d; {min(rows, width)}",
        n=rows,
        unit="vectors",
        holds=error < EXACT and kept < EXACT and constant > 0.01 and rank == min(rows, width),
        note=f"width {width}, sizes 1e-3 to 1e3, epsilon {epsilon:g}",
    )


def linear_bias(offset: Tensor, slope: float) -> Tensor:
    """-m |d|."""
    return -slope * offset.abs()


def exponential(offset: Tensor, slope: float) -> Tensor:
    """exp(-m |d|)."""
    return linear_bias(offset, slope).exp()


def signed_offsets(length: int) -> Float[Tensor, "query key"]:
    """query - key of every pair of a window, both signs."""
    position = torch.arange(length, dtype=torch.float64)
    return position[:, None] - position


def alibi_not_positive_definite(effort: Effort, seed: int, *, kernel: OffsetFunction = linear_bias) -> Check:
    """The 3 x 3 Gram matrix of -m |d| has the eigenvalue -(1 + sqrt 3) m and the witness (1, 1, 1) with -8 m."""
    drawn = torch.rand(effort.size(100, 1000), generator=random_stream(seed, "slopes"), dtype=torch.float64)
    slopes = torch.cat([alibi_slopes(8), 10 ** (6 * drawn - 3)]).tolist()
    grams = [kernel(signed_offsets(3), slope) / slope for slope in slopes]
    least = torch.stack([torch.linalg.eigvalsh(gram)[0] for gram in grams])
    witness = torch.stack([gram.sum() for gram in grams])
    off = float((least + 1 + math.sqrt(3)).abs().max())
    return Check(
        name="alibi-not-positive-definite",
        claim="The bias -m |i - j| of ALiBi is not positive definite for any slope m > 0.",
        source="kernel note, section 3.5",
        measured=f"least eigenvalue of 3 positions {float(least.mean()):.4f} m, (1, 1, 1) gives "
        f"{float(witness.mean()):.4f} m",
        expected=f"-(1 + sqrt 3) m = {-1 - math.sqrt(3):.4f} m, -8 m, both within {EXACT:g} m for every slope",
        n=len(slopes),
        unit="slopes",
        holds=bool((least < 0).all()) and off < EXACT and float((witness + 8).abs().max()) < EXACT,
        note="ALiBi's own 8 slopes and random ones from 1e-3 to 1e3",
    )


def alibi_exponential_positive_definite(effort: Effort, seed: int, *, kernel: OffsetFunction = exponential) -> Check:
    """exp(-m |d|) has positive Gram matrices, and its Fourier series is the wrapped Cauchy density."""
    window, slopes = effort.size(128, 512), alibi_slopes(8).tolist()
    frequency = torch.linspace(-math.pi, math.pi, 65, dtype=torch.float64)
    least, error = math.inf, 0.0
    for slope in slopes:
        decay, farthest = math.exp(-slope), math.ceil(40 / slope)
        gram = kernel(signed_offsets(window), slope)
        least = min(least, float(torch.linalg.eigvalsh(gram)[0]) * (1 + decay) / (1 - decay))
        offset = torch.arange(1, farthest + 1, dtype=torch.float64)
        at_zero = kernel(torch.zeros(1, dtype=torch.float64), slope)
        series = at_zero + 2 * (frequency[:, None] * offset).cos() @ kernel(offset, slope)
        cauchy = wrapped_cauchy(frequency, decay)
        error = max(error, float((series / (2 * math.pi) / cauchy - 1).abs().max()))
    return Check(
        name="alibi-exponential-positive-definite",
        claim="exp(-m |d|), what softmax makes of ALiBi's bias, is positive definite, with the wrapped Cauchy density "
        "as its spectrum.",
        source="kernel note, proposition 3",
        measured=f"least eigenvalue {least:.4f} of the density's least value; spectrum off by <= {error:.0e}",
        expected=f"at least 1 within {EXACT:g}; 0 within {SUMMED:g}",
        n=len(slopes),
        unit="slopes",
        holds=least > 1 - EXACT and error < SUMMED,
        note=f"ALiBi's 8 slopes, {window} positions; density (1 - r^2) / (2 pi (1 - 2 r cos w + r^2)), r = exp(-m)",
    )


def wrapped_cauchy(frequency: Float[Tensor, " frequency"], decay: float) -> Float[Tensor, " frequency"]:
    """(1 - r^2) / (2 pi (1 - 2 r cos w + r^2)), r = decay."""
    return (1 - decay**2) / (2 * math.pi * (1 - 2 * decay * frequency.cos() + decay**2))


def dft_positive_definite(effort: Effort, seed: int, *, cyclic: bool = True, samples: int | None = None) -> Check:
    """Random even kernels on Z/T: the Gram matrix is positive exactly where no DFT coefficient is negative.

    Half are drawn by a spectrum without negative coefficients, half by their values. Without `cyclic` values are not
    even, so that those of negative offsets are not their periodic continuation.
    """
    draws, stream = samples or effort.size(400, 4000), random_stream(seed, "cyclic kernels")
    agreed, positive, error = 0, 0, 0.0
    for draw in range(draws):
        length = 3 + int(torch.randint(30, (1,), generator=stream))
        values = torch.randn(length, generator=stream, dtype=torch.float64)
        drawn = values.abs() * (values > -0.5) if draw % 2 else values
        even = (drawn + drawn.flip(0).roll(1)) / 2 if cyclic else drawn
        values = torch.fft.ifft(even).real if draw % 2 else even
        coefficients = torch.fft.fft(values).real
        offset = signed_offsets(length).long()
        gram = values[offset % length if cyclic else offset.abs()]
        eigenvalues, scale = torch.linalg.eigvalsh(gram), float(coefficients.abs().max()) or 1.0
        error = max(error, float((eigenvalues - coefficients.sort().values).abs().max()) / scale)
        verdicts = [float(part.min()) > -EXACT * scale for part in (eigenvalues, coefficients)]
        agreed, positive = agreed + (verdicts[0] == verdicts[1]), positive + verdicts[0]
    return Check(
        name="dft-positive-definite",
        claim="A kernel on Z/T is positive definite if and only if no DFT coefficient is negative; the coefficients "
        "are the Gram matrix's eigenvalues.",
        source="kernel note, proposition 4",
        measured=f"{agreed} of {draws} verdicts agree ({positive} positive definite); eigenvalues off by <= "
        f"{error:.0e}",
        expected=f"{draws} of {draws}, both kinds among them; 0 within {EXACT:g}",
        n=draws,
        unit="kernels",
        holds=agreed == draws and 0 < positive < draws and error < EXACT,
        note="T from 3 to 32; half drawn by spectrum, half by values",
    )


def diagonal_spread(logits: Float[Tensor, "query key"], causal: bool = False) -> float:
    """Largest range of a diagonal, of both signs of the offset unless `causal`, over the logits' standard deviation."""
    length = len(logits)
    seen = logits[tuple(torch.tril_indices(length, length))] if causal else logits
    diagonals = [logits.diagonal(-offset) for offset in range(0 if causal else 1 - length, length)]
    return max(float(each.max() - each.min()) for each in diagonals) / float(seen.std())


def placement_of(encoding: Encoding, length: int) -> Placement:
    """What the encoding's own model side does at a sequence's positions, for one head of 2 x PLANES coordinates."""
    shape = ModelShape(width=2 * PLANES, heads=1, train_length=length)
    with torch.no_grad():
        return encoding.module(shape)(torch.arange(length))


def turned(vectors: Float[Tensor, "position width"], rotation: Rotation) -> Float[Tensor, "position width"]:
    """Rows turned in the planes (k, k + planes); coordinates beyond stay as they are."""
    cosine, sine = (part.double() for part in rotation)
    planes = cosine.shape[1]
    first, second, rest = vectors[:, :planes], vectors[:, planes : 2 * planes], vectors[:, 2 * planes :]
    return torch.cat([cosine * first - sine * second, sine * first + cosine * second, rest], dim=1)


def rotary_logits(
    query: Float[Tensor, "position width"], key: Float[Tensor, "position width"], encoding: Encoding | None = None
) -> Float[Tensor, "query key"]:
    """<R(i) q_i, R(j) k_j> with the rotations of a rotary encoding, RoPE unless told."""
    placement = placement_of(encoding or Rope(), len(query))
    assert placement.query_rotation is not None and placement.key_rotation is not None
    return turned(query, placement.query_rotation) @ turned(key, placement.key_rotation).T


ROTARY: tuple[Encoding, ...] = (
    Rope(), LinearInterpolation(), Ntk(), Yarn(), Llama3(), PartialRope(), ProportionalRope(), XPos(),
)  # fmt: skip


def rope_logits_stationary(
    effort: Effort, seed: int, *, encodings: Sequence[Encoding] = ROTARY, fixed_content: bool = True
) -> Check:
    """One query and one key vector at every position, turned as the package's models turn them: constant diagonals."""
    length = effort.size(TOKENS, 4 * TOKENS)
    rows = 1 if fixed_content else length
    query, key = (normal(seed, f"rope {part}", rows, 2 * PLANES).expand(length, -1) for part in ("query", "key"))
    spreads = {each.name: diagonal_spread(rotary_logits(query, key, each), causal=True) for each in encodings}
    return Check(
        name="rope-logits-stationary",
        claim="For fixed content, RoPE's logits depend on the offset alone.",
        source="kernel note, proposition 5(a)",
        measured="largest range along a diagonal, standard deviations: "
        + ", ".join(f"{name} {spread:.0e}" for name, spread in spreads.items()),
        expected=f"0 within {FLOAT32:g}, the rounding of float32, for each",
        n=length * (length + 1) // 2 * len(spreads),
        unit="causal logits",
        holds=max(spreads.values()) < FLOAT32,
        note=f"{length} positions, {PLANES} planes, causal offsets; rotations of the encodings' own modules (float32)",
    )


def shaw_logits_stationary(
    effort: Effort, seed: int, *, fixed_content: bool = True, encoding: Encoding | None = None
) -> Check:
    """One query and one key at every position, the package's learned vector a[i - j] added to the key."""
    encoding = encoding or Shaw()
    length, width = effort.size(TOKENS, 2 * TOKENS), 2 * PLANES
    rows = 1 if fixed_content else length
    query, key = (normal(seed, f"shaw {part}", rows, width).expand(length, -1) for part in ("query", "key"))
    with drawn_from(seed):
        added = placement_of(encoding, length).key_vectors
    assert added is not None
    logits = query @ key.T + torch.einsum("qw,qkw->qk", query, added.double())
    spread, moved = diagonal_spread(logits, causal=True), float((logits - query @ key.T).std() / logits.std())
    return Check(
        name="shaw-logits-stationary",
        claim="For fixed content, the logits of Shaw's relative vectors depend on the offset alone.",
        source="kernel note, proposition 5(a)",
        measured=f"largest range along a diagonal {spread:.0e} standard deviations; the vectors make up {moved:.2f} of "
        "one",
        expected=f"0 within {EXACT:g}; above 0.01",
        n=length * (length + 1) // 2,
        unit="causal logits",
        holds=spread < EXACT and moved > 0.01,
        note=f"{length} positions, {encoding.effective}, causal offsets; the vectors of the encoding's own module",
    )


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """What modules draw while open comes from this seed; the generator of the process is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def sinusoidal_decomposition(
    effort: Effort, seed: int, *, normalise: Normalise = layer_norm, samples: int | None = None
) -> Check:
    """Logits of normalised content plus normalised position: three parts, and the bound on the mixed one."""
    heads, length, width = samples or effort.size(50, 500), 64, 2 * PLANES
    position = normalise(sinusoids(torch.arange(length), geometric_frequencies(BASE, PLANES)), 0.0)
    identity, tightest = 0.0, 0.0
    for head in range(heads):
        content = normalise(30 * normal(seed, f"content {head}", length, width), 0.0)
        left, right = (normal(seed, f"{part} {head}", width // 2, width) for part in ("query", "key"))
        whole = ((content + position) @ left.T) @ ((content + position) @ right.T).T
        own = [(part @ left.T) @ (part @ right.T).T for part in (position, content)]
        mixed = (content @ left.T) @ (position @ right.T).T + (position @ left.T) @ (content @ right.T).T
        identity = max(identity, float((whole - own[0] - own[1] - mixed).abs().max() / whole.std()))
        bound = 2 * float(torch.linalg.matrix_norm(left, 2) * torch.linalg.matrix_norm(right, 2)) * width
        tightest = max(tightest, float(mixed.abs().max()) / bound)
    return Check(
        name="sinusoidal-decomposition",
        claim="With normalised content and position added, a logit is position + content + cross terms, and these are "
        "at most 2 |W_Q| |W_K| d.",
        source="kernel note, proposition 5(b)",
        measured=f"identity off by {identity:.0e}; largest cross term {tightest:.2f} of the bound",
        expected=f"0 within {EXACT:g}; at most 1",
        n=heads * length**2,
        unit="logits",
        holds=identity < EXACT and tightest <= 1,
        note=f"{heads} random heads of width {width // 2}, d = {width}; the source's form, a sum of two norms: for "
        "the norm of a sum see layer-norm-of-a-sum",
    )


KERNEL_CHECKS: tuple[CheckFunction, ...] = (
    layer_norm_sphere,
    rms_norm_sphere,
    alibi_not_positive_definite,
    alibi_exponential_positive_definite,
    dft_positive_definite,
    rope_logits_stationary,
    shaw_logits_stationary,
    sinusoidal_decomposition,
)
