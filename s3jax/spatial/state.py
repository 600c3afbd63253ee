"""The vehicle state that every part shares, and the meaning of a control."""

from typing import Any, NamedTuple

STATE_DEFINITION = "cog_iso8855_v1"
"""Names the definition of `VehicleState`; stored with recordings, models and policies."""

CONTROL_DEFINITION = "steer_left_pedal_v1"
"""Names the meaning of a control: [steer, pedal] in [-1, 1]; steer +1 is full left, pedal < 0 brakes."""


class VehicleState(NamedTuple):
    """Planar state of a car (SI units, ISO 8855: x forward, y left, yaw counter-clockwise).

    Velocities are those of the centre of gravity projected to the road.

    Attributes:
      x: [...] world position (m).
      y: [...] world position (m).
      yaw: [...] heading (rad).
      vx: [...] forward velocity in the body frame (m/s).
      vy: [...] leftward velocity in the body frame (m/s).
      yaw_rate: [...] (rad/s).
      steer_angle: [...] measured mean road-wheel angle (rad), positive left.
    """

    x: Any
    y: Any
    yaw: Any
    vx: Any
    vy: Any
    yaw_rate: Any
    steer_angle: Any
