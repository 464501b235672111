"""Positional kernels of attention heads: predict before training, measure in trained models, screen context extensions.

The only door: every public name is reached from here. Names load when first used, so that `import poskernel` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names once more, for type checkers and editors; a test compares the two lists
    from poskernel.errors import InputError as InputError
    from poskernel.errors import MissingExtraError as MissingExtraError
    from poskernel.errors import RunError as RunError
    from poskernel.kernel import BilinearKernel as BilinearKernel
    from poskernel.kernel import GridKernel as GridKernel
    from poskernel.kernel import PositionalKernel as PositionalKernel
    from poskernel.kernel import StationaryKernel as StationaryKernel
    from poskernel.kernel import constant as constant
    from poskernel.kernel import tabulated as tabulated

    __version__: str

_NAMES = {
    "errors": ("InputError", "MissingExtraError", "RunError"),
    "kernel": ("BilinearKernel", "GridKernel", "PositionalKernel", "StationaryKernel", "constant", "tabulated"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604  # names of one table


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        value = import_module("importlib.metadata").version("poskernel")
    elif name in _MODULE_OF:
        value = getattr(import_module(f"poskernel.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'poskernel' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
