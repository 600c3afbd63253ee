"""Reference trajectories and the projection of a car onto them.

A reference is sampled every control step `dt`. The car is located on it by a *cursor*, a fractional
sample index that only moves forward: to the nearest point of the next few segments where the
reference moves, and with time where it stands still. A tracking task is therefore a matter of place,
not of schedule, and a stop in the reference lasts as long as it lasted in the log.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from s3jax.spatial.arrays import namespace
from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.state import VehicleState

WINDOW = 12
"""Segments ahead of the cursor that the projection searches."""

STANDSTILL_SPEED = 0.1
"""Reference speed (m/s) below which the cursor moves with time."""

EXTENSION = 3.0
"""Seconds by which a reference is continued straight at constant speed, so that a preview never ends."""


class Reference(NamedTuple):
    """A reference trajectory, or one of many stored end to end.

    Attributes:
      samples: [M, 5] x (m), y (m), yaw (rad), speed (m/s), curvature (1/m, + left), every `dt` seconds.
      offset: [] row of the first sample.
      size: [] rows that belong to this reference, extension included.
      length: [] rows that count; the episode ends when the cursor reaches `length - 1`.
    """

    samples: Any
    offset: Any
    size: Any
    length: Any


class ReferencePoint(NamedTuple):
    """A point of a reference: x (m), y (m), yaw (rad), speed (m/s), curvature (1/m), each [...]."""

    x: Any
    y: Any
    yaw: Any
    speed: Any
    curvature: Any


class TrackingError(NamedTuple):
    """The car's error against the reference point beside it.

    Attributes:
      cross_track: [...] offset of the car to the left of the reference (m).
      heading: [...] car's yaw less the reference's (rad), in [-pi, pi).
      speed: [...] car's forward speed less the reference's (m/s).
    """

    cross_track: Any
    heading: Any
    speed: Any


def make_reference(x, y, yaw, speed, dt) -> Reference:
    """Builds a NumPy reference from samples taken every `dt` and extends it by `EXTENSION` seconds.

    Args:
      x: [N] (m). y: [N] (m). yaw: [N] (rad, need not be wrapped). speed: [N] (m/s).
      dt: sample interval (s).

    Raises:
      ValueError: if there are fewer than two samples or any is not finite.
    """
    columns = np.stack(np.broadcast_arrays(x, y, np.unwrap(yaw), speed), axis=1).astype(float)
    if len(columns) < 2:
        raise ValueError(f"a reference needs at least two samples, got {len(columns)}")
    if not np.isfinite(columns).all():
        raise ValueError(f"reference sample {int(np.argwhere(~np.isfinite(columns))[0, 0])} is not finite")
    x, y, yaw, speed = columns.T
    ds = np.hypot(np.diff(x), np.diff(y))
    # Curvature from heading over distance, where the reference moves enough for the ratio to mean something.
    curvature = np.where(ds > 0.02, np.diff(yaw) / np.maximum(ds, 0.02), 0.0)
    curvature = np.clip(np.append(curvature, curvature[-1]), -0.3, 0.3)
    extra = np.arange(1, math.ceil(EXTENSION / dt) + 1) * dt * speed[-1]
    tail = np.stack(
        [
            x[-1] + extra * np.cos(yaw[-1]),
            y[-1] + extra * np.sin(yaw[-1]),
            np.full_like(extra, yaw[-1]),
            np.full_like(extra, speed[-1]),
            np.zeros_like(extra),
        ],
        axis=1,
    )
    samples = np.concatenate([np.stack([x, y, yaw, speed, curvature], axis=1), tail])
    return Reference(samples=samples, offset=0, size=len(samples), length=len(columns))


def point_at(reference: Reference, cursor) -> ReferencePoint:
    """Interpolates the reference at fractional sample indices, clamped to its ends.

    Args:
      reference: the reference.
      cursor: [...] fractional sample index.

    Returns:
      The point, each field [...]. The yaw is not wrapped.
    """
    xp = namespace(cursor, reference.samples)
    cursor = xp.clip(xp.asarray(cursor), 0, reference.size - 1)
    low = xp.minimum(xp.floor(cursor), reference.size - 2)
    fraction = (cursor - low)[..., None]
    row = xp.asarray(low, dtype=xp.int32) + reference.offset
    a, b = reference.samples[row], reference.samples[row + 1]
    mixed = a + fraction * (b - a)
    return ReferencePoint(*(mixed[..., i] for i in range(5)))


def advance(reference: Reference, cursor, x, y):
    """Moves the cursor to the point of the reference nearest to the car, never backwards.

    Args:
      reference: the reference.
      cursor: [] fractional sample index before the step.
      x: [] car's position (m). y: [] (m).

    Returns:
      [] the cursor after the step, at most `size - 1`.
    """
    xp = namespace(cursor, x, reference.samples)
    first = xp.asarray(xp.floor(cursor), dtype=xp.int32)
    index = xp.minimum(first + xp.arange(WINDOW + 1), reference.size - 1)
    rows = reference.samples[index + reference.offset]
    start, step = rows[:-1, :2], rows[1:, :2] - rows[:-1, :2]
    offset = xp.stack([x - start[:, 0], y - start[:, 1]], axis=-1)
    length_squared = xp.sum(step * step, axis=-1)
    along = xp.clip(xp.sum(offset * step, axis=-1) / xp.maximum(length_squared, 1e-9), 0.0, 1.0)
    gap = offset - along[:, None] * step
    nearest = xp.argmin(xp.sum(gap * gap, axis=-1))
    projected = index[nearest] + along[nearest]
    waited = cursor + xp.where(rows[0, 3] < STANDSTILL_SPEED, 1.0, 0.0)
    return xp.minimum(xp.maximum(projected, waited), reference.size - 1.0)


def tracking_error(point: ReferencePoint, state: VehicleState) -> TrackingError:
    """Returns the error of a car [...] against the reference point beside it [...]."""
    xp = namespace(state.x, point.x)
    dx, dy = state.x - point.x, state.y - point.y
    return TrackingError(
        cross_track=xp.cos(point.yaw) * dy - xp.sin(point.yaw) * dx,
        heading=wrap_angle(state.yaw - point.yaw),
        speed=state.vx - point.speed,
    )
