"""The limits that a simulated car never leaves unless its model has come apart."""

import jax.numpy as jnp

SPEED = 80.0
"""Highest speed (m/s)."""

YAW_RATE = 7.5
"""Highest yaw rate (rad/s): beyond the fastest spin that a split of friction between the axles causes."""

ACCELERATION = 30.0
"""Highest planar acceleration (m/s^2): three times what asphalt gives a road car."""


def inside(before, after, dt: float):
    """Returns whether a step [...] stays inside the envelope.

    A step is inside if its end is finite, below `SPEED` and `YAW_RATE`, reached with no more than
    `ACCELERATION`, and if the pose moved no further than the velocities explain.

    Args:
      before: state at the start of the step, fields [...].
      after: state at its end.
      dt: (s).
    """
    # Acceleration in the body frame: the change of the velocity's components plus the frame's rotation.
    turn = 0.5 * (before.yaw_rate + after.yaw_rate)
    ax = (after.vx - before.vx) / dt - turn * 0.5 * (before.vy + after.vy)
    ay = (after.vy - before.vy) / dt + turn * 0.5 * (before.vx + after.vx)
    speed = jnp.hypot(after.vx, after.vy)
    moved = jnp.hypot(after.x - before.x, after.y - before.y)
    reach = dt * jnp.maximum(speed, jnp.hypot(before.vx, before.vy))
    bounded = (speed <= SPEED) & (jnp.abs(after.yaw_rate) <= YAW_RATE) & (moved <= 1.01 * reach + 0.01)
    # A comparison with NaN is false, so what is not finite is outside.
    return bounded & (jnp.hypot(ax, ay) <= ACCELERATION) & jnp.isfinite(after.steer_angle)
