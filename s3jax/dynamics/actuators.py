"""Steering and pedals: first-order lags, a rate limit, and the force a powertrain and brakes ask for.

Everything longitudinal is per unit of mass, so that the ranges hold for cars of any size.
"""

from typing import NamedTuple

import jax.numpy as jnp

from s3jax.dynamics.base import GRAVITY, Guard

STEERING = {
    "steer_gain": Guard(0.2, 0.9, 0.55),  # road-wheel angle at full steer (rad)
    "steer_rate": Guard(0.2, 2.0, 0.8),  # (rad/s)
    "steer_lag": Guard(0.01, 0.3, 0.06, log=True),  # (s)
}

PEDALS = {
    "throttle_lag": Guard(0.02, 0.6, 0.12, log=True),  # (s)
    "brake_lag": Guard(0.02, 0.4, 0.1, log=True),  # (s)
    "drive": Guard(1.0, 12.0, 5.0),  # acceleration at full throttle from rest (m/s^2)
    "power": Guard(20.0, 500.0, 90.0, log=True),  # (W/kg)
    "brake": Guard(4.0, 25.0, 11.0),  # deceleration asked for at full brake (m/s^2)
    "rolling": Guard(0.004, 0.04, 0.012),  # rolling resistance coefficient
    "drag": Guard(5e-5, 2e-3, 3e-4, log=True),  # deceleration / speed^2 (1/m)
    "creep": Guard(0.0, 1.5, 0.3),  # acceleration of an idling drive at rest (m/s^2)
    "creep_speed": Guard(0.3, 5.0, 2.0),  # speed at which an idling drive neither pulls nor brakes (m/s)
    "engine_brake": Guard(0.0, 2.0, 0.4),  # deceleration with the throttle closed (m/s^2)
}


class Pedals(NamedTuple):
    """What the lagged actuators achieve: throttle [] and brake [], each in [0, 1]."""

    throttle: jnp.ndarray
    brake: jnp.ndarray


def released() -> Pedals:
    """Returns both pedals up."""
    zero = jnp.zeros((), jnp.result_type(float))
    return Pedals(zero, zero)


def steer(values, angle, command, h):
    """Returns the road-wheel angle (rad) after h seconds of a steering command in [-1, 1]."""
    toward = (values["steer_gain"] * command - angle) * -jnp.expm1(-h / values["steer_lag"])
    limit = values["steer_rate"] * h
    return angle + jnp.clip(toward, -limit, limit)


def press(values, pedals: Pedals, command, h) -> Pedals:
    """Returns the pedals after h seconds of a pedal command in [-1, 1]."""
    throttle = jnp.maximum(command, 0.0) - pedals.throttle
    brake = jnp.maximum(-command, 0.0) - pedals.brake
    return Pedals(
        pedals.throttle - throttle * jnp.expm1(-h / values["throttle_lag"]),
        pedals.brake - brake * jnp.expm1(-h / values["brake_lag"]),
    )


def drive_acceleration(values, throttle, vx):
    """Returns what the powertrain asks for (m/s^2), before grip limits it.

    Full throttle gives the lesser of the constant and the constant-power limit. A closed throttle gives
    the creep of an idling automatic, which turns into engine braking as the car outruns it.
    """
    speed = jnp.abs(vx)
    full = jnp.minimum(values["drive"], values["power"] / jnp.maximum(speed, 1.5))
    idle = jnp.clip(
        values["creep"] * (1.0 - vx / values["creep_speed"]), -values["engine_brake"], values["creep"]
    )
    return throttle * full + (1.0 - throttle) * idle


def resistance(values, vx):
    """Returns the rate (1/s) at which rolling resistance and drag slow a car: deceleration / velocity."""
    return values["rolling"] * GRAVITY / soft_abs(vx, 0.3) + values["drag"] * jnp.abs(vx)


def soft_abs(x, width):
    """Returns sqrt(x^2 + width^2)."""
    return jnp.sqrt(x * x + width * width)
