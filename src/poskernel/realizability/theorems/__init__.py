"""Claims of the sources as checks that can fail, one function a claim; and theorem 2 for one's own case."""

from poskernel.realizability.theorems.characterization import Characterization, characterize
from poskernel.realizability.theorems.check import Check, Effort
from poskernel.realizability.theorems.table import chosen_claims, claim_rows, claims, run_checks, theory_document
from poskernel.realizability.theorems.verdicts import Verdict

__all__ = [
    "Characterization",
    "Check",
    "Effort",
    "Verdict",
    "characterize",
    "chosen_claims",
    "claim_rows",
    "claims",
    "run_checks",
    "theory_document",
]
