"""Planes in the space of rotated queries: reordered layouts, and frequencies that depend on the length."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from families import GROUPED, SPECIAL, tiny
from poskernel.attention.interventions.planes import every_plane, layer_planes, names_scheme, rotary_planes
from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer


def held(planes: torch.Tensor) -> list[list[int]]:
    return [plane.abs().gt(1e-5).any(0).nonzero().flatten().tolist() for plane in planes]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("llama", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("cohere", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("gpt_neox", [[0, 2], [1, 3]]),
        ("gptj", [[0, 1], [2, 3]]),
        # The rotated part comes last; the function takes pairs (0, 1), (2, 3) and gives halves (0, 2), (1, 3).
        ("deepseek_v3", [[8, 10], [9, 11]]),
    ],
)
def test_planes_lie_where_attention_sees_them(family: str, expected: list[list[int]]) -> None:
    rotary = rotary_planes(tiny(family))
    assert held(rotary[0].planes) == expected
    flat = rotary[0].planes.flatten(0, 1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(len(flat), dtype=torch.float64), rtol=0, atol=1e-6)
    torch.testing.assert_close(rotary[0].wavelengths[0], torch.tensor(2 * torch.pi, dtype=torch.float64))


def test_layers_without_a_rotation_are_absent_and_said() -> None:
    rotary = rotary_planes(tiny("smollm3"))
    assert list(rotary) == [0]
    assert every_plane(rotary, [(0, 2)]) == {(0, 2): (0, 1, 2, 3)}
    with pytest.raises(InputError, match=r"layer 1 has no rotary planes .*: leave its heads out, or use a temperature"):
        every_plane(rotary, [(0, 0), (1, 0)])
    assert rotary_planes(tiny("gpt2")) == {}
    with pytest.raises(InputError, match="layer 0 has no rotary planes"):
        layer_planes({}, 0)


def test_frequencies_that_depend_on_the_length_say_for_which_they_hold() -> None:
    scaled = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    config = {**SPECIAL, **GROUPED, "max_position_embeddings": 64, "rope_parameters": scaled}
    module = transformers.LlamaModel(transformers.LlamaConfig(**config))
    assert rotary_planes(module, 24)[0].only_length == 24
    assert rotary_planes(tiny("llama"), 24)[0].only_length is None
    own = Transformer(Architecture(width=16), ENCODINGS["dynamic"]).requires_grad_(False)
    assert rotary_planes(own, 20)[0].only_length == 20


def test_schemes_are_found_in_nested_settings() -> None:
    assert names_scheme({"text": {"rope_scaling": {"type": "longrope"}}})
    assert not names_scheme({"rope_parameters": {"full": {"rope_type": "yarn"}}, "note": "dynamic"})
