"""Many embedded cars at once, on all cores: the baseline for training directly in the source."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s3jax.source.base import SourceError
from s3jax.source.fleet import Fleet, check_controls, fitted_vehicle
from s3jax.source.vehicle import Vehicle
from s3jax.spatial.friction import FrictionMap
from s3jax.spatial.state import VehicleState


class BatchReading(NamedTuple):
    """What N cars report.

    Attributes:
      time: [N] since each car's reset (s).
      state: fields [N].
      ax: [N] mean over the control step (m/s^2). ay: [N].
      friction: [N, 4] multiplier under each wheel. load: [N, 4] (N).
    """

    time: np.ndarray
    state: VehicleState
    ax: np.ndarray
    ay: np.ndarray
    friction: np.ndarray
    load: np.ndarray


class CarBatch:
    """N independent cars of one kind on one road. Car by car the same bits as `EmbeddedCar`.

    Args:
      count: of cars.
      vehicle: as for `EmbeddedCar`, like `substep`, `abs` and `traction_control`.
      threads: that step them; 0 is one per core. None of them holds the interpreter's lock.
    """

    def __init__(
        self,
        count: int,
        vehicle: str | Path | Vehicle = "sedan",
        substep: float = 0.001,
        abs: bool | None = None,
        traction_control: bool | None = None,
        threads: int = 0,
    ):
        if count < 1:
            raise SourceError(f"count of cars is {count}; expected at least 1")
        self._fleet = Fleet(fitted_vehicle(vehicle, abs, traction_control), substep, count)
        threads = min(threads or os.cpu_count(), count)
        self._bounds = np.linspace(0, count, threads + 1).astype(int)
        self._pool = ThreadPoolExecutor(threads)
        self.reset(np.arange(count), np.zeros((count, 3)), np.zeros(count))

    def __len__(self) -> int:
        return len(self._fleet.data)

    def set_friction(self, friction: FrictionMap) -> None:
        """Sets the road's friction."""
        self._fleet.set_friction(friction)

    def reset(self, which, poses, speeds) -> BatchReading:
        """Resets some cars.

        Args:
          which: [K] their indices.
          poses: [K, 3] x (m), y (m), yaw (rad).
          speeds: [K] (m/s).

        Raises:
          SourceError: for a pose or a speed out of range; cars before it in the list are reset.
        """
        for n, pose, speed in zip(which, poses, speeds, strict=True):
            self._fleet.place(int(n), pose, speed)
        return self.reading()

    def step(self, controls, dt: float) -> BatchReading:
        """Holds controls [N, 2] for dt seconds.

        Raises:
          SourceError: for a control or a dt that cannot be used; the states are unchanged.
        """
        count = self._fleet.substeps(dt)
        controls = check_controls(controls, (len(self), 2))
        jobs = [
            self._pool.submit(self._fleet.run, controls, count, int(first), int(last))
            for first, last in zip(self._bounds, self._bounds[1:], strict=False)
        ]
        for job in jobs:
            job.result()
        return self.reading()

    def reading(self) -> BatchReading:
        """Returns what the cars report now."""
        fleet = self._fleet
        motion = fleet.motion()
        return BatchReading(
            time=fleet.actuators["substeps"] * fleet.substep,
            state=VehicleState(*motion[:, :7].T),
            ax=fleet.actuators["mean_ax"].copy(),
            ay=fleet.actuators["mean_ay"].copy(),
            friction=fleet.tyres["friction"].copy(),
            load=fleet.tyres["load"].copy(),
        )

    def energy(self, n: int) -> tuple[float, float]:
        """Returns the mechanical energy of car n and the work put in since its reset (J)."""
        return self._fleet.energy(n)

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()
