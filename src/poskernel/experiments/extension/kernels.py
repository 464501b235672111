"""Units of the validation that compare kernels: a setting applied to the live model, against what was predicted."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from poskernel.attention.closed_form import ClosedFormKernel, LayerForms
from poskernel.attention.extension.head_groups import grouped
from poskernel.attention.extension.live import applied
from poskernel.attention.extension.measurement import OpenedModel
from poskernel.attention.extension.screen import Own, Screen
from poskernel.attention.extension.settings import Setting
from poskernel.attention.extension.survival import peaks_of
from poskernel.experiments.extension.agreement import LagMeans, agreement, correlations, root_mean_squares
from poskernel.experiments.extension.cells import (
    ExtensionCell,
    HeadCell,
    opened_model,
    reach_of,
    screen_of,
    setting_of,
    text_tokens,
    token_losses,
)
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement, Status, Unit

LENGTHS = (512, 1024, 2048)
FAR = 16
"""Own peaks from this offset on are called far."""
AGREEMENT = {
    "correlation": "correlation over offsets of predicted and measured kernel, median over heads",
    "correlation_p10": "the same, 10th percentile over heads",
    "rms": "root mean square difference of the two without its mean, nats, median over heads",
    "total_variation": "half the summed difference of their softmaxes, median over heads",
}
UNCHANGED = {f"unchanged_{name}": f"{words}; the kernel of the model as it is" for name, words in AGREEMENT.items()}
PEAKS = {
    "peak_match": "share of decided heads whose measured peak is where predicted",
    "unchanged_peak_match": "share of decided heads whose measured peak is their own peak, at the compared offsets",
    "predicted_kept": "share of decided heads whose predicted kernel has its maximum at the own peak",
    "measured_kept": "the same of the measured kernel",
    "predicted_mass": "softmax of the predicted kernel on the own peak and its half width, mean over decided heads",
    "measured_mass": "the same of the measured kernel",
}
ALPHA = {
    "predicted_alpha": "share of rows from the measured length on whose maximum is the own peak, predicted",
    "measured_alpha": "the same of the measured kernel",
}
"""Only where compared offsets go beyond the measured length."""
MEANS = {
    f"{how}_{name}": f"{AGREEMENT[name]}; {words}"
    for how, words in {
        "means": "products of late means at every offset",
        "overall": "products of means over all positions at every offset",
        "tail": "beyond the measured offsets the mean of the last measured moments",
    }.items()
    for name in ("correlation", "correlation_p10", "rms")
}
BEYOND = {
    f"{how}_beyond_rms": "root mean square error over offsets beyond the measured ones, the level set by the measured "
    f"ones, nats, median over heads; {words} beyond"
    for how, words in {
        "late": "products of late means", "overall": "products of means over all positions",
        "tail": "the mean of the last measured moments",
    }.items()
}  # fmt: skip
"""Only where compared offsets go beyond those whose moments are measured."""
GROUPS = {
    "early": "of the first third of the layers",
    "middle": "of the middle third",
    "late": "of the last third",
    "previous_token": "decided, with own peak 1",
    "near": f"decided, with another own peak below {FAR}",
    "far": f"decided, with an own peak of at least {FAR}",
    "undecided": "whose own peak is not resolved",
}
BY_GROUP = {
    f"{group}_{name}": f"{AGREEMENT[name]}; heads {words}"
    for group, words in GROUPS.items()
    for name in ("correlation", "correlation_p10")
}
WHOLE = {
    "decided": "share of heads whose own peak is resolved",
    "surviving_share": "share of decided heads whose own peak is predicted to stay the maximum to the length",
    "loss": "cross-entropy of the next token under the setting, nats, mean over all positions",
}
KERNEL_MEANINGS = {**AGREEMENT, **UNCHANGED, **PEAKS, **ALPHA, **MEANS, **BEYOND, **BY_GROUP, **WHOLE}
OF_HEADS = {
    "share_of_means": "share of the variance of a head's kernel over the measured offsets that means alone give",
    "covariance_rms": "what the covariance of query and key adds to it, standard deviation over offsets, nats",
    "peak_offset": "the head's own peak; no value where it is not resolved",
}


@dataclass(frozen=True)
class KernelUnit(Unit):
    """One setting on one text at several lengths: predicted against measured kernels, and the loss."""

    cell: ExtensionCell
    lengths: tuple[int, ...] = LENGTHS

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Every number at every length."""
        names = (*AGREEMENT, *UNCHANGED, *PEAKS, *MEANS, *BY_GROUP, *WHOLE)
        return [(self.cell, name, length) for length in self.lengths for name in (*names, *self.beyond(length))]

    def beyond(self, length: int) -> tuple[str, ...]:
        """What there is only at greater lengths."""
        cell = self.cell
        reach, known = reach_of(length, cell.dropped), reach_of(cell.measured_length, cell.dropped)
        return (*(BEYOND if reach > known else ()), *(ALPHA if reach > cell.measured_length else ()))

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
        setting, screen = setting_of(model, self.cell), screen_of(self.cell)
        found = {length: self.at_length(model, setting, screen, length) for length in self.lengths}
        return [measured_as(key, found[key[2]].get(key[1], math.nan)) for key in self.keys]

    def at_length(self, model: OpenedModel, setting: Setting, screen: Screen, length: int) -> dict[str, float]:
        """All numbers at one length: fewer sequences where they are longer, the same tokens."""
        cell = self.cell
        sequences = max(1, cell.sequences * cell.measured_length // length)
        tokens = text_tokens(cell.model, cell.text)[: sequences * length].view(sequences, length)
        lags, loss = LagMeans(length, cell.dropped), []
        with applied(model.source, setting):
            for one in tokens.split(1):
                hidden = model.source.forward(one, lags.consume)
                loss.append(token_losses(model, hidden[0], one[0]))
        layers = [forms.layer for forms in screen.layers]
        names = [(forms.layer, head) for forms in screen.layers for head in range(forms.heads)]
        own, measured = screen.own_of(names), lags.profile(layers)
        profiles = predictions(screen.layers, setting, length, lags.reach)
        found = agreement(profiles["predicted"], measured, profiles["own"], own.decided, cell.measured_length)
        found |= by_group(correlations(profiles["predicted"], measured), groups_of(own, names, layers))
        found |= replaced(profiles, measured, reach_of(cell.measured_length, cell.dropped))
        found["decided"] = float(own.decided.double().mean())
        found["surviving_share"] = surviving_share(screen, setting, length)
        found["loss"] = float(torch.stack(loss).mean())
        return found


@dataclass(frozen=True)
class HeadUnit(Unit):
    """Every head of the model as it is on one text: what means alone explain, and the covariance part."""

    cell: HeadCell
    layers: int
    heads: int

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """The numbers of each head."""
        parts = [self.cell.at(layer, head) for layer in range(self.layers) for head in range(self.heads)]
        return [(part, name, self.cell.measured_length) for part in parts for name in OF_HEADS]

    @property
    def kind(self) -> str:
        """What it is."""
        return "heads"

    @property
    def cost(self) -> float:
        """A pass of the unscaled model, which the kernels on the same text use again."""
        return 0.3

    @property
    def description(self) -> str:
        """The text."""
        return f"covariance parts on {self.cell.text}"

    def measure(self, weights: Path | None) -> list[Measurement]:
        """One pass of the unscaled model."""
        screen = screen_of(self.cell.unscaled)
        values: dict[tuple[str, str], float] = {}
        for forms in screen.layers:
            for head in range(forms.heads):
                kernel, own = forms.kernel(head), screen.own_of([(forms.layer, head)])
                part = self.cell.at(forms.layer, head).id
                values[part, "share_of_means"] = kernel.share_of_means
                values[part, "covariance_rms"] = float(kernel.covariance_part().std(correction=0))
                values[part, "peak_offset"] = float(own.peak[0]) if bool(own.decided[0]) else math.nan
        return [measured_as(key, values.get((key[0], key[1]), math.nan)) for key in self.keys]


def predictions(
    layers: Sequence[LayerForms], setting: Setting, length: int, reach: int
) -> dict[str, Float[Tensor, "head offset"]]:
    """Kernels of every head at offsets 0 to reach - 1: as the model is, as predicted, and as predicted otherwise."""
    turnings = setting.turnings(length)

    def turned(forms: LayerForms, head: int, means: str = "late") -> ClosedFormKernel:
        return forms.kernel(head, means).with_turning(turnings[forms.layer])

    makers: dict[str, Callable[[LayerForms, int], ClosedFormKernel]] = {
        "own": lambda forms, head: forms.kernel(head),
        "predicted": turned,
        "means": lambda forms, head: turned(forms, head).means_alone(),
        "overall": lambda forms, head: turned(forms, head, "overall").means_alone(),
        "overall_beyond": lambda forms, head: turned(forms, head, "overall"),
        "tail": lambda forms, head: turned(forms, head).with_tail(),
    }
    return {
        name: torch.stack([make(forms, head).profile(reach) for forms in layers for head in range(forms.heads)])
        for name, make in makers.items()
    }


def replaced(
    profiles: dict[str, Float[Tensor, "head offset"]], measured: Float[Tensor, "head offset"], known: int
) -> dict[str, float]:
    """How well kernels agree whose moments are replaced: everywhere, or beyond the `known` offsets."""
    found = {}
    for name in ("means", "overall", "tail"):
        values = correlations(profiles[name], measured)
        found[f"{name}_correlation"] = float(values.quantile(0.5))
        found[f"{name}_correlation_p10"] = float(values.quantile(0.1))
        found[f"{name}_rms"] = float(root_mean_squares(profiles[name], measured).quantile(0.5))
    if measured.shape[1] > known:
        for how, name in (("late", "predicted"), ("overall", "overall_beyond"), ("tail", "tail")):
            found[f"{how}_beyond_rms"] = float(beyond_error(profiles[name], measured, known).quantile(0.5))
    return found


def beyond_error(
    predicted: Float[Tensor, "head offset"], measured: Float[Tensor, "head offset"], known: int
) -> Float[Tensor, " head"]:
    """Root mean square error at offsets from `known` on, after the levels were made alike at those before, nats.

    A level common to all offsets is nothing to softmax; one between near and far offsets decides which wins.
    """
    gap = predicted - measured
    return (gap[:, known:] - gap[:, :known].mean(1, keepdim=True)).square().mean(1).sqrt()


def groups_of(own: Own, names: Sequence[tuple[int, int]], layers: Sequence[int]) -> dict[str, Bool[Tensor, " head"]]:
    """The heads of each of GROUPS."""
    parts = torch.tensor_split(torch.tensor(list(layers)), 3)
    layer = torch.tensor([layer for layer, _ in names])
    thirds = {name: torch.isin(layer, part) for name, part in zip(("early", "middle", "late"), parts, strict=True)}
    return {
        **thirds,
        "previous_token": own.decided & (own.peak == 1),
        "near": own.decided & (own.peak < FAR) & (own.peak != 1),
        "far": own.decided & (own.peak >= FAR),
        "undecided": ~own.decided,
    }


def by_group(correlation: Float[Tensor, " head"], groups: dict[str, Bool[Tensor, " head"]]) -> dict[str, float]:
    """Median and 10th percentile over the heads of each group; nothing where it has none."""
    found = {}
    for name, chosen in groups.items():
        if bool(chosen.any()):
            found[f"{name}_correlation"] = float(correlation[chosen].quantile(0.5))
            found[f"{name}_correlation_p10"] = float(correlation[chosen].quantile(0.1))
    return found


def surviving_share(screen: Screen, setting: Setting, length: int) -> float:
    """Predicted share of decided heads whose own peak is the strict maximum at every row to a length."""
    kept = []
    for group in grouped(screen.layers, setting.turnings(length)):
        own, now = screen.own_of(group.names), peaks_of(group.profile(length))
        kept.append((now.strict & (now.offset == own.peak))[own.decided])
    every = torch.cat(kept)
    return float(every.double().mean()) if len(every) else math.nan


def measured_as(key: tuple[str, str, int, int], value: float) -> Measurement:
    """A number as a row; undefined ones have none and say so."""
    if math.isnan(value):
        return Measurement(*key, value=None, status=Status.DONE, reason="undefined: no head to measure it on")
    return Measurement(*key, value=value, status=Status.DONE)
