"""What a set of scenarios holds: tags in a table, distributions in a picture."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from s3jax.archive import atomic_path
from s3jax.scenarios.tags import TAGS

_DISTRIBUTIONS = {
    "path_length": "path length (m)",
    "max_speed": "highest speed (m/s)",
    "min_accel": "strongest braking (m/s²)",
    "max_accel": "strongest acceleration (m/s²)",
    "max_lateral": "highest lateral acceleration (m/s²)",
    "max_curvature": "highest curvature above 2 m/s (1/m)",
    "heading_change": "net heading change (rad)",
    "stopped_time": "longest stop (s)",
}
_PERCENTILES = (1, 5, 50, 95, 99)


def tabulate(numbers: dict[str, np.ndarray]) -> str:
    """Returns a table of tags and percentiles as text.

    Args:
      numbers: name -> [S], from `s3jax.scenarios.tags.table` or `ScenarioStore.numbers`.
    """
    count = len(numbers["path_length"])
    lines = [f"{count} scenarios", "", f"{'tag':<18}{'count':>7}{'share':>9}  meaning"]
    for name, tag in TAGS.items():
        hits = int(tag.test(numbers).sum())
        lines.append(f"{name:<18}{hits:>7}{hits / count:>9.1%}  {tag.meaning}")
    lines += ["", f"{'percentile':<40}" + "".join(f"{p:>9}" for p in _PERCENTILES)]
    for name, title in _DISTRIBUTIONS.items():
        values = numbers[name][np.isfinite(numbers[name])]
        cells = np.percentile(values, _PERCENTILES) if len(values) else np.full(len(_PERCENTILES), np.nan)
        lines.append(f"{title:<40}" + "".join(f"{cell:>9.2f}" for cell in cells))
    return "\n".join(lines)


def plot(numbers: dict[str, np.ndarray], path: str | Path) -> None:
    """Draws the shares of the tags and the distributions of the numbers; written atomically."""
    figure = Figure(figsize=(13.0, 7.0), dpi=110, layout="constrained")
    grid = figure.add_gridspec(4, 4)
    bars = figure.add_subplot(grid[:, :2])
    shares = {name: float(tag.test(numbers).mean()) for name, tag in TAGS.items()}
    bars.barh(list(shares), [100 * share for share in shares.values()], color="#4c72b0")
    bars.invert_yaxis()
    bars.set_xlabel("share of scenarios (%)")
    bars.set_title(f"{len(numbers['path_length'])} scenarios")
    bars.grid(axis="x", alpha=0.3)
    for place, (name, title) in enumerate(_DISTRIBUTIONS.items()):
        axes = figure.add_subplot(grid[place // 2, 2 + place % 2])
        values = numbers[name][np.isfinite(numbers[name])]
        axes.hist(values, bins=40, color="#55a868")
        axes.set_xlabel(title, fontsize=8)
        axes.tick_params(labelsize=7)
    with atomic_path(Path(path)) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lstrip(".") or "png")
