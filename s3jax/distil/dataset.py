"""Recordings as arrays: episodes, their split, and the windows that training draws."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from s3jax.archive import FileError
from s3jax.dynamics.base import Statistics
from s3jax.dynamics.store import check_compatible
from s3jax.source.base import WHEELS
from s3jax.source.recording import SUFFIX, read_recording
from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.state import VehicleState


class Episode(NamedTuple):
    """One uninterrupted drive. Row k is the state at t_k and what is applied from t_k to t_k + dt.

    Attributes:
      name: tells episodes apart.
      dt: (s).
      states: fields [T].
      controls: [T, 2] steer, pedal.
      frictions: [T, 2] multipliers under the front and rear axle.
      vehicle: data sheet of the car, as recorded; empty if unknown.
      track: name of the road, as recorded; empty if unknown.
    """

    name: str
    dt: float
    states: VehicleState
    controls: np.ndarray
    frictions: np.ndarray
    vehicle: dict
    track: str = ""


class Rows(NamedTuple):
    """Rows of episodes, one after the other, or a stretch of them.

    Attributes:
      states: fields [...].
      controls: [..., 2].
      frictions: [..., 2].
    """

    states: VehicleState
    controls: jnp.ndarray
    frictions: jnp.ndarray


class Windows(NamedTuple):
    """Where windows may start in `Rows`, and how often each is drawn.

    Attributes:
      starts: [M] first row of each window.
      cumulative: [M] cumulative probability of each.
    """

    starts: jnp.ndarray
    cumulative: jnp.ndarray


class Split(NamedTuple):
    """Episodes by purpose; no episode is in two lists."""

    train: list[Episode]
    validation: list[Episode]
    test: list[Episode]


def load_episodes(directory, dt: float) -> list[Episode]:
    """Reads every recording of a directory.

    Args:
      directory: holds recordings, also in subdirectories.
      dt: control step that they must have (s).

    Raises:
      FileError: if there is none, or one cannot be used.
    """
    paths = sorted(Path(directory).rglob(f"*{SUFFIX}"))
    if not paths:
        raise FileError(f"{directory}: no recordings (*{SUFFIX}) in it; collect some first")
    episodes = []
    for path in paths:
        recording = read_recording(path)
        check_compatible(recording.header, dt, path)
        _check(path, recording.columns)
        if recording.header["rows"]:
            name = path.relative_to(directory).as_posix()
            episode = episode_of(name, dt, recording.columns, recording.header.get("vehicle", {}))
            episodes.append(episode._replace(track=recording.header.get("track", "")))
    return episodes


def episode_of(name: str, dt: float, columns: dict, vehicle: dict) -> Episode:
    """Returns the episode in a recording's columns, name -> [T]."""
    states = VehicleState(*(np.asarray(columns[field], float) for field in VehicleState._fields))
    front = 0.5 * (columns["friction_fl"] + columns["friction_fr"])
    rear = 0.5 * (columns["friction_rl"] + columns["friction_rr"])
    controls = np.stack([columns["steer"], columns["pedal"]], axis=-1)
    return Episode(name, dt, states, controls, np.stack([front, rear], axis=-1), vehicle)


def _check(path, columns: dict) -> None:
    """Raises FileError for columns that no model can be fitted to."""
    wheels = [f"friction_{wheel}" for wheel in WHEELS]
    for name in (*VehicleState._fields, "steer", "pedal", *wheels):
        if name not in columns:
            raise FileError(f"{path}: has no column {name}")
        finite = np.isfinite(columns[name])
        if not finite.all():
            raise FileError(f"{path}: {name} is not finite in row {int(np.argmin(finite))}")
        if name in wheels and len(finite) and columns[name].min() <= 0:
            raise FileError(f"{path}: {name} is not positive in row {int(np.argmin(columns[name]))}")


def split_episodes(
    episodes: list[Episode], validation: float, test: float, seed: int = 0, reserved=()
) -> Split:
    """Splits by episode, evenly over surfaces and independently of the order given.

    Args:
      episodes: with distinct names.
      validation: fraction to validate on.
      test: fraction to keep apart.
      seed: another seed gives another split.
      reserved: tracks whose episodes are all kept apart, beside the fraction.

    Raises:
      FileError: if a list would be empty.
    """
    kept = [episode for episode in episodes if episode.track in reserved]
    episodes = [episode for episode in episodes if episode.track not in reserved]

    def order(episode):
        digest = hashlib.sha256(f"{seed}/{episode.name}".encode()).hexdigest()
        return surface_of(episode.frictions), digest

    lists: tuple[list[Episode], ...] = ([], [], [])
    shares = (1.0 - validation - test, validation, test)
    due = [0.0, 0.0, 0.0]
    for episode in sorted(episodes, key=order):
        # Each list is owed its fraction of every episode; the most indebted one gets it whole.
        due = [owed + share for owed, share in zip(due, shares, strict=True)]
        chosen = max(range(3), key=lambda i: due[i])
        due[chosen] -= 1.0
        lists[chosen].append(episode)
    split = Split(*lists)
    for name, share in zip(Split._fields, shares, strict=True):
        if share > 0 and not getattr(split, name):
            raise FileError(f"{len(episodes)} episodes are too few: none is left for {name}")
    return split._replace(test=split.test + sorted(kept, key=order))


