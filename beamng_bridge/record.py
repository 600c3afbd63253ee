"""Recording while a human drives in the game, and making recordings of the journal.

The game is neither paused nor stepped. It is polled as fast as it answers, which is once per frame, and what
it says goes to a journal as it comes. `convert` interpolates that to the control step, as the same files that
the embedded car records.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from beamng_bridge import frames
from beamng_bridge.config import BridgeConfig, session_mounting
from beamng_bridge.frames import Alignment, Mounting
from beamng_bridge.journal import JournalWriter, read_journal
from beamng_bridge.session import Session, SessionError
from s3jax.archive import FileError
from s3jax.progress import Progress, silent
from s3jax.source.base import VehicleReading
from s3jax.source.recording import RecordingWriter
from s3jax.spatial.state import VehicleState

GAP = 0.25
"""Simulated seconds between two answers beyond which a new recording begins."""

LEAP = 3.0
"""Metres that speed does not explain beyond which the car was put elsewhere: a new recording begins."""

SHORTEST = 20
"""Rows below which a stretch is not worth a recording."""

PATIENCE = 20.0
"""Seconds of wall time after which a game that stands still ends a recording."""

_FIELDS = ("x", "y", "yaw", "vx", "vy", "steer_angle", "steer", "pedal", "throttle", "brake", "rpm", "gear")


def record_human(
    session: Session, config: BridgeConfig, path: str | Path, seconds: float, progress: Progress = silent
) -> dict:
    """Writes a journal until some simulated seconds have passed, or Ctrl-C.

    Args:
      session: attached to the running game.
      config: of the bridge.
      path: the journal, `.jsonl`.
      seconds: of simulated time.
      progress: called with seconds done and in all.

    Returns:
      `polls_per_second` and `real_time_factor`. Below 0.98 the machine could not keep up.

    Raises:
      SessionError: if the game stalls or vanishes; the journal holds what came before.
      FileError: if the journal exists already.
    """
    mounting = session_mounting(session, config)
    state, electrics = session.poll()
    header = {
        "config": config.model_copy(update={"mounting": mounting}).dump(),
        "level": config.session.level,
        "wall_time": time.time(),
    }
    polls, first = 0, float(state["time"])
    began = moved = time.monotonic()
    with JournalWriter(path, header) as journal:
        try:
            while float(state["time"]) - first < seconds:
                journal.append(state, electrics)
                progress(float(state["time"]) - first, seconds)
                before, (state, electrics) = state["time"], session.poll()
                polls += 1
                moved = time.monotonic() if state["time"] != before else moved
                if time.monotonic() - moved > PATIENCE:
                    raise SessionError(f"the game has stood still for {PATIENCE:g} s: is it paused?")
        except KeyboardInterrupt:
            pass  # how a human ends a recording
    wall = max(time.monotonic() - began, 1e-9)
    return {"polls_per_second": polls / wall, "real_time_factor": (float(state["time"]) - first) / wall}


def convert(
    journal_path: str | Path,
    path: str | Path,
    overrides: tuple[str, ...] | list[str] = (),
    friction: float = 1.0,
    dt: float = 0.05,
) -> list[Path]:
    """Makes recordings of a journal: one, or several if the car was put elsewhere or time jumped in between.

    Args:
      journal_path: the journal, whole or cut off.
      path: the first recording, `.rec`; further ones have -2, -3, ... before the ending.
      overrides: what should be otherwise than in the bridge's configuration when the journal was written,
        such as `mounting.wheel_lock=540`.
      friction: multiplier that the road is said to have.
      dt: control step (s).

    Returns:
      The recordings. The last one of a journal that was cut off is marked as cut short.

    Raises:
      FileError: if the journal cannot be used or holds less than a second.
      ConfigError: if an override does not fit.
    """
    journal = read_journal(journal_path)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "bridge.yaml"
        BridgeConfig.parse(journal.header.get("config", {}), source=str(journal_path)).save(base)
        config = BridgeConfig.load(base, overrides)
    mounting, stretches = config.mounting, []
    try:
        for times, samples in _stretches(journal.samples, config.alignment, mounting):
            rows = _rows(times, samples, dt)
            if len(rows) >= SHORTEST:
                stretches.append(rows)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"{journal_path}: a sample makes no sense ({type(error).__name__}: {error})"
        ) from None
    if not stretches:
        raise FileError(f"{journal_path}: holds less than a second of driving")
    header = {
        "source": "BeamNG",
        "driver": "human",
        "vehicle": {},
        "surface": {"friction": friction},
        "alignment": config.alignment.dump(),
        "mounting": mounting.dump(),
        "level": journal.header.get("level"),
        "wall_time": journal.header.get("wall_time"),
        "journal": Path(journal_path).name,
        "ended": journal.ended,
    }
    paths = []
    for number, rows in enumerate(stretches, 1):
        paths.append(numbered(path, number))
        with RecordingWriter(paths[-1], dt, header) as writer:
            for k in range(1, len(rows) - 1):
                writer.append(*_reading(k * dt, *rows[k - 1 : k + 2], dt, friction, mounting))
            writer.close(complete=number < len(stretches) or journal.ended is not None)
    return paths


def numbered(path: str | Path, number: int) -> Path:
    """Returns the path of the n-th of several recordings."""
    path = Path(path)
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _stretches(samples: list[dict], alignment: Alignment, mounting: Mounting):
    """Yields times [K] and values [K, fields] of stretches in which neither time nor place jumps."""
    times, values, yaw = [], [], None
    for sample in samples:
        state, electrics = sample["state"], sample["electrics"]
        now = frames.vehicle_state(state, electrics, 0.0, alignment, mounting)
        at = float(state["time"])
        if times and at == times[-1]:
            continue  # the same frame again
        if times:
            step = at - times[-1]
            moved = np.hypot(now.x - values[-1][0], now.y - values[-1][1])
            leapt = moved - step * max(np.hypot(now.vx, now.vy), np.hypot(*values[-1][3:5]))
            if not 0.0 < step <= GAP or leapt > LEAP:
                yield np.array(times), np.array(values)
                times, values, yaw = [], [], None
        yaw = now.yaw if yaw is None else float(np.unwrap([yaw, now.yaw])[1])
        steer, pedal = frames.our_control(electrics)
        more = [float(electrics.get(name, np.nan)) for name in ("throttle", "brake", "rpm", "gear_index")]
        times.append(at)
        values.append([now.x, now.y, yaw, now.vx, now.vy, now.steer_angle, steer, pedal, *more])
    if times:
        yield np.array(times), np.array(values)


def _rows(times, values, dt) -> np.ndarray:
    """Returns the values [T, fields] every dt, interpolated."""
    at = times[0] + dt * np.arange(int((times[-1] - times[0]) / dt + 1e-9) + 1)
    return np.stack([np.interp(at, times, column) for column in values.T], axis=1)


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
        gear=round(np.nan_to_num(value["gear"])),
        engine_speed=value["rpm"] * np.pi / 30,
    )
    return reading, [(value[name] + will[name]) / 2 for name in ("steer", "pedal")]
