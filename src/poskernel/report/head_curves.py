"""One head's kernel as a curve, a statistic or the kinds of all heads as a map, on matplotlib axes of one's choice."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from poskernel.errors import InputError, MissingExtraError
from poskernel.report.figures import COLOURS, FAINT, require_columns
from poskernel.report.head_map import colour_limits

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch
except ImportError as missing:
    raise MissingExtraError("a figure", "report") from missing


def new_axes(size: tuple[float, float]) -> Axes:
    """Axes of a new figure of that size in inches, by pyplot, so that notebooks show it."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=size, layout="constrained")
    return axes


def kernel_curve(
    offsets: Sequence[int],
    g: Sequence[float],
    reach: Sequence[float],
    title: str,
    probe: tuple[Sequence[int], Sequence[float]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """g (nats) over offsets with a band of `reach` on either side; `probe` is another curve, (offsets, g), dashed.

    The probe is moved to the level of g, which attention ignores: the means over the offsets of both agree.
    """
    axis = new_axes((7.0, 3.6)) if ax is None else ax
    across, values, half = np.array(offsets), np.array(g), np.array(reach)
    axis.fill_between(across, values - half, values + half, color=COLOURS[0], alpha=0.22, linewidth=0)
    axis.plot(across, values, color=COLOURS[0], linewidth=1.6, label="text, with its 95% band")
    if probe is not None:
        kept = np.isin(probe[0], across)
        places, other = np.array(probe[0])[kept], np.array(probe[1])[kept]
        level = values[np.isin(across, places)].mean() - other.mean()
        axis.plot(places, other + level, color=COLOURS[1], linestyle="--", label="one token repeated, same level")
        axis.legend(frameon=False)
    axis.set_xscale("symlog", linthresh=1)
    axis.set(xlabel="offset: query position − key position (tokens)", ylabel="g(offset), nats", title=title)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    return axis


def statistic_map(heads: pd.DataFrame, statistic: str, title: str, ax: Axes | None = None) -> Axes:
    """Layers down, heads across; undefined cells stay empty, colours end at the 2nd and 98th percentile.

    Raises InputError for a column that is no number.
    """
    require_columns(heads, ["layer", "head", statistic])
    numbers = pd.to_numeric(heads[statistic], errors="coerce") if heads[statistic].dtype.kind in "fib" else None
    if numbers is None:
        raise InputError(f"the column '{statistic}' is no number: give one such as r2, signal or share.")
    axis, grid = layer_axes(heads, numbers.astype(float), title, ax)
    low, high = colour_limits(numbers.astype(float))
    image = axis.imshow(grid, aspect="auto", cmap="viridis", vmin=low, vmax=high)
    axis.figure.colorbar(image, ax=axis, label=statistic)
    return axis


def kind_map(heads: pd.DataFrame, title: str, ax: Axes | None = None) -> Axes:
    """Layers down, heads across, a colour for each kind (fixed offsets share one); the legend counts the heads."""
    require_columns(heads, ["layer", "head", "kind"])
    words = heads["kind"].str.split(" ").str[0]
    counts = words.value_counts()
    places = words.map({kind: place for place, kind in enumerate(counts.index)})
    axis, grid = layer_axes(heads, places.astype(float), title, ax)
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(counts))]
    axis.imshow(
        grid, aspect="auto", cmap=ListedColormap(colours), vmin=-0.5, vmax=len(counts) - 0.5, interpolation="nearest"
    )
    patches = [
        Patch(color=colour, label=f"{kind} {count}")
        for colour, (kind, count) in zip(colours, counts.items(), strict=True)
    ]
    axis.legend(handles=patches, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return axis


def layer_axes(
    heads: pd.DataFrame, values: "pd.Series[float]", title: str, ax: Axes | None
) -> tuple[Axes, "np.ndarray[tuple[int, int], np.dtype[np.float64]]"]:
    """Axes named by layer and head, and the values on their grid; nan where a head was not measured."""
    layers, columns = sorted(heads["layer"].unique()), int(heads["head"].max()) + 1
    grid = np.full((len(layers), columns), np.nan)
    for layer, head, value in zip(heads["layer"], heads["head"], values, strict=True):
        grid[layers.index(layer), head] = value
    axis = new_axes((1.6 + 0.35 * columns, 1.2 + 0.22 * len(layers))) if ax is None else ax
    axis.set_yticks(range(len(layers)), [str(layer) for layer in layers])
    axis.set(xlabel="head", ylabel="layer", title=title)
    return axis, grid
