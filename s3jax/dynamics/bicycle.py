"""Kinematic bicycle: wheels that never slip sideways. The baseline that knows nothing of friction."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import pydantic

from s3jax.dynamics import actuators
from s3jax.dynamics.base import (
    Dynamics,
    DynamicsConfig,
    Guard,
    guard_logits,
    guard_values,
    move,
)
from s3jax.spatial.state import VehicleState

GUARDS = {
    **actuators.STEERING,
    **actuators.PEDALS,
    "wheelbase": Guard(1.5, 4.5, 2.7),  # (m)
    "rear_share": Guard(0.3, 0.7, 0.52),  # distance of the rear axle from the centre of gravity / wheelbase
}


class BicycleConfig(DynamicsConfig):
    """Configuration of the kinematic bicycle.

    Attributes:
      lateral_limit: bound on speed times yaw rate (m/s^2), above what any surface allows the car.
    """

    kind: Literal["bicycle"] = "bicycle"
    lateral_limit: float = pydantic.Field(12.0, gt=0)

    def make(self) -> "Bicycle":
        """Returns the model."""
        return Bicycle(self)


class Carry(NamedTuple):
    """State and pedals."""

    state: VehicleState
    pedals: actuators.Pedals


class Bicycle(Dynamics):
    """Kinematic bicycle referred to the centre of gravity, with fitted actuators and drive and brake laws.

    The rear axle's velocity stays along the body, hence yaw rate = vx tan(steer angle) / wheelbase and
    vy = rear axle distance * yaw rate. Speed is solved semi-implicitly, so that brakes and resistance stop
    the car and never push it backwards.
    """

    def init(self, key):
        """Returns the constants of a mid-size car; nothing is random."""
        return guard_logits(GUARDS)

    def cold(self, params, state):
        """Returns the carry with the pedals up."""
        return Carry(state, actuators.released())

    def step(self, params, carry, control, friction):
        """Advances one control step; friction is ignored."""
        values, dt, state = guard_values(GUARDS, params), self.dt, carry.state
        angle = actuators.steer(values, state.steer_angle, control[0], dt)
        pedals = actuators.press(values, carry.pedals, control[1], dt)
        drive = actuators.drive_acceleration(values, pedals.throttle, state.vx)
        rate = pedals.brake * values["brake"] / actuators.soft_abs(state.vx, 0.3)
        rate = rate + actuators.resistance(values, state.vx)
        vx = (state.vx + dt * drive) / (1.0 + dt * rate)
        limit = self.config.lateral_limit / jnp.maximum(jnp.abs(vx), 1.0)
        yaw_rate = jnp.clip(vx * jnp.tan(angle) / values["wheelbase"], -limit, limit)
        vy = values["rear_share"] * values["wheelbase"] * yaw_rate
        state = move(state, vx, vy, yaw_rate, angle, dt)
        return Carry(state, pedals), state

    def describe(self, params):
        """Returns the fitted constants by name."""
        return {name: float(value) for name, value in guard_values(GUARDS, params).items()}
