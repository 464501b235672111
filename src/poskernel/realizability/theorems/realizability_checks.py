"""The realizability paper's claims, in the order in which it makes them."""

from poskernel.realizability.theorems.affine import proposition_1
from poskernel.realizability.theorems.check import CheckFunction
from poskernel.realizability.theorems.conjecture import (
    equal_argmax_opposite_transfer,
    feature_conditioning,
    joint_cone_witness,
    open_case_search,
    saturation_lemma,
)
from poskernel.realizability.theorems.duality import proposition_4, proposition_4_independent_rows
from poskernel.realizability.theorems.orders import parity_stays_at_half, reverse_is_unsolvable
from poskernel.realizability.theorems.relative import (
    theorem_2_attainability,
    theorem_2_clipped_rows,
    theorem_2_deep_rows,
    theorem_2_density,
    theorem_2_lucky_lengths,
    theorem_2_no_global_peak,
    theorem_2_shallow_rows,
)
from poskernel.realizability.theorems.sinusoidal import proposition_3a, proposition_3b
from poskernel.realizability.theorems.transfer import theorem_1, transfer_acts_on_weights
from poskernel.realizability.theorems.underdetermination import (
    proposition_2_existence,
    proposition_2_fitted,
    proposition_2_hypothesis,
    proposition_2_rate,
    proposition_2_uniqueness,
)

REALIZABILITY_CHECKS: tuple[CheckFunction, ...] = (
    theorem_1,
    transfer_acts_on_weights,
    proposition_1,
    proposition_2_rate,
    proposition_2_fitted,
    proposition_2_hypothesis,
    proposition_2_existence,
    proposition_2_uniqueness,
    proposition_3a,
    proposition_3b,
    theorem_2_deep_rows,
    theorem_2_density,
    theorem_2_attainability,
    theorem_2_clipped_rows,
    theorem_2_no_global_peak,
    theorem_2_lucky_lengths,
    theorem_2_shallow_rows,
    reverse_is_unsolvable,
    parity_stays_at_half,
    proposition_4,
    proposition_4_independent_rows,
    saturation_lemma,
    equal_argmax_opposite_transfer,
    joint_cone_witness,
    feature_conditioning,
    open_case_search,
)
