"""The experiments by id. A new one is a module with one `Experiment`, and a line here."""

from poskernel.experiments.experiment import Experiment
from poskernel.experiments.known_kernel import E5

EXPERIMENTS: dict[str, Experiment] = {each.id: each for each in (E5,)}
