"""Bird's-eye pictures of scenarios."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from s3jax.archive import atomic_path
from s3jax.scenarios.scenario import Scenario

_BOX_COLOURS = {1: "#7f8fa6", 2: "#c0392b", 3: "#8e44ad"}
_BOX_NAMES = {1: "vehicle", 2: "pedestrian", 3: "cyclist"}
_LIGHT_COLOURS = np.array(["#888888", *["#d62728", "#e6a700", "#2ca02c"] * 2, "#d62728", "#e6a700"])
_MARGIN = 15.0  # m of map around the path
_LEAST_SPAN = 60.0  # m


def draw(scenario: Scenario, path: str | Path, step: int | None = None) -> None:
    """Draws a scenario as a bird's-eye picture, equal axes, metres relative to the first ego position.

    Shown are lanes, road edges, friction patches, traffic lights, the reference coloured by speed with the
    ego car at its start, and the other road users at one time with their way ahead.

    Args:
      scenario: the scenario.
      path: the picture, `.png`, `.svg` or `.pdf`; written atomically.
      step: step of the boxes and lights to show, every `box_dt`; the first one by default.
    """
    figure = Figure(figsize=(9.0, 8.0), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    draw_on(axes, scenario, step or 0)
    with atomic_path(Path(path)) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lstrip(".") or "png")


def draw_on(axes, scenario: Scenario, step: int = 0) -> None:
    """Draws a scenario on matplotlib axes; see `draw`."""
    samples = scenario.reference.samples[: int(scenario.reference.length)]
    _draw_map(axes, scenario)
    patches = _draw_friction(axes, scenario)
    types = _draw_boxes(axes, scenario, step)
    lights = _draw_lights(axes, scenario, step)
    speed = _draw_reference(axes, scenario, samples)
    axes.figure.colorbar(speed, ax=axes, label="reference speed (m/s)", shrink=0.7)
    _frame(axes, samples)
    handles = [
        Line2D([], [], color="#333333", lw=1.2, label="road edge"),
        Line2D([], [], color="#b8c4d6", lw=0.9, ls="--", label="lane centre"),
    ] * bool(len(scenario.edges) or len(scenario.lanes))
    handles += [Patch(color=_colour(kind), label=_BOX_NAMES.get(kind, "other")) for kind in types]
    handles += patches + lights
    if handles:
        axes.legend(handles=handles, loc="upper right", fontsize=7, framealpha=0.9)
    friction = f", friction {float(scenario.friction.base):.2f}" if scenario.friction.base != 1 else ""
    axes.set_title(
        f"{scenario.id}   ({Path(scenario.source).name})\n"
        f"{scenario.duration:.1f} s, {samples[:, 3].min():.1f} to {samples[:, 3].max():.1f} m/s{friction}",
        fontsize=9,
    )
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")


def _draw_map(axes, scenario):
    for segments, colour, width, style in (
        (scenario.lanes, "#b8c4d6", 0.9, "--"),
        (scenario.edges, "#333333", 1.2, "-"),
    ):
        axes.add_collection(
            LineCollection(
                segments.reshape(-1, 2, 2), colors=colour, linewidths=width, linestyles=style, zorder=1
            )
        )


def _draw_friction(axes, scenario):
    handles = []
    for polygon, value in zip(scenario.friction.polygons, scenario.friction.values, strict=True):
        axes.add_collection(
            PolyCollection([polygon], facecolors="#7fd3f7", edgecolors="#2a8fbd", alpha=0.5, zorder=2)
        )
        handles.append(Patch(facecolor="#7fd3f7", edgecolor="#2a8fbd", label=f"friction {float(value):.2f}"))
    return handles


def _draw_boxes(axes, scenario, step):
    if not scenario.boxes.size:
        return []
    now = scenario.boxes[:, min(step, scenario.boxes.shape[1] - 1)]
    shown = np.flatnonzero(np.isfinite(now[:, 0]))
    colours = [_colour(kind) for kind in scenario.box_types]
    axes.add_collection(
        PolyCollection(
            _corners(now[shown], scenario.box_sizes[shown]),
            facecolors=[colours[i] for i in shown],
            edgecolors="white",
            linewidths=0.4,
            zorder=4,
        )
    )
    ways = [track[np.isfinite(track[:, 0]), :2] for track in scenario.boxes[:, step:]]
    axes.add_collection(LineCollection(ways, colors=colours, linewidths=0.7, alpha=0.5, zorder=3))
    return sorted(set(scenario.box_types[shown].tolist()))


def _draw_lights(axes, scenario, step):
    if not scenario.lights.size:
        return []
    states = scenario.light_states[:, min(step, scenario.light_states.shape[1] - 1)]
    seen = states >= 0
    axes.scatter(
        *scenario.lights[seen].T,
        s=28,
        c=_LIGHT_COLOURS[np.minimum(states[seen], 8)],
        edgecolors="black",
        linewidths=0.5,
        zorder=6,
    )
    return (
        [Line2D([], [], marker="o", ls="", mfc="none", mec="black", label="traffic light")]
        if seen.any()
        else []
    )


def _draw_reference(axes, scenario, samples):
    points = samples[:, None, :2]
    line = LineCollection(
        np.concatenate([points[:-1], points[1:]], axis=1),
        array=(samples[:-1, 3] + samples[1:, 3]) / 2,
        cmap=matplotlib.colormaps["viridis"],
        linewidths=3.0,
        capstyle="round",
        zorder=5,
    )
    low, high = samples[:, 3].min(), samples[:, 3].max()
    line.set_clim(min(low, 0.0), max(high, 1.0))
    axes.add_collection(line)
    ego = _corners(samples[:1], scenario.ego_size[None])
    axes.add_collection(
        PolyCollection(ego, facecolors="#f39c12", edgecolors="black", linewidths=0.8, zorder=7)
    )
    return line


def _corners(poses, sizes):
    """Corners [n, 4, 2] of boxes with poses [n, 3+] and sizes [n, 2]."""
    half = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) / 2 * sizes[:, None]
    cos, sin = np.cos(poses[:, None, 2]), np.sin(poses[:, None, 2])
    turned = np.stack(
        [cos * half[..., 0] - sin * half[..., 1], sin * half[..., 0] + cos * half[..., 1]], axis=-1
    )
    return poses[:, None, :2] + turned


def _colour(kind):
    return _BOX_COLOURS.get(int(kind), "#999999")


def _frame(axes, samples):
    low, high = samples[:, :2].min(axis=0), samples[:, :2].max(axis=0)
    half = max((high - low).max() / 2 + _MARGIN, _LEAST_SPAN / 2)
    middle = (low + high) / 2
    axes.set_aspect("equal")
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    axes.grid(alpha=0.2, lw=0.5)
