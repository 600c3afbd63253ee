"""A track: a centre line sampled by arc length, with widths."""

from typing import Any, NamedTuple

import numpy as np

from s3jax.errors import UserError
from s3jax.spatial.frames import wrap_angle


class TrackError(UserError):
    """A track cannot be built or used as asked; the message says why."""


class Track(NamedTuple):
    """A centre line. Arrays are [N], equally spaced by `spacing` in arc length.

    A closed track's last sample is one spacing before its first; an open one ends at its last sample.

    Attributes:
      name: of the track.
      x: (m). y: (m). yaw: (rad, unwrapped). curvature: (1/m, + left).
      width_left: from the centre line to the left edge (m). width_right.
      spacing: (m).
      closed: whether the end meets the start.
    """

    name: str
    x: Any
    y: Any
    yaw: Any
    curvature: Any
    width_left: Any
    width_right: Any
    spacing: float
    closed: bool

    @property
    def s(self):
        """[N] arc length of each sample (m)."""
        return np.arange(len(self.x)) * self.spacing

    @property
    def length(self) -> float:
        """Arc length (m)."""
        return self.spacing * (len(self.x) if self.closed else len(self.x) - 1)


class TrackPoint(NamedTuple):
    """A place on a track: x (m), y (m), yaw (rad, unwrapped), curvature (1/m), each [...]."""

    x: Any
    y: Any
    yaw: Any
    curvature: Any


def point_at_arc(track: Track, s, lateral=0.0) -> TrackPoint:
    """Returns the places at arc lengths, smooth to second order between samples.

    Args:
      track: the track.
      s: [...] arc length (m); wraps round a closed track, is clamped to an open one.
      lateral: [...] offset to the left (m).
    """
    s = np.asarray(s, float)
    laps = np.floor(s / track.length) if track.closed else np.zeros_like(s)
    along = s - laps * track.length if track.closed else np.clip(s, 0.0, track.length)
    count = len(track.x)
    last = count - 1 if track.closed else count - 2
    i = np.minimum((along / track.spacing).astype(int), last)
    t = along / track.spacing - i
    j = (i + 1) % count
    turn = track.yaw[j] - track.yaw[i]
    # The step from the last sample to the first includes the full turn of the lap.
    lap_turn = _lap_turn(track)
    turn = np.where(j < i, turn + lap_turn, turn)
    h = track.spacing
    blend, start, end = t * t * (3 - 2 * t), t * (1 - t) ** 2 * h, t * t * (t - 1) * h
    cos_i, sin_i, cos_j, sin_j = (f(track.yaw[k]) for k in (i, j) for f in (np.cos, np.sin))
    x = track.x[i] + blend * (track.x[j] - track.x[i]) + start * cos_i + end * cos_j
    y = track.y[i] + blend * (track.y[j] - track.y[i]) + start * sin_i + end * sin_j
    yaw = track.yaw[i] + t * turn + laps * lap_turn
    curvature = track.curvature[i] + t * (track.curvature[j] - track.curvature[i])
    return TrackPoint(x - lateral * np.sin(yaw), y + lateral * np.cos(yaw), yaw, curvature)


def _lap_turn(track: Track) -> float:
    if not track.closed:
        return 0.0
    turned = track.yaw[-1] - track.yaw[0]
    return float(turned + wrap_angle(track.yaw[0] - track.yaw[-1]))


def project(track: Track, x, y):
    """Returns arc length (m) and offset to the left (m) of the nearest places on the track.

    Args:
      track: the track.
      x: [...] position (m). y: [...] (m).
    """
    x, y = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
    shape, x, y = x.shape, x.reshape(-1), y.reshape(-1)
    nearest = np.empty(len(x), int)
    for k in range(0, len(x), 1024):
        dx = x[k : k + 1024, None] - track.x
        dy = y[k : k + 1024, None] - track.y
        nearest[k : k + 1024] = np.argmin(dx * dx + dy * dy, axis=1)
    s = nearest * track.spacing
    for _ in range(3):
        at = point_at_arc(track, s)
        along = np.cos(at.yaw) * (x - at.x) + np.sin(at.yaw) * (y - at.y)
        left = np.cos(at.yaw) * (y - at.y) - np.sin(at.yaw) * (x - at.x)
        # Newton's step towards the foot of the perpendicular.
        step = along / np.maximum(1.0 - at.curvature * left, 0.2)
        s = s + np.clip(step, -track.spacing, track.spacing)
        s = np.mod(s, track.length) if track.closed else np.clip(s, 0.0, track.length)
    at = point_at_arc(track, s)
    left = np.cos(at.yaw) * (y - at.y) - np.sin(at.yaw) * (x - at.x)
    return s.reshape(shape), left.reshape(shape)


def strip(track: Track, start: float, end: float, right=None, left=None, step: float = 2.0) -> np.ndarray:
    """Returns the polygon [K, 2] of the road between two arc lengths, for a friction patch.

    Args:
      track: the track.
      start: (m). end: (m), beyond `start`, at most a lap.
      right: lateral offset of its right edge (m, + left); the road's edge if None.
      left: of its left edge; the road's edge if None. `strip(track, a, b, left=0)` is the right half.
      step: between corners along the track (m).

    Raises:
      TrackError: if the interval or the width is empty.
    """
    if not 0 < end - start <= track.length:
        raise TrackError(f"strip from {start} m to {end} m: expected 0 < end - start <= {track.length:.1f} m")
    s = np.linspace(start, end, max(2, int(np.ceil((end - start) / step)) + 1))
    at = s % track.length if track.closed else s
    low = -np.interp(at, track.s, track.width_right) if right is None else np.full_like(s, right)
    high = np.interp(at, track.s, track.width_left) if left is None else np.full_like(s, left)
    if np.any(high <= low):
        raise TrackError(f"strip from {start} m to {end} m: its left edge is not left of its right edge")
    a, b = point_at_arc(track, s, low), point_at_arc(track, s[::-1], high[::-1])
    return np.stack([np.concatenate([a.x, b.x]), np.concatenate([a.y, b.y])], axis=1)
