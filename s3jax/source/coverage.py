"""Which states recordings have reached: speed by use of the grip by friction, in minutes."""

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from s3jax.config import Config
from s3jax.source.base import WHEELS
from s3jax.source.vehicle import GRAVITY

SPEEDS = (0.0, 3.0, 10.0, 20.0, 30.0)
"""Lower bounds of the speed bins (m/s); the last is open."""
USES = ("mild", "brisk", "limit", "sliding")
"""Bins of how the grip is used: below 0.4 and 0.75 of friction times gravity, above, slip beyond the peak."""
FRICTIONS = {"asphalt": 0.85, "wet, gravel": 0.45, "snow": 0.2, "ice": 0.0}
"""Bins of the lowest friction under a wheel, by lower bound."""


def _known(target):
    for key in target:
        friction, _, use = key.partition("/")
        if friction not in FRICTIONS or use not in USES:
            raise ValueError(
                f"{key!r}: expected a friction of {list(FRICTIONS)}, a slash and a use of {USES}"
            )
    return target


Target = Annotated[dict[str, Annotated[float, Field(ge=0)]], AfterValidator(_known)]
_TARGET = {
    "asphalt/mild": 4.0,
    "asphalt/brisk": 2.0,
    "asphalt/limit": 0.5,
    "asphalt/sliding": 0.5,
    "wet, gravel/brisk": 0.3,
    "snow/mild": 1.0,
    "snow/limit": 0.3,
    "snow/sliding": 0.5,
    "ice/mild": 0.5,
    "ice/sliding": 0.5,
}


class CoverageConfig(Config):
    """Minutes that recordings should hold.

    Attributes:
      target: minutes by friction and use, such as `snow/limit`.
    """

    target: Target = _TARGET


class Coverage(NamedTuple):
    """Coverage of recordings.

    Attributes:
      minutes: [frictions, uses, speeds].
      missing: target -> minutes short of it.
    """

    minutes: np.ndarray
    missing: dict[str, float]

    def table(self) -> str:
        """Returns the minutes as text, one line per friction and use, and what is missing."""
        bounds = [f"{low:.0f}-{high:.0f}" for low, high in zip(SPEEDS, SPEEDS[1:], strict=False)]
        lines = [
            f"{'minutes at m/s':>24}" + "".join(f"{b:>8}" for b in [*bounds, f"{SPEEDS[-1]:.0f}+", "all"])
        ]
        for i, friction in enumerate(FRICTIONS):
            for j, use in enumerate(USES):
                row = [*self.minutes[i, j], self.minutes[i, j].sum()]
                lines.append(f"{friction + ' ' + use:>24}" + "".join(f"{value:8.2f}" for value in row))
        for key, minutes in self.missing.items():
            lines.append(f"short of the target {key}: {minutes:.2f} min")
        return "\n".join(lines)


def coverage_of(recordings, config: CoverageConfig) -> Coverage:
    """Counts the minutes of recordings by friction, use of the grip and speed.

    A row slides when the slip of any wheel is beyond the peak of the tyre: more than 0.25 along, or more
    than 0.15 rad across above 3 m/s.
    """
    minutes = np.zeros((len(FRICTIONS), len(USES), len(SPEEDS)))
    for recording in recordings:
        c = recording.columns
        if not len(c["t"]):
            continue
        friction, ratio, angle = (
            np.stack([c[f"{name}_{wheel}"] for wheel in WHEELS])
            for name in ("friction", "slip_ratio", "slip_angle")
        )
        lowest = friction.min(axis=0)
        speed = np.hypot(c["vx"], c["vy"])
        used = np.hypot(c["ax"], c["ay"]) / (GRAVITY * friction.mean(axis=0))
        sliding = (speed > 1.0) & (
            (np.abs(ratio).max(axis=0) > 0.25) | ((np.abs(angle).max(axis=0) > 0.15) & (speed > 3.0))
        )
        use = np.where(sliding, 3, np.digitize(used, (0.4, 0.75)))
        surface = len(FRICTIONS) - 1 - np.digitize(lowest, sorted(FRICTIONS.values())[1:])
        np.add.at(minutes, (surface, use, np.digitize(speed, SPEEDS) - 1), recording.header["dt"] / 60)
    missing = {}
    for key, wanted in config.target.items():
        friction, _, use = key.partition("/")
        have = minutes[list(FRICTIONS).index(friction), USES.index(use)].sum()
        if have < wanted:
            missing[key] = float(wanted - have)
    return Coverage(minutes, missing)
