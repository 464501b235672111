"""The product fits of a head and what they leave, with every content kernel that its source can give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from poskernel.attention.content.content_kernels import INPUT, KERNELS, TOKEN
from poskernel.attention.content.cross_terms import RESIDUALS, HeadCrossTerms, measure_cross_terms
from poskernel.attention.content.product import HeadFits, ProductSettings
from poskernel.attention.sources.capture import AttentionSource, LayerCapture


@dataclass(frozen=True, eq=False)
class HeadProducts:
    """Fits of one head by content kernel, and the residuals of its additive and product fit with token embeddings."""

    layer: int
    head: int
    fits: Mapping[str, HeadFits]
    cross_terms: Mapping[str, HeadCrossTerms]


def head_products(
    source: AttentionSource, tokens: Int[Tensor, "sequence position"], layers: Sequence[int], dropped: int
) -> list[HeadProducts]:
    """Fits and residuals of every head of the layers; without the layer's input as content where it is not given."""
    kernels = tuple(name for name in KERNELS if name != INPUT or gives_inputs(source, tokens[:1], layers))
    settings = ProductSettings(dropped, kernels)
    fits, crossed = measure_cross_terms(source, tokens, TOKEN, layers, settings)
    by_kernel = {(fit.layer, fit.head, fit.kernel): fit for fit in fits}
    by_fit = {(each.layer, each.head, each.fit): each for each in crossed}
    return [
        HeadProducts(
            layer,
            head,
            {kernel: by_kernel[layer, head, kernel] for kernel in kernels},
            {fit: by_fit[layer, head, fit] for fit in RESIDUALS},
        )
        for layer, head in sorted({(fit.layer, fit.head) for fit in fits})
    ]


def gives_inputs(source: AttentionSource, tokens: Int[Tensor, "sequence position"], layers: Sequence[int]) -> bool:
    """Whether captures of the layers on these tokens hold what their queries and keys are projected from."""
    given: list[bool] = []

    def consume(capture: LayerCapture) -> None:
        if capture.layer in layers:
            given.append(capture.inputs is not None)

    source.forward(tokens, consume)
    return all(given)
