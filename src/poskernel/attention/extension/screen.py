"""extend: a model and RoPE settings in, out which heads keep the offset they attend to, and where the context ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.closed_form import LayerForms
from poskernel.attention.extension.head_groups import HeadGroup, grouped
from poskernel.attention.extension.measurement import (
    OpenedModel,
    Progress,
    check_sequences,
    measure_forms,
    open_rotary,
    text_windows,
)
from poskernel.attention.extension.planes import Turning
from poskernel.attention.extension.results import Extension, HeadExtension, MeasuredOn, SettingReport
from poskernel.attention.extension.settings import NONE, Setting, automatic_settings, parse_setting
from poskernel.attention.extension.survival import NEVER, half_spans, kept_share, limit_of, log_spans, peaks_of, scan
from poskernel.errors import InputError
from poskernel.resampling import Rows

RESAMPLES = 200
SPANS = 256
"""Spans of offsets in which a resample is looked at beyond the measured length; intervals of limits end at them."""
CURVE_LENGTHS = 49
DYNAMIC_LENGTHS = 13
"""Lengths of the curve where frequencies change with the length: each is a kernel of its own."""
RESOLVED = 0.95
"""Share of resamples that must find the same peak, or the head is undecided."""
FALL = 0.05
"""Fall of the share of surviving heads that ends the context; fixed on two texts of one model."""
LEVEL = 0.95


@dataclass(frozen=True)
class Wanted:
    """Sizes of a screen."""

    length: int
    measured: int
    sequences: int
    dropped: int
    seed: int
    resamples: int


def extend(
    model: Any,
    settings: Sequence[str] = ("auto",),
    length: int | None = None,
    measured_length: int = 512,
    sequences: int = 8,
    dropped: int = 16,
    text: str | Tensor | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    device: str = "auto",
    progress: Progress | None = None,
) -> Extension:
    """Predict from one short pass of the unscaled model which heads survive RoPE settings, up to a length.

    `model` is what `analyze` takes; `settings` are texts such as `yarn:4` (`auto` is a list made for the length);
    `length` defaults to four times the trained length, at most 131072. Raises InputError for settings that make no
    sense, models without rotary layers, and lengths not beyond the measured one.
    """
    opened = model if isinstance(model, OpenedModel) else open_rotary(model, device, progress)
    reached = length if length is not None else min(4 * (opened.trained_length or measured_length), 131_072)
    if reached <= measured_length:
        raise InputError(f"length {reached} is not beyond the measured {measured_length}: take a greater length.")
    check_sequences(opened.source, sequences, measured_length, dropped)
    texts = automatic_settings(opened.trained_length, reached) if list(settings) == ["auto"] else list(settings)
    if "auto" in texts or not texts:
        raise InputError("auto stands alone: give it as the only --setting, or name each.")
    parsed = [parse_setting(each, opened.kinds, opened.trained_length) for each in dict.fromkeys(texts)]
    for setting in parsed:
        setting.turnings(reached)  # what a head's width forbids is said before the model runs
    wanted = Wanted(reached, measured_length, sequences, dropped, seed, resamples)
    tokens, digest = text_windows(opened, text, sequences, measured_length)
    views = {
        name: turning
        for setting in [own_setting(opened), *parsed]
        for name, turning in views_of(setting, wanted).items()
    }
    layers = measure_forms(opened, tokens, dropped, views, progress)
    screen = Screen(layers, wanted, own_setting(opened))
    say = progress or (lambda what, done, total: None)
    reports = []
    for index, setting in enumerate(parsed):
        reports.append(screen.report(setting))
        say("settings", index + 1, len(parsed))
    return Extension(measured_on(opened, wanted, digest, layers), tuple(reports), list(settings) == ["auto"])


def own_setting(model: OpenedModel) -> Setting:
    """The model as it is."""
    return Setting(NONE, {}, model.kinds)


def curve_lengths(setting: Setting, wanted: Wanted) -> list[int]:
    """Lengths of a setting's survival curve, from the measured one to the last."""
    number = DYNAMIC_LENGTHS if setting.depends_on_length else CURVE_LENGTHS
    return log_spans(wanted.measured, wanted.length, number - 1).tolist()


