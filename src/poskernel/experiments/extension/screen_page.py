"""The context-extension screen as files and as a page: settings, survival by length, peaks before and after, heads."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel.attention.extension.config_only import ConfigReport
from poskernel.attention.extension.results import Extension
from poskernel.storage import write_whole

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Finding, Section, TablePanel

LISTED = ("setting", "layer", "head", "verdict", "confidence", "peak_offset", "new_peak_offset", "lost_at", "alpha",
          "mass", "entropy", "sink_share", "total_variation")  # fmt: skip
MOST_ROWS = 1500
"""Rows of the page's table of heads: those that are not kept, the earliest lost first; the csv has all."""
MOST_PANELS = 9


def write_extension(found: Extension, folder: Path | None, page: Path | None) -> None:
    """Rows, predicted kernels and pictures in a folder, and a page of its own."""
    if folder is not None:
        save_rows(found, folder)
        save_pictures(found, folder)
    if page is not None:
        from poskernel.report.page import write_page

        model = found.measured_on.model
        lead = "Which heads keep the offset they attend to under each RoPE setting, and where the context would end."
        write_page(page, f"Extending the context of {model}", lead, [extension_section(found)])


def save_rows(found: Extension, folder: Path) -> None:
    """settings.csv, heads.csv, survival.csv, kernels.parquet (g at the listed offsets) and manifest.json."""
    import pandas as pd

    from poskernel.report.tables import write_csv

    write_csv(settings_frame(found), folder / "settings.csv")
    write_csv(found.to_frame(), folder / "heads.csv")
    columns = {
        f"{report.setting} layer {head.layer} head {head.head}": pd.Series(head.g.tolist(), found.measured_on.offsets)
        for report in found.settings
        for head in report.heads
    }
    buffer = io.BytesIO()
    pd.DataFrame(columns).rename_axis("offset").to_parquet(buffer)
    write_whole(folder / "kernels.parquet", buffer.getvalue())
    document = found.document()
    effective = {report.setting: report.effective for report in found.settings}
    plain = {name: value for name, value in document.items() if name not in ("settings", "offsets")}
    write_whole(folder / "manifest.json", json.dumps({**plain, "effective": effective}, indent=2) + "\n")


def save_config_rows(found: ConfigReport, folder: Path) -> None:
    """settings.csv of a config without weights."""
    from poskernel.report.tables import write_csv

    write_csv(found.to_frame(), folder / "settings.csv")


def save_pictures(found: Extension, folder: Path) -> None:
    """survival and peaks, each as png, svg and csv."""
    from poskernel.report.figures import save_figure

    save_figure(survival_figure(found), found.curves(), folder, "survival")
    if len(peaks_frame(found)):  # without a decided head there is no peak to draw
        save_figure(peaks_figure(found), peaks_frame(found), folder, "peaks")


def settings_frame(found: Extension) -> "pd.DataFrame":
    """One row a setting, best first where `auto` chose them."""
    import pandas as pd

    return pd.DataFrame([report.row() for report in (found.ranking() if found.ranked else found.settings)])


def survival_figure(found: Extension) -> Any:
    """Share of surviving heads against length, a line a setting."""
    from poskernel.report.curves import curves

    table = found.curves()
    kept = {report.setting: f"{report.setting}: {report.kept:.0%}" for report in found.settings}
    table["setting, share at the end"] = table["setting"].map(kept)
    return curves(
        table,
        title=survival_title(found),
        x="length",
        y="share",
        series="setting, share at the end",
        labels=("context length (tokens)", "share of heads whose peak survives"),
        scales=("log", "linear"),
        limits=(-0.03, 1.03),
        steps=True,
    )


def survival_title(found: Extension) -> str:
    """The finding of the survival picture, in words."""
    limits = [report for report in found.settings if report.limit is not None]
    model, length = found.measured_on.model, found.measured_on.length
    if not limits:
        return f"{model}: no setting is predicted to end the context up to {length}"
    earliest = min(limits, key=lambda report: report.limit or 0)
    name = "as it is" if earliest.setting == "none" else f"under {earliest.setting}"
    return f"{model} {name}: the context is predicted to end at {earliest.limit}"


def peaks_frame(found: Extension) -> "pd.DataFrame":
    """Peak offsets of the decided heads before and after, for the settings that have a panel."""
    chosen = [report.setting for report in found.settings if report.setting != "none"][:MOST_PANELS]
    frame = found.to_frame()
    shown = chosen or [report.setting for report in found.settings]
    columns = ["setting", "layer", "head", "verdict", "peak_offset", "new_peak_offset"]
    kept: pd.DataFrame = frame[frame["setting"].isin(shown) & (frame["verdict"] != "undecided")][columns]
    return kept


