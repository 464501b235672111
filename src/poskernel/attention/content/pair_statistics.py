"""Normal equations of one head's logits on offset, content, and products of both: all that the fits need.

For one head and one content kernel kc the features of a pair (t, s) with offset d = t - s are

    phi_j(d), kc phi_j(d), eta(s), [d in octave o] [kc in bin c]

where the phi are the head's own kernel of the offset and indicators of offset bins, and eta is the key-only term. Each
of the six fits is least squares over linear combinations of these, so sums over pairs are all that is kept: of size
features squared, whatever the number of positions. Rows are centred within the sums.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.content.pair_layout import PairLayout

BINS = 6
"""Content bins, equally filled."""


@dataclass(frozen=True, eq=False)
class OffsetBasis:
    """Functions of the offset that kernels are made of: the head's own profile first, then fine bins; and octaves."""

    layout: PairLayout
    functions: Float[Tensor, "offset function"]
    octaves: Float[Tensor, "offset octave"]

    @classmethod
    def of(cls, layout: PairLayout, profile: Float[Tensor, " offset"]) -> "OffsetBasis":
        """From a head's profile."""
        return cls(layout, torch.cat([profile[:, None], layout.fine_bins()], 1), layout.octaves())

    @property
    def count(self) -> int:
        """Number of functions."""
        return self.functions.shape[1]

    @property
    def features(self) -> int:
        """Number of features."""
        return 2 * self.count + 1 + BINS * self.octaves.shape[1]


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """Row-centred normal matrix, correlations with the logits and their square: one each a sequence, or summed."""

    normal: Float[Tensor, "batch feature feature"]
    moment: Float[Tensor, "batch feature"]
    square: Float[Tensor, " batch"]
    kernel_sums: Float[Tensor, "batch 3"]
    """Pairs, sum of kc, sum of its square: raw, as they fix the kernel's origin and unit."""

    def summed(self) -> "PairStatistics":
        """Over all sequences."""
        return PairStatistics(*(part.sum(0, keepdim=True) for part in self.parts))

    def plus(self, other: "PairStatistics") -> "PairStatistics":
        """Sums of two batches."""
        return PairStatistics(*(one + two for one, two in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four tensors."""
        return self.normal, self.moment, self.square, self.kernel_sums

    def residual(self, coefficients: Float[Tensor, " feature"]) -> Float[Tensor, " batch"]:
        """Sum of squares that a combination of the features leaves of each sequence's row-centred logits."""
        fitted = torch.einsum("p,bpr,r->b", coefficients, self.normal, coefficients)
        return self.square - 2 * self.moment @ coefficients + fitted


def pair_statistics(
    basis: OffsetBasis,
    logits: Float[Tensor, "batch query offset"],
    kernel: Float[Tensor, "batch query offset"],
    key_term: Float[Tensor, "batch query offset"],
    bins: Int[Tensor, "batch query offset"],
) -> PairStatistics:
    """Statistics of each sequence; logits are row-centred, and all arrays but the bins 0 where there is no pair."""
    layout, batch = basis.layout, len(logits)
    phi, octaves, valid = basis.functions, basis.octaves, layout.valid
    count, cells = basis.count, BINS * octaves.shape[1]
    normal = torch.zeros(batch, basis.features, basis.features, dtype=torch.float64)
    moment = torch.zeros(batch, basis.features, dtype=torch.float64)
    rows = torch.zeros(batch, layout.length, basis.features, dtype=torch.float64)
    plain, product, key, cell = (
        slice(0, count), slice(count, 2 * count), slice(2 * count, 2 * count + 1), slice(2 * count + 1, None),
    )  # fmt: skip

    def functions(weights: Float[Tensor, "batch query offset"]) -> Float[Tensor, "batch function"]:
        return weights.sum(1) @ phi

    def squares(weights: Float[Tensor, "batch offset"]) -> Float[Tensor, "batch function function"]:
        return torch.einsum("dp,bd,dq->bpq", phi, weights, phi)

    normal[:, plain, plain] = squares(valid.sum(0).expand(batch, -1))
    normal[:, plain, product] = squares(kernel.sum(1))
    normal[:, product, product] = squares((kernel**2).sum(1))
    normal[:, plain, key] = functions(key_term)[:, :, None]
    normal[:, product, key] = functions(key_term * kernel)[:, :, None]
    normal[:, key, key] = (key_term**2).sum((1, 2))[:, None, None]
    moment[:, plain], moment[:, product] = functions(logits), functions(logits * kernel)
    moment[:, key] = (logits * key_term).sum((1, 2))[:, None]
    rows[..., plain], rows[..., product], rows[..., key] = valid @ phi, kernel @ phi, key_term.sum(-1)[..., None]
    for number in range(BINS):
        inside = torch.where(bins == number, valid, 0)
        place = torch.arange(number, cells, BINS) + 2 * count + 1
        normal[:, plain, place] = torch.einsum("dp,bd,do->bpo", phi, inside.sum(1), octaves)
        normal[:, product, place] = torch.einsum("dp,bd,do->bpo", phi, (inside * kernel).sum(1), octaves)
        normal[:, key, place] = ((inside * key_term).sum(1) @ octaves)[:, None]
        normal[:, place, place] = inside.sum(1) @ octaves
        moment[:, place] = (inside * logits).sum(1) @ octaves
        rows[..., cell][..., number::BINS] = inside @ octaves
    upper = normal.triu()
    normal = upper + upper.transpose(1, 2) - torch.diag_embed(upper.diagonal(dim1=1, dim2=2))
    normal -= rows.transpose(1, 2) @ (rows / layout.row_counts[:, None])
    sums = torch.stack([valid.sum().expand(batch), kernel.sum((1, 2)), (kernel**2).sum((1, 2))], 1)
    return PairStatistics(normal, moment, (logits**2).sum((1, 2)), sums)
