"""Playing a recording back in the game."""

import time
from pathlib import Path

import numpy as np

from beamng_bridge.simulator import BeamNGCar
from s3jax.archive import FileError
from s3jax.progress import Progress, silent
from s3jax.source.recording import read_recording
from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.friction import friction_map

HORIZONS = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds at which the divergence is reported."""


def replay_controls(
    car: BeamNGCar, path: str | Path, seconds: float = float("inf"), progress: Progress = silent
) -> dict:
    """Starts the car where the recording starts, at its speed, and plays its controls, in lock-step.

    Nothing is corrected, so the divergence shows how far the game's physics, or the setting, is from those
    of the recording. The start itself counts: engine, gear and tyres begin otherwise than they were. Where
    the recording knows the friction under the car and the road can be switched, it is.

    Args:
      car: of an open session, in lock-step.
      path: a recording, `.rec`.
      seconds: to play at most.
      progress: called with seconds done and in all.

    Returns:
      `time`, `position` (m) and `yaw` (rad): lists, the difference from the recording after each step; and
      `at`: horizon (s) -> position (m).

    Raises:
      FileError: if the recording cannot be used.
    """
    recording = read_recording(path)
    c, dt = recording.columns, recording.header["dt"]
    count = min(len(c["t"]), int(seconds / dt) + 1 if np.isfinite(seconds) else len(c["t"]))
    if count < 2:
        raise FileError(f"{path}: fewer than two rows to play")
    friction = np.round(np.mean([c[f"friction_{wheel}"] for wheel in ("fl", "fr", "rl", "rr")], axis=0), 3)
    switch = car.has_surface and bool(np.isfinite(friction).all())
    if switch:
        car.set_friction(friction_map(float(friction[0])))
    car.reset(_pose(c, 0), max(float(c["vx"][0]), 0.0))
    position, yaw = [], []
    for k in range(count - 1):
        if switch:
            car.set_friction(friction_map(float(friction[k])))
        state = car.step([c["steer"][k], c["pedal"][k]], dt).state
        position.append(float(np.hypot(state.x - c["x"][k + 1], state.y - c["y"][k + 1])))
        yaw.append(float(wrap_angle(np.asarray(state.yaw - c["yaw"][k + 1]))))
        progress((k + 1) * dt, (count - 1) * dt)
    times = [dt * (k + 1) for k in range(count - 1)]
    at = {h: position[round(h / dt) - 1] for h in HORIZONS if h <= times[-1] + 1e-9}
    return {"time": times, "position": position, "yaw": yaw, "at": at}


def replay_poses(car: BeamNGCar, path: str | Path, speed: float = 1.0, progress: Progress = silent) -> dict:
    """Puts the car on each recorded pose at the pace of the recording, to look at; the game stays paused.

    Args:
      car: of an open session.
      path: a recording, `.rec`.
      speed: times the pace.
      progress: called with seconds done and in all.

    Returns:
      `at`: empty; `position`: how far the game says the car is from each pose (m), which checks alignment and
      mounting.

    Raises:
      FileError: if the recording cannot be used.
    """
    recording = read_recording(path)
    c, dt = recording.columns, recording.header["dt"]
    if len(c["t"]) < 1:
        raise FileError(f"{path}: holds no rows")
    position, due = [], time.monotonic()
    car.reset(_pose(c, 0), 0.0)
    for k in range(len(c["t"])):
        state = car.show(_pose(c, k))
        position.append(float(np.hypot(state.x - c["x"][k], state.y - c["y"][k])))
        progress((k + 1) * dt, len(c["t"]) * dt)
        due = max(due + dt / speed, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0.0))
    return {"at": {}, "position": position}


def _pose(columns, k) -> tuple[float, float, float]:
    return tuple(float(columns[name][k]) for name in ("x", "y", "yaw"))
