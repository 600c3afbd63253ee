"""Angles and planar frames."""

import math

from s3jax.spatial.arrays import namespace


def wrap_angle(angle):
    """Returns the angle [...] (rad) wrapped to [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def to_body(dx, dy, yaw):
    """Rotates a world vector [...] (dx, dy) into the frame of a body with heading yaw (rad)."""
    xp = namespace(dx, dy, yaw)
    cos, sin = xp.cos(yaw), xp.sin(yaw)
    return cos * dx + sin * dy, cos * dy - sin * dx


def to_world(dx, dy, yaw):
    """Rotates a body vector [...] (dx, dy) of a body with heading yaw (rad) into the world frame."""
    xp = namespace(dx, dy, yaw)
    cos, sin = xp.cos(yaw), xp.sin(yaw)
    return cos * dx - sin * dy, sin * dx + cos * dy
