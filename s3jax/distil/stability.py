"""Stability as a simulator: random driving on random friction, from starts that no recording has."""

import functools

import jax
import jax.numpy as jnp

from s3jax.dynamics.base import WITHHELD, Dynamics
from s3jax.dynamics.envelope import inside
from s3jax.spatial.state import VehicleState

STARTS = {"standstill": 0.0, "reverse": -8.0, "town": 14.0, "fast": 60.0}
"""Forward speed (m/s) of each kind of start."""


def stability(model: Dynamics, params, environments: int = 10_000, seconds: float = 60.0, seed: int = 0):
    """Drives many cars at random.

    Each control and each axle's friction (log-uniform in 0.05 to 1.2, or withheld in every tenth case) is
    held for a random time and then jumps. A quarter of the cars starts in each of `STARTS`.

    Args:
      model: the model.
      params: its parameters.
      environments: cars.
      seconds: simulated.
      seed: of everything random.

    Returns:
      `inside`: fraction of cars that never left the envelope, by start and over all; `finite`: fraction that
      stayed finite; `speed` (m/s), `yaw_rate` (rad/s): the largest seen.
    """
    steps = round(seconds / model.dt)
    good, finite, speed, yaw_rate = jax.device_get(_drive(model, params, environments, steps, seed))
    kinds = [list(STARTS)[i % len(STARTS)] for i in range(environments)]
    fractions = {
        name: float(good[[i for i, kind in enumerate(kinds) if kind == name]].mean()) for name in STARTS
    }
    return {
        "environments": environments,
        "seconds": seconds,
        "inside": fractions | {"all": float(good.mean())},
        "finite": float(finite.mean()),
        "speed": float(speed.max()),
        "yaw_rate": float(yaw_rate.max()),
    }


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _drive(model, params, environments: int, steps: int, seed):
    key = jax.random.key(seed)
    speeds = jnp.tile(jnp.array(list(STARTS.values())), -(-environments // len(STARTS)))[:environments]
    zeros = jnp.zeros(environments)
    start = VehicleState(**{name: zeros for name in VehicleState._fields})._replace(vx=speeds)
    carry = jax.vmap(functools.partial(model.reset, params))(start)
    carry = jax.vmap(model.draw)(carry, jax.random.split(key, environments))

    def body(loop, i):
        carry, control, friction, good, finite, speed, yaw_rate = loop
        keys = jax.random.split(jax.random.fold_in(key, i), 5)
        fresh = jax.random.uniform(keys[0], (environments, 2), minval=-1.0, maxval=1.0)
        control = jnp.where(jax.random.bernoulli(keys[1], 0.1, (environments, 1)), fresh, control)
        value = 0.05 * 24.0 ** jax.random.uniform(keys[2], (environments, 2))
        value = jnp.where(jax.random.bernoulli(keys[3], 0.1, (environments, 1)), WITHHELD, value)
        friction = jnp.where(jax.random.bernoulli(keys[4], 0.1, (environments, 1)), value, friction)
        before = carry.state
        carry, state = jax.vmap(functools.partial(model.step, params))(carry, control, friction)
        good &= inside(before, state, model.dt)
        for field in state:
            finite &= jnp.isfinite(field)
        speed = jnp.maximum(speed, jnp.hypot(state.vx, state.vy))
        yaw_rate = jnp.maximum(yaw_rate, jnp.abs(state.yaw_rate))
        return (carry, control, friction, good, finite, speed, yaw_rate), None

    always = jnp.ones(environments, bool)
    begin = (carry, jnp.zeros((environments, 2)), jnp.ones((environments, 2)), always, always, zeros, zeros)
    return jax.lax.scan(body, begin, jnp.arange(steps))[0][3:]
