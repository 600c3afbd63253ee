"""A preview driver: pure pursuit with understeer compensation, and speed control inside the friction circle.

It follows a reference by the same cursor as a policy does, so it also serves as the tuned baseline.
"""

import math

import numpy as np
from pydantic import Field

from s3jax.config import Config
from s3jax.source.base import VehicleReading
from s3jax.source.vehicle import GRAVITY, Vehicle
from s3jax.spatial.frames import to_body
from s3jax.spatial.reference import Reference, advance, point_at
from s3jax.tracks.speed import SpeedLimits


class PreviewConfig(Config):
    """Gains and the car's numbers.

    Attributes:
      wheelbase: (m). max_angle: road-wheel angle at full steer (rad).
      understeer: extra road-wheel angle per lateral acceleration (rad s^2/m).
      brake_gain: deceleration at full pedal without limits (m/s^2). power: drive power per mass (W/kg).
      drive: acceleration at full throttle at low speed (m/s^2).
      engine_drag: deceleration of the engine at closed throttle, as a share of what it can drive with.
      front_share: of the brake torque.
      look_distance: preview of the pursuit at standstill (m). look_time: its growth with speed (s).
      heading_gain: steer angle per heading error (rad/rad). cross_gain: per lateral error (rad/m).
      delay: how far ahead the speed and curvature are read (s).
      speed_gain: acceleration asked per speed error (1/s). integral_gain: and per its integral (1/s^2).
      grip: share of the friction circle that throttle and brake may fill.
      sense: whether it feels the friction under its wheels, for that limit; otherwise it takes 1.
    """

    wheelbase: float = Field(2.7, gt=0)
    max_angle: float = Field(0.6, gt=0)
    understeer: float = 0.0020
    brake_gain: float = Field(13.1, gt=0)
    power: float = Field(100.0, gt=0)
    drive: float = Field(6.0, gt=0)
    engine_drag: float = Field(0.08, ge=0)
    look_distance: float = Field(3.0, gt=0)
    look_time: float = Field(0.20, ge=0)
    delay: float = Field(0.15, ge=0)
    speed_gain: float = Field(1.2, ge=0)
    integral_gain: float = Field(0.2, ge=0)
    grip: float = Field(0.9, gt=0)
    sense: bool = True

    @classmethod
    def of(cls, vehicle: Vehicle, **values) -> "PreviewConfig":
        """Returns the configuration for a vehicle."""
        body, driveline = vehicle.body, vehicle.driveline
        first = driveline.ratios[0] * driveline.final_ratio
        facts = {
            "wheelbase": body.wheelbase,
            "max_angle": vehicle.steering.max_angle,
            "brake_gain": vehicle.brakes.max_torque / (body.wheel_radius * body.mass),
            "power": driveline.max_power * driveline.efficiency / body.mass,
            "drive": driveline.max_torque * first / (body.wheel_radius * body.mass),
        }
        return cls(**(facts | values))


def speed_limits(vehicle: Vehicle, usage: float = 0.85) -> SpeedLimits:
    """Returns what a vehicle can be asked to do on friction 1, for a speed profile.

    Args:
      vehicle: the parameters.
      usage: share of it that is used.
    """
    tyre, driveline = vehicle.tyre, vehicle.driveline
    return SpeedLimits(
        lateral=0.75 * tyre.static_friction * GRAVITY,  # what load transfer leaves of the peak
        brake=0.95 * tyre.sliding_friction * GRAVITY,  # so that locking a wheel costs nothing
        power=0.8 * driveline.max_power / vehicle.body.mass,
        usage=usage,
    )


class PreviewDriver:
    """Follows a reference.

    Args:
      reference: what to follow, sampled every `dt`.
      dt: control step (s).
      config: gains and the car's numbers.
    """

    def __init__(self, reference: Reference, dt: float, config: PreviewConfig):
        self._reference, self._dt, self._config = reference, dt, config
        self.cursor = 0.0
        self._integral = 0.0

    def reset(self, reading: VehicleReading) -> None:
        self.cursor, self._integral = 0.0, 0.0

    @property
    def finished(self) -> bool:
        """Whether the reference has been driven to its end."""
        return self.cursor >= self._reference.length - 1

    def control(self, reading: VehicleReading) -> np.ndarray:
        c, state = self._config, reading.state
        self.cursor = float(advance(self._reference, self.cursor, state.x, state.y))
        speed = max(state.vx, 0.0)
        pace = max(float(point_at(self._reference, self.cursor).speed), 1.0)
        look = c.look_distance + c.look_time * speed
        ahead = np.array([c.delay, c.delay + 0.2, look / pace]) / self._dt
        points = point_at(self._reference, self.cursor + ahead)
        friction = float(reading.friction.min()) if c.sense else 1.0
        steer = self._steer(state, points, speed)
        accel = (points.speed[1] - points.speed[0]) / 0.2
        pedal = self._pedal(reading, float(points.speed[0]), float(accel), speed, friction)
        return np.clip(np.array([steer, pedal]), -1.0, 1.0)

    def _steer(self, state, points, speed):
        c = self._config
        # Pure pursuit: the arc that leads the rear axle through the point (Coulter, 1992), and the car's
        # own understeer on that arc.
        rear = 0.5 * c.wheelbase
        x, y = to_body(float(points.x[2]) - state.x, float(points.y[2]) - state.y, state.yaw)
        x = x + rear
        curvature = 2.0 * y / max(x * x + y * y, 1.0)
        angle = math.atan(c.wheelbase * curvature) + c.understeer * curvature * speed * speed
        return angle / c.max_angle

    def _pedal(self, reading, target, accel, speed, friction):
        c, state = self._config, reading.state
        error = target - speed
        ask = accel + c.speed_gain * error + c.integral_gain * self._integral
        # What the friction circle leaves beside the lateral acceleration.
        limit = c.grip * friction * GRAVITY
        used = min(abs(state.yaw_rate * speed) / limit, 1.0)
        sliding = abs(math.atan2(state.vy, max(speed, 3.0))) > 0.12
        room = limit * math.sqrt(1.0 - used * used)
        low, high = -room, (0.0 if sliding else 0.55 * room)
        if low < ask < high:
            self._integral = min(max(self._integral + error * self._dt, -8.0), 8.0)
        ask = min(max(ask, low), high)
        drag = 0.15 + 0.00026 * speed * speed
        full = max(min(c.drive, c.power / max(speed, 1.0)), 0.1)
        # The engine brakes with a share of what it can drive with; only beyond that the brakes are needed.
        force = ask + drag + c.engine_drag * full
        return force / (full * (1.0 + c.engine_drag)) if force >= 0.0 else force / c.brake_gain
