"""Class kernels against a dense design, and every way to give classes."""

import math

import pytest
import torch

from planted_content import TOKENS, VOCABULARY, PlantedSource, cosine
from poskernel.attention.content.class_kernels import (
    ClassRegression,
    FeatureClasses,
    TaggedClasses,
    TokenClasses,
    class_gain,
)
from poskernel.attention.content.cross_terms import measure_cross_terms
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.product import ProductSettings
from poskernel.attention.content.sparse_autoencoder import SparseAutoencoder, layer_inputs
from poskernel.errors import InputError

CLASSES = torch.arange(VOCABULARY) % 3


def test_class_statistics_equal_a_dense_design():
    layout = PairLayout.of(12, 2, True, None)
    tokens, regression = TOKENS[:3, 2:12], ClassRegression(layout, 3)
    residual = layout.centred(torch.randn(3, 10, 10, dtype=torch.float64))
    cells = regression.cells(CLASSES[tokens])
    normals, moments = regression.normals(cells), regression.moments(cells, layout.by_offset(residual))
    octaves = int(regression.octaves.max()) + 1
    for x in range(3):
        columns = []
        for one in range(3):
            for other in range(3):
                for octave in range(octaves):
                    column = torch.zeros(10, 10, dtype=torch.float64)
                    for t in range(10):
                        for s in range(t):
                            same = CLASSES[tokens[x, t]] == one and CLASSES[tokens[x, s]] == other
                            column[t, s] = float(same and int(math.log2(t - s)) == octave)
                    columns.append(layout.centred(column).flatten())
        features = torch.stack(columns, 1)
        torch.testing.assert_close(normals[x], features.T @ features)
        torch.testing.assert_close(moments[x], features.T @ residual[x].flatten())


def test_class_kernels_are_judged_on_sequences_they_were_not_fitted_to():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 30, 10, generator=generator, dtype=torch.float64)
    target = torch.randn(2, 30, generator=generator, dtype=torch.float64)
    normals, moments = features.transpose(1, 2) @ features, torch.einsum("xpf,xp->xf", features, target)
    gain = 0.0
    for fit, test in ((0, 1), (1, 0)):
        weights = torch.linalg.lstsq(features[fit], target[fit][:, None]).solution[:, 0]
        gain += float(target[test].square().sum() - (target[test] - features[test] @ weights).square().sum())
    found = class_gain(normals, moments, target.square().sum(1))
    assert found.value == pytest.approx(gain / float(target.square().sum()), rel=1e-6)
    assert found.value < 0


def capture_of(tokens):
    captures = []
    PlantedSource([[cosine], [cosine]]).forward(tokens, captures.append)
    return captures


def test_every_way_gives_each_position_its_class():
    capture, kept = capture_of(TOKENS[:4])[0], TOKENS[:4, 2:]
    assert torch.equal(TokenClasses(CLASSES, 3).labels(capture, kept, 2), CLASSES[kept])
    tags = torch.randint(0, 5, TOKENS.shape, generator=torch.Generator().manual_seed(0))
    tagged = TaggedClasses(TOKENS, tags, 5)
    order = torch.tensor([3, 0, 2, 1])
    assert torch.equal(tagged.labels(capture, kept[order], 2), tags[:4][order][:, 2:])
    with pytest.raises(InputError, match="a sequence carries no tags"):
        tagged.labels(capture, kept + 1, 2)


def test_features_have_classes_of_their_own_as_long_as_they_are_frequent():
    inputs = layer_inputs(PlantedSource([[cosine], [cosine]]), TOKENS, [1], 2)
    assert list(inputs) == [1] and inputs[1].shape[0] == TOKENS[:, 2:].numel()
    width = inputs[1].shape[1]
    autoencoder = SparseAutoencoder(torch.eye(width), torch.eye(width), torch.zeros(width), 1.0, 1)
    classes = FeatureClasses.of({1: autoencoder}, inputs, 3)
    strongest = inputs[1].argmax(1)
    order = torch.bincount(strongest, minlength=width).argsort(descending=True)
    labels = classes.labels(capture_of(TOKENS)[1], TOKENS[:, 2:], 2).flatten()
    assert torch.equal(labels == 0, strongest == order[0]) and torch.equal(labels == 1, strongest == order[1])
    assert set(labels.tolist()) == {0, 1, 2}


def test_layers_that_see_other_classes_have_normal_matrices_of_their_own():
    source = PlantedSource([[cosine], [cosine]])
    inputs = layer_inputs(source, TOKENS, [0, 1], 2)
    width = inputs[0].shape[1]
    both = {
        layer: SparseAutoencoder(weights, weights.T.contiguous(), torch.zeros(width), 1.0, 1)
        for layer, weights in ((0, torch.eye(width)), (1, torch.eye(width) * torch.tensor([5.0] + [1] * (width - 1))))
    }
    classes = {"features": FeatureClasses.of(both, inputs, 4)}
    settings = ProductSettings(2, ("match",))
    _, together = measure_cross_terms(source, TOKENS, "match", settings=settings, classes=classes)
    _, alone = measure_cross_terms(source, TOKENS, "match", [1], settings, classes)
    found = {(each.layer, each.fit): each.class_gains["features"].value for each in together}
    assert found[1, "additive"] == pytest.approx(alone[0].class_gains["features"].value)
    assert found[0, "additive"] != pytest.approx(found[1, "additive"], abs=1e-6)
