"""Reference trajectories along tracks."""

import math

import numpy as np

from s3jax.spatial.reference import EXTENSION, Reference
from s3jax.tracks.track import Track, TrackError, point_at_arc


def lap_reference(track: Track, speed, dt: float, laps: float = 1.0, start: float = 0.0) -> Reference:
    """Builds the reference that follows a track's centre line at a speed profile.

    Between samples of the track acceleration is constant, so time is exact for the profile. Beyond its
    length the reference goes on along the track (an open one: straight on) for `EXTENSION` seconds.

    Args:
      track: the track.
      speed: [N] at each sample (m/s), positive.
      dt: sample interval (s).
      laps: how many, or which part of one.
      start: arc length of the first sample (m).

    Returns:
      The reference; `length` counts the samples of the laps, the one at or beyond their end included.

    Raises:
      TrackError: for a speed profile that does not fit the track or stands still.
    """
    speed = np.asarray(speed, float)
    if speed.shape != np.shape(track.x) or not np.isfinite(speed).all() or speed.min() < 0.1:
        raise TrackError(f"{track.name}: expected {len(track.x)} speeds of at least 0.1 m/s")
    distance = track.length * laps if track.closed else track.length * laps - start
    if not (laps > 0 and distance > 0):
        raise TrackError(f"{track.name}: nothing is left of {laps} laps from {start} m")
    reach = distance + max(speed) * (EXTENSION + 2 * dt) + track.spacing
    nodes = np.arange(math.ceil((start % track.spacing + reach) / track.spacing) + 1)
    first = math.floor(start / track.spacing)
    index = first + nodes
    v = speed[index % len(speed)] if track.closed else speed[np.minimum(index, len(speed) - 1)]
    at = nodes * track.spacing - (start - first * track.spacing)
    time = np.concatenate([[0.0], np.cumsum(2 * track.spacing / (v[1:] + v[:-1]))])
    # The start lies inside the first stretch: shift the clock to it.
    time -= _time_within(-at[0], v[0], v[1], track.spacing)
    end = time[0] + np.interp(distance, at, time - time[0])
    length = math.ceil(end / dt - 1e-9) + 1
    t = np.arange(length + math.ceil(EXTENSION / dt)) * dt
    k = np.clip(np.searchsorted(time, t, side="right") - 1, 0, len(v) - 2)
    accel = (v[k + 1] ** 2 - v[k] ** 2) / (2 * track.spacing)
    within = t - time[k]
    s = at[k] + v[k] * within + 0.5 * accel * within**2
    place = point_at_arc(track, start + s)
    x, y = place.x, place.y
    if not track.closed:
        beyond = np.maximum(start + s - track.length, 0.0)
        x, y = x + beyond * np.cos(place.yaw), y + beyond * np.sin(place.yaw)
    samples = np.stack([x, y, place.yaw, v[k] + accel * within, place.curvature], axis=1)
    return Reference(samples=samples, offset=0, size=len(samples), length=length)


def _time_within(distance, v0, v1, spacing):
    """Time to cover a distance from the start of a stretch at constant acceleration."""
    v = math.sqrt(v0 * v0 + (v1 * v1 - v0 * v0) * distance / spacing)
    return 2 * distance / (v0 + v)
