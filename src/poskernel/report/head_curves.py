"""One head's kernel as a curve, and one statistic of all heads as a map, on matplotlib axes of the reader's choice."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from poskernel.errors import InputError, MissingExtraError
from poskernel.report.figures import COLOURS, FAINT, require_columns
from poskernel.report.head_map import colour_limits

try:
    from matplotlib.axes import Axes
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
    layers, columns = sorted(heads["layer"].unique()), int(heads["head"].max()) + 1
    grid = np.full((len(layers), columns), np.nan)
    for layer, head, value in zip(heads["layer"], heads["head"], numbers.astype(float), strict=True):
        grid[layers.index(layer), head] = value
    axis = new_axes((1.6 + 0.35 * columns, 1.2 + 0.22 * len(layers))) if ax is None else ax
    low, high = colour_limits(numbers.astype(float))
    image = axis.imshow(grid, aspect="auto", cmap="viridis", vmin=low, vmax=high)
    axis.set_yticks(range(len(layers)), [str(layer) for layer in layers])
    axis.set(xlabel="head", ylabel="layer", title=title)
    axis.figure.colorbar(image, ax=axis, label=statistic)
    return axis
