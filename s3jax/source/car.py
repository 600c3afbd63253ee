"""The embedded source simulator: one multi-body car on brush tyres."""

from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np

from s3jax.source.base import SourceError, VehicleReading
from s3jax.source.fleet import Fleet, check_controls, fitted_vehicle
from s3jax.source.vehicle import Vehicle
from s3jax.spatial.friction import FrictionMap


class CarState(NamedTuple):
    """Everything that changes while a car drives; `EmbeddedCar.set_state` restores it to the bit.

    Attributes:
      qpos: [17]. qvel: [16] of the multi-body model.
      actuators: [] record. tyres: [4] records. bristles: [4, 2, rows].
    """

    qpos: np.ndarray
    qvel: np.ndarray
    actuators: np.ndarray
    tyres: np.ndarray
    bristles: np.ndarray


class EmbeddedCar:
    """The default source simulator; fills `s3jax.source.base.SourceSimulator`.

    Args:
      vehicle: a name (`sedan`, `hatchback`, `van`), a YAML file or a `Vehicle`.
      substep: of the integration (s); control steps are multiples of it.
      abs: turns the anti-lock brakes on or off; None leaves it to the vehicle.
      traction_control: likewise.

    Raises:
      ConfigError: for a vehicle that cannot be used.
      SourceError: for a substep out of range.
    """

    def __init__(
        self,
        vehicle: str | Path | Vehicle = "sedan",
        substep: float = 0.001,
        abs: bool | None = None,
        traction_control: bool | None = None,
    ):
        self._fleet = Fleet(fitted_vehicle(vehicle, abs, traction_control), substep, 1)
        self.reset()

    @property
    def vehicle(self) -> Vehicle:
        """The parameters."""
        return self._fleet.vehicle

    @property
    def substep(self) -> float:
        """Step of the integration (s)."""
        return self._fleet.substep

    def reset(self, pose=(0.0, 0.0, 0.0), speed: float = 0.0) -> VehicleReading:
        """Places the car at pose x (m), y (m), yaw (rad), rolling at speed (m/s), backward if negative.

        Raises:
          SourceError: for a pose or a speed out of range; the state is unchanged.
        """
        self._fleet.place(0, pose, speed)
        return self._fleet.reading(0)

    def set_friction(self, friction: FrictionMap) -> None:
        """Sets the road's friction, evaluated under each wheel at each substep."""
        self._fleet.set_friction(friction)

    def step(self, control, dt: float) -> VehicleReading:
        """Holds control [steer, pedal] in [-1, 1] for dt seconds.

        Raises:
          SourceError: for a control or a dt that cannot be used; the state is unchanged.
        """
        count = self._fleet.substeps(dt)
        self._fleet.run(check_controls(control, (2,))[None], count)
        return self._fleet.reading(0)

    def get_state(self) -> CarState:
        """Returns the exact state. The road's friction is a setting, not part of it."""
        fleet, data = self._fleet, self._fleet.data[0]
        return CarState(
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            actuators=fleet.actuators[0].copy(),
            tyres=fleet.tyres[0].copy(),
            bristles=fleet.bristles[0].copy(),
        )

    def set_state(self, state: CarState) -> None:
        """Restores what `get_state` returned, to the bit.

        Raises:
          SourceError: for a state that is not finite; the present one is kept.
        """
        fleet, data = self._fleet, self._fleet.data[0]
        if not (np.isfinite(state.qpos).all() and np.isfinite(state.qvel).all()):
            raise SourceError("state: expected finite qpos and qvel")
        mujoco.mj_resetData(fleet.model, data)
        data.qpos[:], data.qvel[:] = state.qpos, state.qvel
        fleet.actuators[0], fleet.tyres[0], fleet.bristles[0] = state.actuators, state.tyres, state.bristles

    def energy(self) -> tuple[float, float]:
        """Returns the mechanical energy and the work put in since the reset (J); see `Fleet.energy`."""
        return self._fleet.energy(0)

    def close(self) -> None:
        """Releases nothing: the car lives in memory only."""
