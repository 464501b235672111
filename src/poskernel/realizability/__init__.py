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
from poskernel.realizability.content import ContentRow, content_alphas, matching_shift
from poskernel.realizability.existence import Existence, Exists, existence
from poskernel.realizability.prediction import (
    PredictedRow,
    Prediction,
    existence_answers,
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
    "ContentRow",
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
    "content_alphas",
    "existence",
    "existence_answers",
    "matching_shift",
    "parse_rule",
    "predict",
    "predict_all",
    "reach",
    "row_margins",
    "screen",
    "screen_document",
    "select_kernel",
]
