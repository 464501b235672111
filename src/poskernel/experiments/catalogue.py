"""The experiments by id. A new one is a module with one `Experiment`, and a line here."""

from poskernel.experiments.causal_boundary import E6
from poskernel.experiments.closest_work import CLOSEST
from poskernel.experiments.content_decomposition import E2
from poskernel.experiments.dynamics import dynamics
from poskernel.experiments.experiment import Experiment
from poskernel.experiments.known_kernel import E5
from poskernel.experiments.normalization import E3
from poskernel.experiments.positional_kernel import E1
from poskernel.experiments.real_models import E7
from poskernel.experiments.residual_ablation import ABLATION
from poskernel.experiments.spectral_interventions import E4

EXPERIMENTS: dict[str, Experiment] = {
    each.id: each for each in (E1, E2, E3, E4, E5, E6, E7, dynamics, ABLATION, CLOSEST)
}
