"""Between BeamNG's world and ours. The only module of the bridge that knows a BeamNG sign or axis.

BeamNG: metres, z up, right-handed, x and y horizontal. `control(steering)` and `steering_input` are + right,
but `electrics.steering`, in degrees at the steering wheel, is + left. A vehicle's `pos` and `vel` belong to
its reference node, not to its centre of gravity. Ours: ISO 8855, and the state of the centre of gravity.
"""

import math

import numpy as np
from pydantic import Field

from s3jax.config import Config
from s3jax.spatial.frames import to_body, to_world
from s3jax.spatial.state import VehicleState


class Alignment(Config):
    """Where a track lies in a level: level = rotation by `yaw` of track, then shift by `x`, `y`.

    Attributes:
      x: (m). y: (m). yaw: (rad).
      z: height at which cars are placed (m).
    """

    x: float = 0.0
    y: float = 0.0
    yaw: float = 0.0
    z: float = 0.2


class Mounting(Config):
    """What of a BeamNG vehicle the frames depend on.

    Attributes:
      forward: from the reference node to the centre of gravity, along the car (m).
      left: the same, to the left (m).
      wheel_lock: turn of the steering wheel from straight to full lock (deg).
      max_angle: mean road-wheel angle at full lock (rad).
    """

    forward: float = 0.0
    left: float = 0.0
    wheel_lock: float = Field(450.0, gt=0)
    max_angle: float = Field(0.6, gt=0, lt=1.5)


def game_inputs(control) -> dict[str, float]:
    """Returns BeamNG's `steering` (+ right), `throttle` and `brake` for a control [steer, pedal].

    Raises:
      ValueError: if the control is not finite. Values beyond [-1, 1] are clipped.
    """
    steer, pedal = (float(value) for value in control)
    if not (math.isfinite(steer) and math.isfinite(pedal)):
        raise ValueError(f"control [{steer}, {pedal}] is not finite and was not sent")
    steer, pedal = min(max(steer, -1.0), 1.0), min(max(pedal, -1.0), 1.0)
    return {"steering": -steer, "throttle": max(pedal, 0.0), "brake": max(-pedal, 0.0)}


def our_control(electrics: dict) -> np.ndarray:
    """Returns the control [steer, pedal] that the game has received, from its electrics."""
    return np.array(
        [
            -float(electrics["steering_input"]),
            float(electrics["throttle_input"]) - float(electrics["brake_input"]),
        ]
    )


def heading(direction) -> float:
    """Returns the yaw (rad) of a car whose `dir` is given."""
    return math.atan2(direction[1], direction[0])


def placement(pose, alignment: Alignment, mounting: Mounting):
    """Returns the `pos` and `rot_quat` of a teleport that puts the centre of gravity at a pose on the track.

    Args:
      pose: x (m), y (m), yaw (rad) on the track.
      alignment: of the track. mounting: of the car.
    """
    x, y, yaw = (float(value) for value in pose)
    level_x, level_y = to_world(x, y, alignment.yaw)
    yaw += alignment.yaw
    back_x, back_y = to_world(mounting.forward, mounting.left, yaw)
    turn = -(yaw + math.pi / 2) / 2  # identity faces -y, and the game's quaternion turns clockwise
    return (
        (float(level_x + alignment.x - back_x), float(level_y + alignment.y - back_y), alignment.z),
        (0.0, 0.0, math.sin(turn), math.cos(turn)),
    )


def vehicle_state(
    state: dict, electrics: dict, yaw_rate: float, alignment: Alignment, mounting: Mounting
) -> VehicleState:
    """Returns our state, on the track, of what the sensors State and Electrics said.

    Args:
      state: with `pos`, `dir` and `vel`.
      electrics: with `steering`.
      yaw_rate: (rad/s), which the game does not send.
      alignment: of the track. mounting: of the car.
    """
    yaw = heading(state["dir"])
    ahead_x, ahead_y = to_world(mounting.forward, mounting.left, yaw)
    x, y = to_body(
        state["pos"][0] + ahead_x - alignment.x, state["pos"][1] + ahead_y - alignment.y, alignment.yaw
    )
    vx, vy = to_body(state["vel"][0], state["vel"][1], yaw)
    return VehicleState(
        x=float(x),
        y=float(y),
        yaw=yaw - alignment.yaw,
        vx=float(vx - yaw_rate * mounting.left),
        vy=float(vy + yaw_rate * mounting.forward),
        yaw_rate=yaw_rate,
        steer_angle=float(electrics["steering"]) / mounting.wheel_lock * mounting.max_angle,
    )


def turn_rate(headings, times) -> float:
    """Returns the yaw rate (rad/s) now, from the latest headings at their times (s), newest last.

    One-sided difference of second order from three headings, of first order from two, zero from one.
    """
    h, t = np.unwrap(headings[-3:]), times[-3:]
    if len(h) < 2:
        return 0.0
    last = float(h[-1] - h[-2]) / (t[-1] - t[-2])
    if len(h) == 2:
        return last
    before = float(h[1] - h[0]) / (t[1] - t[0])
    return last + (last - before) * (t[2] - t[1]) / (t[2] - t[0])


def measured_mounting(state: dict, centre, mounting: Mounting) -> Mounting:
    """Returns a mounting with the offset from the reference node (`pos`) to a centre of gravity (m)."""
    forward, left = to_body(centre[0] - state["pos"][0], centre[1] - state["pos"][1], heading(state["dir"]))
    return mounting.model_copy(update={"forward": float(forward), "left": float(left)})


def fitted_alignment(track_points, level_points, z: float = 0.2, tolerance: float = 0.5) -> Alignment:
    """Returns the alignment that maps points of the track onto points of the level: no scale, no mirror.

    Least squares (Umeyama, 1991, without scale).

    Args:
      track_points: [N, 2] (m), at least three.
      level_points: [N, 2] the same points in the level (m).
      z: height at which cars are placed (m).
      tolerance: largest distance left over (m).

    Raises:
      ValueError: if there are too few points, or one is left further away than the tolerance.
    """
    a, b = np.asarray(track_points, float), np.asarray(level_points, float)
    if a.shape != b.shape or a.ndim != 2 or a.shape[1] != 2 or len(a) < 3:
        raise ValueError(
            f"alignment needs two lists of at least 3 points, got shapes {a.shape} and {b.shape}"
        )
    mean_a, mean_b = a.mean(axis=0), b.mean(axis=0)
    p, q = a - mean_a, b - mean_b
    yaw = math.atan2(float(np.sum(p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0])), float(np.sum(p * q)))
    moved = np.stack(to_world(a[:, 0], a[:, 1], yaw), axis=1)
    shift = mean_b - np.stack(to_world(*mean_a, yaw))
    left = np.hypot(*(moved + shift - b).T)
    if not left.max() <= tolerance:
        raise ValueError(
            f"point {int(left.argmax())} is {left.max():.2f} m off after alignment, more than "
            f"{tolerance:g} m: is it the same place on track and level, or is the level scaled or mirrored?"
        )
    return Alignment(x=float(shift[0]), y=float(shift[1]), yaw=yaw, z=z)
