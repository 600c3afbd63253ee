"""Inertial increments: what forces, rather than the turning of the body frame, change in a control step.

The networks that predict motion directly predict these, because transport (a car that turns sees its
velocity turn the other way) is known exactly, and because a bound on them is a bound on the forces.
"""

import jax
import jax.numpy as jnp

from s3jax.dynamics.actuators import soft_abs
from s3jax.dynamics.base import GRAVITY, known_friction, move
from s3jax.dynamics.envelope import SPEED, YAW_RATE
from s3jax.spatial.frames import to_body


def of_step(before, after, dt: float):
    """Returns the increments [3] of vx, vy (m/s) and yaw rate (rad/s) that lead from a state to the next."""
    vx, vy = to_body(before.vx, before.vy, 0.5 * dt * (before.yaw_rate + after.yaw_rate))
    return jnp.stack([after.vx - vx, after.vy - vy, after.yaw_rate - before.yaw_rate])


def soft_clip(x, bound):
    """Returns x held inside (-bound, bound), unchanged near 0."""
    return bound * jnp.tanh(x / bound)


def into_circle(increments, limit):
    """Scales the velocity part of increments [3] down to a length of `limit` (m/s)."""
    length = jnp.sqrt(increments[0] ** 2 + increments[1] ** 2 + 1e-12)
    scale = jnp.minimum(1.0, limit / length)
    return increments * jnp.stack([scale, scale, jnp.ones_like(scale)])


def grip_limit(friction, dt: float, share: float, spare: float = 0.0):
    """Returns the velocity change (m/s) that `share` of the grip and `spare` (m/s^2) allow in a step.

    Args:
      friction: [2] multipliers, or `WITHHELD`, which counts as asphalt.
      dt: (s).
      share: of friction times gravity.
      spare: added to it, for drag and for friction that changes within the step.
    """
    multiplier, _ = known_friction(friction)
    return dt * (share * GRAVITY * jnp.max(multiplier) + spare)


def moving(state):
    """Returns a weight in (0, 1): 0 at standstill, 1 from walking pace on, in whatever direction."""
    return jax.nn.sigmoid((jnp.sqrt(state.vx**2 + state.vy**2 + 1e-6) - 1.0) / 0.2)


def apply(state, increments, steer_angle, dt: float):
    """Returns the next state: transport, increments [3], the envelope's bounds and the pose."""
    yaw_rate = jnp.clip(state.yaw_rate + increments[2], -0.95 * YAW_RATE, 0.95 * YAW_RATE)
    vx, vy = to_body(state.vx, state.vy, 0.5 * dt * (state.yaw_rate + yaw_rate))
    vx, vy = vx + increments[0], vy + increments[1]
    scale = jnp.minimum(1.0, 0.95 * SPEED / soft_abs(jnp.sqrt(vx * vx + vy * vy + 1e-12), 1e-3))
    return move(state, scale * vx, scale * vy, yaw_rate, steer_angle, dt)
