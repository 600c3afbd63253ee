"""Recording in lock-step, with a scripted driver or a policy at the wheel."""

from pathlib import Path

import numpy as np

from beamng_bridge.bundle import load_bundle
from beamng_bridge.config import BridgeConfig
from beamng_bridge.record import numbered
from beamng_bridge.simulator import BeamNGCar
from s3jax.evaluation.closed_loop import PolicyDriver, drive
from s3jax.evaluation.drive import half_width, make_course, reference
from s3jax.progress import Progress, silent
from s3jax.source.base import VehicleReading
from s3jax.source.drivers import LimitDriver, Manoeuvre, PreviewDriver, RandomDriver
from s3jax.source.recording import RecordingWriter
from s3jax.source.vehicle import load_vehicle
from s3jax.spatial.friction import friction_map, friction_value

FREE = {"scripted": Manoeuvre, "random": RandomDriver, "limit": LimitDriver}
"""Drivers that roam the plane around the track's start."""

DRIVERS = (*FREE, "baseline", "policy")

ROOM = 250.0
"""Metres from the start at which a roaming car is put back, into a new recording."""

SPEED = (3.0, 22.0)
"""Span of speeds of roaming drivers (m/s)."""

DT = 0.05
"""Control step of all drivers but policies, which bring their own (s)."""


class _Recorded:
    """A car whose readings and controls go to a recording."""

    def __init__(self, car: BeamNGCar, writer: RecordingWriter):
        self._car, self._writer = car, writer

    def reset(self, pose, speed=0.0) -> VehicleReading:
        self._reading = self._car.reset(pose, speed)
        return self._reading

    def step(self, control, dt: float) -> VehicleReading:
        self._writer.append(self._reading, control)
        self._reading = self._car.step(control, dt)
        return self._reading


def record_driver(
    car: BeamNGCar,
    config: BridgeConfig,
    kind: str,
    path: str | Path,
    seconds: float,
    condition: str = "dry",
    bundle: str | Path | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Path]:
    """Drives and records until some simulated seconds have passed.

    A roaming driver is put back where it started when it has gone far; a follower laps the track, and begins
    a new lap when it has finished, spun or left the road. Each time a new recording begins.

    Args:
      car: of an open session.
      config: of the bridge; `drive` says which track.
      kind: one of `DRIVERS`.
      path: the first recording, `.rec`; further ones have -2, -3, ... before the ending.
      seconds: of simulated time in all.
      condition: of the road, as for laps; roaming drivers take a surface, or dry.
      bundle: of the policy.
      seed: of roaming drivers.
      progress: called with seconds done and in all.

    Returns:
      The recordings.
    """
    header = {
        "source": "BeamNG",
        "driver": kind,
        "vehicle": {},
        "surface": {"condition": condition},
        "alignment": config.alignment.dump(),
        "level": config.session.level,
        "model": config.session.model,
        "seed": seed,
    }
    if kind in FREE:
        dt, episode = _roaming(car, config, kind, condition, seed)
    else:
        dt, episode = _following(car, config, condition, bundle)
    paths, done = [], 0.0
    while done < seconds - 1e-9:
        paths.append(numbered(path, len(paths) + 1))
        with RecordingWriter(paths[-1], dt, header) as writer:
            done += episode(_Recorded(car, writer), seconds - done)
        progress(min(done, seconds), seconds, paths[-1].name)
    return paths


def _roaming(car, config, kind, condition, seed):
    """Returns the control step, and a function that drives for at most some seconds and returns how many."""
    friction = friction_value("asphalt" if condition == "dry" else condition)
    car.set_friction(friction_map(friction))
    vehicle, rng = load_vehicle(config.drive.vehicle), np.random.default_rng(seed)
    driver = FREE[kind](vehicle, friction, rng, DT, SPEED)

    def episode(recorded, seconds):
        reading = recorded.reset((0.0, 0.0, 0.0), float(rng.uniform(*SPEED)))
        driver.reset(reading)
        while reading.time < seconds and np.hypot(reading.state.x, reading.state.y) < ROOM:
            reading = recorded.step(driver.control(reading), DT)
        return reading.time

    return DT, episode


def _following(car, config, condition, bundle):
    """The same for a lap of the track, with a policy if there is a bundle."""
    policy = load_bundle(bundle) if bundle else None
    dt = policy.spec.dt if policy else DT
    course = make_course(config.drive)
    line = reference(config.drive, course, condition, 0, dt)
    car.set_friction(course.roads[condition])
    if policy:
        driver = PolicyDriver(policy, line)
    else:
        driver = PreviewDriver(line, dt, config.drive.preview(max_angle=car.max_angle))
    limits = {"max_angle": car.max_angle, "half_width": half_width(course.track)}

    def episode(recorded, seconds):
        log = drive(recorded, driver, line, dt=dt, max_time=seconds, **limits)
        return float(log.columns["time"][-1])

    return dt, episode
