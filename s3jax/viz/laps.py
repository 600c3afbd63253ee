"""Pictures of laps: seen from above, and along the track."""

from pathlib import Path

import numpy as np

from s3jax.spatial.friction import FrictionMap
from s3jax.tracks.track import Track, point_at_arc, project
from s3jax.viz.style import FAINT, ICE, ICE_EDGE, INK, ROAD, colours, save, styled, subplots


@styled
def lap_maps(path: str | Path, track: Track, roads: dict, laps: dict) -> Path:
    """Draws every lap from above, one panel each, its path coloured by the size of the cross-track error.

    Args:
      path: the picture.
      track: the circuit.
      roads: condition -> FrictionMap.
      laps: (condition, driver) -> Log.

    Returns:
      The path.
    """
    from matplotlib.collections import LineCollection

    conditions, drivers = (list(dict.fromkeys(names)) for names in zip(*laps, strict=True))
    figure, panels = subplots(
        len(conditions), len(drivers), (4.6 * len(drivers), 2.6 * len(conditions) + 0.5)
    )
    values = {key: np.abs(log.columns["cross_track"]) for key, log in laps.items()}
    top = max(np.percentile(value, 99.5) for value in values.values())
    for row, condition in zip(panels, conditions, strict=True):
        for axes, driver in zip(row, drivers, strict=True):
            _draw_track(axes, track, roads[condition])
            if (condition, driver) not in laps:
                continue
            log = laps[condition, driver]
            x, y = log.columns["x"], log.columns["y"]
            points = np.stack([x, y], axis=1)[:, None]
            line = LineCollection(
                np.concatenate([points[:-1], points[1:]], axis=1),
                array=values[condition, driver][1:],
                cmap="plasma_r",
                linewidths=2.6,
                capstyle="round",
                zorder=3,
            )
            line.set_clim(0.0, top)
            axes.add_collection(line)
            if log.end != "finished":
                axes.plot(x[-1], y[-1], marker="X", ms=10, color="black", mec="white", zorder=5)
            axes.set_title(f"{driver}, {condition}: {log.end}, {log.columns['time'][-1]:.1f} s")
    figure.colorbar(line, ax=panels, label="cross-track error (m)", shrink=0.6, aspect=30, pad=0.01)
    _legend_of_patches(figure, any(len(road.values) for road in roads.values()))
    return save(figure, path)


@styled
def lap_series(path: str | Path, track: Track, road: FrictionMap, laps: dict) -> Path:
    """Draws cross-track error, speed, steer and pedal along the track, drivers together, patches shaded.

    Args:
      path: the picture.
      track: the circuit.
      road: its friction.
      laps: driver -> Log.

    Returns:
      The path.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, panels = subplots(4, 1, (9.2, 7.6), sharex=True, height_ratios=[1.3, 1.3, 1, 1])
    axes = dict(zip(("cross_track", "speed", "steer", "pedal"), panels[:, 0], strict=True))
    for number, (start, end) in enumerate(patch_spans(track, road), 1):
        for panel in axes.values():
            panel.axvspan(start, end, color=ICE, alpha=0.55, lw=0)
        axes["cross_track"].text(
            (start + end) / 2,
            1.01,
            str(number),
            transform=axes["cross_track"].get_xaxis_transform(),
            ha="center",
            fontsize=8,
            color=ICE_EDGE,
        )
    palette = colours(laps)
    for driver, log in laps.items():
        c, colour = log.columns, palette[driver]
        s = lap_distance(track, log)
        axes["cross_track"].plot(s, c["cross_track"], color=colour, label=driver)
        axes["speed"].plot(s, c["vx"], color=colour)
        axes["steer"].plot(s, c["steer"], color=colour, lw=1.0)
        axes["pedal"].plot(s, c["pedal"], color=colour, lw=1.0)
    longest = max(laps.values(), key=lambda log: log.completion)
    axes["speed"].plot(
        lap_distance(track, longest), longest.columns["reference_speed"], color=INK, lw=0.9, ls="--"
    )
    axes["cross_track"].axhline(0, color=FAINT, lw=0.8)
    axes["cross_track"].set_ylabel("cross-track (m)\n+ left")
    axes["speed"].set_ylabel("speed (m/s)")
    axes["steer"].set_ylabel("steer\n+ left")
    axes["pedal"].set_ylabel("pedal\n+ throttle, − brake")
    axes["pedal"].set_xlabel("distance along the track (m)")
    axes["pedal"].set_xlim(0, track.length)
    handles = [Line2D([], [], color=palette[driver], label=driver) for driver in laps]
    handles += [Line2D([], [], color=INK, lw=0.9, ls="--", label="reference speed")]
    if len(road.values):
        handles += [Patch(color=ICE, label=f"patch, friction {float(road.values.min()):.1f}")]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return save(figure, path)


def patch_spans(track: Track, road: FrictionMap) -> list[tuple[float, float]]:
    """Returns from which to which arc length (m) each friction patch lies."""
    spans = []
    for polygon in road.polygons:
        s, _ = project(track, polygon[:, 0], polygon[:, 1])
        spans.append((float(s.min()), float(s.max())))
    return spans


def lap_distance(track: Track, log) -> np.ndarray:
    """Returns the arc length [T] (m) of each row of a log; it does not jump back at the end of the lap."""
    s, _ = project(track, log.columns["x"], log.columns["y"])
    return np.unwrap(s, period=track.length)


def track_edges(track: Track, step: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Returns points [N, 2] of the left and of the right edge of a track."""
    s = np.arange(0.0, track.length + step, step)
    s = np.minimum(s, track.length)
    at = s % track.length if track.closed else s
    left = point_at_arc(track, s, np.interp(at, track.s, track.width_left))
    right = point_at_arc(track, s, -np.interp(at, track.s, track.width_right))
    return np.stack([left.x, left.y], axis=1), np.stack([right.x, right.y], axis=1)


def patch_labels(track: Track, road: FrictionMap, aside: float) -> list[tuple[float, float]]:
    """Returns where to write the number of each friction patch: x, y (m), beside the road on its left."""
    places = []
    for start, end in patch_spans(track, road):
        middle = (start + end) / 2
        at = point_at_arc(track, middle, np.interp(middle, track.s, track.width_left) + aside)
        places.append((float(at.x), float(at.y)))
    return places


def _draw_track(axes, track, road):
    from matplotlib.collections import PolyCollection

    left, right = track_edges(track)
    axes.fill(*np.concatenate([left, right[::-1]]).T, facecolor=ROAD, edgecolor=ROAD, lw=6, zorder=1)
    # To scale, the road would be thinner than the path drawn on it: outline it and the patches generously.
    axes.add_collection(PolyCollection(road.polygons, facecolors=ICE, edgecolors=ICE, linewidths=9, zorder=2))
    for number, (x, y) in enumerate(patch_labels(track, road, aside=30.0), 1):
        axes.text(x, y, str(number), ha="center", va="center", fontsize=8, color=ICE_EDGE)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    x, y = left[:, 0].min(), min(left[:, 1].min(), right[:, 1].min()) - 25
    axes.plot([x, x + 100], [y, y], color=INK, lw=1.5)
    axes.text(x + 108, y, "100 m", va="center", fontsize=8)
    start = point_at_arc(track, np.zeros(2), np.array([-12.0, 12.0]))
    axes.plot(start.x, start.y, color=INK, lw=2, zorder=4)


def _legend_of_patches(figure, any_patches):
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=INK, lw=2, label="start and finish")]
    if any_patches:
        handles.append(Line2D([], [], color=ICE, lw=5, label="ice patch, numbered along the lap"))
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize=8)
