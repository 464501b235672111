"""Shape annotations are checked wherever the suite calls the package; nothing it caches outlives it.

One torch thread a process: the suite's arrays are small, and two processes share two cores.
"""

import os
import signal
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook("poskernel", "beartype.beartype")
torch.set_num_threads(1)
# A suite started in the background inherits an ignored interrupt and would hand it on to all it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST_FIRST = ("test_docs.py",)
"""Files of a minute: begun first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; all others stay in order."""
    items.sort(key=lambda item: item.path.name not in LONGEST_FIRST)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One for all workers of a run: converting a model's weights takes half a minute."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["POSKERNEL_CACHE"] = str(shared / "cache")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random Llama as safetensors and a tokenizer of the words w0 to w59."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    place = tmp_path_factory.mktemp("tiny-llama")
    words = {f"w{number}": number for number in range(60)} | {"[UNK]": 60}
    words_only = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    words_only.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words_only, unk_token="[UNK]").save_pretrained(place)
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        vocab_size=61, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(place)
    return place
