"""What `extend` found: heads, settings and the whole, as values, tables, a JSON document and sentences."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from poskernel.attention.head_report import without_nan
from poskernel.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "poskernel.extend/1"
AT_ONCE = 0.05
"""A setting that takes the peak from this share of heads already at the measured length is said to do so."""
DECIMALS = 4


@dataclass(frozen=True, eq=False)
class HeadExtension:
    """One head under one setting.

    `numbers` are at the asked length: alpha (share of rows in [measured, length) whose strict maximum is the own peak),
    mass (share of the kernel's softmax in the last row on the own peak and its half width), entropy (nats),
    sink_share (what the first key would take of it), and total_variation between the kernel's softmax under the setting
    and as it is, at the measured length.
    """

    layer: int
    head: int
    peak_offset: int
    """Own peak: of the model as it is, at the measured length."""
    agreement: float
    """Share of resamples with this own peak; the head is decided where it is high."""
    verdict: str
    """kept (the own peak is right at every row), moved (another offset is, to the end), lost, or undecided."""
    confidence: float
    """Share of resamples that agree on whether the peak is kept."""
    new_peak_offset: int
    """Peak under the setting at the measured length."""
    lost_at: int | None
    """First length at which the own peak is not right; None where it is at every one."""
    numbers: Mapping[str, float]
    g: Float[Tensor, " listed"]
    """The predicted kernel at the listed offsets, nats; nan beyond the layer's window."""

    def row(self) -> dict[str, Any]:
        """Everything but the kernel, flat."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("numbers", "g")}
        return {**plain, **self.numbers}


@dataclass(frozen=True, eq=False)
class SettingReport:
    """One setting over all heads; shares are of the decided heads."""

    setting: str
    effective: Mapping[str, Any]
    kept: float
    kept_low: float
    kept_high: float
    moved: float
    lost: float
    undecided: int
    """Heads whose own peak is not resolved."""
    damage: float
    """1 less the share that keeps its peak at the measured length."""
    limit: int | None
    limit_low: int | None
    limit_high: int | None
    """Ends of the limit's interval; None beyond the asked length."""
    curve: Sequence[tuple[int, float]]
    """Length and share of surviving heads."""
    heads: Sequence[HeadExtension]
    length: int
    measured: int

    def mean(self, name: str) -> float:
        """Mean of one of the heads' numbers over the decided heads."""
        values = [head.numbers[name] for head in self.heads if head.verdict != "undecided"]
        return sum(values) / len(values) if values else math.nan

    @property
    def alpha(self) -> float:
        """Mean alpha of the decided heads at the asked length."""
        return self.mean("alpha")

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        decided = len(self.heads) - self.undecided
        if not decided:
            return f"{self.setting}: no head has a peak that these sequences resolve; give more of them."
        said = (
            f"{self.setting}: {self.kept:.0%} [{self.kept_low:.0%}, {self.kept_high:.0%}] of {decided} heads keep "
            f"their peak to {self.length}"
        )
        parts = [f"{share:.0%} {verb} it" for share, verb in ((self.moved, "move"), (self.lost, "lose")) if share > 0]
        said += f" ({', '.join(parts)})" if parts else ""
        if self.damage >= AT_ONCE:
            said += f"; {self.damage:.0%} do not have it even at {self.measured}"
        return f"{said}; {self.limit_words}."

    @property
    def limit_words(self) -> str:
        """The predicted context limit in words."""
        if self.limit is None:
            low = f", perhaps from {self.limit_low}" if self.limit_low is not None else ""
            return f"no limit is predicted up to {self.length}{low}"
        low, high = (
            str(end) if end is not None else f"beyond {self.length}" for end in (self.limit_low, self.limit_high)
        )
        return f"the context is predicted to end at {self.limit} [{low}, {high}]"

    def row(self) -> dict[str, Any]:
        """The setting as one flat row."""
        names = (
            *("setting", "kept", "kept_low", "kept_high", "moved", "lost", "undecided", "damage", "limit"),
            *("limit_low", "limit_high", "alpha"),
        )
        means = {name: self.mean(name) for name in ("mass", "entropy", "sink_share", "total_variation")}
        return {**{name: getattr(self, name) for name in names}, **means, "sentence": self.sentence}

    def document(self) -> dict[str, Any]:
        """As in the JSON of `extend`."""
        row = self.row()
        heads = [{**head.row(), "g": [round(value, DECIMALS) for value in head.g.tolist()]} for head in self.heads]
        curve = [{"length": length, "share": share} for length, share in self.curve]
        return {**row, "effective": dict(self.effective), "curve": curve, "heads": heads}


@dataclass(frozen=True)
class MeasuredOn:
    """What a screen was made of."""

    model: str
    weights_digest: str | None
    quantization: str | None
    dtype: str
    text_digest: str
    sequences: int
    dropped: int
    seed: int
    resamples: int
    measured_length: int
    measured_offsets: int
    """Offsets at which the moments are measured; beyond them late means stand in."""
    trained_length: int | None
    length: int
    layers_without_rotation: tuple[int, ...]
    softcap: bool
    """Whether the layers cap their logits afterwards: kernels are those before the cap."""
    offsets: tuple[int, ...]
    """Offsets at which g is listed."""


@dataclass(frozen=True, eq=False)
class Extension:
    """Every setting's report, and what they were measured on."""

    measured_on: MeasuredOn
    settings: tuple[SettingReport, ...]
    ranked: bool = False
    """Whether the settings were chosen by `auto`: then they stand in order of rank."""

    def setting(self, text: str) -> SettingReport:
        """One setting's report; InputError if it was not asked for."""
        found = next((report for report in self.settings if report.setting == text), None)
        if found is None:
            asked = ", ".join(report.setting for report in self.settings)
            raise InputError(f"setting '{text}' was not screened: it was {asked}.")
        return found

    def ranking(self) -> list[SettingReport]:
        """Best first: no limit or a late one before an early one, then more survivors, then less change."""
        return sorted(
            self.settings,
            key=lambda report: (
                -(math.inf if report.limit is None else report.limit) if report.damage < AT_ONCE else math.inf,
                -report.kept if not math.isnan(report.kept) else math.inf,
                report.mean("total_variation"),
            ),
        )

    def advice(self) -> str:
        """Which setting is best of those screened, and why."""
        best = self.ranking()[0]
        change = best.mean("total_variation")
        return (
            f"best of {len(self.settings)}: {best.setting}, as {best.kept:.0%} of the decided heads keep their peak to "
            f"{best.length}, {best.limit_words}, and at {best.measured} tokens it changes the attention of a head by "
            f"{change:.3f} on average (total variation). It is a prediction from content measured without the setting: "
            "try it before you trust it."
        )

    def to_frame(self) -> "pd.DataFrame":
        """One row a head and setting."""
        import pandas as pd

        rows = [{"setting": report.setting, **head.row()} for report in self.settings for head in report.heads]
        return pd.DataFrame(rows)

    def curves(self) -> "pd.DataFrame":
        """Share of surviving heads by setting and length."""
        import pandas as pd

        rows = [
            {"setting": report.setting, "length": length, "share": share}
            for report in self.settings
            for length, share in report.curve
        ]
        return pd.DataFrame(rows)

    def document(self) -> dict[str, Any]:
        """The JSON document of `extend`."""
        head = {each.name: getattr(self.measured_on, each.name) for each in fields(self.measured_on)}
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in head.items()}
        reports = self.ranking() if self.ranked else self.settings
        document = {
            "schema": SCHEMA, **listed, "advice": self.advice(),
            "ranking": [report.setting for report in self.ranking()],
            "settings": [report.document() for report in reports],
        }  # fmt: skip
        cleaned: dict[str, Any] = without_nan(document)
        return cleaned

    def __repr__(self) -> str:
        lines = [f"Extension of {self.measured_on.model} to {self.measured_on.length}"]
        return "\n  ".join([*lines, *(report.sentence for report in self.settings)])

    def _repr_html_(self) -> str:
        return "<br>".join(html.escape(line) for line in repr(self).splitlines())
