"""Looking at recordings: `s3jax recordings info` and `s3jax recordings plot`."""

from collections import Counter
from pathlib import Path

import numpy as np

from s3jax.archive import FileError, atomic_path
from s3jax.source.base import WHEELS
from s3jax.source.coverage import CoverageConfig, coverage_of
from s3jax.source.recording import SUFFIX, Recording, read_recording


def recordings_info(path, coverage: CoverageConfig | None = None) -> str:
    """Describes a recording, or all of a directory with their coverage.

    Args:
      path: a recording or a directory that holds some, also in subdirectories.
      coverage: the target that a directory is compared with; None is the default one.

    Raises:
      FileError: for a file that is no recording, or a directory without any.
    """
    path = Path(path)
    if path.is_dir():
        return _directory_info(path, coverage or CoverageConfig())
    return _file_info(path, read_recording(path))


def _file_info(path, recording: Recording) -> str:
    header, c = recording
    facts = {
        "recording": path,
        "state": "complete" if header["complete"] else "cut short; the last row is the last whole chunk's",
        "rows": f"{header['rows']} of {header['dt']} s, {header['rows'] * header['dt']:.1f} s",
    }
    if header["dropped_bytes"]:
        facts["dropped"] = f"{header['dropped_bytes']} bytes of a broken chunk"
    for name in ("driver", "track", "surface", "seed", "substep", "state_definition", "control_definition"):
        if name in header:
            facts[name] = header[name]
    vehicle = header.get("vehicle")
    if vehicle is not None:
        facts["vehicle"] = vehicle["name"] if isinstance(vehicle, dict) else vehicle
    facts["versions"] = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    lines = [f"{name:>20}: {value}" for name, value in facts.items()]
    if header["rows"]:
        lines.append(f"{'column':>20}  {'lowest':>10} {'mean':>10} {'highest':>10}")
        for name, column in c.items():
            lines.append(f"{name:>20}  {column.min():10.3f} {column.mean():10.3f} {column.max():10.3f}")
    return "\n".join(lines)


def _directory_info(directory, config: CoverageConfig) -> str:
    recordings = [read_recording(path) for path in _paths(directory)]
    minutes = Counter()
    for recording in recordings:
        header = recording.header
        key = (str(header.get("driver", "?")), str(header.get("track", "?")), str(header.get("surface", "?")))
        minutes[key] += header["rows"] * header["dt"] / 60
    unfinished = sum(not recording.header["complete"] for recording in recordings)
    lines = [f"{directory}: {len(recordings)} recordings, {sum(minutes.values()):.1f} minutes"]
    if unfinished:
        lines.append(f"{unfinished} of them cut short")
    lines.append(f"{'driver':>14} {'track':>14} {'surface':>14} {'minutes':>9}")
    lines += [f"{a:>14} {b:>14} {c:>14} {value:9.2f}" for (a, b, c), value in sorted(minutes.items())]
    return "\n".join([*lines, coverage_of(recordings, config).table()])


def _paths(directory) -> list[Path]:
    paths = sorted(Path(directory).rglob(f"*{SUFFIX}"))
    if not paths:
        raise FileError(f"{directory}: no recordings (*{SUFFIX}) in it; collect some first")
    return paths


def plot_recording(path, out) -> None:
    """Draws a recording: its path coloured by friction, and speed, controls, sideslip, slip over time.

    Args:
      path: the recording.
      out: the picture, `.png`, `.svg` or `.pdf`.

    Raises:
      FileError: for a file that is no recording, or one without rows.
    """
    from matplotlib.figure import Figure

    header, c = read_recording(path)
    if not header["rows"]:
        raise FileError(f"{path}: holds no rows; there is nothing to draw")
    wheels = {
        name: np.stack([c[f"{name}_{wheel}"] for wheel in WHEELS]) for name in ("friction", "slip_ratio")
    }
    figure = Figure(figsize=(12, 7), layout="constrained")
    grid = figure.add_gridspec(4, 2)
    road = figure.add_subplot(grid[:, 0])
    points = road.scatter(
        c["x"], c["y"], c=wheels["friction"].min(axis=0), s=3, cmap="viridis", vmin=0, vmax=1
    )
    figure.colorbar(points, ax=road, label="lowest friction under a wheel", shrink=0.6)
    road.set(aspect="equal", xlabel="x (m)", ylabel="y (m)", adjustable="datalim")
    surface, driver = header.get("surface", ""), header.get("driver", "")
    road.set_title(f"{Path(path).name}\n{driver} on {surface}", fontsize=9)
    panels = (
        ("m/s", {"vx": c["vx"], "vy": c["vy"]}),
        ("control", {"steer": c["steer"], "pedal": c["pedal"]}),
        ("yaw rate, rad/s", {"yaw rate": c["yaw_rate"]}),
        ("slip ratio", {wheel: ratio for wheel, ratio in zip(WHEELS, wheels["slip_ratio"], strict=True)}),
    )
    for row, (unit, series) in enumerate(panels):
        axes = figure.add_subplot(grid[row, 1])
        for name, values in series.items():
            axes.plot(c["t"], np.clip(values, -2, 2) if unit == "slip ratio" else values, lw=0.8, label=name)
        axes.set_ylabel(unit, fontsize=8)
        axes.legend(fontsize=7, loc="upper right")
        axes.grid(alpha=0.3)
    axes.set_xlabel("t (s)")
    with atomic_path(out) as temporary:
        figure.savefig(temporary, dpi=110)
