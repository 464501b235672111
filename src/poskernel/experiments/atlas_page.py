"""The heads of a real model as files and as a section of a page."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.attention.atlas import Atlas
from poskernel.statistics import median
from poskernel.storage import write_whole

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Finding, Section

STATISTICS = {
    "r2": "R2, unbiased and row-centred",
    "r2_raw": "R2, unbiased and raw",
    "r2_plugin": "R2, plug-in and raw",
    "signal": "signal: standard deviation of g (nats)",
    "share": "share of within-row logit variance that is position",
    "first_mass": "attention on the first token",
    "peak_offset": "offset of the peak",
}
LISTED = ["layer", "head", "kind", "r2", "signal", "share", "peak_offset", "sentence"]
MEDIANS: Sequence[tuple[str, str]] = (
    ("r2", "R2 of the median head, unbiased and row-centred: how far its mean logits are a function of the offset"),
    ("r2_plugin", "The plug-in R2 of the same heads counts sampling noise as unexplained:"),
    ("signal", "Signal of the median head, nats:"),
    ("share", "Share of its within-row logit variance that is position:"),
)


def write_atlas(atlas: Atlas, folder: Path | None, page: Path | None) -> None:
    """Tables of an atlas in a folder (heads.csv, full profiles in profiles.parquet), and a page of its own."""
    if folder is not None:
        save_heads(atlas, folder)
    if page is not None:
        from poskernel.report.page import write_page

        model, section = atlas.setting.model, atlas_section(atlas)
        write_page(page, f"Positional kernels of {model}", "What its heads do with position.", [section])


def save_heads(atlas: Atlas, folder: Path) -> None:
    """One line a head as csv (its single numbers and words), and g(offset) of every head at every offset as parquet."""
    import pandas as pd

    from poskernel.report.tables import write_csv

    heads = atlas.to_frame()
    lists = [name for name in heads if isinstance(heads[name].iloc[0], list)]
    write_csv(heads.drop(columns=lists), folder / "heads.csv")
    columns = {
        f"layer {layer} head {head}": pd.Series(report.estimate.g.tolist(), report.estimate.offsets)
        for (layer, head), report in atlas.heads.items()
    }
    buffer = io.BytesIO()
    pd.DataFrame(columns).rename_axis("offset").to_parquet(buffer)
    write_whole(folder / "profiles.parquet", buffer.getvalue())


def atlas_section(atlas: Atlas) -> "Section":
    """The heads of the real model: map, curves and what they say."""
    from poskernel.report.head_map import head_map
    from poskernel.report.page import ChartPanel, Section, TablePanel

    heads = atlas.to_frame()
    setting = atlas.setting
    plain = heads.drop(columns=["g", "g_low", "g_high"])
    kinds = heads["kind"].value_counts().rename_axis("kind").rename("heads").reset_index()
    quantized = f", weights quantized as {setting.quantization}" if setting.quantization else ""
    return Section(
        "Inside a real model",
        f"What does each head of {setting.model} do with position?",
        [median_finding(heads, *each) for each in MEDIANS],
        [
            ChartPanel(
                head_map(heads, STATISTICS, atlas.offsets),
                "Layer by head map of a statistic with the kernel of the chosen head",
                "Click a head, or move the sliders, to see its kernel g(offset) with its 95% band. The menu "
                "changes the statistic.",
            ),
            TablePanel(kinds, "Heads by kind", formats={"heads": "d"}),
            TablePanel(plain[LISTED], "Every head", folded=True),
        ],
        text=(
            f"{len(heads)} heads, {setting.sequences} x {setting.length} tokens of text, the first "
            f"{setting.dropped} positions "
            f"left out, {setting.dtype}{quantized}; weights sha256 {str(setting.weights_digest)[:12]}, "
            f"text sha256 {str(setting.text_digest)[:12]}.\n\n"
            "R2 is about the part of the logits that does not depend on the text, and can leave 0 to 1 by sampling "
            "noise. "
            "Alone it means little under a rotary encoding: an untrained model has a high one too. The signal in nats "
            "and the share of position say whether the kernel matters."
        ),
        command=(
            f"poskernel analyze {setting.model} --sequences {setting.sequences} --length {setting.length} "
            f"--dropped {setting.dropped} --seed {setting.seed} --json"
        ),
    )  # fmt: skip


def median_finding(heads: "pd.DataFrame", column: str, sentence: str) -> "Finding":
    """Median over heads with a bootstrap interval over layers, whose heads are not independent."""
    from poskernel.report.page import Finding

    values = heads.dropna(subset=[column])
    estimate = median(values[column], seed=0, clusters=values["layer"])
    return Finding(sentence, str(estimate), estimate.method)
