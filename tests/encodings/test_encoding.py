import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import Tensor

from poskernel.encodings import ENCODINGS, AbsoluteEncoding, ModelShape, RelativeEncoding, parse_encoding
from poskernel.encodings.encoding import geometric_frequencies, require_count, require_positive
from poskernel.encodings.rotary import Rope
from poskernel.errors import InputError


@dataclass(frozen=True)
class TheoryOnly(RelativeEncoding):
    name = "theory-only"
    power: float = 2.0

    def basis(self, offset: Tensor) -> Tensor:
        return (offset.double() ** self.power)[:, None]


class PlainClass(AbsoluteEncoding):
    name = "plain"

    def features(self, position: Tensor, train_length: int) -> Tensor:
        return position.double()[:, None]


def test_an_encoding_without_a_module_says_so() -> None:
    with pytest.raises(InputError, match="'theory-only' has no model side: give it a `module` to train with it"):
        TheoryOnly().module(ModelShape(8, 1, 20))


def test_effective_parameters_are_echoed() -> None:
    assert TheoryOnly(power=3.0).effective == "theory-only:power=3.0"
    assert PlainClass().effective == "plain"
    assert parse_encoding("rope:base=1e6").effective == "rope:base=1000000.0,frequencies=16,scale=1.0"


@pytest.mark.parametrize("text", ["rope", "nope", "learned", "sinusoidal:frequencies=8", "alibi:free_slope=true"])
def test_the_echo_names_the_same_encoding(text: str) -> None:
    encoding = parse_encoding(text)
    assert parse_encoding(encoding.effective) == encoding


def test_frequencies_are_geometric() -> None:
    assert geometric_frequencies(1e4, 16)[:2].tolist() == [1.0, 10 ** (-4 / 16)]
    assert geometric_frequencies(1e4, 4).tolist() == pytest.approx([1, 0.1, 0.01, 0.001])


@pytest.mark.parametrize("value", [0.0, -1e4, float("nan"), float("inf")])
def test_a_base_must_be_finite_and_positive(value: float) -> None:
    with pytest.raises(InputError, match=f"base is {value}: give a positive number"):
        require_positive(value, "base")


@pytest.mark.parametrize("value", [0, -2, True])
def test_a_count_must_be_whole_and_at_least_one(value: int) -> None:
    with pytest.raises(InputError, match="give a whole number of 1 to 4096"):
        require_count(value, "count")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rpoe", "unknown encoding 'rpoe': did you mean 'rope'"),
        ("rope:base=-1e4", r"base of RoPE is -10000.0: give a positive number"),
        ("rope:base=nan", "base of RoPE is nan: give a positive number"),
        ("rope:frequencies=0", "number of frequencies of RoPE is 0: give a whole number of 1 to 4096"),
        ("rope:scale=inf", "frequency scale of RoPE is inf"),
        ("sinusoidal:base=0", "base of the sinusoidal encoding is 0.0"),
        ("sinusoidal:frequencies=2.5", "'2.5': give a whole number"),
        ("rope:bass=1", "unknown parameter of encoding 'rope' 'bass': did you mean 'base'"),
        ("nope:base=1", "'nope' takes no parameters"),
        ("", "unknown encoding ''"),
    ],
)
def test_what_is_no_encoding_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_encoding(text)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("rope:base=1e6,frequencies=32", Rope(base=1e6, frequencies=32)),
        ("rope:1e6", Rope(base=1e6)),
        (' {"rope_theta": 500000, "head_dim": 128}', Rope(base=5e5, frequencies=64)),
    ],
)
def test_texts_and_configurations_name_encodings(text: str, encoding: Rope) -> None:
    assert parse_encoding(text) == encoding


def test_every_encoding_has_its_line_on_the_page_of_encodings() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "encodings.md").read_text().splitlines()
    named = [line.split("`")[1].partition(":") for line in lines if line.startswith("| `")]
    assert sorted(name for name, _, _ in named) == sorted(ENCODINGS)
    for name, _, fields in named:
        known = {field.name for field in dataclasses.fields(ENCODINGS[name])}  # type: ignore[arg-type]
        assert set(filter(None, fields.split(","))) <= known
