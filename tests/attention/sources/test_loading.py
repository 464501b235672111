"""From a name to a model: folders, GGUF files, the hub; what is refused; the cache."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers")

from poskernel.attention.atlas import analyze  # noqa: E402
from poskernel.attention.sources import loading  # noqa: E402
from poskernel.attention.sources.loading import load  # noqa: E402
from poskernel.attention.sources.self_test import self_test  # noqa: E402
from poskernel.errors import InputError, RunError  # noqa: E402


@pytest.fixture
def offline(monkeypatch):
    """Any attempt at the network fails the test."""

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def text(tokens):
    return " ".join(f"w{(7 * number * number) % 60}" for number in range(tokens))


def test_a_folder_loads_without_the_network(tiny_llama, offline):
    loaded = load(str(tiny_llama))
    assert loaded.encode("w3 w5 nothing") == [3, 5, 60]
    assert loaded.quantization is None
    assert loaded.weights_digest == hashlib.sha256((tiny_llama / "model.safetensors").read_bytes()).hexdigest()
    assert (loaded.source.layers, loaded.source.heads, loaded.source.position_limit) == (2, 4, 64)
    assert loaded.source.dtype == torch.float32


def test_analyze_a_folder(tiny_llama, offline):
    atlas = analyze(str(tiny_llama), text(200), sequences=6, length=32, dropped=4)
    document = atlas.document()
    assert document["text_digest"] == hashlib.sha256(text(200).encode()).hexdigest()
    assert document["model"] == str(tiny_llama)
    assert len(document["heads"]) == 8


def test_missing_weights_are_not_invented(tiny_llama, tmp_path):
    from safetensors.torch import load_file, save_file

    for file in tiny_llama.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    state = load_file(tiny_llama / "model.safetensors")
    del state["model.layers.1.self_attn.q_proj.weight"]
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 weights of LlamaModel, such as layers.1.self_attn.q_proj.weight"):
        load(str(tmp_path))


def test_remote_code_is_refused(tiny_llama, tmp_path):
    for file in tiny_llama.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tiny_llama / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text("raise SystemExit('remote code ran')")
    with pytest.raises(InputError, match="needs code of its own to run, which is never executed"):
        load(str(tmp_path))


def test_unreadable_config_and_absent_tokenizer(tiny_llama, tmp_path):
    for file in tiny_llama.iterdir():
        if not file.name.startswith("tokenizer"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(InputError, match="has no tokenizer that can be read"):
        load(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "nothing-known"}')
    with pytest.raises(InputError, match="cannot be read as a Hugging Face model"):
        load(str(tmp_path))


def test_the_encoder_of_an_encoder_decoder_is_loaded(tmp_path, tiny_llama):
    for file in tiny_llama.iterdir():
        if file.name.startswith("tokenizer"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=4, vocab_size=61)
    transformers.T5Model(config).save_pretrained(tmp_path)
    source = load(str(tmp_path)).source
    assert type(source.module).__name__ == "T5Stack"
    assert not self_test(source).causal


def test_a_hub_model_of_pickles_alone_is_refused_and_told_how_to_convert(monkeypatch, tmp_path):
    import huggingface_hub

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **kwargs: str(tmp_path))
    with pytest.raises(
        InputError,
        match=r"'old/pickles' has no safetensors weights on the hub, and pickled ones.*save_pretrained\(folder",
    ):
        load("old/pickles")


def test_a_hub_id_that_the_hub_does_not_give(monkeypatch):
    import huggingface_hub

    def fail(*args, **kwargs):
        raise OSError("no such repository")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(
        InputError, match=r"'nobody/nothing' is no folder or file here, and the hub did not give it \(no such"
    ):
        load("nobody/nothing")


@pytest.fixture
def converted(tiny_llama, tmp_path, monkeypatch):
    """A fake GGUF file whose conversion copies the tiny Llama, and the cache it goes to."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"weights")
    calls = []

    def convert(found, digest, place, package):
        calls.append(digest)
        for part in tiny_llama.iterdir():
            (place / part.name).write_bytes(part.read_bytes())
        (place / loading.NOTE).write_text(json.dumps({"quantization": "Q4_1", "weights_digest": digest}))

    monkeypatch.setattr(loading, "convert_gguf", convert)
    return file, calls


def test_a_gguf_is_converted_once_and_again_when_its_content_changes(converted):
    file, calls = converted
    first, second = load(str(file)), load(str(file))
    assert len(calls) == 1
    assert first.quantization == second.quantization == "Q4_1"
    assert first.weights_digest == hashlib.sha256(b"weights").hexdigest()
    file.write_bytes(b"other weights")
    load(str(file))
    assert len(calls) == 2


def test_an_interrupted_conversion_leaves_nothing(converted, monkeypatch, tmp_path):
    file, _ = converted

    def interrupted(found, digest, place, package):
        (place / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loading, "convert_gguf", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load(str(file))
    assert list((tmp_path / "cache" / "models").iterdir()) == []
    assert load(str(file)).quantization == "Q4_1"


def test_a_full_disk_is_said(converted, monkeypatch):
    file, _ = converted

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loading, "convert_gguf", full)
    with pytest.raises(RunError, match=r"cannot write .*No space left on device.*POSKERNEL_CACHE"):
        load(str(file))


def test_a_broken_gguf_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.gguf").write_bytes(b"not a gguf file at all")
    with pytest.raises(InputError, match=r"broken.gguf' cannot be read as a Hugging Face model"):
        load(str(tmp_path / "broken.gguf"))
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_hub_id_is_read_from_the_hub_cache_of_this_machine(tiny_llama, tmp_path):
    """A fabricated cache, no network: what a user has who once downloaded the model."""
    place = tmp_path / "hub" / "models--tiny--llama"
    shutil.copytree(tiny_llama, place / "snapshots" / "0123abc")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0123abc")
    script = "from poskernel.attention.sources.loading import load; print(load('tiny/llama').source.layers)"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "2"


def test_a_length_beyond_the_config_is_refused_before_the_weights_are_read(tiny_llama, tmp_path, monkeypatch):
    def never(*args):
        raise AssertionError("weights were read")

    monkeypatch.setattr(loading, "read_folder", never)
    monkeypatch.setattr(loading.Weights, "digest", never)
    with pytest.raises(
        InputError, match=r"length 65 is beyond the 64 positions of '.*': take a length of 64 or less.*extend"
    ):
        analyze(str(tiny_llama), text(400), sequences=4, length=65)


@pytest.mark.parametrize(
    ("kind", "offline_set", "words"),
    [
        ("RepositoryNotFoundError", False, "the hub has no public model of that name"),
        ("GatedRepoError", False, "accepted its terms"),
        ("LocalEntryNotFoundError", False, "not in the hub's cache on this machine; the hub cannot be reached"),
        ("LocalEntryNotFoundError", True, "not in the hub's cache on this machine; HF_HUB_OFFLINE forbids"),
    ],
)
def test_the_hub_says_no_in_our_words(kind, offline_set, words, monkeypatch):
    import huggingface_hub
    from huggingface_hub import constants, errors

    raised = getattr(errors, kind).__new__(getattr(errors, kind))

    def fail(*args, **kwargs):
        raise raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline_set)
    with pytest.raises(InputError, match=rf"^'nobody/nothing' is no folder or file here, and .*{words}") as caught:
        load("nobody/nothing")
    assert "http" not in str(caught.value) and "\n" not in str(caught.value)
