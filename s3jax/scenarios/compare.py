"""How alike the driving in two sets of scenarios is: distances between distributions, and their picture."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance

from s3jax.archive import atomic_path
from s3jax.scenarios.tags import HALF_WINDOW, MOVING_SPEED, derivative

CHANNELS = {
    "speed": "speed (m/s)",
    "acceleration": "acceleration (m/s²)",
    "lateral": "lateral acceleration (m/s²)",
    "yaw_rate": "yaw rate (rad/s)",
    "curvature": "curvature (1/m)",
}
"""What is compared, over all samples of all references; but for the speed only above `tags.MOVING_SPEED`."""

_BINS = 60
_RANGE = 0.1, 99.9
"""Percentiles of both sets that the bins cover; what lies beyond goes into the outer ones."""


class Distance(NamedTuple):
    """How far apart two distributions are.

    Attributes:
      wasserstein: mean distance by which one must be moved to become the other, in the channel's unit.
      share: the same as a share of the reference's standard deviation.
      jensen_shannon: divergence of the histograms (bits): 0 if equal, 1 if disjoint.
    """

    wasserstein: float
    share: float
    jensen_shannon: float


def samples(scenarios) -> dict[str, np.ndarray]:
    """Returns the ego car's motion in all scenarios by name of channel, each [N]; derivatives over 0.9 s."""
    parts = {name: [] for name in CHANNELS}
    for scenario in scenarios:
        own = scenario.reference.samples[scenario.reference.offset :][: scenario.reference.length]
        yaw, speed = np.unwrap(own[:, 2]), own[:, 3]
        half = max(1, round(HALF_WINDOW / scenario.dt))
        rate = derivative(yaw, half, scenario.dt)
        moving = speed > MOVING_SPEED
        parts["speed"].append(speed)
        parts["acceleration"].append(derivative(speed, half, scenario.dt)[moving])
        parts["lateral"].append((speed * rate)[moving])
        parts["yaw_rate"].append(rate[moving])
        parts["curvature"].append(rate[moving] / speed[moving])
    return {name: np.concatenate(values) for name, values in parts.items()}


def distances(real: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, Distance]:
    """Returns how far each channel of `samples` is from that of a reference set; NaN if either is empty."""
    found = {}
    for name in CHANNELS:
        a, b = real[name], other[name]
        if not (len(a) and len(b)):
            found[name] = Distance(np.nan, np.nan, np.nan)
            continue
        moved = float(wasserstein_distance(a, b))
        one, two = _histograms(a, b)[1:]
        found[name] = Distance(
            moved, moved / max(float(a.std()), 1e-9), float(jensenshannon(one, two, 2) ** 2)
        )
    return found


def tabulate_distances(found: dict[str, Distance]) -> str:
    """Returns a table of `distances` as text."""
    lines = [f"{'channel':<28}{'Wasserstein-1':>14}{'in std':>9}{'Jensen-Shannon (bit)':>22}"]
    for name, title in CHANNELS.items():
        far = found[name]
        lines.append(f"{title:<28}{far.wasserstein:>14.4f}{far.share:>9.2f}{far.jensen_shannon:>22.3f}")
    return "\n".join(lines)


def plot_channels(sets: dict[str, dict[str, np.ndarray]], path: str | Path) -> None:
    """Draws the histograms of two named sets of `samples` over each other; written atomically."""
    figure = Figure(figsize=(14.0, 2.9), dpi=90, layout="constrained")
    (one, first), (two, second) = sets.items()
    for axes, (name, title) in zip(figure.subplots(1, len(CHANNELS)), CHANNELS.items(), strict=True):
        if len(first[name]) and len(second[name]):
            edges, *heights = _histograms(first[name], second[name])
            for height, label, colour in zip(heights, (one, two), ("#333333", "#d1495b"), strict=True):
                axes.stairs(100 * height, edges, label=label, color=colour, lw=1.3)
        axes.set_yscale("log")
        axes.set_xlabel(title)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("share of samples (%)")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8
    )
    with atomic_path(Path(path)) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lstrip(".") or "png")


def _histograms(a, b):
    """Edges and the shares of both sets in common bins."""
    low, high = np.percentile(a, _RANGE), np.percentile(b, _RANGE)
    low, high = min(low[0], high[0]), max(low[1], high[1])
    edges = np.linspace(low, max(high, low + 1e-6), _BINS + 1)
    shares = (np.histogram(np.clip(values, low, edges[-1]), edges)[0] / len(values) for values in (a, b))
    return edges, *shares
