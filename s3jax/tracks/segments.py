"""Tracks from tables of straights and arcs, joined by clothoids and closed exactly."""

import numpy as np

from s3jax.tracks.track import Track, TrackError

_FINE = 0.25  # m
_MAX_CHANGE = 0.15


def track_from_segments(
    name: str, table, width: float, ramp: float = 20.0, spacing: float = 1.0, length=None, closed: bool = True
) -> Track:
    """Builds a track from straights and arcs.

    Curvature is averaged over `ramp` metres, so that it changes linearly (a clothoid) across each joint.
    A loop that does not meet its start is closed by the smallest relative changes of lengths and curvatures
    that do it (Gauss-Newton, least norm); its length is kept.

    Args:
      name: of the track.
      table: [K, 2] length (m) and curvature (1/m, + left) of each segment.
      width: of the road (m).
      ramp: length of the clothoids (m).
      spacing: wanted between samples (m); the actual one divides the length.
      length: wanted of the whole (m), or None; the table is scaled to it, curvature inversely.
      closed: whether the end meets the start.

    Raises:
      TrackError: for a malformed table, or a loop that cannot be closed by small changes.
    """
    table = np.asarray(table, float)
    if table.ndim != 2 or table.shape[1] != 2 or not np.isfinite(table).all() or (table[:, 0] <= 0).any():
        raise TrackError(f"{name}: expected rows of a positive length and a curvature")
    if length is not None:
        scale = length / table[:, 0].sum()
        table = table * [scale, 1 / scale]
    lengths, curvatures = table.T
    if closed:
        lengths, curvatures = _close(name, lengths, curvatures, ramp)
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


def _integrate(lengths, curvatures, ramp, closed, nominal=None):
    """Returns (s, x), (s, y), (s, yaw) on a fine grid of chords of arcs; `nominal` length fixes its size."""
    total = lengths.sum()
    count = int(np.ceil((nominal or total) / _FINE))
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
    total, size = lengths.sum(), len(lengths)
    turn = np.round((lengths @ curvatures) / (2 * np.pi)) * 2 * np.pi

    def changed(change):
        return lengths * (1 + change[:size]), curvatures * (1 + change[size:])

    def miss(change):
        (_, x), (_, y), (_, yaw) = _integrate(*changed(change), ramp, closed=True, nominal=total)
        length = (lengths * (1 + change[:size])).sum()
        return np.array([x[-1], y[-1], 100.0 * (yaw[-1] - turn), length - total])

    change = np.zeros(2 * size)
    steps = np.eye(2 * size) * 1e-6
    for _ in range(20):
        gap = miss(change)
        if np.abs(gap).max() < 1e-8 or np.abs(change).max() > _MAX_CHANGE:
            break
        slope = np.stack([(miss(change + step) - gap) / 1e-6 for step in steps], axis=1)
        change = change - np.linalg.lstsq(slope, gap, rcond=None)[0]
    if np.abs(miss(change)).max() > 1e-6 or np.abs(change).max() > _MAX_CHANGE:
        gap = float(np.hypot(*miss(np.zeros(2 * size))[:2]))
        raise TrackError(f"{name}: its end is {gap:.1f} m from its start, too far to close by small changes")
    return changed(change)
