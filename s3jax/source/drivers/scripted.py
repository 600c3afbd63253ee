"""Drivers that excite the car rather than follow anything: manoeuvres, random controls, slides."""

import math

import numpy as np

from s3jax.source.base import VehicleReading
from s3jax.source.drivers.base import Drift
from s3jax.source.drivers.preview import PreviewConfig
from s3jax.source.vehicle import GRAVITY, Vehicle


def _chirp(t):
    return math.sin(2 * math.pi * (0.2 * t + 0.15 * t * t))


# Of each manoeuvre: seconds, and the steer (as a share of its amplitude) and the pedal (of its own; None
# holds the speed) at a time t, of which `u` is the share of the duration; `f` is a frequency (Hz).
MANOEUVRES = {
    "step": (5.0, lambda t, u, f: (float(u < 0.7), None)),
    "ramp": (7.0, lambda t, u, f: (u, None)),
    "sine": (6.0, lambda t, u, f: (math.sin(2 * math.pi * f * t), None)),
    "chirp": (7.0, lambda t, u, f: (_chirp(t), None)),
    "double_lane_change": (5.0, lambda t, u, f: (math.sin(4 * math.pi * u) * (u < 0.9), None)),
    "brake_in_turn": (5.0, lambda t, u, f: (1.0, None if u < 0.5 else -1.0)),
    "throttle_in_turn": (6.0, lambda t, u, f: (1.0, None if u < 0.4 else 1.0)),
    "lift_in_turn": (5.0, lambda t, u, f: (1.0, None if u < 0.5 else 0.0)),
    "launch": (6.0, lambda t, u, f: (0.1 * math.sin(2 * math.pi * f * t), 1.0)),
    "stop": (6.0, lambda t, u, f: (0.05 * math.sin(2 * math.pi * f * t), -1.0)),
    "pedal_square": (8.0, lambda t, u, f: (0.1, math.copysign(1.0, math.sin(2 * math.pi * f * t)))),
    "coast": (6.0, lambda t, u, f: (0.3 * math.sin(2 * math.pi * f * t), 0.0)),
}
"""The scripted manoeuvres by name."""


class _Car:
    """What the drivers here know about their car: how much steer and pedal a request takes."""

    def __init__(self, vehicle: Vehicle, friction: float):
        self._numbers = PreviewConfig.of(vehicle)
        self._grip = 0.5 * friction * GRAVITY
        self._integral = 0.0

    def steer_for(self, lateral: float, speed: float) -> float:
        """Steer that asks for a lateral acceleration (m/s^2) at a speed (m/s)."""
        numbers = self._numbers
        angle = math.atan(numbers.wheelbase * lateral / max(speed, 3.0) ** 2) + numbers.understeer * lateral
        return angle / numbers.max_angle

    def hold(self, speed: float, target: float, dt: float) -> float:
        """Pedal that holds a speed (m/s), or reaches it without spinning the driven wheels on the whole."""
        error = target - speed
        self._integral = min(max(self._integral + 0.08 * error * dt, -0.2), 0.6)
        pedal = 0.25 * error + self._integral
        full = min(self._numbers.drive, self._numbers.power / max(speed, 1.0))
        return min(pedal, self._numbers.engine_drag + self._grip / full) if pedal > 0 else 0.3 * pedal


class Manoeuvre:
    """Drives manoeuvres of random strength one after the other, each after an approach at a steady speed.

    Args:
      vehicle: the car.
      friction: of the road on the whole, by which strengths are scaled.
      rng: source of randomness.
      dt: control step (s).
      speed: span of approach speeds (m/s).
      strength: span of the lateral acceleration asked, as a share of what friction allows.
      names: of the manoeuvres to draw from.
    """

    def __init__(
        self,
        vehicle: Vehicle,
        friction: float,
        rng: np.random.Generator,
        dt: float,
        speed: tuple[float, float] = (5.0, 32.0),
        strength: tuple[float, float] = (0.2, 1.3),
        names: tuple[str, ...] = tuple(MANOEUVRES),
    ):
        self._car, self._friction, self._rng, self._dt = _Car(vehicle, friction), friction, rng, dt
        self._spans, self._names, self._order = (speed, strength), names, []

    def reset(self, reading: VehicleReading) -> None:
        self._order = []
        self._begin(reading)

    def _begin(self, reading: VehicleReading) -> None:
        rng = self._rng
        if not self._order:
            self._order = list(rng.permutation(self._names))
        name = self._order.pop()
        self._duration, self._shape = MANOEUVRES[name]
        speed, strength = (rng.uniform(*span) for span in self._spans)
        self._target = 0.0 if name == "launch" and rng.random() < 0.6 else speed
        self._lateral = strength * self._friction * GRAVITY * rng.choice([-1.0, 1.0])
        self._pedal = rng.uniform(0.2, 1.0) * (1.0 if rng.random() < 0.3 else self._friction**0.5)
        self._frequency = math.exp(rng.uniform(math.log(0.15), math.log(1.2)))
        self._approach, self._start = rng.uniform(1.0, 4.0), reading.time

    def control(self, reading: VehicleReading) -> np.ndarray:
        t, speed = reading.time - self._start, reading.state.vx
        hold = self._car.hold(speed, self._target, self._dt)
        if t < self._approach:
            steer = -0.1 * reading.state.yaw_rate
            return np.clip([steer, hold], -1.0, 1.0)
        t -= self._approach
        if t >= self._duration:
            self._begin(reading)
            return np.clip([0.0, hold], -1.0, 1.0)
        share, pedal = self._shape(t, t / self._duration, self._frequency)
        steer = share * self._car.steer_for(self._lateral, max(speed, 0.5 * self._target))
        return np.clip([steer, hold if pedal is None else pedal * self._pedal], -1.0, 1.0)


