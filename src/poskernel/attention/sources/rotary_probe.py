"""Frequencies, planes and factor of a rotary layer, from what its own code does to basis vectors.

With R_t the matrix that a rotary call applies at position t, the logits depend on M(t, s) = R_t' R_s. Where M depends
on s - t alone, M(0, 0) = a^2 I and M(0, 1) / a^2 is a rotation: its eigen-angles are the frequencies (radians a
position), its invariant planes are the pairs of dimensions, and a is the attention factor (YaRN). No convention about
layout, pairing or the rotated part of a head enters.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.sources.capture import AttentionSource, LayerCapture
from poskernel.attention.sources.rotary_calls import Rotation

PROBE_POSITIONS = 16
STILL = 1e-12
"""A plane that turns by less than this between two positions does not turn."""
ABSENT = 1e-6
"""Coordinates of a plane below this are none."""


@dataclass(frozen=True, eq=False)
class RotaryProbe:
    """What the rotation of one layer is, plane by plane, from the highest frequency to the lowest."""

    frequencies: Float[Tensor, " plane"]
    """Angle by which each plane turns from one position to the next, in (0, pi], float64."""
    planes: Float[Tensor, "plane 2 width"]
    """Orthonormal pair of each plane over a head's dimensions; the first turns towards the second."""
    factor: float
    """a: rotated vectors are a times as long; logits get a^2."""
    pairing: str
    """half-split (i with i + width / 2), interleaved (2 i with 2 i + 1), or other."""
    stationarity_error: float
    """Largest entry by which R_t' R_s / a^2 leaves a function of s - t, over the probe's positions."""

    @property
    def width(self) -> int:
        """Dimensions of a head that turn."""
        return 2 * len(self.frequencies)


def probe_rotation(rotation: Rotation, head_width: int) -> RotaryProbe:
    """Read a rotation that was captured at consecutive positions from 0 on."""
    queries, keys = rotation.query.matrices(), rotation.key.matrices()
    products = torch.einsum("tai,saj->tsij", queries, keys)
    width = queries.shape[-1]
    squares = products[0, 0].diagonal()
    angles, pairs = turning_planes(products[0, 1])
    # What does not turn is not stretched either, where a part of a head turns inside the function (GPT-NeoX).
    factor = math.sqrt(float((pairs**2 @ squares).mean() if len(pairs) else squares.mean()))
    stretch = squares.clamp(min=1e-30).sqrt()
    products = products / (stretch[:, None] * stretch)
    planes = torch.zeros(len(pairs), 2, head_width, dtype=torch.float64)
    planes[..., rotation.query.start : rotation.query.start + width] = pairs
    return RotaryProbe(angles, planes, factor, pairing(pairs), stationarity_error(products))


def turning_planes(
    step: Float[Tensor, "width width"],
) -> tuple[Float[Tensor, " plane"], Float[Tensor, "plane 2 width"]]:
    """Angles of a rotation, descending, and the planes it turns; dimensions that stand still are left out.

    The real Schur form of a normal matrix is block diagonal and its basis orthonormal, also where angles coincide.
    """
    from scipy.linalg import schur

    blocks, basis = (torch.from_numpy(part) for part in schur(step.numpy(), output="real"))
    found: list[tuple[float, Tensor]] = []
    for row in range(blocks.shape[0] - 1):
        forth, back = float(blocks[row, row + 1]), float(blocks[row + 1, row])
        if back == 0:
            continue
        angle = math.atan2(math.sqrt(max(-forth * back, 0)), float(blocks[row, row]))
        first, second = (row, row + 1) if back > 0 else (row + 1, row)
        if angle > STILL:
            found.append((angle, basis[:, [first, second]].T))
    found.sort(key=lambda plane: -plane[0])
    if not found:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(0, 2, step.shape[0], dtype=torch.float64)
    return torch.tensor([angle for angle, _ in found], dtype=torch.float64), torch.stack([pair for _, pair in found])


def pairing(planes: Float[Tensor, "plane 2 width"]) -> str:
    """How the dimensions of each plane stand to each other."""
    apart, width = set(), planes.shape[-1]
    for plane in planes:
        held = (plane.abs() > ABSENT).any(0).nonzero().flatten().tolist()
        if len(held) != 2:
            return "other"
        # Half of what turns, or half of the head where some of it stands still.
        halves = held[1] - held[0] in (len(planes), width // 2)
        apart.add("half-split" if halves else (held[1] - held[0], held[0] % 2))
    names = {"half-split": "half-split", (1, 0): "interleaved"}
    return names.get(apart.pop(), "other") if len(apart) == 1 else "other"


def stationarity_error(products: Float[Tensor, "query key width width"]) -> float:
    """Largest entry by which products(t, s) differ from those of the same s - t at position 0, (0, 0) from identity."""
    length = products.shape[0]
    worst = float((products[0, 0] - torch.eye(products.shape[-1])).abs().max())
    for shift in range(1, length):
        kept = length - shift
        later_keys = (products[0, :kept] - products[shift, shift:]).abs().max()
        later_queries = (products[:kept, 0] - products[shift:, shift]).abs().max()
        worst = max(worst, float(later_keys), float(later_queries))
    return worst


def rotary_probes(source: AttentionSource, length: int = PROBE_POSITIONS) -> dict[int, RotaryProbe]:
    """Probe of every layer that rotates its queries and keys; layers without a rotation are absent.

    `length` matters only where frequencies change with it (dynamic NTK, LongRoPE).
    """
    length = min(length, source.position_limit or length)
    tokens = source.probe_tokens(1, length, torch.Generator().manual_seed(0))
    probes: dict[int, RotaryProbe] = {}

    def consume(capture: LayerCapture) -> None:
        if capture.rotation is not None:
            probes[capture.layer] = probe_rotation(capture.rotation, capture.query.shape[-1])

    with source.capturing():
        source.forward(tokens, consume)
    return probes
