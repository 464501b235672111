"""The table of measures: names, what each shares or runs, errors that say whose they are."""

import dataclasses

import pytest
import torch

from planted_source import PositionSource, stream
from poskernel.attention.estimators.decompose import SplitEstimator
from poskernel.attention.estimators.distance import kernel_boundary
from poskernel.attention.head_columns import HEAD_COLUMNS
from poskernel.attention.head_report import HeadReport
from poskernel.attention.measures import MEASURES, check_sequences, chosen_measures, described, measure_with
from poskernel.attention.measuring import Subject, measure
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import parse_encoding
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer

SHARED = ("split", "distance", "symbolic", "drift", "leakage", "variants")


def subject(**settings):
    return Subject(PositionSource(), stream(480).view(8, 60), [0, 1], dropped=4, **settings)


def small(encoding="rope", causal=True):
    torch.manual_seed(0)
    shape = Architecture(width=16, layers=2, heads=2, vocabulary=50, causal=causal)
    return Subject(
        TransformerSource(Transformer(shape, parse_encoding(encoding)).eval()),
        stream(400).view(8, 50),
        [1],
        dropped=4,
        causal=causal,
    )


def test_every_measure_has_a_field_and_columns():
    fields = [field.name for field in dataclasses.fields(HeadReport)]
    assert sorted(MEASURES) == sorted(HEAD_COLUMNS) == sorted(fields[fields.index("sentence") + 1 :])
    for name, entry in MEASURES.items():
        assert all(described(name).values())
        assert entry.fewest >= 4


def test_names_come_in_the_order_of_the_table_and_typos_are_named():
    assert chosen_measures(()) == chosen_measures("") == []
    assert chosen_measures(" drift, split,") == chosen_measures(["drift", "split"]) == ["split", "drift"]
    assert chosen_measures("all") == chosen_measures(["all"]) == list(MEASURES)
    with pytest.raises(InputError, match="unknown measure 'distances': did you mean 'distance'"):
        chosen_measures("split,distances")


def test_too_few_sequences_are_said_by_measure():
    check_sequences(["split", "drift"], 6)
    with pytest.raises(InputError, match="5 sequences are too few for the measure 'split': take 6 or more"):
        check_sequences(["drift", "split"], 5)


def test_streamed_measures_share_one_pass_with_the_kernels():
    chosen = subject()
    kernels, found = measure_with(chosen, SHARED)
    probes = 1  # the rotation of each layer is looked for once
    assert chosen.source.passes == 1 + probes
    plain = measure(subject())
    assert all(torch.equal(one.g, other.g) and one.r2 == other.r2 for one, other in zip(kernels, plain, strict=True))
    assert all(list(each) == list(SHARED) for each in found.values())
    assert list(found) == [(layer, head) for layer in (0, 1) for head in range(3)]
    alone = SplitEstimator({1: 3}, 60, 4)
    chosen.source.forward(chosen.tokens, alone.consume)
    for split in alone.estimates():
        assert found[split.layer, split.head]["split"].shares == split.shares


def test_the_boundary_of_a_heads_own_kernel_stands_beside_its_weights():
    kernels, found = measure_with(subject(), ["distance"])
    for kernel in kernels:
        boundary = found[kernel.layer, kernel.head]["distance"].kernel
        assert torch.equal(boundary.log_z, kernel_boundary(kernel.g).log_z)
    both_ways = Subject(PositionSource(causal=False), stream(480).view(8, 60), [0], dropped=4, causal=False)
    assert measure_with(both_ways, ["distance"])[1][0, 0]["distance"].kernel is None


@pytest.mark.parametrize("encoding", ["rope", "learned", "alibi", "nope"])
def test_all_measures_of_our_own_transformers(encoding):
    kernels, found = measure_with(small(encoding), list(MEASURES))
    for kernel in kernels:
        each = found[kernel.layer, kernel.head]
        assert list(each) == list(MEASURES)
        assert {(result.layer, result.head) for result in each.values()} == {(kernel.layer, kernel.head)}
        assert (each["spectrum"].lines is not None) == (encoding == "rope")
        assert len(each["symbolic"].frequencies) == (4 if encoding == "rope" else 0)
        # One token for ever: with rotated keys alone the logits are a function of the offset exactly.
        assert each["probes"].constant.is_toeplitz == (encoding != "learned")


def test_measures_of_an_encoder():
    kernels, found = measure_with(small(causal=False), list(MEASURES))
    assert kernels[0].first_offset == -45
    assert found[1, 0]["spectrum"].lines is not None
    assert found[1, 0]["distance"].boundary is None


def test_errors_say_which_measure_they_belong_to():
    with pytest.raises(InputError, match="the measure 'products' cannot be made: 'planted' does not give"):
        measure_with(subject(), ["products"])
    with pytest.raises(InputError, match="the measure 'untrained' cannot be made: how to build 'planted' anew"):
        measure_with(subject(), ["untrained"])
    few = Subject(PositionSource(), stream(240).view(4, 60), [0], dropped=4)
    with pytest.raises(InputError, match="the measure 'split' cannot be made: a batch of 4 sequences is too small"):
        measure_with(few, ["split"])


def test_what_cannot_be_built_is_refused_before_the_pass():
    chosen = subject()
    with pytest.raises(InputError):
        measure_with(chosen, ["split", "untrained"])
    assert chosen.source.passes == 0


def test_progress_tells_each_measure():
    steps = []
    measure_with(subject(step=lambda *step: steps.append(step)), ["split", "spectrum"])
    assert steps == [
        ("layers", 1, 2),
        ("layers", 2, 2),
        *((name, done, 1) for name in ("split", "spectrum") for done in (0, 1)),
    ]
