"""Driving a source simulator along a reference, with a policy or any other driver. NumPy."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beamng_bridge.bundle import Policy
from s3jax.archive import FileError, load_archive, save_archive
from s3jax.progress import Progress, silent
from s3jax.source.base import SourceSimulator, VehicleReading
from s3jax.source.drivers import Driver
from s3jax.spatial.control import apply_action
from s3jax.spatial.metrics import tracking_metrics
from s3jax.spatial.observation import initial_history, observe, update_history
from s3jax.spatial.reference import Reference, advance, point_at, tracking_error

SPIN = math.radians(60.0)
"""Sideslip or heading error (rad) beyond which the car counts as having spun."""

FINISHED, LEFT_TRACK, SPUN, TIMED_OUT = "finished", "left the track", "spun", "timed out"


class PolicyDriver:
    """Drives a reference with a policy bundle."""

    def __init__(self, policy: Policy, reference: Reference):
        self._policy, self._reference = policy, reference

    def reset(self, reading: VehicleReading) -> None:
        """Places the cursor at the start of the reference, with neutral controls behind it."""
        self._policy.reset()
        self._cursor = 0.0
        self._history = initial_history(self._policy.spec.observation, reading.state)
        self._applied = None

    def control(self, reading: VehicleReading) -> np.ndarray:
        """Observes, acts and returns the control [2]."""
        spec, state = self._policy.spec, reading.state
        if self._applied is not None:
            self._history = update_history(self._history, state, self._applied)
            self._cursor = advance(self._reference, self._cursor, state.x, state.y)
        friction = np.mean(reading.friction)  # as the road is known; only looked at if the policy is told it
        observation = observe(spec.observation, self._reference, self._cursor, state, self._history, friction)
        previous = np.zeros(2) if self._applied is None else self._applied
        self._applied = apply_action(previous, self._policy(observation), spec.control_rate, spec.dt)
        return self._applied


class Log(NamedTuple):
    """What happened in a drive; arrays [T], one row per control step.

    Attributes:
      columns: name -> [T]: `time` (s); the state after the step `x`, `y`, `yaw`, `vx`, `vy`, `yaw_rate`,
        `steer_angle`; the control held during it `steer`, `pedal`, and what the car's actuators had reached
        of it at its end `steer_reached`, `pedal_reached`; `ax`, `ay` (m/s^2); `friction` (mean under the
        wheels); `cursor`, `reference_speed` (m/s), and the errors `cross_track` (m), `heading`
        (rad), `speed` (m/s).
      end: why the drive ended: "finished", "left the track", "spun" or "timed out".
      completion: share of the reference that was driven.
      dt: control step (s).
    """

    columns: dict
    end: str
    completion: float
    dt: float

    def metrics(self) -> dict:
        """Returns `tracking_metrics` as floats, with `completion` and `time` (s).

        Smoothness is that of the control as commanded, and as the car reached it with `reached_` before the
        name; `steer_gap_rms` and `pedal_gap_rms` are the RMS differences of the two.
        """
        c = self.columns
        control, reached = (
            np.stack([c[f"steer{which}"], c[f"pedal{which}"]], axis=-1) for which in ("", "_reached")
        )
        mask = np.ones(len(c["time"]), bool)
        errors = (c["cross_track"], c["heading"], c["speed"])
        found = tracking_metrics(*errors, control, mask, self.dt)
        smoothness = tracking_metrics(*errors, reached, mask, self.dt)
        for name in ("steer_rate_rms", "pedal_rate_rms"):
            found[f"reached_{name}"] = smoothness[name]
        gaps = np.sqrt(np.mean((control - reached) ** 2, axis=0))
        found |= {"steer_gap_rms": gaps[0], "pedal_gap_rms": gaps[1]}
        metrics = {name: float(value) for name, value in found.items()}
        return {"completion": self.completion, "time": float(c["time"][-1])} | metrics

    def save(self, path: str | Path) -> None:
        """Writes the log to one `.npz`."""
        header = {"end": self.end, "completion": self.completion, "dt": self.dt}
        save_archive(path, "drive_log", 2, header, self.columns)

    @classmethod
    def load(cls, path: str | Path) -> "Log":
        """Reads a log.

        Raises:
          FileError: if the file is not a drive log.
        """
        header, columns = load_archive(path, "drive_log", 2)
        try:
            return cls(columns, header["end"], header["completion"], header["dt"])
        except KeyError as error:
            raise FileError(f"{path}: incomplete drive log ({error})") from None


def drive(
    simulator: SourceSimulator,
    driver: Driver,
    reference: Reference,
    *,
    dt: float,
    max_angle: float,
    half_width: float,
    max_time: float,
    probe: Callable[[], dict] = dict,
    progress: Progress = silent,
) -> Log:
    """Drives a reference from its first sample until its end or a mishap.

    Args:
      simulator: the car, with its road's friction set.
      driver: drives it.
      reference: what to follow; the car starts on it at its speed.
      dt: control step (s).
      max_angle: mean road-wheel angle of the car at full steer (rad).
      half_width: cross-track error (m) beyond which the car has left the track.
      max_time: simulated seconds after which the drive is given up.
      probe: called after each step; returns further columns of the log.
      progress: called with the seconds of the reference done and in all.
    """
    start = point_at(reference, 0.0)
    reading = simulator.reset((float(start.x), float(start.y), float(start.yaw)), float(start.speed))
    driver.reset(reading)
    cursor, rows, end, began = 0.0, [], TIMED_OUT, reading.time
    last = reference.length - 1
    for _ in range(math.ceil(max_time / dt)):
        control = np.asarray(driver.control(reading), float)
        reading = simulator.step(control, dt)
        state = reading.state
        cursor = advance(reference, cursor, state.x, state.y)
        point = point_at(reference, cursor)
        error = tracking_error(point, state)
        rows.append(
            {
                "time": reading.time - began,
                **state._asdict(),
                "steer": control[0],
                "pedal": control[1],
                "steer_reached": state.steer_angle / max_angle,
                "pedal_reached": reading.throttle - reading.brake,
                "ax": reading.ax,
                "ay": reading.ay,
                "friction": np.mean(reading.friction),
                "cursor": cursor,
                "reference_speed": point.speed,
                **error._asdict(),
                **probe(),
            }
        )
        progress(min(cursor, last) * dt, last * dt)
        slip = abs(math.atan2(state.vy, abs(state.vx))) if math.hypot(state.vx, state.vy) > 2.0 else 0.0
        if cursor >= last:
            end = FINISHED
        elif not abs(error.cross_track) <= half_width:
            end = LEFT_TRACK
        elif slip > SPIN or abs(error.heading) > SPIN:
            end = SPUN
        else:
            continue
        break
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    return Log(columns, end, float(min(cursor / last, 1.0)), dt)
