"""What a ground model's coefficients are worth: measured by braking.

A ground model's coefficients multiply with the tyre's own, so they are no friction multipliers by themselves.
Here the car brakes hard from the same speed on the unchanged road, on the road with its coefficients scaled,
and on the road with those of the game's other models. The ratio of the decelerations is the multiplier.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from beamng_bridge.frames import Alignment, Mounting
from beamng_bridge.session import Session, SessionError
from beamng_bridge.simulator import BeamNGCar
from beamng_bridge.surfaces import RoadSurface, ground_models
from s3jax.config import Config
from s3jax.progress import Progress, silent

SCALES = (1.0, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05)
START, HIGH, LOW = 14.0, 10.0, 4.0  # m/s: speed at the brake, and the span that is measured
DT = 0.05
LONGEST = 60.0  # s of braking
LEAST = 0.05  # of the unchanged road's deceleration that a model must leave to be measured

Multiplier = Annotated[float, Field(gt=0)]


class Calibration(Config):
    """What was measured. The unchanged road has multiplier 1.

    Attributes:
      level: where. model: of the car.
      road: ground model that the road is made of.
      deceleration: on the unchanged road (m/s^2).
      scales: pairs of friction multiplier and the scale of the road's coefficients that gives it, ascending.
      models: friction multiplier of each ground model's static and sliding coefficients.
    """

    level: str
    model: str
    road: str
    deceleration: float = Field(gt=0)
    scales: tuple[tuple[float, float], ...] = Field(min_length=2)
    models: dict[str, Multiplier]


def calibrate(
    session: Session, road: str, alignment: Alignment, mounting: Mounting, progress: Progress = silent
) -> Calibration:
    """Brakes on every surface and returns the `Calibration`; restores the road.

    Args:
      session: a loaded scenario with some 250 m of flat, free ground ahead of its track's start.
      road: ground model of that ground.
      alignment: of the track. mounting: of the car.
      progress: called with tests done and in all.

    Raises:
      SessionError: if the road's coefficients make no difference, or the car does not slow down.
    """
    surface = RoadSurface(session, road)
    car = BeamNGCar(session, alignment, mounting)
    models = ground_models(session)
    kinds = sorted({(m["static"], m["sliding"]) for m in models.values() if m["sliding"] > 0.0})
    total = len(SCALES) + len(kinds)
    try:
        braked = []
        for scale in SCALES:
            surface.scale(scale)
            braked.append(_deceleration(car))
            progress(len(braked), total, f"{road} x {scale:g}")
        if not all(weak < strong for strong, weak in zip(braked, braked[1:], strict=False)):
            found = ", ".join(f"{value:.1f}" for value in braked)
            raise SessionError(
                f"the car brakes with {found} m/s^2 where {road} is scaled by "
                f"{', '.join(f'{scale:g}' for scale in SCALES)}: the ground is probably not made of {road}. "
                "Set road=NAME; `surfaces` lists the names"
            )
        worth = {}
        for number, kind in enumerate(kinds, len(SCALES) + 1):
            surface.coefficients(*kind)
            worth[kind] = _deceleration(car) / braked[0]
            progress(number, total, f"{kind[0]:g}, {kind[1]:g}")
    finally:
        if not session.lost:
            surface.restore()
    pairs = [(value / braked[0], scale) for value, scale in zip(braked, SCALES, strict=True)]
    return Calibration(
        level=session.config.level,
        model=session.config.model,
        road=road,
        deceleration=braked[0],
        scales=((0.0, 0.0), *reversed(pairs)),
        models={
            name: worth[m["static"], m["sliding"]]
            for name, m in sorted(models.items())
            if worth.get((m["static"], m["sliding"]), 0.0) > 0.0
        },
    )


def _deceleration(car: BeamNGCar) -> float:
    """Returns the mean deceleration (m/s^2) of full braking from `HIGH` to `LOW` m/s."""
    reading = car.reset((0.0, 0.0, 0.0), START)
    times, speeds = [], []
    while reading.state.vx > LOW:
        if reading.time > LONGEST:
            return 0.0
        reading = car.step([0.0, -1.0], DT)
        if LOW < reading.state.vx < HIGH:
            times.append(reading.time)
            speeds.append(reading.state.vx)
    if len(times) < 3:
        raise SessionError(f"the car stopped from {HIGH:g} m/s within {3 * DT:g} s; did it hit something?")
    return float(-np.polyfit(times, speeds, 1)[0])
