"""Content kernels kc(t, s): what a head could know of two tokens without their positions.

Two are fixed (whether the tokens are the same, the cosine of their embeddings) and two are learned for each head: a
bilinear form of the token embeddings, or of the layer's own input, fitted to the head's row-centred logits together
with a free kernel of the offset and a key-only term,

    A(t, s) ~ g(t - s) + x_t' W x_s + w' x_s.

Its features do not depend on the head. So one normal matrix, whose bilinear part is the sum over queries t of
(x_t x_t') kron C_t with C_t the scatter of the keys that t sees, and one Cholesky factor serve every head; a head adds
only the correlation of its logits with the features. Vectors x are the leading principal components of the fit text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.content.pair_layout import PairLayout

MATCH, COSINE, TOKEN, INPUT = "match", "cosine", "token", "input"
KERNELS = (MATCH, COSINE, TOKEN, INPUT)
"""Same token; cosine of embeddings; learned bilinear of embeddings; learned bilinear of the layer's input."""
JITTER = 1e-9
"""Added to the normal matrix's unit diagonal: a constant over all offsets changes no row-centred logit."""
OFFSETS_AT_ONCE = 64
"""Offsets whose products with the vectors are held at a time."""


def token_match(query: Int[Tensor, "batch query"], key: Int[Tensor, "batch key"]) -> Float[Tensor, "batch query key"]:
    """1 where query and key are the same token, else 0."""
    return (query[:, :, None] == key[:, None]).double()


def embedding_cosine(
    query: Float[Tensor, "batch query width"], key: Float[Tensor, "batch key width"]
) -> Float[Tensor, "batch query key"]:
    """Cosine of the two tokens' embeddings."""
    unit = [torch.nn.functional.normalize(vectors.double(), dim=-1) for vectors in (query, key)]
    return unit[0] @ unit[1].transpose(1, 2)


