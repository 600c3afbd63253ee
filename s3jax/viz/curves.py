"""Curves of training and of distillation."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np

from s3jax.archive import FileError
from s3jax.viz.style import DRIVER_COLOURS, FAINT, colours, save, styled, subplots

_CURVES = (
    ("env/reward", None, "reward per step", 1.0),
    ("env/cross_track_rms", "held_out/cross_track_rms", "cross-track RMS (m)", 1.0),
    ("env/speed_rms", "held_out/speed_rms", "speed RMS (m/s)", 1.0),
    ("env/heading_rms", "held_out/heading_rms", "heading RMS (deg)", np.degrees(1.0)),
    ("env/terminated", None, "steps ending in failure (%)", 100.0),
    (None, "held_out/completed", "scenarios completed (%)", 100.0),
)
_MARKERS = "osD^v"


@styled
def training_curves(path: str | Path, metrics: str | Path) -> Path:
    """Draws reward, tracking errors and failures over environment steps.

    Args:
      path: the picture.
      metrics: `metrics.csv` of a training run.

    Returns:
      The path.

    Raises:
      FileError: if the file holds no such curves.
    """
    from matplotlib.ticker import EngFormatter

    steps, columns = _read_metrics(metrics)
    figure, panels = subplots(2, 3, (9.2, 4.6), sharex=True)
    for axes, (training, held_out, label, factor) in zip(panels.flat, _CURVES, strict=True):
        if training in columns:
            axes.plot(steps, factor * columns[training], color=FAINT)
        if held_out in columns:
            there = np.isfinite(columns[held_out])
            axes.plot(
                steps[there],
                factor * columns[held_out][there],
                color=DRIVER_COLOURS["policy"],
                marker="o",
                ms=3.0,
            )
        if label != "reward per step":
            axes.set_ylim(bottom=0.0)
        axes.set_title(label)
    panels[-1, -1].set_ylim(0.0, 105.0)
    for axes in panels[-1]:
        axes.set_xlabel("environment steps")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    handles = [panels[0, 1].plot([], [], color=FAINT, label="training, exploring")[0]]
    handles += panels[0, 1].plot(
        [], [], color=DRIVER_COLOURS["policy"], marker="o", ms=3.0, label="held-out scenarios, mean action"
    )
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return save(figure, path)


@styled
def open_loop_errors(path: str | Path, evaluation: str | Path) -> Path:
    """Draws open-loop errors of the distilled models over the horizon.

    Args:
      path: the picture.
      evaluation: `evaluation.json` of a distillation.

    Returns:
      The path.

    Raises:
      FileError: if the file is not such an evaluation.
    """
    quantities = (
        ("position", "position error (m)", 1.0),
        ("yaw", "yaw error (deg)", np.degrees(1.0)),
        ("speed", "speed error (m/s)", 1.0),
    )
    models = read_evaluation(evaluation)
    figure, panels = subplots(1, 3, (9.2, 3.0))
    for axes, (quantity, label, factor) in zip(panels[0], quantities, strict=True):
        _draw_models(axes, models, "all", quantity, factor)
        axes.set_title(label)
    _finish(figure, panels)
    return save(figure, path)


@styled
def surface_errors(path: str | Path, evaluation: str | Path) -> Path:
    """Draws the open-loop position error of the distilled models over the horizon, one panel per group.

    The groups are surfaces and, where they are told apart, drives on known and on new tracks.

    Args:
      path: the picture.
      evaluation: `evaluation.json` of a distillation.

    Returns:
      The path.

    Raises:
      FileError: if the file is not such an evaluation.
    """
    models = read_evaluation(evaluation)
    rows = [row for model in models.values() for row in model["open_loop"].values()]
    surfaces = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "all"]
    surfaces = surfaces or ["all"]
    columns = min(3, len(surfaces))
    rows = -(-len(surfaces) // columns)
    figure, panels = subplots(rows, columns, (9.2, 0.6 + 2.1 * rows), sharex=True, sharey=True)
    for axes, surface in itertools.zip_longest(panels.flat, surfaces):
        if surface is None:
            axes.set_visible(False)
            continue
        _draw_models(axes, models, surface, "position", 1.0)
        axes.set_title(surface)
    for axes in panels[:, 0]:
        axes.set_ylabel("position error (m)")
    _finish(figure, panels)
    return save(figure, path)


def read_evaluation(path: str | Path) -> dict:
    """Returns the `evaluation.json` of a distillation: model -> errors.

    Raises:
      FileError: if the file is not such an evaluation.
    """
    try:
        models = json.loads(Path(path).read_text(encoding="utf-8"))
        for model in models.values():
            for row in model["open_loop"].values():
                for entry in row.values():
                    [float(entry[name]) for name in ("position", "yaw", "speed")]
                float(row["all"]["position"])
        if not models:
            raise ValueError("no model")
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"{path}: not the evaluation of a distillation ({error})") from None
    return models


def _read_metrics(path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the environment steps [N], and column -> [N], not a number where it was not measured."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        steps = np.array([float(row["env_steps"]) for row in rows])
        columns = {
            name: np.array([np.nan if row[name] == "" else float(row[name]) for row in rows])
            for curve in _CURVES
            for name in curve[:2]
            if name in rows[0]
        }
    except (OSError, KeyError, ValueError, TypeError, IndexError) as error:
        raise FileError(f"{path}: not the metrics of a training run ({error})") from None
    return steps, columns


def _draw_models(axes, models, surface, quantity, factor):
    palette, markers = colours(models), itertools.cycle(_MARKERS)
    for (name, model), marker in zip(models.items(), markers, strict=False):
        rows = [(float(h), row[surface][quantity]) for h, row in model["open_loop"].items() if surface in row]
        if rows:
            horizon, error = np.array(rows).T
            axes.plot(horizon, factor * error, marker=marker, ms=4, color=palette[name], label=name)
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)


def _finish(figure, panels):
    for axes in panels[-1]:
        axes.set_xlabel("horizon (s)")
    found = [axes.get_legend_handles_labels() for axes in panels.flat]
    named = {name: handle for handles, names in found for name, handle in zip(names, handles, strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=4)
