"""The positional kernels of a small transformer's first layer over independent uniform tokens: exact, nothing sampled.

In the first layer a query depends on its own token and position alone, and so does a key. Tokens that are independent
then make the mean logit of two positions the product of the mean query and the mean key (plus any bias), and that of a
position with itself the mean product. Sequences of one repeated token show every query and key there is.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.closed_form import ClosedFormEstimator
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.rotary_probe import rotary_probes
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.errors import InputError
from poskernel.kernel import GridKernel, PositionalKernel
from poskernel.models.transformer import Transformer

FIRST = 0


def mean_kernels(model: Transformer, length: int) -> list[PositionalKernel]:
    """The kernel of each head of the first layer at positions 0 to length - 1, in nats, float64.

    Rotary heads have a closed form; the others a grid, from the means of queries and keys at each position. InputError
    for an encoder, and for an encoding whose logits hold more than queries, keys and a bias (Shaw).
    """
    if not model.architecture.causal:
        raise InputError("the model sees later keys: mean kernels are those of causal models.")
    if model.position_module(torch.arange(2)).key_vectors is not None:
        raise InputError(
            f"queries meet the vectors of '{model.encoding.name}' token by token: it has no mean kernel here."
        )
    source = TransformerSource(doubled(model))
    vocabulary = model.architecture.vocabulary
    tokens = torch.arange(vocabulary)[:, None].expand(vocabulary, length)
    captures: list[LayerCapture] = []
    source.forward(tokens, lambda capture: captures.append(capture) if capture.layer == FIRST else None)
    (capture,) = captures
    if capture.rotation is None:
        return [GridKernel(mean_logits(capture, head)) for head in range(capture.heads)]
    estimator = ClosedFormEstimator({FIRST: rotary_probes(source)[FIRST]}, length, dropped=0, reach=1)
    estimator.consume(capture)
    (forms,) = estimator.layers()
    # A token is its own partner at offset 0 alone: that moment is measured, and means serve every other offset.
    return [replace(forms.kernel(head, "overall"), window=capture.window) for head in range(capture.heads)]


def doubled(model: Transformer) -> Transformer:
    """A copy in float64: ties of the mean logits stay ties."""
    copy = model.fresh()
    copy.load_state_dict(model.state_dict())
    copy.double()
    copy.position_module.float()  # what it gives is as the model has it; sums with it are float64
    return copy.eval()


def mean_logits(capture: LayerCapture, head: int) -> Float[Tensor, "query key"]:
    """Mean logit of every pair of positions, a capture of one repeated token each; keys after their query too."""
    query, key = capture.query[:, head].double(), capture.key[:, capture.key_head(head)].double()
    logits = query.mean(0) @ key.mean(0).T
    logits.diagonal().copy_((query * key).sum(-1).mean(0))
    logits = capture.scale * logits
    if capture.bias is not None:
        logits = logits + capture.bias[0, head % capture.bias.shape[1]].double()
    return logits
