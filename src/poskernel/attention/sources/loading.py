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
from poskernel.attention.sources.module_facts import position_limit, require_positions, rotary
from poskernel.attention.sources.tokenizer import decoder, encoder, read_tokenizer
from poskernel.attention.sources.weights import Weights, locate
from poskernel.errors import InputError, MissingExtraError, RunError, first_line
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


def load(model: str, length: int | None = None, begin: Callable[[], None] = lambda: None) -> LoadedModel:
    """The model of that name in float32, from a folder, a .gguf file, package:NAME or a hub id.

    Raises InputError for what cannot be loaded, in one sentence, and before any weights are read where the config has
    no room for sequences of `length`; MissingExtraError without transformers. `begin` is called before what takes time:
    when the model is found, or before the hub is asked.
    """
    transformers = import_transformers()
    weights = locate(model)
    hub = weights.path is None
    with quiet(offline=not hub):
        if hub:
            begin()
            weights = Weights(model, downloaded(model))
        folder, quantization = weights.path, None
        assert folder is not None
        if not weights.gguf:
            check_config(folder, model, length, transformers)
        if not hub:
            begin()
        digest = weights.digest()
        if weights.gguf:
            folder = dequantised(weights, digest, transformers)
            quantization = json.loads((folder / NOTE).read_text())["quantization"]
            check_config(folder, model, length, transformers)
        module = read_folder(folder, weights.name, transformers)
        tokenizer = read_tokenizer(folder, weights.name, transformers)
    source = HuggingFaceSource(module, model)
    return LoadedModel(source, encoder(tokenizer, model), digest, quantization, decoder(tokenizer))


def check_config(folder: Path, name: str, length: int | None, transformers: Any) -> None:
    """InputError where the config in a folder says that the model has no positions for so many tokens."""
    if length is None:
        return
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception:  # transformers raises many kinds; reading the model says what is wrong with it
        return
    both = bool(getattr(config, "is_encoder_decoder", False))
    text_config = config.get_text_config(encoder=True) if both else config.get_text_config(decoder=True)
    require_positions(name, length, position_limit(text_config, None), rotary(text_config))


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


def downloaded(model: str) -> Path:
    """Folder of a hub model, from the local hub cache or the network; safetensors, config and tokenizer only."""
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model", "*.tiktoken", "*.jinja"]
    try:
        folder = Path(snapshot_download(model, allow_patterns=wanted))
    except Exception as error:  # the hub client raises network, cache and name errors of its own
        raise InputError(f"'{model}' is no folder or file here, and {hub_words(error)}.") from error
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"'{model}' has no safetensors weights on the hub, and pickled ones are refused, as reading them can run "
            f"code: convert them where you trust them (AutoModel.from_pretrained('{model}').save_pretrained(folder)) "
            "and give that folder."
        )
    return folder


def hub_words(error: Exception) -> str:
    """Why the hub did not give a model, and what to do."""
    import huggingface_hub.constants as hub
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "the hub gives it only to those who accepted its terms: do so on its page and log in, or give a folder"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub has no public model of that name: check the name, or give a folder"
    if hub.HF_HUB_OFFLINE:
        return "it is not in the hub's cache on this machine; HF_HUB_OFFLINE forbids to ask: unset it, or give a folder"
    if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError | TimeoutError):
        here = "it is not in the hub's cache on this machine"
        return f"{here}; the hub cannot be reached: check the network, or give a folder"
    return f"the hub did not give it ({first_line(error)}): check the name, or give a path"


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
