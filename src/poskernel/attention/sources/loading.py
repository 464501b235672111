"""Loading a Hugging Face model by name: safetensors and GGUF only, no remote code, no network for local paths."""

import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from poskernel.attention.sources.huggingface import HuggingFaceSource, import_transformers
from poskernel.attention.sources.weights import Weights, locate
from poskernel.errors import InputError, MissingExtraError, RunError
from poskernel.storage import cache_folder

NOTE = "poskernel.json"
"""Beside cached weights: what they were made from."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to be captured, its tokenizer, and where its numbers come from."""

    source: HuggingFaceSource
    encode: Callable[[str], list[int]]
    """Text to token ids, without any token that is not in the text (no BOS)."""
    weights_digest: str
    quantization: str | None
    decode: Callable[[int], str]
    """One token id to its text; what is no whole character becomes U+FFFD."""


def load(model: str) -> LoadedModel:
    """The model of that name in float32, from a folder, a .gguf file, package:NAME or a hub id.

    Raises InputError for what cannot be loaded, in one sentence; MissingExtraError without transformers.
    """
    transformers = import_transformers()
    weights = locate(model)
    with quiet(offline=weights.path is not None):
        if weights.path is None:
            weights = Weights(model, downloaded(model))
        digest = weights.digest()
        folder, quantization = weights.path, None
        if weights.gguf:
            folder = dequantised(weights, digest, transformers)
            quantization = json.loads((folder / NOTE).read_text())["quantization"]
        assert folder is not None
        module = read_folder(folder, weights.name, transformers)
        tokenizer = read_tokenizer(folder, weights.name, transformers)
    source = HuggingFaceSource(module, model)
    return LoadedModel(source, encoder(tokenizer), digest, quantization, decoder(tokenizer))


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """The tokenizer as a function of text."""

    def encode(text: str) -> list[int]:
        # The text is longer than any context; it is cut into windows afterwards, so the length warning would mislead.
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    return encode


def decoder(tokenizer: Any) -> Callable[[int], str]:
    """The tokenizer as a function of one token id."""

    def decode(token: int) -> str:
        # No cleaning up: it would move the spaces by which one sees where words begin.
        return str(tokenizer.decode([token], clean_up_tokenization_spaces=False))

    return decode


def read_folder(folder: Path, name: str, transformers: Any) -> Any:
    """The model in a folder of safetensors, float32; InputError if it needs code of its own or lacks weights."""
    try:
        module, found = transformers.AutoModel.from_pretrained(
            folder,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises many kinds for a folder it cannot read
        raise unreadable(name, error) from error
    absent = [key for key in found["missing_keys"] if "pooler" not in key]
    if absent or found["mismatched_keys"]:
        wrong = [*absent, *(str(key) for key in found["mismatched_keys"])]
        raise InputError(
            f"'{name}' lacks {len(wrong)} weights of {type(module).__name__}, such as {wrong[0]}: "
            "they would be random, so it is refused; give the complete model."
        )
    return module


def read_tokenizer(folder: Path, name: str, transformers: Any) -> Any:
    """The tokenizer beside the weights."""
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # likewise for tokenizers
        raise InputError(
            f"'{name}' has no tokenizer that can be read ({first_line(error)}): add tokenizer.json to it."
        ) from error


def unreadable(name: str, error: Exception) -> InputError:
    """The error of a folder or file that transformers cannot read, in one sentence."""
    if "trust_remote_code" in str(error) or "custom code" in str(error):
        return InputError(
            f"'{name}' needs code of its own to run, which is never executed: "
            "give a model whose class transformers has."
        )
    return InputError(
        f"'{name}' cannot be read as a Hugging Face model ({first_line(error)}): check its config and weights."
    )


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def downloaded(model: str) -> Path:
    """Folder of a hub model, from the local hub cache or the network; safetensors, config and tokenizer only."""
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    try:
        folder = Path(snapshot_download(model, allow_patterns=wanted))
    except Exception as error:  # the hub client raises network, cache and name errors of its own
        raise InputError(
            f"'{model}' is no folder or file here, and the hub did not give it ({first_line(error)}): "
            "check the name, or give a path."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"'{model}' has no safetensors weights on the hub, and pickled ones are refused, as reading them can run "
            f"code: convert them where you trust them (AutoModel.from_pretrained('{model}').save_pretrained(folder)) "
            "and give that folder."
        )
    return folder


def dequantised(weights: Weights, digest: str, transformers: Any) -> Path:
    """Folder with a GGUF file's weights as float32 safetensors, made once and kept in the cache.

    Named by the content and by the transformers version that read it. Written beside its place and renamed, so that a
    kill leaves the whole folder or none.
    """
    assert weights.path is not None
    folder = cache_folder() / "models" / f"{digest[:32]}-transformers-{transformers.__version__}"
    if (folder / NOTE).is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:12]}."))
    except OSError as error:
        raise RunError(
            f"cannot write {folder.parent} ({error.strerror}): free space or set POSKERNEL_CACHE to another folder."
        ) from None
    try:
        convert_gguf(weights, digest, temporary, transformers)
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / NOTE).is_file():  # otherwise another process was first, with the same content
                raise
    except OSError as error:
        raise RunError(
            f"cannot write {folder} ({error.strerror or error}): free space or set POSKERNEL_CACHE to another folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def convert_gguf(weights: Weights, digest: str, folder: Path, transformers: Any) -> None:
    """Write a GGUF file's model and tokenizer as a folder that loads without it."""
    assert weights.path is not None
    try:
        import gguf

        importlib.metadata.version("accelerate")
    except (ImportError, importlib.metadata.PackageNotFoundError) as error:
        raise MissingExtraError("reading a GGUF file", "hf") from error
    where: dict[str, Any] = {"gguf_file": weights.path.name, "local_files_only": True, "trust_remote_code": False}
    try:
        module = transformers.AutoModelForCausalLM.from_pretrained(weights.path.parent, dtype=torch.float32, **where)
        tokenizer = transformers.AutoTokenizer.from_pretrained(weights.path.parent, **where)
        kind = gguf.GGUFReader(weights.path).fields.get("general.file_type")
        quantization = gguf.LlamaFileType(kind.contents()).name.removeprefix("MOSTLY_") if kind else "unknown"
    except Exception as error:  # so does the GGUF reader for a damaged file
        raise unreadable(weights.name, error) from error
    # The loaded model counts as quantized and would refuse to be saved, though its weights are plain float32 by now.
    module.hf_quantizer = None
    if hasattr(module.config, "quantization_config"):
        del module.config.quantization_config
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / NOTE).write_text(json.dumps({"quantization": quantization, "weights_digest": digest}))


@contextmanager
def quiet(offline: bool) -> Iterator[None]:
    """No progress bars and no advice from transformers; with `offline` also no network."""
    import huggingface_hub.constants as hub
    from transformers.utils import logging

    verbosity, bars, was_offline = logging.get_verbosity(), logging.is_progress_bar_enabled(), hub.HF_HUB_OFFLINE
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.HF_HUB_OFFLINE = offline or was_offline
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        hub.HF_HUB_OFFLINE = was_offline
        if bars:
            logging.enable_progress_bar()
