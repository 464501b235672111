"""Labels and meanings of columns: whole sentences with the names that stand for capitals, and none for strangers."""

import re

import pytest

from poskernel.attention.content.content_kernels import KERNELS
from poskernel.attention.content.product_fits import FITS
from poskernel.attention.estimators.decompose import TERMS
from poskernel.attention.estimators.drift import PARTS
from poskernel.attention.estimators.variant_estimates import variant_names
from poskernel.attention.head_meanings import LABELS, MEANINGS, PLACEHOLDERS, in_general, of_column

NAMES = {
    "TERM": TERMS,
    "PART": [part.replace(" ", "_") for part in PARTS],
    "VARIANT": variant_names(16),
    "CONTENT": KERNELS,
    "FIT": FITS,
}


def test_words_in_capitals_stand_for_the_names_that_are_measured():
    assert {word: sorted(names) for word, names in PLACEHOLDERS.items()} == {
        word: sorted(names) for word, names in NAMES.items()
    }


@pytest.mark.parametrize(
    ("column", "label", "meaning"),
    [
        ("r2", "R2, unbiased, row-centred", "share of the variance of the mean row-centred"),
        ("key_share", "variance share: the key's content", "logit variance that is the key's content"),
        ("slope_key_drift", "slope from mean keys that move with position", "comes from mean keys"),
        ("whole_mean_r2_raw", "R2, raw: per-position means, nothing dropped", "unbiased and raw, of the Gram"),
        ("mean_r2_plugin_centred", "R2, plug-in, row-centred: per-position means", "plug-in and row-centred"),
        ("fit_token_product", "bilinear form of token embeddings: position times content", "of the fit position times"),
        ("fit_token_product_over_sum", "bilinear form of token embeddings: gain of product over sum", "less that of"),
        ("residual_additive_rank_null", "residual rank, other sequence's keys: position plus content plus", "another"),
    ],
)
def test_a_column_is_called_by_all_of_its_names(column, label, meaning):
    group = next(name for name, texts in MEANINGS.items() if of_column(column, texts))
    assert of_column(column, LABELS).startswith(label) and meaning in of_column(column, MEANINGS[group])


def test_columns_of_no_table_have_no_words():
    assert of_column("strange_share_of_something", LABELS) == of_column("fit_token_nothing", LABELS) == ""


def test_no_text_is_a_fragment_or_leaves_a_brace():
    for texts in (LABELS, *MEANINGS.values()):
        for name, text in texts.items():
            words = set(re.findall(r"[A-Z]{2,}", name))
            assert set(re.findall(r"\{([A-Z]+)\}", text)) == words, name
            assert "{" not in in_general(text) and text
            assert text not in {"likewise", "raw", "plug-in", "signal", "share", "with it", "their sum"}
