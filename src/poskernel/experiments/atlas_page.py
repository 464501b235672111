"""The heads of a real model as files and as a section of a page."""

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel.attention.atlas import Atlas, Setting
from poskernel.attention.determined import WIDEST, is_share, median_of_column, where_determined
from poskernel.attention.head_columns import HEAD_COLUMNS, KERNEL, SHAPE_MEANINGS
from poskernel.attention.head_meanings import LABELS, of_column
from poskernel.attention.kinds import KINDS
from poskernel.attention.split_kinds import INDUCTION, SPLIT_KINDS, UNCLEAR
from poskernel.storage import write_whole
from poskernel.study.transfer import MANIFEST_FILE

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.head_map import HeadStatistic
    from poskernel.report.page import Finding, Section

LISTED = ["layer", "head", "kind", "r2", "signal", "share", "peak_offset", "sentence"]
MEDIANS: Sequence[tuple[str, str]] = (
    ("r2", "R2 of the median head, unbiased and row-centred: how far its mean logits are a function of the offset"),
    ("r2_plugin", "The plug-in R2 of the same heads counts sampling noise as unexplained:"),
    ("signal", "Signal of the median head, nats:"),
    ("share", "Share of its within-row logit variance that is position:"),
)
LIBRARIES = ("poskernel", "torch", "transformers", "tokenizers")
HEADS_FILE, MAP_FILE, PROFILES_FILE = "heads.csv", "map.json.gz", "profiles.parquet"


@dataclass(frozen=True, eq=False)
class Shown:
    """What a page shows of an atlas: from a measurement, or from the files that one left."""

    setting: Setting
    heads: "pd.DataFrame"
    """A row a head, with a column for each of its single values."""
    map: Mapping[str, Any]
    """What `head_map.head_map` made."""

    @classmethod
    def of(cls, atlas: Atlas) -> "Shown":
        """Of heads just measured."""
        from poskernel.report.head_map import head_map

        heads = atlas.to_frame()
        drawn = head_map(
            heads.assign(**fourier_columns(atlas)),
            statistics(atlas),
            atlas.offsets,
            kinds=kind_meanings(),
            words=atlas.words,
            first=shown_first(heads),
        )
        lists = [name for name in heads if isinstance(heads[name].iloc[0], list)]
        return cls(atlas.setting, heads.drop(columns=lists), drawn)

    @classmethod
    def read(cls, folder: Path) -> "Shown":
        """What `poskernel analyze --out` left in a folder."""
        import pandas as pd

        about = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        fields = {name: about["result"][name] for name in Setting.__dataclass_fields__}
        setting = Setting(**fields | {"measures": tuple(fields["measures"])})
        drawn = json.loads(gzip.decompress((folder / MAP_FILE).read_bytes()))
        return cls(setting, pd.read_csv(folder / HEADS_FILE), drawn)


def write_atlas(atlas: Atlas, folder: Path | None, page: Path | None) -> None:
    """Tables of an atlas in a folder, with a manifest of what they are of, and a page of its own.

    The folder gets heads.csv, full profiles in profiles.parquet, what a page draws in map.json.gz, and manifest.json:
    setting, digests, versions.
    """
    shown = Shown.of(atlas)
    if folder is not None:
        save_heads(atlas, shown, folder)
        versions = {"versions": {name: installed(name) for name in LIBRARIES}}
        write_whole(folder / MANIFEST_FILE, json.dumps(atlas.about() | versions, indent=1) + "\n")
    if page is not None:
        write_heads_page(shown, page)


def write_heads_page(shown: Shown, page: Path) -> None:
    """The heads on a page of their own."""
    from poskernel.report.page import write_page

    title, section = f"Positional kernels of {shown.setting.model}", atlas_section(shown)
    write_page(page, title, "What its heads do with position.", [section])


