"""Kernels of the offset that differ by class of query and key: what they add to a fit on other sequences.

A class is whatever a token can be told to be: by the token alone (function word, digit), by a tag that its text carries
(noun), or by the strongest feature of a sparse autoencoder of the layer's own input. Such a kernel is a value for every
(query class, key class, octave of the offset). Its null has the classes of another sequence: as many of each class, as
near to each other, but not where the logits saw them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.content.content_kernels import solve
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.product import share
from poskernel.attention.content.sparse_autoencoder import SparseAutoencoder
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate


class Classes(ABC):
    """What says of every position which of some classes it is in."""

    count: int
    by_layer = False
    """Whether layers see different classes."""

    @abstractmethod
    def labels(
        self, capture: LayerCapture, tokens: Int[Tensor, "batch position"], dropped: int
    ) -> Int[Tensor, "batch position"]:
        """The class of each of the tokens, 0 to count - 1; they lack the sequence's first `dropped`."""


@dataclass(frozen=True, eq=False)
class TokenClasses(Classes):
    """A token's class, whatever stands around it."""

    table: Int[Tensor, " vocabulary"]
    count: int

    def labels(
        self, capture: LayerCapture, tokens: Int[Tensor, "batch position"], dropped: int
    ) -> Int[Tensor, "batch position"]:
        """By the table."""
        return self.table[tokens]


@dataclass(frozen=True, eq=False)
class TaggedClasses(Classes):
    """Classes that come with the text; a sequence is known by its tokens."""

    tokens: Int[Tensor, "sequence position"]
    tags: Int[Tensor, "sequence position"]
    count: int

    def labels(
        self, capture: LayerCapture, tokens: Int[Tensor, "batch position"], dropped: int
    ) -> Int[Tensor, "batch position"]:
        """Those of the sequences with these tokens; InputError for one that carries none."""
        same = (self.tokens[:, dropped:] == tokens[:, None]).all(-1)
        if not bool(same.any(1).all()):
            raise InputError("a sequence carries no tags: measure the tagged sequences alone.")
        return self.tags[same.int().argmax(1), dropped:]


@dataclass(frozen=True, eq=False)
class FeatureClasses(Classes):
    """The strongest feature of a layer's input: the most frequent ones have classes of their own, others share one."""

    autoencoders: Mapping[int, SparseAutoencoder]
    frequent: Mapping[int, Int[Tensor, " feature"]]
    """By layer: number of each feature's class."""
    count: int
    by_layer = True

    @classmethod
    def of(
        cls,
        autoencoders: Mapping[int, SparseAutoencoder],
        inputs: Mapping[int, Float[Tensor, "row width"]],
        count: int,
    ) -> "FeatureClasses":
        """With the classes that are most frequent among some inputs."""
        frequent = {}
        for layer, autoencoder in autoencoders.items():
            seen = autoencoder.strongest(inputs[layer])
            order = torch.bincount(seen, minlength=autoencoder.features).argsort(descending=True, stable=True)
            classes = torch.full((autoencoder.features,), count - 1)
            classes[order[: count - 1]] = torch.arange(min(count - 1, autoencoder.features))
            frequent[layer] = classes
        return cls(autoencoders, frequent, count)

    def labels(
        self, capture: LayerCapture, tokens: Int[Tensor, "batch position"], dropped: int
    ) -> Int[Tensor, "batch position"]:
        """By what enters the layer's attention."""
        assert capture.inputs is not None
        strongest = self.autoencoders[capture.layer].strongest(capture.inputs[:, dropped:].flatten(0, 1))
        return self.frequent[capture.layer][strongest].view(tokens.shape)


class ClassRegression:
    """Kernels of a pair's classes and the octave of its offset, fitted to what a fit leaves, sequence by sequence."""

    def __init__(self, layout: PairLayout, count: int) -> None:
        self.layout, self.count = layout, count
        self.octaves = layout.octaves().argmax(1)
        self.size = count**2 * int(self.octaves.max() + 1)

    def cells(self, labels: Int[Tensor, "batch position"]) -> Int[Tensor, "batch query offset"]:
        """The cell of every pair."""
        pair = labels[:, :, None] * self.count + labels[:, self.layout.key]
        return pair * (self.size // self.count**2) + self.octaves

    def normals(self, cells: Int[Tensor, "batch query offset"]) -> Float[Tensor, "batch cell cell"]:
        """Row-centred normal matrix of each sequence, which all heads share."""
        rows = torch.zeros(*cells.shape[:2], self.size, dtype=torch.float64)
        rows.scatter_add_(2, cells, self.layout.valid.expand(len(cells), -1, -1))
        return torch.diag_embed(rows.sum(1)) - rows.transpose(1, 2) @ (rows / self.layout.row_counts[:, None])

    def moments(
        self, cells: Int[Tensor, "batch query offset"], residual: Float[Tensor, "batch query offset"]
    ) -> Float[Tensor, "batch cell"]:
        """Sum of the row-centred residual in each cell."""
        sums = torch.zeros(len(cells), self.size, dtype=torch.float64)
        return sums.scatter_add_(1, cells.flatten(1), residual.flatten(1))


def class_gain(
    normals: Float[Tensor, "sequence cell cell"],
    moments: Float[Tensor, "sequence cell"],
    total: Float[Tensor, " sequence"],
) -> Estimate:
    """Share of the logits' variance that class kernels fitted on every other sequence explain on the others."""
    gain = torch.zeros_like(total)
    for fold in range(2):
        test = torch.arange(len(total)) % 2 == fold
        weights = solve(normals[~test].sum(0), moments[~test].sum(0)[:, None])[:, 0]
        gain[test] = 2 * moments[test] @ weights - torch.einsum("p,bpr,r->b", weights, normals[test], weights)
    return share(gain, total)
