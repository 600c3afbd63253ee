"""The common look of the pictures. Matplotlib is imported when something is drawn, not before."""

import functools
import itertools
from pathlib import Path

from s3jax.archive import atomic_path

DRIVER_COLOURS = {"policy": "#d1495b", "baseline": "#2b6cb0"}
"""Colour of each driver, the same in every picture; others take from `OTHER_COLOURS`."""

OTHER_COLOURS = ("#0b6e4f", "#e69f00", "#8e5ea2", "#4a5568")
ICE, ICE_EDGE, ROAD, GRASS, INK, FAINT = "#8fd3f4", "#2a8fbd", "#c9ced6", "#f3f5f2", "#1f2933", "#7b8794"

_STYLE = {
    "figure.facecolor": "white",  # the page behind it may be dark
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


def styled(draw):
    """Decorates a function that draws, so that it draws in the common look."""

    @functools.wraps(draw)
    def wrapped(*args, **kwargs):
        import matplotlib

        with matplotlib.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return wrapped


def colours(names) -> dict[str, str]:
    """Returns a colour for each driver or model."""
    others = itertools.cycle(OTHER_COLOURS)
    return {name: DRIVER_COLOURS.get(name) or next(others) for name in names}


def subplots(rows: int, columns: int, size: tuple[float, float], **options):
    """Returns a figure of `size` inches and its axes [rows, columns]."""
    from matplotlib.figure import Figure  # without pyplot: no window system, no figure kept alive

    figure = Figure(figsize=size, dpi=130, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure, path: str | Path) -> Path:
    """Writes a figure, `.png` or `.svg`, atomically; returns the path."""
    path = Path(path)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."))
    return path
