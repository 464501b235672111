"""Where a model's weights lie: folders, files, packages, hub ids; what is no model; the digest."""

import hashlib
import sys
from pathlib import Path

import pytest

from poskernel.attention.sources import weights
from poskernel.errors import InputError


def packaged(place, name, *files):
    """An installed package that records the given files; it cannot be imported."""
    for file in (f"{name}/__init__.py", *files):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text("raise SystemExit('imported')")
    record = place / f"{name}-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (record / "RECORD").write_text("".join(f"{file},,\n" for file in (f"{name}/__init__.py", *files)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{folder}/tiny-lama", "there is no '.*tiny-lama': did you mean 'tiny-llama'?"),
        ("./nothing-like-it", "there is no './nothing-like-it'"),
        ("model.gguf", "there is no 'model.gguf'"),
        ("{folder}/empty", "'.*empty' holds no weights: give a folder with config.json and .safetensors"),
        ("{folder}/pickled", "pytorch_model.bin is a pickle, which can run code when read; convert it"),
        ("{folder}/pickled/pytorch_model.bin", "pytorch_model.bin is a pickle"),
        ("{folder}/notes.txt", "holds no weights"),
        ("{folder}/two", "holds 2 .gguf files: give the path of one"),
        ("{folder}/bare", "has weights but no config.json beside them"),
        ("package:pyteste", "no installed package is called 'pyteste': install one that carries weights, such as"),
        ("package:pytest", "the package 'pytest' carries no weights"),
        ("package:", "no installed package is called ''"),
    ],
)
def test_what_is_no_model_is_said_in_one_sentence(tmp_path, name, message):
    for made in ("tiny-llama", "empty", "pickled", "two", "bare"):
        (tmp_path / made).mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "pickled" / "pytorch_model.bin").touch()
    (tmp_path / "two" / "a.gguf").touch()
    (tmp_path / "two" / "b.gguf").touch()
    (tmp_path / "bare" / "model.safetensors").touch()
    with pytest.raises(InputError, match=message):
        weights.locate(name.format(folder=tmp_path))


def test_hub_ids_are_told_from_paths():
    assert weights.locate("HuggingFaceTB/SmolLM2-135M").path is None
    assert weights.locate("gpt2").path is None


def test_a_package_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "carries_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "model.gguf").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert weights.locate("package:carries-weights").path == package / "model.gguf"
    packaged(tmp_path, "carries_weights", "carries_weights/model.gguf")
    found = weights.locate("package:carries-weights")
    assert found.gguf
    assert found.path == package / "model.gguf"
    assert "carries_weights" not in sys.modules


def test_a_package_may_carry_a_folder_of_safetensors(tmp_path, monkeypatch):
    packaged(tmp_path, "carries_folder", "carries_folder/model/a.safetensors", "carries_folder/model/b.safetensors")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = weights.locate("package:carries-folder")
    assert found.path == tmp_path / "carries_folder" / "model"
    assert not found.gguf


def test_a_package_with_two_models_is_asked_for_one(tmp_path, monkeypatch):
    packaged(tmp_path, "carries_two", "carries_two/model.gguf", "carries_two/other/model.safetensors")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="the package 'carries-two' carries 2 models: give the path of one, such as"):
        weights.locate("package:carries-two")


def test_folders_and_files_are_found(tmp_path, monkeypatch):
    (tmp_path / "config.json").touch()
    (tmp_path / "model.safetensors").touch()
    assert weights.locate(str(tmp_path)) == weights.Weights(str(tmp_path), tmp_path)
    one = tmp_path / "one"
    one.mkdir()
    (one / "model.gguf").touch()
    assert weights.locate(str(one)).path == weights.locate(str(one / "model.gguf")).path == one / "model.gguf"
    assert weights.locate(str(one)).gguf
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights.locate("~/one").path == one / "model.gguf"
    monkeypatch.chdir(tmp_path)
    assert weights.locate("one").path == Path("one/model.gguf")


def test_the_digest_is_that_of_the_content(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "CHUNK", 3)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"ten bytes.")
    assert weights.Weights("m", file).digest() == hashlib.sha256(b"ten bytes.").hexdigest()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "only.safetensors").write_bytes(b"ten bytes.")
    (folder / "config.json").write_text("{}")
    assert weights.Weights("m", folder).digest() == weights.Weights("m", file).digest()


def test_the_digest_of_several_files_knows_which_is_which(tmp_path):
    digests = []
    for number, content in enumerate([(b"1", b"2"), (b"2", b"1"), (b"12", b""), (b"1", b"2")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, part in zip(("a.safetensors", "b.safetensors"), content, strict=True):
            (folder / name).write_bytes(part)
        digests.append(weights.Weights("m", folder).digest())
    assert digests[0] == digests[3] == hashlib.sha256(b"a.safetensors1b.safetensors2").hexdigest()
    assert len(set(digests)) == 3


def test_weights_that_are_not_here_have_no_digest():
    with pytest.raises(InputError, match="the weights of 'gpt2' are not on this machine"):
        weights.locate("gpt2").digest()


def test_only_packages_that_carry_weights_are_suggested(tmp_path, monkeypatch):
    packaged(tmp_path, "carries_weights", "carries_weights/model.gguf")
    packaged(tmp_path, "carries_weight_lists", "carries_weight_lists/list.txt")
    packaged(tmp_path, "pieces_of_weights")
    with (tmp_path / "pieces_of_weights-1.0.dist-info" / "METADATA").open("a") as metadata:
        metadata.write("Requires-Dist: pieces-of-weights-part01 (==1.0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"carries-weights", "pieces-of-weights"} <= set(weights.carriers())
    assert not {"carries-weight-lists", "pytest", "torch"} & set(weights.carriers())
    with pytest.raises(InputError, match="called 'carries-weight': did you mean 'carries-weights'"):
        weights.locate("package:carries-weight")
    with pytest.raises(InputError, match="called 'pieces-of-weight': did you mean 'pieces-of-weights'"):
        weights.locate("package:pieces-of-weight")