@dataclass(frozen=True, eq=False)
class Components:
    """Leading principal components of some vectors: the coordinates that learned kernels work in."""

    mean: Float[Tensor, " width"]
    axes: Float[Tensor, "width component"]

    @classmethod
    def of(cls, vectors: Float[Tensor, "*batch width"], components: int) -> "Components":
        """Of the given vectors, as many as asked for or as the vectors have."""
        flat = vectors.reshape(-1, vectors.shape[-1]).double()
        mean = flat.mean(0)
        values, axes = torch.linalg.eigh((flat - mean).T @ (flat - mean) / len(flat))
        kept = min(components, int((values > 1e-10 * values[-1]).sum()))
        # Unit variance in every component, so that no unit of the embedding matters.
        return cls(mean, (axes / values.clamp(min=1e-300).sqrt())[:, -kept:].flip(-1))

    def of_vectors(self, vectors: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch component"]:
        """Coordinates of vectors."""
        return (vectors.double() - self.mean) @ self.axes


@dataclass(frozen=True, eq=False)
class LearnedKernel:
    """One head's fit: g(offset) up to a constant, the bilinear form, and the weights of the key-only term."""

    profile: Float[Tensor, " offset"]
    form: Float[Tensor, "component component"]
    key_weights: Float[Tensor, " component"]

    def content(
        self, query: Float[Tensor, "batch query component"], key: Float[Tensor, "batch key component"]
    ) -> Float[Tensor, "batch query key"]:
        """x_t' W x_s."""
        return query @ self.form @ key.transpose(1, 2)

    def key_term(self, vectors: Float[Tensor, "batch position component"]) -> Float[Tensor, "batch key"]:
        """w' x_s."""
        return vectors @ self.key_weights

    def of_rank(self, rank: int) -> "LearnedKernel":
        """The same with the bilinear form's best approximation of that rank.

        Best on average over pairs, as the components have unit variance and are uncorrelated.
        """
        left, values, right = torch.linalg.svd(self.form)
        form = (left[:, :rank] * values[:rank]) @ right[:rank]
        return LearnedKernel(self.profile, form, self.key_weights)


class BilinearRegression:
    """Streamed normal equations of offset indicators, bilinear form and key-only term, for any number of heads.

    Row-centring removes the query-only term, and with it everything that a row has in common.
    """

    def __init__(self, layout: PairLayout, components: int, heads: int) -> None:
        self.layout, self.components, self.heads = layout, components, heads
        self.offsets = len(layout.offsets)
        # The key-only term is the bilinear form's last row: the query's vectors get a constant 1 as last entry.
        self.size = self.offsets + (components + 1) * components
        self.normal = torch.zeros(self.size, self.size, dtype=torch.float64)
        self.moments = torch.zeros(heads, self.size, dtype=torch.float64)

    def add_vectors(self, vectors: Float[Tensor, "batch position component"]) -> None:
        """Add sequences to the normal matrix, which all heads share."""
        offset_block = self.layout.offset_normal()
        for sequence in vectors:
            self.normal[: self.offsets, : self.offsets] += offset_block
            self.add_sequence(sequence)

    def add_sequence(self, vectors: Float[Tensor, "position component"]) -> None:
        """Bilinear blocks of one sequence."""
        layout, first = self.layout, self.offsets
        query = with_one(vectors)
        mean = layout.mask @ vectors / layout.row_counts[:, None]
        # Sum over t of (x_t x_t') kron C_t as one product of the two flattened outer products.
        scatter = layout.mask @ outer(vectors) - outer(mean) * layout.row_counts[:, None]
        wide, narrow = query.shape[1], vectors.shape[1]
        block = (outer(query).T @ scatter).view(wide, wide, narrow, narrow).transpose(1, 2)
        self.normal[first:, first:] += block.reshape(wide * narrow, wide * narrow)
        for start in range(0, self.offsets, OFFSETS_AT_ONCE):
            part = slice(start, min(start + OFFSETS_AT_ONCE, self.offsets))
            keys = (vectors[layout.key[:, part]] - mean[:, None]) * layout.valid[:, part, None]
            crossed = torch.einsum("ti,tdk->dik", query, keys).flatten(1)
            self.normal[part, first:] += crossed
            self.normal[first:, part] += crossed.T

    def add_logits(
        self,
        head: int,
        centred: Float[Tensor, "batch query key"],
        vectors: Float[Tensor, "batch position component"],
    ) -> None:
        """Add one head's row-centred logits for the sequences given to `add_vectors`."""
        self.moments[head, : self.offsets] += self.layout.by_offset(centred).sum((0, 1))
        crossed = with_one(vectors).transpose(1, 2) @ centred @ vectors
        self.moments[head, self.offsets :] += crossed.sum(0).flatten()

    def kernels(self, content: bool = True) -> list[LearnedKernel]:
        """Each head's least-squares fit; without `content` of the offset and the key-only term alone."""
        first = self.offsets if content else self.size - self.components
        used = torch.cat([torch.arange(self.offsets), torch.arange(first, self.size)])
        solution = torch.zeros(self.heads, self.size, dtype=torch.float64)
        solution[:, used] = solve(self.normal[used][:, used], self.moments[:, used].T).T
        forms = solution[:, self.offsets :].view(self.heads, self.components + 1, self.components)
        return [
            LearnedKernel(profile, form[:-1], form[-1])
            for profile, form in zip(solution[:, : self.offsets], forms, strict=True)
        ]

    def profiles(self) -> Float[Tensor, "head offset"]:
        """Each head's least-squares kernel of the offset alone, mean 0 over offsets."""
        used = slice(0, self.offsets)
        profiles = solve(self.normal[used, used], self.moments[:, used].T).T
        return profiles - profiles.mean(1, keepdim=True)


def with_one(vectors: Float[Tensor, "*batch component"]) -> Float[Tensor, "*batch wider"]:
    """The vectors with a last entry of 1."""
    return torch.cat([vectors, torch.ones_like(vectors[..., :1])], -1)


def outer(vectors: Float[Tensor, "position component"]) -> Float[Tensor, "position square"]:
    """Each vector's outer product with itself, flattened."""
    return (vectors[:, :, None] * vectors[:, None]).flatten(1)


def solve(
    normal: Float[Tensor, "feature feature"], moments: Float[Tensor, "feature head"]
) -> Float[Tensor, "feature head"]:
    """Least-squares coefficients from normal equations, one Cholesky factor for all right-hand sides."""
    scale = normal.diagonal().clamp(min=0).sqrt()
    scale = torch.where(scale > 0, scale, 1)
    unit = normal / scale[:, None] / scale + JITTER * torch.eye(len(scale), dtype=normal.dtype)
    # Features that are never seen have a zero row: their coefficient is 0.
    unit.diagonal().copy_(torch.where(normal.diagonal() > 0, unit.diagonal(), 1))
    return torch.cholesky_solve(moments / scale[:, None], torch.linalg.cholesky(unit)) / scale[:, None]


def quantile_edges(values: Float[Tensor, " pair"], bins: int) -> Float[Tensor, " edge"]:
    """Distinct inner edges of as many equally filled content bins as the values allow."""
    ordered = values.sort().values
    places: Sequence[int] = [len(ordered) * number // bins for number in range(1, bins)]
    edges = ordered[torch.tensor(places)].unique()
    # A kernel of two values (token match) has most quantiles at its lower one; the upper value is a bin of its own.
    edges = edges if len(edges) > 1 else torch.cat([edges, ordered[-1:]]).unique()
    # Pairs of the same two tokens have one value up to rounding, which must not decide their bin.
    return edges - 1e-9 * (ordered[-1] - ordered[0])
