"""A small TopK sparse autoencoder: vectors as sums of few features out of many.

Codes are the k largest entries of W (x - b), the others 0, and D code + b is the vector again, with columns of D of
unit length (Gao et al., "Scaling and evaluating sparse autoencoders", arXiv 2406.04093). Here: a few hundred steps on
some thousand vectors of a layer, for classes that the model itself makes; no dictionary to be read feature by feature.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.attention.sources.capture import AttentionSource, LayerCapture
from poskernel.errors import InputError
from poskernel.random_streams import random_stream


@dataclass(frozen=True)
class AutoencoderRecipe:
    """How large it is and how it is trained."""

    features: int = 64
    active: int = 4
    """Features of one vector."""
    steps: int = 600
    batch: int = 512
    learning_rate: float = 3e-3
    revive: int = 100
    """Steps after which features that no vector used start anew, from a vector that is rebuilt badly."""

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.features:
            raise InputError(
                f"{self.active} active of {self.features} features is out of range: give 1 to {self.features}."
            )
        for name in ("steps", "batch", "revive"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} of the autoencoder is {getattr(self, name)}: give at least 1.")


@dataclass(frozen=True, eq=False)
class SparseAutoencoder:
    """A trained one; vectors are scaled to unit mean square length first."""

    encoder: Float[Tensor, "feature width"]
    dictionary: Float[Tensor, "width feature"]
    origin: Float[Tensor, " width"]
    scale: float
    active: int

    @property
    def features(self) -> int:
        """Size of the dictionary."""
        return self.dictionary.shape[1]

    def codes(self, vectors: Float[Tensor, "row width"]) -> Float[Tensor, "row feature"]:
        """Each vector's strengths of its active features; never negative."""
        return top_codes((vectors.float() * self.scale - self.origin) @ self.encoder.T, self.active)

    def rebuilt(self, vectors: Float[Tensor, "row width"]) -> Float[Tensor, "row width"]:
        """The vectors out of their codes."""
        return (self.codes(vectors) @ self.dictionary.T + self.origin) / self.scale

    def explained(self, vectors: Float[Tensor, "row width"]) -> float:
        """Share of the vectors' variance that is rebuilt."""
        left = (vectors.float() - self.rebuilt(vectors)).square().sum()
        return 1 - float(left / (vectors.float() - vectors.float().mean(0)).square().sum())

    def strongest(self, vectors: Float[Tensor, "row width"]) -> Int[Tensor, " row"]:
        """Number of each vector's strongest feature."""
        return self.codes(vectors).argmax(1)


def top_codes(values: Float[Tensor, "row feature"], active: int) -> Float[Tensor, "row feature"]:
    """The largest entries of each row where they are positive, 0 elsewhere."""
    largest = values.topk(active, dim=-1)
    return torch.zeros_like(values).scatter(-1, largest.indices, largest.values.relu())


def fit_autoencoder(
    vectors: Float[Tensor, "row width"], recipe: AutoencoderRecipe = AutoencoderRecipe(), seed: int = 0
) -> SparseAutoencoder:
    """Least squares of the rebuilt vectors by Adam; the same for the same vectors, recipe and seed.

    Raises InputError for fewer vectors than features, or vectors that do not vary.
    """
    if len(vectors) < recipe.features:
        raise InputError(
            f"{len(vectors)} vectors cannot teach {recipe.features} features: give more, or fewer features."
        )
    rows, stream = vectors.float(), random_stream(seed, "autoencoder")
    size = float((rows - rows.mean(0)).square().sum(1).mean().sqrt())
    if not size > 0:
        raise InputError("the vectors do not vary: there is no feature to find.")
    rows = rows / size
    origin = nn.Parameter(rows.mean(0))
    chosen = rows[torch.randperm(len(rows), generator=stream)[: recipe.features]] - origin.detach()
    dictionary = nn.Parameter(nn.functional.normalize(chosen + 1e-6, dim=1).T.contiguous())
    encoder = nn.Parameter(dictionary.detach().T.clone())
    parts = [origin, dictionary, encoder]
    with torch.inference_mode(False), torch.enable_grad():
        optimizer = torch.optim.Adam(parts, lr=recipe.learning_rate)
        used = torch.zeros(recipe.features, dtype=torch.bool)
        for step in range(recipe.steps):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
            batch = rows[torch.randint(len(rows), (recipe.batch,), generator=stream)]
            codes = top_codes((batch - origin) @ encoder.T, recipe.active)
            left = (batch - origin - codes @ dictionary.T).square().sum(1)
            optimizer.zero_grad()
            left.mean().backward()
            optimizer.step()
            used |= (codes > 0).any(0)
            with torch.no_grad():
                dictionary.div_(dictionary.norm(dim=0))
                if (step + 1) % recipe.revive == 0 and step < recipe.steps // 2:
                    revive(parts, ~used, batch, left)
                    used.zero_()
    learned = [part.detach() for part in parts]
    return SparseAutoencoder(learned[2], learned[1], learned[0], 1 / size, recipe.active)


def revive(
    parts: Sequence[Tensor], dead: Tensor, batch: Float[Tensor, "row width"], left: Float[Tensor, " row"]
) -> None:
    """Point each dead feature at one of the vectors that are rebuilt worst."""
    origin, dictionary, encoder = parts
    number = min(int(dead.sum()), len(batch))
    places = dead.nonzero()[:number, 0]
    directions = nn.functional.normalize(batch[left.argsort(descending=True)[:number]] - origin, dim=1)
    dictionary[:, places], encoder[places] = directions.T, directions


def layer_inputs(
    source: AttentionSource, tokens: Int[Tensor, "sequence position"], layers: Sequence[int], dropped: int
) -> dict[int, Float[Tensor, "row width"]]:
    """What enters each layer's attention at all positions past the dropped ones; InputError where it is not given."""
    found: dict[int, Float[Tensor, "row width"]] = {}

    def consume(capture: LayerCapture) -> None:
        if capture.layer not in layers:
            return
        if capture.inputs is None:
            raise InputError(
                f"layer {capture.layer} of '{source.name}' does not give what enters its attention: "
                "leave out the features of a sparse autoencoder."
            )
        found[capture.layer] = capture.inputs[:, dropped:].flatten(0, 1)

    with torch.inference_mode():
        source.forward(tokens, consume)
    return {layer: rows.clone() for layer, rows in found.items()}


def fit_autoencoders(
    inputs: Mapping[int, Float[Tensor, "row width"]], recipe: AutoencoderRecipe = AutoencoderRecipe(), seed: int = 0
) -> dict[int, SparseAutoencoder]:
    """One of each layer's inputs."""
    return {layer: fit_autoencoder(rows, recipe, seed) for layer, rows in inputs.items()}
