"""The protocol that a source simulator (the embedded car, BeamNG) fills."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from s3jax.errors import UserError
from s3jax.spatial.friction import FrictionMap
from s3jax.spatial.state import VehicleState

WHEELS = ("fl", "fr", "rl", "rr")


class SourceError(UserError):
    """A source simulator was asked for something it cannot do; the message names it and its range."""


class VehicleReading(NamedTuple):
    """What a source simulator reports at the end of a control step. Wheels in the order FL, FR, RL, RR.

    Attributes:
      time: simulated time since reset (s).
      state: planar vehicle state.
      ax: forward acceleration in the body frame, mean over the control step (m/s^2).
      ay: leftward acceleration in the body frame, mean over the control step (m/s^2).
      roll: (rad). pitch: (rad).
      wheel_speed: [4] spin (rad/s), positive forward.
      friction: [4] friction multiplier under each wheel.
      slip_ratio: [4] longitudinal slip. slip_angle: [4] (rad).
      load: [4] vertical tyre force (N).
      throttle: [0, 1] and brake: [0, 1] as achieved by the lagged actuators.
      gear: 1 is first gear. engine_speed: (rad/s).
    """

    time: float
    state: VehicleState
    ax: float
    ay: float
    roll: float
    pitch: float
    wheel_speed: np.ndarray
    friction: np.ndarray
    slip_ratio: np.ndarray
    slip_angle: np.ndarray
    load: np.ndarray
    throttle: float
    brake: float
    gear: int
    engine_speed: float


class SourceSimulator(Protocol):
    """A high-fidelity vehicle simulator, stepped in control intervals."""

    def reset(self, pose: tuple[float, float, float], speed: float = 0.0) -> VehicleReading:
        """Places the car at pose x (m), y (m), yaw (rad), rolling forward at speed (m/s)."""

    def set_friction(self, friction: FrictionMap) -> None:
        """Sets the road's friction."""

    def step(self, control, dt: float) -> VehicleReading:
        """Holds control [steer, pedal] in [-1, 1] for dt seconds."""

    def get_state(self) -> Any:
        """Returns the exact simulation state."""

    def set_state(self, state: Any) -> None:
        """Restores what `get_state` returned, to the bit."""

    def close(self) -> None:
        """Releases the simulator."""
