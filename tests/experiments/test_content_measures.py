"""Everything that is planned is measured, numbers are those of the engine, and the entropy of a deposit."""

import math

import pytest
import torch

from planted_content import DROPPED, SETTINGS, TOKENS, VOCABULARY, PlantedSource, bilinear, key_term
from poskernel.attention.content.class_kernels import TokenClasses
from poskernel.attention.content.cross_terms import measure_cross_terms, residual_ratio
from poskernel.attention.content.product import fit_products
from poskernel.attention.content.sparse_autoencoder import AutoencoderRecipe
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import Learned, Rope
from poskernel.experiments.content_measures import (
    CONTENT_MEASURES,
    FEATURES,
    SCOPES,
    SPLIT,
    Scope,
    content_values,
    evenness,
    planned,
)
from poskernel.models.transformer import Architecture, Transformer

CLASSES = {SPLIT: TokenClasses(torch.arange(VOCABULARY) % 3, 3)}
RECIPE = AutoencoderRecipe(features=8, active=2, steps=5, batch=16)


@pytest.mark.parametrize("state", SCOPES)
def test_what_is_planned_is_what_is_measured(state) -> None:
    torch.manual_seed(0)
    source = TransformerSource(Transformer(Architecture(16, 2, 2, vocabulary=VOCABULARY), Rope()).eval())
    tokens = torch.randint(0, VOCABULARY, (8, 20))
    found = content_values(source, tokens, [0, 1], 2, SCOPES[state], CLASSES, RECIPE)
    assert set(found) == set(planned(SCOPES[state], [0, 1], 2))
    assert len(planned(SCOPES[state], [0, 1], 2)) == len(found)


def test_every_measure_is_planned_somewhere() -> None:
    names = {metric for scope in SCOPES.values() for _, metric in planned(scope, [0], 1)}
    assert names == {each.name for each in CONTENT_MEASURES}


def test_numbers_are_the_engines() -> None:
    source = PlantedSource([[lambda x: bilinear(x) + key_term(x), bilinear]])
    scope = Scope(("match", "token"), (SPLIT, FEATURES))
    found = content_values(source, TOKENS, [0], DROPPED, scope, CLASSES, RECIPE)
    settings = type(SETTINGS)(DROPPED, ("match", "token"))
    fits = {(fit.head, fit.kernel): fit for fit in fit_products(source, TOKENS, settings=settings)}
    _, crossed = measure_cross_terms(source, TOKENS, "token", settings=settings, classes=CLASSES)
    for head in range(2):
        part = (("layer", 0), ("head", head))
        token = (*part, ("kernel", "token"))
        assert found[part, "fit_position"] == pytest.approx(fits[head, "token"].r2("position").value)
        assert found[token, "fit_content"] == pytest.approx(fits[head, "token"].r2("content").value)
        assert found[token, "gain_both"] == pytest.approx(fits[head, "token"].gain("both", "additive").value)
        left = next(each for each in crossed if (each.head, each.fit) == (head, "product"))
        residual = (*part, ("residual", "product"))
        assert found[residual, "residual_ratio"] == pytest.approx(residual_ratio(fits[head, "token"], "product").value)
        assert found[residual, "rank_null"] == pytest.approx(left.null_rank().value)
        gained = found[(*residual, ("classes", SPLIT)), "class_gain"]
        assert gained == pytest.approx(left.class_gains[SPLIT].value)
    assert found[(("layer", 0), ("head", 1), ("kernel", "token")), "fit_content"] > 0.9


def test_leakage_and_stages_see_learned_positions() -> None:
    torch.manual_seed(0)
    shape = Architecture(16, 1, 2, vocabulary=VOCABULARY)
    tokens = torch.randint(0, VOCABULARY, (16, 20))
    found = {
        name: content_values(
            TransformerSource(Transformer(shape, encoding).eval()), tokens, [0], 2, SCOPES["untrained"], CLASSES, RECIPE
        )
        for name, encoding in (("learned", Learned()), ("rope", Rope()))
    }
    for where in (((("layer", 0), ("head", 0)), "leak_total"), ((("layer", 0), ("stage", "stream")), "stage_share")):
        assert found["learned"][where] > 0.1 > found["rope"][where]
    assert 0 < found["learned"][(("layer", 0),), "deposit"] <= 1


def test_evenness_is_entropy_over_its_largest() -> None:
    assert evenness([2.0, 2.0, 2.0]) == pytest.approx(1)
    assert evenness([1.0, 0.0, -0.1]) == 0
    assert evenness([3.0, 1.0]) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(2))
    assert math.isnan(evenness([1.0])) and math.isnan(evenness([0.0, -1.0]))
