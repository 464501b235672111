"""What a config says without weights: frequencies of each setting, their resolution, alpha of the built-in tasks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.extension.rotary_layers import LENGTH, ORIGINAL, LayerKind, config_kinds
from poskernel.attention.extension.settings import NONE, Setting, automatic_settings, parse_setting
from poskernel.attention.head_report import without_nan
from poskernel.encodings import RotaryEncoding
from poskernel.errors import InputError
from poskernel.realizability import alpha, parse_rule
from poskernel.tasks import POSITIONAL_TASKS

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "poskernel.extend-config/1"
RULE = "adam"
OFFSETS_PER_BLOCK = 1 << 14
LONGEST_TRAINING = 2048
"""The kernels of the tasks are fitted on a whole grid of that side."""


@dataclass(frozen=True)
class KindReport:
    """One kind of layers under one setting."""

    kind: str
    encoding: str
    attention_factor: float
    planes: int
    turning_once: int
    """Planes that turn at least once within the asked length."""
    shortest_wavelength: float
    longest_wavelength: float
    """Positions in which the fastest and the slowest plane turn once; None where the slowest stands still."""
    resolution: float
    """1 less the largest mean cosine over the planes at any other offset below the length: 0 where two look alike."""
    alpha: Mapping[str, float | None]
    """Alignment of each task's kernel, made under the model's own frequencies, at the asked length."""


@dataclass(frozen=True)
class ConfigReport:
    """Every setting of a config."""

    model: str
    trained_length: int | None
    train_length: int
    length: int
    rule: str
    settings: Mapping[str, Sequence[KindReport]]

    def document(self) -> dict[str, Any]:
        """The JSON document of `extend` for a config alone."""
        head = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "settings"}
        rows = [
            {
                "setting": text,
                "kinds": [{each.name: getattr(kind, each.name) for each in fields(kind)} for kind in kinds],
            }
            for text, kinds in self.settings.items()
        ]
        cleaned: dict[str, Any] = without_nan(
            {"schema": SCHEMA, **head, "tasks": list(POSITIONAL_TASKS), "settings": rows}
        )
        return cleaned

    def to_frame(self) -> "pd.DataFrame":
        """One row a setting and kind of layers, a column alpha_TASK a task."""
        import pandas as pd

        rows = []
        for text, kinds in self.settings.items():
            for kind in kinds:
                plain = {each.name: getattr(kind, each.name) for each in fields(kind) if each.name != "alpha"}
                rows.append({"setting": text, **plain, **{f"alpha_{task}": a for task, a in kind.alpha.items()}})
        return pd.DataFrame(rows)


def extend_config(
    config: Mapping[str, Any],
    name: str,
    settings: Sequence[str] = ("auto",),
    train_length: int = 512,
    length: int | None = None,
) -> ConfigReport:
    """Frequencies, resolution and alpha of the built-in tasks under RoPE settings, from a Hugging Face config alone.

    Each task's kernel is fitted at `train_length` under the model's own frequencies, then evaluated under each setting
    at `length` (default: four times the train length). Raises InputError for a config without rotary layers.
    """
    kinds = config_kinds(config)
    reached = length or 4 * train_length
    if not 8 <= train_length <= LONGEST_TRAINING:
        raise InputError(f"train length {train_length}: take 8 to {LONGEST_TRAINING}.")
    if reached <= train_length:
        raise InputError(f"length {reached} is not beyond the training length {train_length}: take a greater length.")
    trained = trained_length_of(config)
    texts = automatic_settings(trained, reached) if list(settings) == ["auto"] else list(settings)
    parsed = [parse_setting(text, kinds, trained) for text in dict.fromkeys([NONE, *texts])]
    weights = {kind.name: task_weights(kind, train_length) for kind in kinds}
    reports = {
        setting.text: [kind_report(setting, kind, weights[kind.name], train_length, reached) for kind in kinds]
        for setting in parsed
    }
    return ConfigReport(name, trained, train_length, reached, RULE, reports)


def trained_length_of(config: Mapping[str, Any]) -> int | None:
    """The length a config says that its model was trained at."""
    inner = config.get("text_config")
    for place in (config, inner or {}):
        for group in (place, place.get("rope_parameters") or {}, place.get("rope_scaling") or {}):
            if isinstance(group.get(ORIGINAL), int | float):
                return int(group[ORIGINAL])
    value = config.get(LENGTH) or (inner or {}).get(LENGTH) or config.get("n_positions")
    return int(value) if value else None


def task_weights(kind: LayerKind, train_length: int) -> dict[str, Float[Tensor, " weight"] | None]:
    """Weights of every task's kernel, fitted under the kind's own frequencies at the training length."""
    assert kind.own is not None
    family = kind.own.family(train_length, train_length)
    targets = [task.targets(train_length) for task in POSITIONAL_TASKS.values()]
    found = parse_rule(RULE).select(family, targets, train_length)
    return {name: selection.weights for name, selection in zip(POSITIONAL_TASKS, found, strict=True)}


def kind_report(
    setting: Setting,
    kind: LayerKind,
    weights: Mapping[str, Float[Tensor, " weight"] | None],
    train_length: int,
    length: int,
) -> KindReport:
    """One kind of layers under one setting."""
    encoding = setting.encoding(kind)
    assert isinstance(encoding, RotaryEncoding) and kind.own is not None
    if encoding.weight_meaning != kind.own.weight_meaning:
        raise InputError(
            f"the {kind.name} layers turn as {kind.own.name} and '{setting.text}' would turn other planes: give a "
            "setting of the same form as JSON."
        )
    rates = encoding.rates(kind.pairs, length)
    family = encoding.family(train_length, length)
    alphas = {
        name: None if each is None else alpha(family.kernel(each), POSITIONAL_TASKS[name], train_length, length)
        for name, each in weights.items()
    }
    turned = rates[rates > 0]
    return KindReport(
        kind=kind.name,
        encoding=encoding.effective,
        attention_factor=encoding.attention_factor,
        planes=kind.pairs,
        turning_once=int((rates * length >= 2 * math.pi).sum()),
        shortest_wavelength=float(2 * math.pi / turned.max()),
        longest_wavelength=float(2 * math.pi / turned.min()),
        resolution=resolution(rates, length),
        alpha=alphas,
    )


def resolution(rates: Float[Tensor, " plane"], length: int) -> float:
    """1 less the largest mean cosine at any offset 1 to length - 1: how far offset 0 stands out at best."""
    worst = -1.0
    for offset in torch.arange(1, length).split(OFFSETS_PER_BLOCK):
        worst = max(worst, float((offset.double()[:, None] * rates).cos().mean(1).max()))
    return 1 - worst
