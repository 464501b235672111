"""What enters a model's attention modules, noted while the model runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def recorded_inputs(module: nn.Module, into: dict[int, Tensor]) -> Iterator[None]:
    """Inside the block each attention module's input, [batch, position, width], is put under the module's id.

    Modules are known by a class name with "Attention" in it, and their input is the argument named hidden_states or the
    first one. The input is the one that queries and keys are projected from: after the norm, in models that have it
    before attention.
    """

    def note(part: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        entering = named.get("hidden_states", given[0] if given else None)
        if isinstance(entering, Tensor) and entering.ndim == 3:
            into[id(part)] = entering

    hooks = [
        part.register_forward_pre_hook(note, with_kwargs=True)
        for part in module.modules()
        if "Attention" in type(part).__name__
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        into.clear()
