"""What is wrong with driven motion, as Waymax and the public driving benchmarks define it. Array-generic."""

import math

import numpy as np

from s3jax.spatial.arrays import namespace
from s3jax.spatial.frames import wrap_angle

MAX_ACCELERATION, MAX_CURVATURE = 10.4, 0.3
"""Beyond these (m/s^2, 1/m) a motion is not one of a car."""

_TOLERANCE = 1e-3
_TIE = 1e-5  # m
_SLOW = 0.6  # m/s; below it, the direction of a velocity is noise
_CORNERS = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) / 2


def corners(boxes):
    """Returns the corners [..., 4, 2] of boxes [..., 5]: x, y (m), yaw (rad), length, width (m)."""
    xp = namespace(boxes)
    x, y, yaw, length, width = xp.moveaxis(boxes, -1, 0)[..., None]
    along, across = _CORNERS[:, 0] * length, _CORNERS[:, 1] * width
    cos, sin = xp.cos(yaw), xp.sin(yaw)
    return xp.stack([x + cos * along - sin * across, y + sin * along + cos * across], axis=-1)


def overlap(one, other):
    """Returns whether boxes [..., 5] overlap boxes [..., 5] (broadcast); touching does not count.

    Two rectangles are apart exactly if an axis of one of them separates them (separating axis theorem).
    """
    xp = namespace(one, other)
    one, other = xp.broadcast_arrays(one, other)
    first, second = corners(one), corners(other)
    apart = xp.zeros(one.shape[:-1], bool)
    for yaw in (one[..., 2], other[..., 2]):
        for angle in (yaw, yaw + math.pi / 2):
            axis = xp.stack([xp.cos(angle), xp.sin(angle)], axis=-1)[..., None, :]
            a, b = (xp.sum(points * axis, axis=-1) for points in (first, second))
            apart = apart | (a.max(axis=-1) <= b.min(axis=-1)) | (b.max(axis=-1) <= a.min(axis=-1))
    return ~apart


def off_road(boxes, edges, reach: float = 30.0):
    """Returns whether a corner of a box lies beyond the nearest road edge.

    Args:
      boxes: [..., 5].
      edges: [E, 4] segments x0, y0, x1, y1 (m) with the road on their left.
      reach: a corner farther than this from every edge (m) counts as on the road.

    Returns:
      [...] bool.
    """
    xp = namespace(boxes, edges)
    if len(edges) == 0:
        return xp.zeros(boxes.shape[:-1], bool)
    points = corners(boxes)[..., None, :]
    start, step = edges[:, :2], edges[:, 2:] - edges[:, :2]
    length = xp.maximum(xp.hypot(step[:, 0], step[:, 1]), 1e-9)
    gap = points - start
    along = xp.clip(xp.sum(gap * step, axis=-1) / length**2, 0.0, 1.0)
    away = gap - along[..., None] * step
    distance = xp.hypot(away[..., 0], away[..., 1])
    side = (step[:, 0] * gap[..., 1] - step[:, 1] * gap[..., 0]) / length
    # At a corner of the edge line two segments are equally near; the one seen more squarely knows the side.
    nearest = xp.min(distance, axis=-1, keepdims=True)
    best = xp.argmax(xp.where(distance <= nearest + _TIE, xp.abs(side), -1.0), axis=-1)[..., None]
    outside = (xp.take_along_axis(side, best, axis=-1) < 0) & (nearest < reach)
    return xp.any(outside[..., 0], axis=-1)


def log_divergence(x, y, log_x, log_y):
    """Returns how far (m) [...] a car is from where the log is at the same time; all positions [...] (m)."""
    return namespace(x, log_x).hypot(x - log_x, y - log_y)


def implied_control(yaw, vel_x, vel_y, dt: float):
    """Returns what moved a car from each step to the next, if it was a kinematic bicycle.

    Its heading is taken from its velocity, which is less noisy in a log, unless it is slow.

    Args:
      yaw: [..., T] heading (rad).
      vel_x: [..., T] world velocity (m/s). vel_y: [..., T] (m/s).
      dt: seconds between steps.

    Returns:
      Acceleration (m/s^2) and curvature (1/m) of each transition, [..., T - 1]. The curvature is 0 if the
      car is slow at either end.
    """
    xp = namespace(yaw, vel_x, vel_y)
    speed = xp.hypot(vel_x, vel_y)
    before, after = speed[..., :-1], speed[..., 1:]
    acceleration = (after - before) / dt
    course = xp.arctan2(vel_y, vel_x)[..., 1:]
    turn = wrap_angle(xp.where(after <= _SLOW, yaw[..., 1:], course) - yaw[..., :-1])
    slow = (before < _SLOW) | (after < _SLOW)
    distance = xp.where(slow, 1.0, 0.5 * dt * (before + after))
    return acceleration, xp.where(slow, 0.0, turn / distance)


def kinematic_infeasibility(yaw, vel_x, vel_y, dt: float):
    """Returns whether each transition is one that no car can make, [..., T - 1]; see `implied_control`."""
    acceleration, curvature = implied_control(yaw, vel_x, vel_y, dt)
    return (abs(acceleration) > MAX_ACCELERATION + _TOLERANCE) | (abs(curvature) > MAX_CURVATURE + _TOLERANCE)
