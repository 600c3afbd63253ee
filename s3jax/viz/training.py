"""All the curves of a training run in one picture, drawn while it runs."""

import time
from pathlib import Path

import numpy as np

from s3jax.archive import FileError
from s3jax.curves import read_rows
from s3jax.viz.style import DRIVER_COLOURS, FAINT, save, styled, subplots

_PANELS = (
    ("return per episode", "env/return", None, 1.0),
    ("cross-track RMS (m)", "env/cross_track_rms", "held_out/cross_track_rms", 1.0),
    ("heading RMS (deg)", "env/heading_rms", "held_out/heading_rms", np.degrees(1.0)),
    ("speed RMS (m/s)", "env/speed_rms", "held_out/speed_rms", 1.0),
    ("steps ending in failure (%)", "env/terminated", None, 100.0),
    ("scenarios completed (%)", None, "held_out/completed", 100.0),
    ("policy loss", "loss/policy", None, 1.0),
    ("value loss", "loss/value", None, 1.0),
    ("KL divergence of an update", "loss/kl", None, 1.0),
    ("explained variance", "loss/explained_variance", None, 1.0),
    ("standard deviation of actions", "policy/std", None, 1.0),
    ("steps per second", "steps_per_second", None, 1.0),
)


class LivePicture:
    """The picture of a run, drawn anew from time to time so that it costs the run next to nothing."""

    def __init__(self, path: str | Path, metrics: str | Path, interval: float = 60.0):
        """Draws `metrics`, the CSV file of the run, to `path`, at most once in `interval` seconds."""
        self._path, self._metrics, self._interval = path, metrics, interval
        self._drawn = time.monotonic()

    def update(self, last: bool = False) -> None:
        """Draws if it is time to, and in any case if it is the last time."""
        if last or time.monotonic() - self._drawn > self._interval:
            training_overview(self._path, self._metrics)
            self._drawn = time.monotonic()


@styled
def training_overview(path: str | Path, metrics: str | Path) -> Path:
    """Draws returns, tracking errors, losses and speed over environment steps.

    Args:
      path: the picture.
      metrics: `metrics.csv` of a training run.

    Returns:
      The path.

    Raises:
      FileError: if the file holds no such curves.
    """
    from matplotlib.ticker import EngFormatter

    rows = read_rows(metrics)
    if not rows or "env_steps" not in rows[0]:
        raise FileError(f"{metrics}: not the metrics of a training run")
    figure, panels = subplots(3, 4, (11.6, 6.6), sharex=True)
    exploring = {"color": FAINT, "label": "training, exploring"}
    driving = {"color": DRIVER_COLOURS["policy"], "marker": "o", "ms": 3.0}
    driving["label"] = "held-out scenarios, mean action"
    for axes, (title, training, held_out, factor) in zip(panels.flat, _PANELS, strict=True):
        for name, look in ((training, exploring), (held_out, driving)):
            points = [(row["env_steps"], factor * row[name]) for row in rows if name in row]
            if points:
                axes.plot(*zip(*points, strict=True), **look)
        axes.set_title(title)
    panels[-1, -1].yaxis.set_major_formatter(EngFormatter(sep=""))
    for axes in panels[-1]:
        axes.set_xlabel("environment steps")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    handles = [panels[0, 0].plot([], [], **look)[0] for look in (exploring, driving)]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return save(figure, path)
