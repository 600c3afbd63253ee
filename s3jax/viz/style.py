"""The common look of the pictures."""

import itertools
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from s3jax.archive import atomic_path

DRIVER_COLOURS = {"policy": "#d1495b", "baseline": "#2b6cb0"}
"""Colour of each driver, the same in every picture; others take from `OTHER_COLOURS`."""

OTHER_COLOURS = ("#2f855a", "#b7791f", "#6b46c1", "#4a5568")
ICE, ICE_EDGE, ROAD, GRASS, INK, FAINT = "#8fd3f4", "#2a8fbd", "#c9ced6", "#f3f5f2", "#1f2933", "#7b8794"

_STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "text.color": INK,
}


styled = matplotlib.rc_context(_STYLE)
"""Decorator of functions that draw."""


def colours(names) -> dict[str, str]:
    """Returns a colour for each driver or model."""
    others = itertools.cycle(OTHER_COLOURS)
    return {name: DRIVER_COLOURS.get(name) or next(others) for name in names}


def subplots(rows: int, columns: int, size: tuple[float, float], **options):
    """Returns a figure of `size` inches and its axes [rows, columns]."""
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: Figure, path: str | Path) -> Path:
    """Writes a figure, `.png` or `.svg`, atomically; returns the path."""
    path = Path(path)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."))
    return path
