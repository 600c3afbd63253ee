"""Tracks from tables of straights and arcs, joined by clothoids and closed exactly."""

import numpy as np

from s3jax.tracks.track import Track, TrackError

_FINE = 0.25


def track_from_segments(
    name: str, table, width: float, ramp: float = 20.0, spacing: float = 1.0, length=None, closed: bool = True
) -> Track:
    """Builds a track from straights and arcs.

    Curvature is averaged over `ramp` metres, so that it changes linearly (a clothoid) across each joint.
    A loop that does not meet its start is closed by the smallest relative changes of the segments' lengths
    that do it (Gauss-Newton, least norm).

    Args:
      name: of the track.
      table: [K, 2] length (m) and curvature (1/m, + left) of each segment.
      width: of the road (m).
      ramp: length of the clothoids (m).
      spacing: wanted between samples (m); the actual one divides the length.
      length: wanted of the whole (m), or None; the table is scaled to it, curvature inversely.
      closed: whether the end meets the start.

    Raises:
      TrackError: for a malformed table, or a loop that cannot be closed by changing lengths a little.
    """
    table = np.asarray(table, float)
    if table.ndim != 2 or table.shape[1] != 2 or not np.isfinite(table).all() or (table[:, 0] <= 0).any():
        raise TrackError(f"{name}: expected rows of a positive length and a curvature")
    if length is not None:
        scale = length / table[:, 0].sum()
        table = table * [scale, 1 / scale]
    lengths, curvatures = table.T
    if closed:
        lengths = _close(name, lengths, curvatures, ramp)
    total = lengths.sum()
    count = max(8, round(total / spacing))
    s = np.linspace(0.0, total, count + 1)
    x, y, yaw = (np.interp(s, *pair) for pair in _integrate(lengths, curvatures, ramp, closed))
    keep = slice(0, count) if closed else slice(None)
    half = np.full(count + (not closed), 0.5 * width)
    return Track(
        name=name,
        x=x[keep],
        y=y[keep],
        yaw=yaw[keep],
        curvature=_curvature(s[keep], lengths, curvatures, ramp, closed),
        width_left=half,
        width_right=half.copy(),
        spacing=total / count,
        closed=closed,
    )


def _curvature(s, lengths, curvatures, ramp, closed):
    """Mean of the piecewise constant curvature over [s - ramp/2, s + ramp/2]."""
    joints = np.concatenate([[0.0], np.cumsum(lengths)])
    turned = np.concatenate([[0.0], np.cumsum(lengths * curvatures)])

    def heading(s):
        if not closed:  # straight beyond both ends
            return np.interp(s, joints, turned)
        laps = np.floor(s / joints[-1])
        return np.interp(s - laps * joints[-1], joints, turned) + laps * turned[-1]

    return (heading(s + 0.5 * ramp) - heading(s - 0.5 * ramp)) / ramp


def _integrate(lengths, curvatures, ramp, closed):
    """Returns (s, x), (s, y), (s, yaw) on a fine grid, by the midpoint rule on heading."""
    total = lengths.sum()
    count = int(np.ceil(total / _FINE))
    s = np.linspace(0.0, total, count + 1)
    h = total / count
    middle = _curvature(0.5 * (s[1:] + s[:-1]), lengths, curvatures, ramp, closed)
    yaw = np.concatenate([[0.0], np.cumsum(middle * h)])
    half = 0.5 * (yaw[1:] + yaw[:-1])
    chord = h * np.sinc(0.5 * middle * h / np.pi)
    x = np.concatenate([[0.0], np.cumsum(chord * np.cos(half))])
    y = np.concatenate([[0.0], np.cumsum(chord * np.sin(half))])
    return (s, x), (s, y), (s, yaw)


def _close(name, lengths, curvatures, ramp):
    total = lengths.sum()
    turn = np.round((lengths @ curvatures) / (2 * np.pi)) * 2 * np.pi

    def miss(lengths):
        (_, x), (_, y), (_, yaw) = _integrate(lengths, curvatures, ramp, closed=True)
        return np.array([x[-1], y[-1], 100.0 * (yaw[-1] - turn), lengths.sum() - total])

    current = lengths.copy()
    for _ in range(30):
        gap = miss(current)
        if np.abs(gap).max() < 1e-9:
            break
        steps = np.eye(len(current)) * 1e-3
        slope = np.stack([(miss(current + step) - gap) / 1e-3 for step in steps], axis=1)
        # Least change relative to each length: solve in units of the length.
        current = current - lengths * np.linalg.lstsq(slope * lengths, gap, rcond=None)[0]
        if (current < 0.3 * lengths).any():
            break
    if np.abs(miss(current)).max() > 1e-6 or (np.abs(current / lengths - 1) > 0.35).any():
        gap = float(np.hypot(*miss(lengths)[:2]))
        raise TrackError(f"{name}: its end is {gap:.1f} m from its start, too far to close by small changes")
    return current
