"""What a driver is, and noise on one."""

from typing import Protocol

import numpy as np

from s3jax.source.base import VehicleReading


class Driver(Protocol):
    """Chooses a control once per control step."""

    def reset(self, reading: VehicleReading) -> None:
        """Begins an episode."""

    def control(self, reading: VehicleReading) -> np.ndarray:
        """Returns control [steer, pedal] in [-1, 1] for the next control step."""


class Drift:
    """Correlated noise (an Ornstein-Uhlenbeck process) with unit variance, [size].

    Args:
      rng: source of randomness.
      time_constant: (s).
      dt: control step (s).
    """

    def __init__(self, rng: np.random.Generator, time_constant: float, dt: float, size: int = 2):
        self._rng, self._size = rng, size
        self._keep = np.exp(-dt / time_constant)
        self._value = rng.standard_normal(size)

    def sample(self) -> np.ndarray:
        """Returns the next value [size]."""
        kick = np.sqrt(1.0 - self._keep**2) * self._rng.standard_normal(self._size)
        self._value = self._keep * self._value + kick
        return self._value


class Noisy:
    """Another driver with correlated noise on its controls.

    Args:
      driver: the other driver.
      steer: standard deviation of the noise. pedal: likewise.
      rng: source of randomness.
      dt: control step (s).
      time_constant: of the noise (s).
    """

    def __init__(
        self, driver: Driver, steer: float, pedal: float, rng, dt: float, time_constant: float = 0.4
    ):
        self._driver, self._scale = driver, np.array([steer, pedal])
        self._drift = Drift(rng, time_constant, dt)

    def reset(self, reading: VehicleReading) -> None:
        self._driver.reset(reading)

    def control(self, reading: VehicleReading) -> np.ndarray:
        control = self._driver.control(reading) + self._scale * self._drift.sample()
        return np.clip(control, -1.0, 1.0)
