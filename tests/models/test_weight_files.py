"""Files of weights: what is written is read again, and what is none is refused by name."""

import dataclasses
import json

import pytest
import torch

from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Norm
from poskernel.models.weight_files import read_architecture, read_tensors, write_tensors


def test_what_is_written_is_read_again(tmp_path) -> None:
    about, path = {"format": "here/1", "steps": [1, 2]}, tmp_path / "weights.safetensors"
    tensors = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.tensor(3)}
    write_tensors(about, tensors, path)
    found, kept = read_tensors(path, "here/1", "train again")
    assert found == about and kept.keys() == tensors.keys()
    assert all(torch.equal(kept[name], tensors[name]) for name in tensors)


def test_other_files_are_refused(tmp_path) -> None:
    write_tensors({"format": "here/1"}, {"a": torch.zeros(1)}, tmp_path / "other")
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(InputError, match=r"other' has format 'here/1', this version reads 'here/2': train again\."):
        read_tensors(tmp_path / "other", "here/2", "train again")
    with pytest.raises(InputError, match=r"text' is no readable checkpoint .*: delete it\."):
        read_tensors(tmp_path / "text", "here/1", "delete it")


@pytest.mark.parametrize("before", [None, Norm.NONE])
def test_an_architecture_comes_back_from_json(before: Norm | None) -> None:
    shape = Architecture(width=32, heads=2, norm=Norm.RMS, attention_norm=before, causal=False)
    assert read_architecture(json.loads(json.dumps(dataclasses.asdict(shape)))) == shape
    older = {name: value for name, value in dataclasses.asdict(shape).items() if name != "attention_norm"}
    assert read_architecture(older) == dataclasses.replace(shape, attention_norm=None)