def installed(name: str) -> str | None:
    """Version of a package; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def save_heads(atlas: Atlas, shown: Shown, folder: Path) -> None:
    """One line a head as csv (its single numbers and words), g(offset) of every head at every offset, and its map."""
    import pandas as pd

    from poskernel.report.tables import write_csv

    write_csv(shown.heads, folder / HEADS_FILE)
    drawn = json.dumps(shown.map, allow_nan=False, separators=(",", ":")).encode()
    write_whole(folder / MAP_FILE, gzip.compress(drawn, mtime=0))
    columns = {
        f"layer {layer} head {head}": pd.Series(report.estimate.g.tolist(), report.estimate.offsets)
        for (layer, head), report in atlas.heads.items()
    }
    buffer = io.BytesIO()
    pd.DataFrame(columns).rename_axis("offset").to_parquet(buffer)
    write_whole(folder / PROFILES_FILE, buffer.getvalue())


def atlas_section(shown: Shown) -> "Section":
    """The heads of the real model: map, curves and what they say."""
    from poskernel.report.page import HeadsPanel, Section, TablePanel

    heads, setting = shown.heads, shown.setting
    kinds = heads["kind"].value_counts().rename_axis("kind").rename("heads").reset_index()
    measures = f"--measures {','.join(setting.measures)} " if setting.measures else ""
    quantized = f", weights quantized as {setting.quantization}" if setting.quantization else ""
    return Section(
        "Inside a real model",
        f"What does each head of {setting.model} do with position?",
        [median_finding(heads, *each) for each in MEDIANS],
        [
            HeadsPanel(
                shown.map,
                "Layer by head map of a statistic with everything measured of the chosen head",
                "Each cell is a head. The menu holds every statistic that was measured; the address of the page "
                "names the chosen head, so it can be shared.",
            ),
            TablePanel(kinds, "Heads by kind", formats={"heads": "d"}),
            TablePanel(listed(heads), "Every head (R2 is left out where its interval is wider than 1)", folded=True),
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
            f"poskernel analyze {setting.model} --layers {layer_runs(heads['layer'])} --sequences {setting.sequences} "
            f"--length {setting.length} --dropped {setting.dropped} --seed {setting.seed} {measures}--report heads.html"
        ),
    )  # fmt: skip


def layer_runs(layers: Iterable[int]) -> str:
    """Layers in the form of --layers: 0-5,9."""
    runs: list[list[int]] = []
    for layer in sorted(set(layers)):
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def statistics(atlas: Atlas) -> list["HeadStatistic"]:
    """Every column of the table of heads that holds one number a head, by the measure it comes from."""
    from poskernel.report.head_map import HeadStatistic

    found = []
    for group, row, meanings in column_groups(atlas):
        for name, value in row.items():
            interval = name.endswith(("_low", "_high")) and name.rpartition("_")[0] in row
            if name in ("layer", "head") or interval or not isinstance(value, int | float):
                continue
            label = of_column(name, LABELS) or name.replace("_", " ")
            widest = WIDEST if is_share(name) else None
            found.append(HeadStatistic(name, label, group, of_column(name, meanings), widest))
    return found


def column_groups(atlas: Atlas) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, str]]]:
    """(measure, its columns of the first head, their meanings) of all that was measured."""
    report = next(iter(atlas.heads.values()))
    shape = {name: getattr(report.profile, name) for name in ("peak_offset", "half_width")}
    yield "kernel", KERNEL.values(report.estimate) | shape, {**KERNEL.meanings, **SHAPE_MEANINGS}
    for name, columns in HEAD_COLUMNS.items():
        result = getattr(report, name)
        if result is not None:
            yield name, columns.values(result), columns.meanings


def listed(heads: "pd.DataFrame") -> "pd.DataFrame":
    """What the table of the page shows of every head; no R2 that says nothing."""
    return heads[LISTED].assign(r2=where_determined(heads, "r2"))


def kind_meanings() -> dict[str, str]:
    """Every kind of head and what it means, clear ones first."""
    profile = {name: words for name, (words, _) in KINDS.items()}
    clear = {name: words for name, words in profile.items() if name not in UNCLEAR}
    split = {name: words for name, (words, _) in SPLIT_KINDS.items()}
    return {"induction": INDUCTION[0], **clear, **split, **profile}


def shown_first(heads: "pd.DataFrame") -> tuple[int, int]:
    """The head with most of its logits in position: its curve shows at once what the page is about."""
    row = heads.iloc[int(heads["share"].argmax()) if heads["share"].notna().any() else 0]
    return int(row["layer"]), int(row["head"])


def fourier_columns(atlas: Atlas) -> dict[str, Any]:
    """Fourier spectra of all heads, as many bins as a page has room for; none where they were not measured."""
    from poskernel.report.head_details import pooled

    found = []
    for report in atlas.heads.values():
        fourier = None if report.spectrum is None else report.spectrum.fourier
        found.append(([], []) if fourier is None else pooled(fourier.frequencies.tolist(), fourier.power.tolist()))
    return {"fourier_frequencies": [each[0] for each in found], "fourier_power": [each[1] for each in found]}


def median_finding(heads: "pd.DataFrame", column: str, sentence: str) -> "Finding":
    """Median over heads, with an interval for other texts."""
    from poskernel.report.page import Finding

    estimate = median_of_column(heads, column)
    return Finding(sentence, str(estimate), estimate.method)
