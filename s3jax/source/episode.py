"""Driving and recording one episode of a collection."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.source.car import EmbeddedCar
from s3jax.source.drivers import (
    Driver,
    LimitDriver,
    Manoeuvre,
    Noisy,
    PreviewConfig,
    PreviewDriver,
    RandomDriver,
    speed_limits,
)
from s3jax.source.recording import RecordingWriter
from s3jax.source.vehicle import Vehicle
from s3jax.spatial.friction import SURFACES, FrictionMap, friction_map
from s3jax.spatial.reference import Reference
from s3jax.tracks import (
    Track,
    TrackError,
    ice_patches,
    lap_reference,
    load_track,
    point_at_arc,
    speed_profile,
    track_friction,
)

_SPEED_GRID = 12
_FREE_DRIVERS = {"manoeuvres": Manoeuvre, "random": RandomDriver, "limit": LimitDriver}


class Setting(NamedTuple):
    """A track with a surface: its friction, and speed profiles [G, N] (m/s) at usages [G] of the limit."""

    track: Track
    friction: FrictionMap
    usages: np.ndarray
    speeds: np.ndarray


class Tracks:
    """The settings of a collection, each prepared once.

    Args:
      episodes: of the collection. config: its configuration. vehicle: its car.

    Raises:
      ConfigError: for an entry of the mix that cannot be driven.
    """

    def __init__(self, episodes, config, vehicle: Vehicle):
        from beamng_bridge.bundle import load_bundle

        self._settings, self._policies = {}, {}
        mixes = dict.fromkeys(episode.mix for episode in episodes if episode.mix.driver not in _FREE_DRIVERS)
        try:
            for mix in mixes:
                if mix.policy:
                    self._policies[mix.policy] = load_bundle(mix.policy, config.dt)
                key = (mix.track, mix.surface)
                if key not in self._settings:
                    self._settings[key] = _setting(*key, vehicle)
        except (TrackError, FileError) as error:
            raise ConfigError(f"mix: {error}") from None

    def of(self, mix) -> Setting:
        """Returns the setting of episodes that follow a track."""
        return self._settings[(mix.track, mix.surface)]

    def follower(self, mix, reference: Reference, vehicle: Vehicle, dt: float) -> Driver:
        """Returns the driver of episodes that follow a track."""
        if not mix.policy:
            return PreviewDriver(reference, dt, PreviewConfig.of(vehicle))
        from s3jax.evaluation.closed_loop import PolicyDriver

        return PolicyDriver(self._policies[mix.policy], reference)


def _setting(track_name: str, surface: str, vehicle: Vehicle) -> Setting:
    track = load_track(track_name)
    friction = ice_patches(track) if surface == "ice_patches" else friction_map(surface)
    usages = np.linspace(0.3, 1.2, _SPEED_GRID)
    lowest = track_friction(track, friction)
    speeds = [
        speed_profile(track.curvature, track.spacing, lowest, speed_limits(vehicle, usage), track.closed)
        for usage in usages
    ]
    return Setting(track, friction, usages, np.stack(speeds))


def record_episode(episode, config, vehicle: Vehicle, tracks: Tracks, directory) -> str:
    """Drives one episode and records it.

    Returns:
      The recording's name.
    """
    mix, dt = episode.mix, config.dt
    rng = np.random.default_rng(episode.seed)
    car = EmbeddedCar(vehicle, config.substep, config.abs, config.traction_control)
    steps = max(1, round(mix.duration * config.scale / dt))
    if mix.driver in _FREE_DRIVERS:
        driver, friction, pose, speed = _roam(mix, car.vehicle, rng, dt)
    else:
        driver, friction, pose, speed = _follow(tracks, mix, car.vehicle, rng, dt, steps)
    noise = rng.uniform(*mix.noise)
    if noise > 0:
        driver = Noisy(driver, 0.3 * noise, noise, rng, dt)
    car.set_friction(friction)
    reading = car.reset(pose, speed if mix.start_speed is None else rng.uniform(*mix.start_speed))
    driver.reset(reading)
    header = {
        "vehicle": car.vehicle.dump(),
        "substep": config.substep,
        "driver": mix.driver,
        "policy": mix.policy,
        "track": mix.track,
        "surface": mix.surface,
        "seed": list(episode.seed),
    }
    with RecordingWriter(Path(directory) / episode.name, dt, header) as writer:
        for _ in range(steps):
            control = driver.control(reading)
            writer.append(reading, control)
            reading = car.step(control, dt)
    return episode.name


def _follow(tracks: Tracks, mix, vehicle, rng, dt, steps) -> tuple[Driver, FrictionMap, tuple, float]:
    """A follower from a random place of a track."""
    setting = tracks.of(mix)
    usage = np.clip(rng.uniform(*mix.usage), setting.usages[0], setting.usages[-1])
    track = setting.track
    k = min(int(np.searchsorted(setting.usages, usage, side="right")) - 1, len(setting.usages) - 2)
    share = (usage - setting.usages[k]) / (setting.usages[k + 1] - setting.usages[k])
    speed = setting.speeds[k] + share * (setting.speeds[k + 1] - setting.speeds[k])
    start = float(rng.uniform(0.0, track.length)) if track.closed else 0.0
    laps = steps * dt * float(speed.max()) / track.length if track.closed else 1.0
    reference = lap_reference(track, speed, dt, laps, start)
    place = point_at_arc(track, start)
    pose = (float(place.x), float(place.y), float(place.yaw))
    driver = tracks.follower(mix, reference, vehicle, dt)
    return driver, setting.friction, pose, float(reference.samples[0, 3])


def _roam(mix, vehicle, rng, dt) -> tuple[Driver, FrictionMap, tuple, float]:
    """A free driver on the plane."""
    friction = _patchwork(rng) if mix.surface == "patchwork" else friction_map(mix.surface)
    driver = _FREE_DRIVERS[mix.driver](vehicle, float(friction.base), rng, dt, mix.speed)
    speed = float(rng.uniform(*mix.speed)) * (rng.random() < 0.8)
    return driver, friction, (0.0, 0.0, float(rng.uniform(-math.pi, math.pi))), speed


def _patchwork(rng, count: int = 120, reach: float = 400.0) -> FrictionMap:
    """A road of one friction with oblong patches of others strewn about."""
    patches = []
    for _ in range(count):
        centre, angle = rng.uniform(-reach, reach, 2), rng.uniform(0, math.pi)
        half = np.array([rng.uniform(10.0, 50.0), rng.uniform(1.5, 20.0)])
        corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * half
        cos, sin = math.cos(angle), math.sin(angle)
        patches.append((corners @ np.array([[cos, sin], [-sin, cos]]) + centre, rng.choice(list(SURFACES))))
    return friction_map(rng.choice(["asphalt", "asphalt", "wet", "snow"]), patches)