def peaks_figure(found: Extension) -> Any:
    """Peak offset of every decided head before and after."""
    from poskernel.report.peaks import peak_map

    factors = {
        report.setting: float(report.setting.partition(":")[2].removeprefix("factor="))
        for report in found.settings
        if report.setting.startswith("linear:") and "," not in report.setting
    }
    measured = found.measured_on.measured_length
    title = f"Peak offsets of heads at {measured} tokens, as the model is and under each setting"
    return peak_map(peaks_frame(found), title=title, factors=factors)


def extension_section(found: Extension) -> "Section":
    """Sentences, pictures and tables."""
    from poskernel.report.page import Section

    on = found.measured_on
    reports = found.ranking() if found.ranked else found.settings
    return Section(
        "Context extension",
        f"Which heads of {on.model} survive which setting, to {on.length} tokens?",
        [finding(found.advice()), *(finding(report.sentence) for report in reports)],
        [survival_panel(found), *peaks_panels(found), *setting_tables(found), changed_table(found)],
        text=measured_in_words(found),
        command=(
            f"poskernel extend {on.model} "
            + " ".join(f"--setting {report.setting}" for report in found.settings if "{" not in report.setting)
            + f" --length {on.length} --measured-length {on.measured_length} --sequences {on.sequences} --json"
        ),
    )


def measured_in_words(found: Extension) -> str:
    """What passed through the model, and how a prediction follows from it."""
    on = found.measured_on
    quantized = f", weights quantized as {on.quantization}" if on.quantization else ""
    return (
        f"Predicted from one pass of {on.sequences} x {on.measured_length} tokens through the model as it is; the "
        f"first {on.dropped} positions left out, {on.dtype}{quantized}; moments measured at offsets below "
        f"{on.measured_offsets}, products of late means beyond. Weights sha256 {str(on.weights_digest)[:12]}, text "
        f"sha256 {on.text_digest[:12]}. Intervals: 95%, {on.resamples} resamples of the sequences.\n\n"
        "The kernel of a rotary head is a sum over planes of content moments times a wave; a setting changes the "
        "waves alone. It is exact in the first layer and a prediction in deeper ones, whose content the setting "
        "changes as well."
    )


def survival_panel(found: Extension) -> "FigurePanel":
    """The picture of survival by length."""
    from poskernel.report.figures import svg_text
    from poskernel.report.page import FigurePanel

    return FigurePanel(
        svg_text(survival_figure(found)),
        "Share of heads whose peak survives, against context length, a line a setting",
        f"A head survives a length while its own peak, that at {found.measured_on.measured_length} tokens, is the "
        "strict maximum of its predicted kernel in the last row. Heads whose peak is not resolved are left out.",
    )


def setting_tables(found: Extension) -> "list[TablePanel]":
    """A row a setting; then what each was to each kind of layer."""
    import pandas as pd

    from poskernel.report.page import TablePanel

    plain = settings_frame(found).drop(columns="sentence")
    for name in ("limit", "limit_low", "limit_high"):
        plain[name] = ["none" if pd.isna(value) else str(int(value)) for value in plain[name]]
    effective = [
        {
            "setting": report.setting,
            "layers": kind,
            "applied": said["encoding"],
            "attention factor": said["attention_factor"],
        }
        for report in found.settings
        for kind, said in report.effective.items()
    ]
    return [
        TablePanel(plain, "Settings", formats={"undecided": "d"}),
        TablePanel(pd.DataFrame(effective), "What was applied", formats={"attention factor": ".4f"}, folded=True),
    ]


def changed_table(found: Extension) -> "TablePanel":
    """Heads that move or lose their peak, the earliest lost first."""
    from poskernel.report.page import TablePanel

    changed = found.to_frame()
    changed = changed[changed["verdict"].isin(["moved", "lost"])].sort_values(["setting", "lost_at"])
    return TablePanel(
        changed[list(LISTED)].head(MOST_ROWS).astype({"lost_at": "string"}).fillna({"lost_at": "-"}),
        f"Heads that move or lose their peak ({len(changed)}; at most {MOST_ROWS} shown)",
        formats=dict.fromkeys(("layer", "head", "peak_offset", "new_peak_offset"), "d"),
        folded=True,
    )


def finding(sentence: str) -> "Finding":
    """A sentence as a finding."""
    from poskernel.report.page import Finding

    return Finding(sentence)


def peaks_panels(found: Extension) -> "list[FigurePanel]":
    """The picture of peaks before and after; none where no head is decided."""
    from poskernel.report.figures import svg_text
    from poskernel.report.page import FigurePanel

    if not len(peaks_frame(found)):
        return []
    return [
        FigurePanel(
            svg_text(peaks_figure(found)),
            "Peak offset of each head before and after a setting",
            "Points on the dashed line did not move; offsets are written + 1, and points spread a little.",
        )
    ]
