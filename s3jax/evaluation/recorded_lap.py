"""A closed track, and the speed along it, from the recording of someone who drove it."""

from pathlib import Path

import numpy as np

from s3jax.archive import FileError
from s3jax.source.recording import read_recording
from s3jax.tracks import Track
from s3jax.tracks.csv_file import track_from_points

REACH = 15.0  # m to either side within which the start line counts as crossed
SHORTEST = 100.0  # m of a lap
GAP = 5.0  # m between the two crossings that may be closed
SPACING = 2.0  # m between the points that are smoothed
SMOOTHING = 4.0  # m; see `read_track`


def recorded_lap(path: str | Path, width: float) -> tuple[Track, np.ndarray]:
    """Returns the fastest lap in a recording as a track, smoothed and closed, and its speed [N] (m/s).

    The start line lies where the car was fastest, across its path. The gap between the lap's ends is spread
    over the whole lap.

    Args:
      path: a recording.
      width: of the road (m), the driven line in its middle.

    Raises:
      FileError: if the recording cannot be read or holds no whole lap.
      TrackError: if the line cannot be smoothed.
    """
    c = read_recording(path).columns
    points, speed = np.stack([c["x"], c["y"]], axis=1), np.hypot(c["vx"], c["vy"])
    if len(points) < 20:
        raise FileError(f"{path}: {len(points)} rows are too few for a lap")
    gone = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    crossings = _crossings(points, c["yaw"], int(speed.argmax()))
    places = [_at(gone, row) for row in crossings]
    laps = [k for k in range(len(places) - 1) if places[k + 1] - places[k] > SHORTEST]
    if not laps:
        raise FileError(
            f"{path}: no whole lap: the car did not pass the place where it was fastest twice, within "
            f"{REACH:g} m and in the same direction. Drive a lap and a little more"
        )
    best = min(laps, key=lambda k: crossings[k + 1] - crossings[k])
    start, end = places[best : best + 2]
    at = np.linspace(start, end, max(20, round((end - start) / SPACING)))
    line = np.stack([np.interp(at, gone, column) for column in points.T], axis=1)
    gap = line[-1] - line[0]
    if np.hypot(*gap) > GAP:
        raise FileError(f"{path}: the lap's ends are {np.hypot(*gap):.1f} m apart, more than {GAP:g} m")
    share = (at - start) / (end - start)
    line = (line - share[:, None] * gap)[:-1]
    track = track_from_points(
        Path(path).stem, line, np.full_like(line, 0.5 * width), True, 1.0, SMOOTHING, source=path
    )
    own = np.interp(track.s / track.length, share, np.interp(at, gone, speed))
    kernel = np.hanning(round(20.0 / track.spacing) + 2)
    padded = np.pad(own, len(kernel) // 2, mode="wrap")
    smooth = np.convolve(padded, kernel / kernel.sum(), mode="same")[len(kernel) // 2 :][: len(own)]
    return track, np.maximum(smooth, 1.0)


def _crossings(points, yaw, fastest: int) -> list[float]:
    """Returns at which fractional rows the line across the path at a row is crossed in its direction."""
    ahead = np.array([np.cos(yaw[fastest]), np.sin(yaw[fastest])])
    offset = points - points[fastest]
    along, across = offset @ ahead, offset @ np.array([-ahead[1], ahead[0]])
    rows = np.flatnonzero((along[:-1] < 0) & (along[1:] >= 0) & (np.abs(across[1:]) < REACH))
    return [float(k - along[k] / (along[k + 1] - along[k])) for k in rows]


def _at(values, row: float) -> float:
    """Returns a column at a fractional row."""
    return float(np.interp(row, np.arange(len(values)), values))
