"""Units of the validation that look for the end of the context: predicted survivors and limit beside the loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from poskernel.attention.extension.live import applied
from poskernel.attention.extension.measurement import measure_forms
from poskernel.attention.extension.screen import FALL, LEVEL, Screen, Wanted, limit_interval, own_setting, views_of
from poskernel.attention.extension.settings import NONE, Setting
from poskernel.attention.extension.survival import kept_share, limit_of
from poskernel.errors import InputError
from poskernel.experiments.extension.cells import (
    RESAMPLES,
    ExtensionCell,
    first_windows,
    opened_model,
    setting_of,
    text_tokens,
    token_losses,
)
from poskernel.experiments.extension.kernels import WHOLE, measured_as
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement, Status, Unit

LIMIT_LENGTHS = (4096, 8192, 9216, 10240, 11264, 12288, 13312, 14336, 15360, 16384)
FRESH, WINDOW = 2048, 256
"""Context of the control, and tokens before each length whose loss is taken."""
LIMIT_SETTINGS = (NONE, "linear:2", "linear:4", "ntk:2", "ntk:4", "yarn:2", "yarn:4", "llama3:4")
SHARES = {
    "surviving_share": WHOLE["surviving_share"],
    "surviving_share_low": "lower end of its 95% interval, sequences resampled",
    "surviving_share_high": "upper end of it",
}
LOSS = {"loss_before": f"cross-entropy under the setting, nats, mean over the last {WINDOW} tokens before the length"}
CONTROL = {"fresh_loss_before": f"the same tokens' in the unscaled model, with a context of {FRESH} tokens or less"}
LIMIT = {
    "limit": f"first length at which the surviving share is {FALL} below its value at the measured length; no value "
    "where there is none up to the longest",
    "limit_low": "lower end of its 95% interval, sequences resampled",
    "limit_high": "upper end of it",
}
LIMIT_MEANINGS = {**SHARES, **LOSS, **CONTROL, **LIMIT}


@dataclass(frozen=True)
class LimitUnit(Unit):
    """One setting on one long text: surviving heads and loss just before each length, and the predicted limit."""

    cell: ExtensionCell
    lengths: tuple[int, ...] = LIMIT_LENGTHS
    control: bool = False
    """Also the loss of the same tokens in a fresh context: of the unscaled model, once a text."""
    fresh: int = FRESH
    window: int = WINDOW

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Shares and losses at each length, the limit at the longest."""
        names = (*SHARES, *LOSS, *(CONTROL if self.control else ()))
        return [
            *((self.cell, name, length) for length in self.lengths for name in names),
            *((self.cell, name, max(self.lengths)) for name in LIMIT),
        ]

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
        """A short pass for the prediction, a long one for the loss."""
        model, longest = opened_model(self.cell.model), max(self.lengths)
        setting, tokens = setting_of(model, self.cell), text_tokens(self.cell.model, self.cell.text)
        if len(tokens) < longest:
            raise InputError(f"the text '{self.cell.text}' has {len(tokens)} tokens, not {longest}: give a longer one.")
        values = survivors(self.cell, setting, self.lengths)
        with applied(model.source, setting):
            hidden = model.source.forward(tokens[None, :longest], None)[0]
        for length in self.lengths:
            # A dynamic setting turns a sequence of the longest length at every row: its own length is the last alone.
            part = slice(length - self.window - 1, length)
            values["loss_before", length] = float(token_losses(model, hidden[part], tokens[part]).mean())
            if self.control:
                values["fresh_loss_before", length] = self.fresh_loss(length)
        return [self.row(key, values[key[1], key[2]]) for key in self.keys]

    def fresh_loss(self, length: int) -> float:
        """Loss of the tokens before a length with no more than the fresh context, in the unscaled model."""
        model = opened_model(self.cell.model)
        context = text_tokens(self.cell.model, self.cell.text)[max(0, length - self.fresh) : length]
        hidden = model.source.forward(context[None], None)[0]
        part = slice(-self.window - 1, None)
        return float(token_losses(model, hidden[part], context[part]).mean())

    def row(self, key: tuple[str, str, int, int], value: float | None) -> Measurement:
        """A number as a row; a limit that lies beyond the longest length has none."""
        if value is None:
            return Measurement(*key, None, Status.DONE, f"beyond {max(self.lengths)}")
        return measured_as(key, value)


def survivors(cell: ExtensionCell, setting: Setting, lengths: Sequence[int]) -> dict[tuple[str, int], float | None]:
    """Predicted share of surviving heads at each length and the limit, with intervals over resampled sequences."""
    opened, longest = opened_model(cell.model), max(lengths)
    wanted = Wanted(longest, cell.measured_length, cell.sequences, cell.dropped, 0, RESAMPLES)
    views = views_of(own_setting(opened), wanted) | views_of(setting, wanted)
    layers = measure_forms(opened, first_windows(cell), cell.dropped, views)
    screen = Screen(layers, wanted, own_setting(opened))
    last = screen.outcome(setting, longest)
    decided = screen.own_of(last.names).decided
    lost, resampled = screen.first_losses(setting, last)
    lost, resampled = lost[decided], resampled[:, decided]
    found: dict[tuple[str, int], float | None] = {}
    for length in lengths:
        drawn = (resampled > length).double().mean(1) if len(lost) else torch.full((1,), torch.nan)
        found["surviving_share", length] = kept_share(lost, length)
        found["surviving_share_low", length] = float(drawn.quantile((1 - LEVEL) / 2))
        found["surviving_share_high", length] = float(drawn.quantile((1 + LEVEL) / 2))
    if not len(lost):
        return found | {(name, longest): math.nan for name in LIMIT}
    limits = (limit_of(lost, cell.measured_length, longest, FALL), *limit_interval(lost, resampled, wanted))
    for name, limit in zip(LIMIT, limits, strict=True):
        found[name, longest] = None if limit is None else float(limit)
    return found
