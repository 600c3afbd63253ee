"""Dynamic single track with Pacejka tyres, regular from standstill to any speed and in a spin.

All forces are per unit of mass (m/s^2). Guard ranges are wide enough for road and race cars.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import pydantic

from s3jax.config import Config
from s3jax.dynamics import actuators
from s3jax.dynamics.base import (
    GRAVITY,
    Dynamics,
    DynamicsConfig,
    Guard,
    guard_logits,
    guard_values,
    known_friction,
    move,
)
from s3jax.dynamics.tyre import CIRCLE, lateral_secant
from s3jax.spatial.state import VehicleState

TYRES = {
    "stiffness_front": Guard(6.0, 45.0, 20.0),  # cornering stiffness / load on asphalt (1/rad)
    "stiffness_rear": Guard(6.0, 45.0, 22.0),
    "shape_front": Guard(1.0, 1.9, 1.4),  # C
    "shape_rear": Guard(1.0, 1.9, 1.4),
    "curvature_front": Guard(-2.0, 0.9, 0.0),  # E
    "curvature_rear": Guard(-2.0, 0.9, 0.0),
    "grip_front": Guard(0.6, 1.4, 1.0),  # peak friction coefficient / friction multiplier
    "grip_rear": Guard(0.6, 1.4, 1.0),
    "shift_front": Guard(-0.03, 0.03, 0.0),  # slip angle at no force (rad): camber, banking, sensor bias
    "shift_rear": Guard(-0.03, 0.03, 0.0),
    "hidden_front": Guard(0.04, 1.4, 0.7, log=True),  # peak friction coefficient where friction is withheld
    "hidden_rear": Guard(0.04, 1.4, 0.7, log=True),
}

BODY = {
    "stiffness_exponent": Guard(0.0, 1.0, 0.2),  # cornering stiffness ~ friction ** exponent
    "inertia": Guard(0.5, 2.0, 1.1),  # yaw inertia / (mass front_axle rear_axle)
    "brake_bias": Guard(0.4, 0.9, 0.65),  # share of the braking at the front
}

GUARDS = {**actuators.STEERING, **actuators.PEDALS, **TYRES, **BODY}


class VehicleConfig(Config):
    """What the vehicle's data sheet says.

    Attributes:
      front_axle: distance of the front axle from the centre of gravity (m).
      rear_axle: distance of the rear axle (m).
      height: of the centre of gravity (m).
      front_drive: share of the drive at the front axle: 0 rear-wheel drive, 1 front-wheel drive.
    """

    front_axle: float = pydantic.Field(1.29, gt=0.3, lt=4.0)
    rear_axle: float = pydantic.Field(1.41, gt=0.3, lt=4.0)
    height: float = pydantic.Field(0.53, ge=0.0, lt=2.0)
    front_drive: float = pydantic.Field(0.0, ge=0.0, le=1.0)


class SingleTrackConfig(DynamicsConfig):
    """Configuration of the single track.

    Attributes:
      vehicle: its data sheet.
      substep: upper bound of the integration step (s).
    """

    kind: Literal["single_track"] = "single_track"
    vehicle: VehicleConfig = VehicleConfig()
    substep: float = pydantic.Field(0.0125, gt=0.0, le=0.02)

    def make(self) -> "SingleTrack":
        """Returns the model."""
        return SingleTrack(self)


class Carry(NamedTuple):
    """State and pedals."""

    state: VehicleState
    pedals: actuators.Pedals


class SingleTrack(Dynamics):
    """Single track whose coefficients are constants fitted to recordings."""

    def init(self, key):
        """Returns the constants of a mid-size car; nothing is random."""
        return guard_logits(GUARDS)

    def cold(self, params, state):
        """Returns the carry with the pedals up."""
        return Carry(state, actuators.released())

    def step(self, params, carry, control, friction):
        """Advances one control step."""
        values = guard_values(GUARDS, params)
        state, pedals = advance(self.config, values, carry.state, carry.pedals, control, friction)
        return Carry(state, pedals), state

    def describe(self, params):
        """Returns the fitted constants by name."""
        return {name: float(value) for name, value in guard_values(GUARDS, params).items()}


def advance(config, values, state: VehicleState, pedals, control, friction):
    """Integrates the single track over a control step with coefficients held.

    Each sub-step solves (vy, yaw rate) and then vx semi-implicitly with secant tyre forces (`tyre`). The
    loop stays rolled: unrolled, XLA's fusion repeats the tyre formulas and runs many times slower.

    Args:
      config: `dt`, `substep` and `vehicle`.
      values: the constants that `GUARDS` names.
      state: at the start, fields [].
      pedals: what the actuators achieve at the start.
      control: [2] steer, pedal.
      friction: [2] multipliers under the front and rear axle, or `WITHHELD`.

    Returns:
      The state and the pedals at the end.
    """
    steps = math.ceil(config.dt / config.substep - 1e-6)
    h = config.dt / steps
    axles = axle_coefficients(values, friction)

    def body(_, loop):
        vx, vy, yaw_rate, angle, pedals = loop
        angle = actuators.steer(values, angle, control[0], h)
        pedals = actuators.press(values, pedals, control[1], h)
        return (*substep(config.vehicle, values, axles, vx, vy, yaw_rate, angle, pedals, h), angle, pedals)

    start = (state.vx, state.vy, state.yaw_rate, state.steer_angle, pedals)
    vx, vy, yaw_rate, angle, pedals = jax.lax.fori_loop(0, steps, body, start)
    return move(state, vx, vy, yaw_rate, angle, config.dt), pedals


class Axle(NamedTuple):
    """Tyre coefficients of an axle: peak friction, cornering stiffness / load, C, E and slip shift (rad)."""

    peak: jnp.ndarray
    stiffness: jnp.ndarray
    shape: jnp.ndarray
    curvature: jnp.ndarray
    shift: jnp.ndarray


def axle_coefficients(values, friction) -> tuple[Axle, Axle]:
    """Returns the tyre coefficients of the front and rear axle on a friction [2]."""
    multiplier, known = known_friction(friction)

    def axle(name, i):
        peak = jnp.where(known[i], values[f"grip_{name}"] * multiplier[i], values[f"hidden_{name}"])
        return Axle(
            peak,
            values[f"stiffness_{name}"] * peak ** values["stiffness_exponent"],
            values[f"shape_{name}"],
            values[f"curvature_{name}"],
            values[f"shift_{name}"],
        )

    return axle("front", 0), axle("rear", 1)


def substep(vehicle: VehicleConfig, values, axles, vx, vy, yaw_rate, angle, pedals, h):
    """Returns vx, vy and yaw rate after h seconds of the single track's equations of motion."""
    front, rear = axles
    a, b = vehicle.front_axle, vehicle.rear_axle
    drive = actuators.drive_acceleration(values, pedals.throttle, vx)
    brake = pedals.brake * values["brake"]
    ahead = vx / actuators.soft_abs(vx, 0.3)

    # Loads follow the demanded acceleration, as far as the tyres can deliver it.
    limit = GRAVITY * jnp.minimum(front.peak, rear.peak)
    transfer = jnp.clip(drive - brake * ahead, -limit, limit) * vehicle.height
    load_front = (GRAVITY * b - transfer) / (a + b)
    load_rear = (GRAVITY * a + transfer) / (a + b)

    # Each axle drives and brakes as far as its circle allows.
    cap_front, cap_rear = CIRCLE * front.peak * load_front, CIRCLE * rear.peak * load_rear
    drive_front = jnp.clip(drive * vehicle.front_drive, -cap_front, cap_front)
    drive_rear = jnp.clip(drive * (1.0 - vehicle.front_drive), -cap_rear, cap_rear)
    brake_front = jnp.minimum(brake * values["brake_bias"], cap_front + drive_front * ahead)
    brake_rear = jnp.minimum(brake * (1.0 - values["brake_bias"]), cap_rear + drive_rear * ahead)
    used_front = _share(drive_front - brake_front * ahead, front.peak * load_front)
    used_rear = _share(drive_rear - brake_rear * ahead, rear.peak * load_rear)

    sin, cos = jnp.sin(angle), jnp.cos(angle)
    side = vy + a * yaw_rate
    along = vx * cos + side * sin
    # A tyre makes no force at its shift; what it slides at is measured from there.
    still_front, still_rear = front.shift * along, rear.shift * vx
    k_front = _secant(front, along, side * cos - vx * sin - still_front, load_front, used_front)
    k_rear = _secant(rear, vx, vy - b * yaw_rate - still_rear, load_rear, used_rear)

    # [vy, yaw rate] at the end: (I / h + K) [vy, r] = [vy, r] / h + forces that do not depend on them.
    inertia = values["inertia"] * a * b
    kf, kr = k_front * cos * cos, k_rear
    m11, m12 = 1.0 / h + kf + kr, vx + a * kf - b * kr
    m21, m22 = a * kf - b * kr, inertia / h + a * a * kf + b * b * kr
    push_front = k_front * cos * (sin * vx + still_front) + (drive_front - brake_front * ahead) * sin
    push_rear = k_rear * still_rear
    right1 = vy / h + push_front + push_rear
    right2 = inertia * yaw_rate / h + a * push_front - b * push_rear
    determinant = m11 * m22 - m12 * m21
    vy, yaw_rate = (m22 * right1 - m12 * right2) / determinant, (m11 * right2 - m21 * right1) / determinant

    cornering = k_front * sin * (cos * (vy + a * yaw_rate) - still_front)
    force = vy * yaw_rate + drive_front * cos + drive_rear + cornering
    rate = (brake_front + brake_rear) / actuators.soft_abs(vx, 0.3) + k_front * sin * sin
    vx = (vx + h * force) / (1.0 + h * (rate + actuators.resistance(values, vx)))
    return vx, vy, yaw_rate


def _secant(axle: Axle, u, w, load, used):
    return lateral_secant(u, w, load, axle.peak, used, axle.stiffness, axle.shape, axle.curvature)


def _share(force, limit):
    return jnp.clip(force / limit, -CIRCLE, CIRCLE)
