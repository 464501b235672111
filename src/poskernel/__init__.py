"""Positional kernels of attention heads: predict before training, measure in trained models.

The door: the names most work needs are reached from here. They load when first used, so `import poskernel` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names once more, for type checkers and editors; a test compares the two lists
    from poskernel.attention.atlas import Atlas as Atlas
    from poskernel.attention.atlas import analyze as analyze
    from poskernel.attention.head_report import HeadReport as HeadReport
    from poskernel.attention.interventions.changes import LogitKernel as LogitKernel
    from poskernel.attention.interventions.changes import MeanFilter as MeanFilter
    from poskernel.attention.interventions.changes import PlaneGain as PlaneGain
    from poskernel.attention.interventions.changes import Temperature as Temperature
    from poskernel.attention.interventions.changes import Translation as Translation
    from poskernel.attention.interventions.controls import position_means as position_means
    from poskernel.attention.interventions.intervene import intervening as intervening
    from poskernel.attention.interventions.planes import rotary_planes as rotary_planes
    from poskernel.attention.measures import MEASURES as MEASURES
    from poskernel.attention.sources.capture import AttentionSource as AttentionSource
    from poskernel.attention.sources.capture import LayerCapture as LayerCapture
    from poskernel.attention.sources.loading import LoadedModel as LoadedModel
    from poskernel.attention.sources.loading import load as load
    from poskernel.encodings import ENCODINGS as ENCODINGS
    from poskernel.encodings import parse_encoding as parse_encoding
    from poskernel.errors import InputError as InputError
    from poskernel.errors import MissingExtraError as MissingExtraError
    from poskernel.errors import RunError as RunError
    from poskernel.kernel import BilinearKernel as BilinearKernel
    from poskernel.kernel import GridKernel as GridKernel
    from poskernel.kernel import PositionalKernel as PositionalKernel
    from poskernel.kernel import StationaryKernel as StationaryKernel
    from poskernel.kernel import constant as constant
    from poskernel.kernel import tabulated as tabulated
    from poskernel.realizability import SELECTION_RULES as SELECTION_RULES
    from poskernel.realizability import Prediction as Prediction
    from poskernel.realizability import alpha as alpha
    from poskernel.realizability import certificate as certificate
    from poskernel.realizability import existence as existence
    from poskernel.realizability import parse_rule as parse_rule
    from poskernel.realizability import predict as predict
    from poskernel.realizability import predict_all as predict_all
    from poskernel.realizability import reach as reach
    from poskernel.realizability import screen as screen
    from poskernel.realizability import select_kernel as select_kernel
    from poskernel.realizability.theorems import Characterization as Characterization
    from poskernel.realizability.theorems import Check as Check
    from poskernel.realizability.theorems import characterize as characterize
    from poskernel.realizability.theorems import run_checks as run_checks
    from poskernel.study import STUDIES as STUDIES
    from poskernel.study import Axes as Axes
    from poskernel.study import Store as Store
    from poskernel.study import Study as Study
    from poskernel.tasks import TASKS as TASKS
    from poskernel.tasks import parse_task as parse_task

    __version__: str

_NAMES = {
    "attention.atlas": ("Atlas", "analyze"),
    "attention.head_report": ("HeadReport",),
    "attention.interventions.changes": ("LogitKernel", "MeanFilter", "PlaneGain", "Temperature", "Translation"),
    "attention.interventions.controls": ("position_means",),
    "attention.interventions.intervene": ("intervening",),
    "attention.interventions.planes": ("rotary_planes",),
    "attention.measures": ("MEASURES",),
    "attention.sources.capture": ("AttentionSource", "LayerCapture"),
    "attention.sources.loading": ("LoadedModel", "load"),
    "encodings": ("ENCODINGS", "parse_encoding"),
    "errors": ("InputError", "MissingExtraError", "RunError"),
    "kernel": ("BilinearKernel", "GridKernel", "PositionalKernel", "StationaryKernel", "constant", "tabulated"),
    "realizability": (
        "SELECTION_RULES",
        "Prediction",
        "alpha",
        "certificate",
        "existence",
        "parse_rule",
        "predict",
        "predict_all",
        "reach",
        "screen",
        "select_kernel",
    ),
    "realizability.theorems": ("Characterization", "Check", "characterize", "run_checks"),
    "study": ("STUDIES", "Axes", "Store", "Study"),
    "tasks": ("TASKS", "parse_task"),
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
