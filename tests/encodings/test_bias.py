import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.encodings import T5, Alibi, ModelShape, Shaw, parse_encoding
from poskernel.encodings.bias import alibi_slopes
from poskernel.errors import InputError
from poskernel.realizability import row_margins
from poskernel.tasks import Targets

# The slopes of the ALiBi paper and its published code: for 8 heads 1/2 ... 1/256; for other numbers those of the next
# lower power of two, then every other slope of twice that power.
GOLDEN = {
    1: [2**-8],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    8: [2**-h for h in range(1, 9)],
    12: [*(2**-h for h in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
    16: [2 ** (-h / 2) for h in range(1, 17)],
}


@pytest.mark.parametrize("heads", GOLDEN)
def test_slopes_are_those_of_the_paper(heads: int) -> None:
    assert alibi_slopes(heads).tolist() == pytest.approx(GOLDEN[heads], rel=1e-15)


@pytest.mark.parametrize("heads", range(1, 40))
def test_every_number_of_heads_has_distinct_slopes(heads: int) -> None:
    slopes = alibi_slopes(heads).tolist()
    assert len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


def test_no_heads_no_slopes() -> None:
    with pytest.raises(ValueError, match="0 heads have no slopes: give at least 1"):
        alibi_slopes(0)


def test_the_bias_falls_with_the_offset() -> None:
    bias = Alibi().module(ModelShape(64, 4, 20))(torch.arange(6)).bias
    assert bias is not None
    assert bias.shape == (4, 6, 6)
    assert bias[0, 5].tolist() == [-1.25, -1.0, -0.75, -0.5, -0.25, 0.0]
    # Every head's bias is a kernel of the family: c = 0 and a negative slope.
    for head, slope in enumerate(GOLDEN[4]):
        family = Alibi().family(20, 6)
        expected = family.kernel(torch.tensor([0.0, -slope], dtype=torch.float64)).transfer(6)
        torch.testing.assert_close(bias[head].double().tril(), expected.nan_to_num(neginf=0).tril())


def test_the_slope_is_bounded_unless_freed() -> None:
    assert Alibi().family(20, 20).upper_bounds().tolist() == [float("inf"), 0]
    assert Alibi(free_slope=True).family(20, 20).upper_bounds().isinf().all()


def t5_bucket(offset: int, buckets: int, max_distance: int) -> int:
    """The published definition, an offset at a time, edges compared in whole numbers."""
    exact = buckets // 2
    if offset < exact:
        return offset
    shared = 0
    # floor(exact ln(offset / exact) / ln(max_distance / exact)) >= k  <=>  offset^exact exact^k >= max^k exact^exact
    while (
        shared < buckets - exact - 1
        and offset**exact * exact ** (shared + 1) >= max_distance ** (shared + 1) * exact**exact
    ):
        shared += 1
    return exact + shared


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 64), (8, 20), (2, 100), (32, 64), (10, 11)])
def test_t5_buckets_are_those_of_the_definition(buckets: int, max_distance: int) -> None:
    found = T5(buckets, max_distance).bucket(torch.arange(2 * max_distance + 40)).tolist()
    assert found == [t5_bucket(offset, buckets, max_distance) for offset in range(2 * max_distance + 40)]


def test_t5_buckets_as_everyone_quotes_them() -> None:
    bucket = T5().bucket(torch.arange(4000)).tolist()
    assert bucket[:16] == list(range(16))
    assert [offset for offset in range(30) if bucket[offset] == 16] == [16, 17, 18]
    assert [offset for offset in range(30) if bucket[offset] == 17] == [19, 20]
    assert bucket[112] == 30
    assert set(bucket[113:]) == {31}
    transformers = pytest.importorskip("transformers")
    published = transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket
    theirs = published(-torch.arange(4000), bidirectional=False, num_buckets=32, max_distance=128)
    assert bucket == theirs.tolist()


@given(st.integers(16, 300), st.lists(st.floats(-5, 5, width=16), min_size=32, max_size=32), st.integers(0, 40))
@settings(deadline=None, max_examples=40)
def test_no_t5_kernel_ever_picks_an_offset_of_16_or_more(offset: int, weights: list[float], more: int) -> None:
    """Its bucket holds another offset that every later row sees as well: a tie, and strict alpha is 0."""
    kernel = T5().family(20, 400).kernel(torch.tensor(weights, dtype=torch.float64))
    first = offset + 1 if T5().bucket(torch.tensor(offset)) == T5().bucket(torch.tensor(offset - 1)) else offset + 2
    rows = torch.arange(first + more, first + more + 3)
    assert row_margins(kernel, Targets(rows, rows - offset)).share == 0


@given(st.integers(1, 30), st.integers(0, 60), st.lists(st.floats(-5, 5, width=16), min_size=31, max_size=31))
@settings(deadline=None, max_examples=40)
def test_no_shaw_kernel_ever_picks_an_offset_from_the_clip_on(clip: int, more: int, weights: list[float]) -> None:
    kernel = Shaw(clip).family(20, 400).kernel(torch.tensor(weights[: clip + 1], dtype=torch.float64))
    offset = clip + more
    rows = torch.arange(offset + 1, offset + 4)  # each of them sees offset + 1 or, beyond the clip, offset - 1
    assert row_margins(kernel, Targets(rows, rows - offset)).share == 0


def test_offsets_before_the_ties_can_be_picked() -> None:
    for encoding, offset in ((T5(), 15), (Shaw(16), 15)):
        weights = torch.zeros(encoding.family(20, 20).shape, dtype=torch.float64)
        weights[offset] = 1.0
        rows = torch.arange(offset, 300)
        assert row_margins(encoding.family(20, 300).kernel(weights), Targets(rows, rows - offset)).share == 1


def test_the_trained_t5_table_is_a_kernel_of_the_family_in_every_head() -> None:
    torch.manual_seed(0)
    module = T5().module(ModelShape(64, 4, 20))
    (table,) = module.parameters()
    assert table.shape == (32, 4)
    bias = module(torch.arange(3, 140)).bias
    assert bias is not None
    for head in range(4):
        expected = T5().family(20, 137).kernel(table[:, head].detach().double()).transfer(137)
        torch.testing.assert_close(bias[head].double().tril(), expected.nan_to_num(neginf=0).tril())


def test_shaw_s_vectors_give_a_kernel_of_the_family_for_every_query() -> None:
    torch.manual_seed(0)
    module = Shaw(5).module(ModelShape(32, 2, 20))
    (table,) = module.parameters()
    assert table.shape == (6, 16)
    vectors = module(torch.arange(12)).key_vectors
    assert vectors is not None
    query = torch.randn(16)
    expected = Shaw(5).family(20, 12).kernel((table @ query).detach().double()).transfer(12)
    torch.testing.assert_close((vectors @ query).double().tril(), expected.nan_to_num(neginf=0).tril())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t5:buckets=7", "number of buckets of T5 is 7: give an even number"),
        ("t5:buckets=0", "number of buckets of T5 is 0: give a whole number of 1"),
        ("t5:max_distance=16", "max_distance of T5 is 16: give more than the 16 exact offsets"),
        ("shaw:clip=0", "clip of Shaw is 0: give a whole number of 1"),
    ],
)
def test_impossible_parameters_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_encoding(text)
