"""Recording while a human drives in the game, as the same files that the embedded car records.

The game is neither paused nor stepped. It is polled as fast as it answers, which is once per frame, and what
it says is interpolated to the control step as it comes in; a crash loses at most a second.
"""

import time
from pathlib import Path

import numpy as np

from beamng_bridge import frames
from beamng_bridge.config import BridgeConfig
from beamng_bridge.frames import measured_mounting
from beamng_bridge.session import Session, SessionError
from s3jax.progress import Progress, silent
from s3jax.source.base import VehicleReading
from s3jax.source.recording import RecordingWriter
from s3jax.spatial.state import VehicleState

GAP = 0.25
"""Simulated seconds between two answers beyond which a recording ends."""

PATIENCE = 20.0
"""Seconds of wall time after which a game that stands still ends a recording."""

_FIELDS = ("x", "y", "yaw", "vx", "vy", "steer_angle", "steer", "pedal", "throttle", "brake", "rpm", "gear")


class Resampler:
    """Turns samples at any times into rows every dt, two steps behind.

    Args:
      dt: control step (s).
    """

    def __init__(self, dt: float):
        self._dt, self._last, self._rows, self._count = dt, None, [], 0

    def add(self, sample_time: float, values) -> list:
        """Adds a sample [F]; returns rows that are now complete: time since the first, before, now, after.

        Raises:
          SessionError: if time went back or jumped by more than `GAP`.
        """
        values = np.asarray(values, float)
        if self._last is None:
            self._start, self._last = sample_time, (sample_time, values)
            self._rows.append(values)
            self._count = 1
            return []
        before, old = self._last
        if not 0.0 <= sample_time - before <= GAP:
            raise SessionError(
                f"simulated time went from {before:.3f} s to {sample_time:.3f} s: the game was reset or "
                "stalled; what was recorded until then is kept"
            )
        complete = []
        while self._start + self._count * self._dt <= sample_time and sample_time > before:
            share = (self._start + self._count * self._dt - before) / (sample_time - before)
            self._rows.append(old + share * (values - old))
            self._count += 1
            if len(self._rows) > 3:
                self._rows.pop(0)
            if len(self._rows) == 3:
                complete.append(((self._count - 2) * self._dt, *self._rows))
        self._last = (sample_time, values)
        return complete


def record_human(
    session: Session,
    config: BridgeConfig,
    path: str | Path,
    seconds: float,
    dt: float = 0.05,
    friction: float = 1.0,
    progress: Progress = silent,
) -> dict:
    """Records until some simulated seconds have passed, or Ctrl-C.

    Args:
      session: attached to the running game.
      config: of the bridge.
      path: the recording, `.rec`.
      seconds: of simulated time.
      dt: control step (s).
      friction: multiplier that the road is said to have.
      progress: called with seconds done and in all.

    Returns:
      `rows`, `polls_per_second` and `real_time_factor`. Below 0.98 the machine could not keep up.

    Raises:
      SessionError: if the game is reset, stalls or vanishes; the recording holds what came before, marked
        as cut short.
    """
    state, electrics = session.poll()
    mounting = measured_mounting(state, session.centre_of_gravity(), config.mounting)
    sampler, rows, polls, yaw = Resampler(dt), 0, 0, frames.heading(state["dir"]) - config.alignment.yaw
    began, first = time.monotonic(), float(state["time"])
    moved = began
    header = {
        "source": "BeamNG",
        "driver": "human",
        "vehicle": {},
        "surface": {"friction": friction},
        "alignment": config.alignment.dump(),
        "mounting": mounting.dump(),
        "level": config.session.level,
        "wall_time": time.time(),
    }
    with RecordingWriter(path, dt, header) as writer:
        try:
            while float(state["time"]) - first < seconds:
                now = frames.vehicle_state(state, electrics, 0.0, config.alignment, mounting)
                steer, pedal = frames.our_control(electrics)
                more = [
                    float(electrics.get(name, np.nan)) for name in ("throttle", "brake", "rpm", "gear_index")
                ]
                yaw = float(np.unwrap([yaw, now.yaw])[1])
                sample = [now.x, now.y, yaw, now.vx, now.vy, now.steer_angle, steer, pedal, *more]
                for row in sampler.add(float(state["time"]), sample):
                    reading, control = _reading(*row, dt, friction, mounting)
                    writer.append(reading, control)
                    rows += 1
                progress(float(state["time"]) - first, seconds)
                before, (state, electrics) = state["time"], session.poll()
                polls += 1
                moved = time.monotonic() if state["time"] != before else moved
                if time.monotonic() - moved > PATIENCE:
                    raise SessionError(f"the game has stood still for {PATIENCE:g} s: is it paused?")
        except KeyboardInterrupt:
            pass  # how a human ends a recording
    wall = max(time.monotonic() - began, 1e-9)
    return {
        "rows": rows,
        "polls_per_second": polls / wall,
        "real_time_factor": (float(state["time"]) - first) / wall,
    }


def _reading(since, before, now, after, dt, friction, mounting):
    """Returns the reading in the middle of three rows, and the control from there to the next row."""
    was, value, will = (dict(zip(_FIELDS, row.tolist(), strict=True)) for row in (before, now, after))
    rate = (will["yaw"] - was["yaw"]) / (2 * dt)
    # The samples were converted without a yaw rate: add what it means for the centre of gravity.
    vx, vy = value["vx"] - rate * mounting.left, value["vy"] + rate * mounting.forward
    unknown = np.full(4, np.nan)
    reading = VehicleReading(
        time=since,
        state=VehicleState(value["x"], value["y"], value["yaw"], vx, vy, rate, value["steer_angle"]),
        ax=(will["vx"] - was["vx"]) / (2 * dt) - rate * vy,
        ay=(will["vy"] - was["vy"]) / (2 * dt) + rate * vx,
        roll=np.nan,
        pitch=np.nan,
        wheel_speed=unknown,
        friction=np.full(4, friction),
        slip_ratio=unknown,
        slip_angle=unknown,
        load=unknown,
        throttle=value["throttle"],
        brake=value["brake"],
        gear=round(value["gear"]),
        engine_speed=value["rpm"] * np.pi / 30,
    )
    return reading, [(value[name] + will[name]) / 2 for name in ("steer", "pedal")]
