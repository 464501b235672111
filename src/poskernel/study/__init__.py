"""Studies: which cells, what is measured, where it is kept, and how missing measurements are made."""

from poskernel.study.grid import Axes, PredictionCell, Study, TrainingCell
from poskernel.study.progress import progress_for
from poskernel.study.runner import Retry, Summary, plan, run, status
from poskernel.study.store import Store
from poskernel.study.studies import STUDIES
from poskernel.study.transfer import export, import_results, write_results
from poskernel.study.units import Metric, Status, units_of

__all__ = [
    "STUDIES",
    "Axes",
    "Metric",
    "PredictionCell",
    "Retry",
    "Status",
    "Store",
    "Study",
    "Summary",
    "TrainingCell",
    "export",
    "import_results",
    "plan",
    "progress_for",
    "run",
    "status",
    "units_of",
    "write_results",
]
