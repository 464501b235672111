"""Predict length generalization before any training: select a kernel, transfer it, score it, ask what else exists."""

from poskernel.realizability.alignment import (
    Certificate,
    RowMargins,
    alignment_margin,
    alpha,
    certificate,
    reach,
    row_margins,
)
from poskernel.realizability.existence import Existence, Exists, existence
from poskernel.realizability.prediction import (
    PredictedRow,
    Prediction,
    predict,
    predict_all,
    screen,
    screen_document,
    select_kernel,
)
from poskernel.realizability.selection import SELECTION_RULES, Selection, SelectionRule, parse_rule

__all__ = [
    "SELECTION_RULES",
    "Certificate",
    "Existence",
    "Exists",
    "PredictedRow",
    "Prediction",
    "RowMargins",
    "Selection",
    "SelectionRule",
    "alignment_margin",
    "alpha",
    "certificate",
    "existence",
    "parse_rule",
    "predict",
    "predict_all",
    "reach",
    "row_margins",
    "screen",
    "screen_document",
    "select_kernel",
]
