"""The same architecture before training: what R2, signal and share are worth has to be read beside it.

Under a rotary encoding a model with random weights already has a high R2, of next to no signal.
"""

import copy
from typing import Any

import torch

from poskernel.attention.sources.capture import AttentionSource
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.errors import InputError
from poskernel.models.transformer import Transformer


def untrained_source(source: AttentionSource, seed: int) -> AttentionSource:
    """A source of the same kind and architecture with initial weights drawn from `seed`, on the CPU.

    InputError for a kind of source whose architecture is not known here.
    """
    from poskernel.attention.sources.huggingface import HuggingFaceSource

    if isinstance(source, HuggingFaceSource):
        module = reinitialised(source.module, seed).to(source.dtype)
        return HuggingFaceSource(module, f"{source.name}, untrained")
    if isinstance(source, TransformerSource):
        return TransformerSource(anew(source.model, seed), f"{source.name}, untrained")
    raise InputError(
        f"how to build '{source.name}' anew is not known (a {type(source).__name__}): leave out the measure "
        "'untrained'."
    )


def anew(model: Transformer, seed: int) -> Transformer:
    """One of our transformers of the same architecture, encoding and precision with weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model.fresh().to(model.embedding.weight.dtype).eval()


def reinitialised(module: Any, seed: int) -> Any:
    """A Hugging Face module of the same class and config with weights as its own code initialises them.

    The global random state is as before afterwards. InputError if the class cannot be built from its config.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return type(module)._from_config(copy.deepcopy(module.config)).eval()
        except Exception as error:  # a model's own code can fail in any way
            raise InputError(
                f"a {type(module).__name__} cannot be built from its config alone "
                f"({(str(error).splitlines() or [type(error).__name__])[0]}): leave out the measure 'untrained'."
            ) from error