def tracks_of(split: Split) -> list[str]:
    """Returns the tracks that a fit sees."""
    return sorted({episode.track for episode in (*split.train, *split.validation)})


def identity(episode: Episode) -> str:
    """Returns the episode's name and a digest of its rows; recordings of other seeds share names."""
    digest = hashlib.sha256()
    for array in (*episode.states, episode.controls, episode.frictions):
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"{episode.name}@{digest.hexdigest()[:16]}"


def surface_of(frictions) -> str:
    """Returns the name of the surface of a stretch [T, 2], or `transition` if it changes."""
    low, high = float(np.min(frictions)), float(np.max(frictions))
    if high > 1.25 * low:
        return "transition"
    for bound, name in ((0.2, "ice"), (0.45, "snow"), (0.65, "gravel"), (0.85, "wet")):
        if high < bound:
            return name
    return "asphalt"


def join(episodes: list[Episode]) -> tuple[Rows, np.ndarray]:
    """Puts episodes one after the other on the device.

    Returns:
      The rows, with positions relative to each episode's first, and the episode index [N] of each row.
    """
    fields = []
    for name in VehicleState._fields:
        columns = [getattr(episode.states, name) for episode in episodes]
        if name in ("x", "y"):
            columns = [column - column[0] for column in columns]
        fields.append(jnp.asarray(np.concatenate(columns), jnp.float32))
    rows = Rows(
        VehicleState(*fields),
        jnp.asarray(np.concatenate([e.controls for e in episodes]), jnp.float32),
        jnp.asarray(np.concatenate([e.frictions for e in episodes]), jnp.float32),
    )
    return rows, np.repeat(np.arange(len(episodes)), [len(e.controls) for e in episodes])


def window_starts(index: np.ndarray, length: int, stride: int = 1) -> np.ndarray:
    """Returns the rows [M] from which `length` rows lie in one episode.

    Args:
      index: [N] episode of each row, in runs.
      length: rows of a window.
      stride: rows between starts.
    """
    if len(index) < length:
        return np.zeros(0, int)
    starts = np.arange(0, len(index) - length + 1, stride)
    return starts[index[starts] == index[starts + length - 1]]


def balanced_windows(rows: Rows, index: np.ndarray, warmup: int, horizon: int) -> Windows:
    """Finds all windows and weights them so that rare speeds, slips and surfaces are drawn more often.

    A window's weight is the inverse square root of how many share its bin of speed, of sideways motion
    and of surface, all taken after the warm-up.

    Args:
      rows: all rows.
      index: [N] episode of each row.
      warmup: rows of history.
      horizon: steps predicted, which needs one more row.

    Raises:
      FileError: if every episode is too short.
    """
    starts = window_starts(index, warmup + horizon + 1)
    if not len(starts):
        raise FileError(f"no episode is as long as the {warmup + horizon + 1} rows of a training window")
    after = starts[:, None] + warmup + np.arange(horizon + 1)
    vx, vy, rate = (np.asarray(getattr(rows.states, name))[after] for name in ("vx", "vy", "yaw_rate"))
    friction = np.asarray(rows.frictions)[after]
    speed = np.digitize(np.hypot(vx, vy).mean(1), (1.0, 6.0, 12.0, 20.0, 30.0))
    use = np.abs(vx * rate).max(1) / (9.81 * friction.min((1, 2)))
    sideways = np.digitize(use, (0.2, 0.5, 0.8)) + 4 * (np.abs(vy).max(1) > 0.15 * np.abs(vx).max(1) + 0.5)
    surface = 2 * np.digitize(friction.min((1, 2)), (0.2, 0.45, 0.85))
    surface = surface + (friction.max((1, 2)) > 1.25 * friction.min((1, 2)))
    _, which, count = np.unique((speed * 8 + sideways) * 8 + surface, return_inverse=True, return_counts=True)
    weight = 1.0 / np.sqrt(count[which])
    return Windows(jnp.asarray(starts), jnp.asarray(np.cumsum(weight) / weight.sum(), jnp.float32))


def take(rows: Rows, starts, length: int) -> Rows:
    """Returns the windows of `length` rows from each start: fields [len(starts), length, ...]."""
    where = starts[:, None] + jnp.arange(length)
    return Rows(
        VehicleState(*(field[where] for field in rows.states)), rows.controls[where], rows.frictions[where]
    )


def statistics_of(rows: Rows, index: np.ndarray, dt: float) -> Statistics:
    """Returns the spread of a training split's body states and of their inertial increments."""
    vx, vy, rate, angle = (
        np.asarray(getattr(rows.states, name), float) for name in ("vx", "vy", "yaw_rate", "steer_angle")
    )
    body = np.stack([vx, vy, rate, angle])
    inner = index[1:] == index[:-1]
    increments = np.stack(
        [np.diff(vx) - dt * (vy * rate)[:-1], np.diff(vy) + dt * (vx * rate)[:-1], np.diff(rate)]
    )[:, inner]
    return Statistics(
        mean=body.mean(1),
        std=np.maximum(body.std(1), 1e-3),
        increment=np.maximum(np.sqrt((increments**2).mean(1)), 1e-4),
    )


def yaw_error(predicted, truth):
    """Returns the size of a heading error [...] (rad)."""
    return abs(wrap_angle(predicted - truth))
