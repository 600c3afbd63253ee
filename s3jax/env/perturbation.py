"""An episode's deviations from the distilled car: drawing them, and their way into a model's constants."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from s3jax.config import ConfigError
from s3jax.dynamics.actuators import PEDALS
from s3jax.dynamics.single_track import TYRES
from s3jax.env.config import RandomisationConfig

SCALED = {
    "mass": ("drive", "power", "brake", "drag", "creep", "engine_brake"),
    "stiffness": ("stiffness_front", "stiffness_rear"),
}
"""Constants of a model (`s3jax.dynamics`) that a deviation scales.

All constants are per unit of mass. What is bolted to the car, its engine, brakes and body, gives a heavier
car less acceleration; tyre forces are proportional to load and do not change."""

_GUARDS = PEDALS | TYRES


class Perturbation(NamedTuple):
    """Deviations from the distilled car, each []; the fields of `RandomisationConfig`."""

    steer_gain: Any
    steer_bias: Any
    pedal_gain: Any
    friction_gain: Any
    delay: Any
    lag: Any
    mass: Any
    stiffness: Any


def none() -> Perturbation:
    """Returns no deviation: the car as distilled."""
    one, zero = jnp.ones(()), jnp.zeros(())
    return Perturbation(one, zero, one, one, zero, zero, one, one)


def draw(config: RandomisationConfig, key) -> Perturbation:
    """Draws each deviation uniformly from its range."""
    ranges = jnp.array([getattr(config, name) for name in Perturbation._fields])
    share = jax.random.uniform(key, (len(ranges),))
    return Perturbation(*(ranges[:, 0] + share * (ranges[:, 1] - ranges[:, 0])))


def apply(config: RandomisationConfig, perturbation: Perturbation, params):
    """Returns a model's parameters with its physical constants scaled; untouched where no range asks for it.

    A scaled constant stays inside its guard range. Where a network moves a constant (DDM), or corrects the
    motion (DyTR), the scale is that of the constant alone and the effect approximate.

    Raises:
      ConfigError: if the model has no such constants.
    """
    gains = {}
    if config.mass != (1.0, 1.0):
        gains |= dict.fromkeys(SCALED["mass"], 1.0 / perturbation.mass)
    if config.stiffness != (1.0, 1.0):
        gains |= dict.fromkeys(SCALED["stiffness"], perturbation.stiffness)
    if not gains:
        return params
    found = set()

    def scale(path, leaf):
        name = path[-1].key
        if name not in gains:
            return leaf
        found.add(name)
        return _scale_logit(_GUARDS[name], leaf, gains[name])

    params = jax.tree_util.tree_map_with_path(scale, params)
    for deviation, names in SCALED.items():
        if missing := (gains.keys() & set(names)) - found:
            raise ConfigError(
                f"env.randomisation.{deviation} scales {', '.join(sorted(missing))}, which this dynamics "
                "model does not have; leave it at (1, 1), or use single_track, ddm, or dytr over one of them"
            )
    return params


def _scale_logit(guard, logit, gain):
    """Returns the logit at which a guarded constant is `gain` times as large; the same logit at gain 1."""
    place = jax.nn.sigmoid(logit)
    if guard.log:
        scaled = place + jnp.log(gain) / jnp.log(guard.high / guard.low)
    else:
        scaled = place * gain + guard.low * (gain - 1.0) / (guard.high - guard.low)

    def inverse(place):
        place = jnp.clip(place, 1e-4, 1.0 - 1e-4)
        return jnp.log(place / (1.0 - place))

    return logit + (inverse(scaled) - inverse(place))
