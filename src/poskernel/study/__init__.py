"""Studies: which cells, what is measured, where it is kept, and how missing measurements are made."""

from poskernel.study.batching import Batching
from poskernel.study.grid import Axes, PredictionCell, Study, TrainingCell
from poskernel.study.merging import Merged, merge
from poskernel.study.planning import Retry, Shard, plan, status
from poskernel.study.progress import progress_for
from poskernel.study.runner import Summary, run
from poskernel.study.store import Store
from poskernel.study.studies import STUDIES
from poskernel.study.transfer import export, import_results, write_results
from poskernel.study.units import Metric, Status, units_of

__all__ = [
    "STUDIES",
    "Axes",
    "Batching",
    "Merged",
    "Metric",
    "PredictionCell",
    "Retry",
    "Shard",
    "Status",
    "Store",
    "Study",
    "Summary",
    "TrainingCell",
    "export",
    "import_results",
    "merge",
    "plan",
    "progress_for",
    "run",
    "status",
    "units_of",
    "write_results",
]
