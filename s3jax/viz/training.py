"""Pictures of training and of distillation."""

import csv
import json
from pathlib import Path

import numpy as np

from s3jax.archive import FileError
from s3jax.viz.style import DRIVER_COLOURS, FAINT, colours, save, styled, subplots

_CURVES = (
    ("env/reward", None, "reward per step"),
    ("env/cross_track_rms", "held_out/cross_track_rms", "cross-track RMS (m)"),
    ("env/speed_rms", "held_out/speed_rms", "speed RMS (m/s)"),
    ("env/heading_rms", "held_out/heading_rms", "heading RMS (rad)"),
)


@styled
def training_curves(path: str | Path, metrics: str | Path) -> Path:
    """Draws reward and tracking errors over environment steps, while exploring and on held-out scenarios.

    Args:
      path: the picture.
      metrics: `metrics.csv` of a training run.

    Returns:
      The path.

    Raises:
      FileError: if the file holds no such curves.
    """
    try:
        with open(metrics, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        steps = np.array([float(row["env_steps"]) for row in rows]) / 1e6
        columns = {
            name: np.array([float(row[name]) if row.get(name) else np.nan for row in rows])
            for pair in _CURVES
            for name in pair[:2]
            if name and name in rows[0]
        }
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise FileError(f"{metrics}: not the metrics of a training run ({error})") from None
    figure, panels = subplots(2, 2, (9.2, 4.8), sharex=True)
    for axes, (training, held_out, label) in zip(panels.flat, _CURVES, strict=True):
        if training in columns:
            axes.plot(steps, columns[training], color=FAINT, label="training, exploring")
        if held_out in columns:
            there = np.isfinite(columns[held_out])
            axes.plot(
                steps[there],
                columns[held_out][there],
                color=DRIVER_COLOURS["policy"],
                marker="o",
                ms=3.5,
                label="held-out scenarios, mean action",
            )
        if held_out:
            axes.set_ylim(bottom=0.0)
        axes.set_title(label)
    for axes in panels[-1]:
        axes.set_xlabel("million environment steps")
    handles, labels = panels[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
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
    panels_of = (
        ("position", "position error (m)"),
        ("yaw", "yaw error (deg)"),
        ("speed", "speed error (m/s)"),
    )
    figure, panels = subplots(1, 3, (9.2, 3.0))
    try:
        models = json.loads(Path(evaluation).read_text(encoding="utf-8"))
        palette = colours(models)
        for model, result in models.items():
            horizons = [float(horizon) for horizon in result["open_loop"]]
            for axes, (quantity, label) in zip(panels[0], panels_of, strict=True):
                error = np.array([row["all"][quantity] for row in result["open_loop"].values()])
                error = np.degrees(error) if quantity == "yaw" else error
                axes.plot(horizons, error, marker="o", ms=4, color=palette[model], label=model)
                axes.set_title(label)
                axes.set_xlabel("horizon (s)")
                axes.set_xlim(left=0.0)
                axes.set_ylim(bottom=0.0)
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"{evaluation}: not the evaluation of a distillation ({error})") from None
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return save(figure, path)
