"""A kinematic bicycle driven by acceleration and curvature, whole in a pose and a velocity: no memory. JAX.

It is `s3jax.dynamics.bicycle` without actuators. `like_waymax` makes it equal to Waymax's
`InvertibleBicycleModel`, whose known faults are otherwise mended:

- it takes the speed for the direction: a car that rolls backwards at 2 m/s goes forwards at 2 m/s after a
  step without acceleration; here the speed keeps its sign;
- braking does not stop at a standstill: at 0.1 m/s, -6 m/s^2 gives -0.5 m/s, which the next step takes for
  0.5 m/s, so that a braking car trembles; here it stops, within the step and where it comes to rest;
- it moves along the heading of the step's beginning, and so leaves the arc that it turns on; here the mean
  heading of the step counts.
"""

from typing import NamedTuple

import jax.numpy as jnp

from s3jax.spatial.frames import to_body, wrap_angle


class Pose(NamedTuple):
    """x, y (m), yaw (rad) and world velocity vel_x, vel_y (m/s), each [...]: what Waymax keeps of a car."""

    x: jnp.ndarray
    y: jnp.ndarray
    yaw: jnp.ndarray
    vel_x: jnp.ndarray
    vel_y: jnp.ndarray


def advance(pose: Pose, acceleration, curvature, dt: float, like_waymax: bool = False) -> Pose:
    """Moves a car by one step.

    Args:
      pose: [...] before the step.
      acceleration: [...] along the car (m/s^2).
      curvature: [...] of its path, + left (1/m).
      dt: length of the step (s).
      like_waymax: with the faults named above.

    Returns:
      The pose [...] after the step; its velocity lies along its heading.
    """
    if like_waymax:
        speed = jnp.hypot(pose.vel_x, pose.vel_y)
        after = speed + acceleration * dt
        distance = 0.5 * dt * (speed + after)
        half = 0.5 * acceleration * dt**2
        dx, dy = pose.vel_x * dt + half * jnp.cos(pose.yaw), pose.vel_y * dt + half * jnp.sin(pose.yaw)
        yaw = wrap_angle(pose.yaw + curvature * distance)
    else:
        speed, _ = to_body(pose.vel_x, pose.vel_y, pose.yaw)
        after, distance = _brake_to_rest(speed, acceleration, dt)
        turn = curvature * distance
        dx, dy = distance * jnp.cos(pose.yaw + 0.5 * turn), distance * jnp.sin(pose.yaw + 0.5 * turn)
        yaw = wrap_angle(pose.yaw + turn)
    return Pose(pose.x + dx, pose.y + dy, yaw, after * jnp.cos(yaw), after * jnp.sin(yaw))


def _brake_to_rest(speed, acceleration, dt):
    """Returns the speed after a step and the distance; a speed that would change its sign becomes 0."""
    after = speed + acceleration * dt
    stops = jnp.where(speed == 0.0, acceleration < 0.0, after * speed < 0.0)
    rest = jnp.where(stops, -speed / jnp.where(stops & (acceleration != 0.0), acceleration, 1.0), 0.0)
    time = jnp.where(stops, rest, dt)
    return jnp.where(stops, 0.0, after), speed * time + 0.5 * acceleration * time**2