def views_of(setting: Setting, wanted: Wanted) -> dict[str, dict[int, Turning]]:
    """The turnings under which every sequence's profile is kept: one, or one a length where they change with it."""
    lengths = curve_lengths(setting, wanted) if setting.depends_on_length else [wanted.measured]
    return {view_name(setting, length): setting.turnings(length) for length in lengths}


def view_name(setting: Setting, length: int) -> str:
    """Name of one of these."""
    return f"{setting.text} at {length}" if setting.depends_on_length else setting.text


@dataclass(frozen=True, eq=False)
class Own:
    """What the heads of a group do in the model as it is, at the measured length."""

    peak: Int[Tensor, " head"]
    span: Int[Tensor, "head 2"]
    """Offsets around the peak with at least half of its weight, first and last."""
    profile: Float[Tensor, "head offset"]
    agreement: Float[Tensor, " head"]
    """Share of resamples with the same strict peak."""

    @property
    def decided(self) -> Bool[Tensor, " head"]:
        """Heads whose peak is resolved."""
        return self.agreement >= RESOLVED


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a setting makes of heads, at one length."""

    names: list[tuple[int, int]]
    peak: Int[Tensor, " head"]
    """Peak at the measured length under the setting."""
    lost: Int[Tensor, " head"]
    """First length at which the own peak is no longer right; the measured one where it is not at once."""
    stays: Int[Tensor, " head"]
    """The same for the peak under the setting."""
    numbers: Mapping[str, Float[Tensor, " head"]]
    resampled: Int[Tensor, "resample head"]
    """`lost` of every resample."""
    listed: Float[Tensor, "head offset"]
    """g at the listed offsets."""

    @classmethod
    def joined(cls, parts: "Sequence[Outcome]") -> "Outcome":
        """Several groups as one, in the order of layers and heads."""
        names = [name for part in parts for name in part.names]
        order = torch.tensor(sorted(range(len(names)), key=names.__getitem__))
        numbers = {name: torch.cat([part.numbers[name] for part in parts])[order] for name in parts[0].numbers}
        peak, lost, stays = (
            torch.cat([getattr(part, name) for part in parts])[order] for name in ("peak", "lost", "stays")
        )
        resampled = torch.cat([part.resampled for part in parts], 1)[:, order]
        listed = torch.cat([part.listed for part in parts])[order]
        return cls(sorted(names), peak, lost, stays, numbers, resampled, listed)


class Screen:
    """Everything that settings are judged by, of one measurement."""

    def __init__(self, layers: Sequence[LayerForms], wanted: Wanted, own: Setting) -> None:
        self.layers, self.wanted = layers, wanted
        number = layers[0].late.query.shape[0]
        draws = Rows.of(None, number).draws(wanted.resamples, wanted.seed)
        self.weights = torch.cat([torch.from_numpy(block) for block in draws]) / number
        self.own: dict[tuple[int, int], Own] = {}
        view = view_name(own, wanted.measured)
        for group in grouped(layers, own.turnings(wanted.measured), view):
            self.add_own(group)

    def add_own(self, group: HeadGroup) -> None:
        """Own peaks of a group, by layer and head."""
        profile = group.profile(self.wanted.measured)
        found = peaks_of(profile)
        offsets, strict = group.resampled_peaks(self.weights, self.wanted.measured)
        agreement = ((offsets == found.offset) & strict).double().mean(0) * found.strict
        span = half_spans(profile, found.offset)
        for index, name in enumerate(group.names):
            one = slice(index, index + 1)
            self.own[name] = Own(found.offset[one], span[one], profile[one], agreement[one])

    def own_of(self, names: Sequence[tuple[int, int]]) -> Own:
        """The own peaks of some heads side by side."""
        parts = [self.own[name] for name in names]
        return Own(*(torch.cat([getattr(part, field) for part in parts]) for field in Own.__dataclass_fields__))

    def outcome(self, setting: Setting, length: int) -> Outcome:
        """What a setting makes of every head in sequences of a length, by layer and head."""
        groups = grouped(self.layers, setting.turnings(length), view_name(setting, length))
        parts = [self.group_outcome(group, length) for group in groups]
        return Outcome.joined(parts)

    def group_outcome(self, group: HeadGroup, length: int) -> Outcome:
        """One group."""
        wanted, own = self.wanted, self.own_of(group.names)
        profile = group.profile(wanted.measured)
        now = peaks_of(profile)
        height = profile.gather(1, own.peak[:, None])[:, 0]
        far = scan(group.waves, torch.stack([height, now.value]), wanted.measured, group.stop(length), SPANS)
        overtaken = torch.where(far.overtaken < NEVER, far.overtaken + 1, NEVER)
        kept = now.strict & (now.offset == own.peak)
        lost = torch.where(kept, overtaken[0], wanted.measured)
        stays = torch.where(now.strict, overtaken[1], wanted.measured)
        resampled = group.resampled_lost(self.weights, own.peak, wanted.measured, far.highest)
        partition = torch.logaddexp(profile.logsumexp(1), far.log_mass)
        weight = (profile - partition[:, None]).exp()
        inside = torch.arange(profile.shape[1])
        inside = (inside >= own.span[:, :1]) & (inside <= own.span[:, 1:])
        mean = (weight * profile).sum(1) + (far.log_mass - partition).exp() * far.mean
        sink = group.sink_logit(length)
        rows = length - wanted.measured
        numbers = {
            "alpha": ((lost - 1).clamp(max=length) - wanted.measured).clamp(min=0).double() / max(rows, 1),
            "mass": (weight * inside).sum(1),
            "entropy": partition - mean,
            "sink_share": (sink - torch.logaddexp(sink, partition)).exp(),
            "total_variation": 0.5 * (profile.softmax(1) - own.profile.softmax(1)).abs().sum(1),
        }
        if group.window is not None and group.window < length:  # the first key is out of the last row's sight
            numbers["sink_share"] = torch.zeros_like(partition)
        return Outcome(group.names, now.offset, lost, stays, numbers, resampled, self.listed(group, length))

    def listed(self, group: HeadGroup, length: int) -> Float[Tensor, "head offset"]:
        """g at the listed offsets; nan beyond the window."""
        from poskernel.attention.head_report import listed_offsets

        offset = torch.tensor(listed_offsets(length))
        near, stop = offset < min(group.reach, group.stop(length)), group.stop(length)
        values = torch.full((len(group.scales), len(offset)), torch.nan, dtype=torch.float64)
        values[:, near] = group.near[:, offset[near]]
        beyond = (offset >= group.reach) & (offset < stop)
        values[:, beyond] = group.waves.at(offset[beyond])
        return values

    def first_losses(self, setting: Setting, last: Outcome) -> tuple[Tensor, Tensor]:
        """First length at which each head loses its peak, of the estimate and of every resample.

        Where frequencies change with the length, among the lengths of the curve: each is a kernel of its own.
        """
        if not setting.depends_on_length:
            return last.lost, last.resampled
        lost, resampled = torch.full_like(last.lost, NEVER), torch.full_like(last.resampled, NEVER)
        for length in reversed(curve_lengths(setting, self.wanted)):
            here = last if length == self.wanted.length else self.outcome(setting, length)
            lost = torch.where(here.lost <= length, length, lost)
            resampled = torch.where(here.resampled <= length, length, resampled)
        return lost, resampled

    def report(self, setting: Setting) -> SettingReport:
        """A setting's verdict over all heads, and each head's."""
        length, last = self.wanted.length, self.outcome(setting, self.wanted.length)
        own = self.own_of(last.names)
        lost, resampled = self.first_losses(setting, last)
        kept, moved = lost > length, (lost <= length) & (last.stays > length)
        verdicts = [
            "kept" if k else "moved" if m else "lost" for k, m in zip(kept.tolist(), moved.tolist(), strict=True)
        ]
        agreement = ((resampled > length) == kept).double().mean(0)
        heads = []
        for place, (layer, head) in enumerate(last.names):
            decided = bool(own.decided[place])
            first = int(lost[place])
            heads.append(
                HeadExtension(
                    layer, head, int(own.peak[place]), float(own.agreement[place]),
                    verdicts[place] if decided else "undecided", float(agreement[place]), int(last.peak[place]),
                    first if first <= length else None,
                    {name: float(values[place]) for name, values in last.numbers.items()},
                    last.listed[place],
                )
            )  # fmt: skip
        return summary(setting, heads, lost[own.decided], resampled[:, own.decided], self.wanted)


def summary(
    setting: Setting,
    heads: Sequence[HeadExtension],
    lost: Int[Tensor, " head"],
    resampled: Int[Tensor, "resample head"],
    wanted: Wanted,
) -> SettingReport:
    """The numbers of a setting over its decided heads, with percentile intervals over resampled sequences."""
    measured, length = wanted.measured, wanted.length
    verdicts = [head.verdict for head in heads if head.verdict != "undecided"]
    number = max(1, len(verdicts))
    limit_low, limit_high = limit_interval(lost, resampled, wanted)
    survivors = (resampled > length).double().mean(1) if lost.numel() else torch.full((len(resampled),), torch.nan)
    curve = [(at, kept_share(lost, at)) for at in curve_lengths(setting, wanted)]
    return SettingReport(
        setting=setting.text,
        effective=setting.effective,
        kept=verdicts.count("kept") / number if verdicts else torch.nan,
        kept_low=float(survivors.quantile((1 - LEVEL) / 2)),
        kept_high=float(survivors.quantile((1 + LEVEL) / 2)),
        moved=verdicts.count("moved") / number if verdicts else torch.nan,
        lost=verdicts.count("lost") / number if verdicts else torch.nan,
        undecided=len(heads) - len(verdicts),
        damage=1 - kept_share(lost, measured),
        limit=limit_of(lost, measured, length, FALL),
        limit_low=limit_low,
        limit_high=limit_high,
        curve=tuple(curve),
        heads=tuple(heads),
        length=length,
        measured=measured,
    )


def limit_interval(
    lost: Int[Tensor, " head"], resampled: Int[Tensor, "resample head"], wanted: Wanted
) -> tuple[int | None, int | None]:
    """Percentile interval of the limit over resamples, None beyond the asked length.

    A resample says in which span of offsets it loses a peak, so the ends are those of the spans.
    """
    found = [limit_of(row, wanted.measured, wanted.length, FALL) for row in resampled]
    limits = torch.tensor([NEVER if limit is None else limit for limit in found])
    edges = log_spans(wanted.measured, wanted.length, SPANS)
    low, high = (
        int(limits.sort().values[round(tail * (len(limits) - 1))]) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    )
    below, above = edges[edges < low], edges[edges >= high]
    return (
        None if low == NEVER else int(below[-1]) + 1 if len(below) else wanted.measured,
        None if high == NEVER else int(above[0]) if len(above) else wanted.length,
    )


def measured_on(model: OpenedModel, wanted: Wanted, text_digest: str, layers: Sequence[LayerForms]) -> MeasuredOn:
    """What the screen was made of."""
    from poskernel.attention.head_report import listed_offsets

    return MeasuredOn(
        model=model.source.name,
        weights_digest=model.weights_digest,
        quantization=model.quantization,
        dtype=str(model.source.dtype).removeprefix("torch."),
        text_digest=text_digest,
        sequences=wanted.sequences,
        dropped=wanted.dropped,
        seed=wanted.seed,
        resamples=wanted.resamples,
        measured_length=wanted.measured,
        measured_offsets=layers[0].moments.shape[2],
        trained_length=model.trained_length,
        length=wanted.length,
        layers_without_rotation=tuple(model.without),
        softcap=model.softcap,
        offsets=listed_offsets(wanted.length),
    )
