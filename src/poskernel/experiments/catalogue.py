"""The experiments by id. A new one is a module with one `Experiment`, and a line here."""

from poskernel.experiments.causal_boundary import E6
from poskernel.experiments.dynamics import dynamics
from poskernel.experiments.experiment import Experiment
from poskernel.experiments.known_kernel import E5
from poskernel.experiments.normalization import E3
from poskernel.experiments.positional_kernel import E1

EXPERIMENTS: dict[str, Experiment] = {each.id: each for each in (E1, E3, E5, E6, dynamics)}