class RandomDriver:
    """Drives smooth random controls around a speed that is drawn anew from time to time.

    Args:
      vehicle: the car.
      friction: of the road on the whole.
      rng: source of randomness.
      dt: control step (s).
      speed: span of speeds (m/s).
    """

    def __init__(
        self, vehicle: Vehicle, friction: float, rng, dt: float, speed: tuple[float, float] = (0.0, 35.0)
    ):
        self._car, self._span = _Car(vehicle, friction), speed
        self._friction, self._rng, self._dt = friction, rng, dt
        self._slow, self._fast = Drift(rng, 2.0, dt), Drift(rng, 0.25, dt)
        self._target, self._strength = 0.0, 1.0

    def reset(self, reading: VehicleReading) -> None:
        self._draw()

    def _draw(self) -> None:
        self._target, self._strength = self._rng.uniform(*self._span), self._rng.uniform(0.1, 0.8)

    def control(self, reading: VehicleReading) -> np.ndarray:
        if self._rng.random() < self._dt / 6.0:
            self._draw()
        speed = reading.state.vx
        slow, fast = self._slow.sample(), self._fast.sample()
        lateral = self._strength * self._friction * GRAVITY
        steer = self._car.steer_for(lateral, max(abs(speed), 0.5 * self._target)) * (slow[0] + 0.2 * fast[0])
        pedal = self._car.hold(speed, self._target, self._dt) + 0.25 * slow[1] + 0.08 * fast[1]
        return np.clip([steer, pedal], -1.0, 1.0)


class LimitDriver:
    """Throws the car beyond its grip and catches it: turn in too hard, unsettle it, countersteer, go on.

    Args:
      vehicle: the car.
      friction: of the road on the whole.
      rng: source of randomness.
      dt: control step (s).
      speed: span of speeds (m/s).
    """

    def __init__(
        self, vehicle: Vehicle, friction: float, rng, dt: float, speed: tuple[float, float] = (8.0, 30.0)
    ):
        self._car, self._span = _Car(vehicle, friction), speed
        self._friction, self._rng, self._dt = friction, rng, dt
        self._max_angle = vehicle.steering.max_angle

    def reset(self, reading: VehicleReading) -> None:
        self._begin(reading)

    def _begin(self, reading: VehicleReading) -> None:
        rng = self._rng
        self._phase, self._start = "gather", reading.time
        self._target = rng.uniform(*self._span) * max(0.5, self._friction**0.5)
        self._lateral = rng.uniform(0.8, 1.6) * self._friction * GRAVITY * rng.choice([-1.0, 1.0])
        self._pedal = rng.choice([rng.uniform(0.4, 1.0), 0.0, -rng.uniform(0.2, 0.8), np.nan])
        self._angle, self._settle = rng.uniform(0.1, 0.6), rng.uniform(0.6, 2.0)
        self._catch = rng.uniform(0.6, 1.3)

    def control(self, reading: VehicleReading) -> np.ndarray:
        state, t = reading.state, reading.time - self._start
        speed = state.vx
        slide = math.atan2(state.vy, max(abs(speed), 1.0))
        hold = self._car.hold(speed, self._target, self._dt)
        caught = (slide - 0.15 * state.yaw_rate) / self._max_angle * self._catch
        if self._phase == "gather":
            if t > 5.0 or (abs(speed - self._target) < 1.5 and abs(slide) < 0.05 and t > 1.0):
                self._phase, self._start = "throw", reading.time
            return np.clip([caught, hold], -1.0, 1.0)
        if self._phase == "throw":
            if abs(slide) > self._angle or t > 4.0:
                self._phase, self._start = "catch", reading.time
            pedal = hold if t < self._settle or math.isnan(self._pedal) else self._pedal
            return np.clip([self._car.steer_for(self._lateral, max(speed, 5.0)), pedal], -1.0, 1.0)
        if (abs(slide) < 0.04 and abs(state.yaw_rate) < 0.1) or t > 4.0:
            self._begin(reading)
        return np.clip([caught, 0.0 if t < 2.5 else -0.3], -1.0, 1.0)
