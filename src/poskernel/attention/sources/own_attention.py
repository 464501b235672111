"""A model's own attention on a probe: its weights, what it made them of, and why it gave none.

Two passes of one model agree to rounding only where their layers compute in the same order. In half precision the
family's eager path and its fused one drift apart with depth, so weights are compared with what the same pass made them
of: the operands of the eager function, seen by calling it through a wrapper that changes nothing.
"""

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from poskernel.attention.sources.capture import OwnAttention, on_cpu

EAGER = "eager_attention_forward"
"""The name that transformers' code gives the function of a family's eager attention."""


@contextmanager
def recorded_operands(module: nn.Module, into: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Inside the block every call of the eager attention function of the module's code appends its query and key."""

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        _, query, key, *_ = signature.parameters  # after the layer's module, whatever they are called

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            given = signature.bind(*arguments, **options).arguments
            into.append((on_cpu(given[query]), on_cpu(given[key])))
            return function(*arguments, **options)

        return call

    places = {type(part).__module__ for part in module.modules()}
    spaces = [vars(sys.modules[place]) for place in sorted(places) if place in sys.modules]
    found = [(space, space[EAGER]) for space in spaces if EAGER in space]
    try:
        for space, function in found:
            space[EAGER] = wrapped(function)
        yield
    finally:
        for space, function in found:
            space[EAGER] = function


def with_operands(
    weights: Sequence[Float[Tensor, "batch head query key"]], operands: Sequence[tuple[Tensor, Tensor]]
) -> list[OwnAttention]:
    """Weights with the operands of their pass, a layer each; without any unless there is one pair for each layer."""
    if len(operands) != len(weights):
        return [OwnAttention(one) for one in weights]
    return [OwnAttention(one, query, key) for one, (query, key) in zip(weights, operands, strict=True)]


def failure(module: nn.Module, error: Exception) -> str:
    """What went wrong where a model was called with token ids and nothing else, and the remedy, as half a sentence."""
    first = (str(error).splitlines() or [""])[0].rstrip(".")
    said = f"{type(error).__name__}: {first}" if first else type(error).__name__
    hook = failing_hook(module, error)
    if hook is not None:
        return f"its hook {hook} raised {said}; mend the hook, or remove it while the model is analysed."
    if not reads_text(module):
        return f"it does not run on token ids alone ({said}); give a model of text."
    return f"called with token ids alone it raised {said}; make that call work first."


def reads_text(module: nn.Module) -> bool:
    """Whether the model says that text is all it reads."""
    modalities = getattr(module, "input_modalities", "text")
    kinds = {modalities} if isinstance(modalities, str) else set(modalities)
    return kinds == {"text"} and getattr(module, "main_input_name", "input_ids") == "input_ids"


def failing_hook(module: nn.Module, error: Exception) -> str | None:
    """Name of a forward hook of the module, or of all modules, that an error passed through; None where none did."""
    passed = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    tables = [torch_module._global_forward_pre_hooks, torch_module._global_forward_hooks]
    for part in module.modules():
        tables += [part._forward_pre_hooks, part._forward_hooks]
    for hook in (hook for table in tables for hook in table.values()):
        code = code_of(hook)
        if code in passed:
            return code.co_qualname
    return None


def code_of(function: Any) -> CodeType | None:
    """The code that runs where a callable is called: of a function, a method, a partial or an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__"):
        function = getattr(function, "__func__", None) or type(function).__call__
    return getattr(function, "__code__", None)
