"""The driving stage: laps in a source simulator, by policy and baseline, on any surface."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from beamng_bridge.bundle import load_bundle
from s3jax.archive import atomic_path
from s3jax.config import Config, ConfigError
from s3jax.evaluation.closed_loop import Log, PolicyDriver, drive
from s3jax.evaluation.recorded_lap import recorded_lap
from s3jax.evaluation.table import markdown, summary
from s3jax.progress import Progress, silent
from s3jax.source.base import SourceSimulator
from s3jax.source.drivers import PreviewConfig, PreviewDriver, speed_limits
from s3jax.source.recording import SUFFIX
from s3jax.source.vehicle import load_vehicle
from s3jax.spatial.friction import SURFACES, FrictionMap, friction_map
from s3jax.spatial.reference import Reference
from s3jax.tracks import (
    SpeedLimits,
    Track,
    ice_patches,
    lap_reference,
    load_track,
    putnam_park,
    speed_profile,
    strip,
    track_friction,
)

EMBEDDED = "embedded car"
"""Name of the default simulator in results."""

CAR_HALF_WIDTH = 0.9
"""Half the car's width (m): its centre has to stay this far inside the edge of the track."""

_CLOSE = {"look_distance": 2.0, "look_time": 0.15, "understeer": 0.0025}
_FAR = {"look_distance": 2.5, "look_time": 0.2, "understeer": 0.0025}
TUNED = {"sedan": _CLOSE, "hatchback": _CLOSE, "van": _FAR}
"""The baseline's gains by vehicle: for the sedan the least cross-track error among those that finished both
laps of Putnam Park at 70 and at 85 % of the friction limit, over look distances of 1 to 3 m, look times of
0.1 to 0.6 s and understeer gains of 0.002 and 0.0025 rad s^2/m. The van spins with these; its own are the
best of eight between 2 m, 0.15 s and 4 m, 0.3 s at 85 %. Other vehicles have those of the van."""


class PatchConfig(Config):
    """A slippery stretch of road: from an arc length (m), so long (m), on one side or both."""

    start: float = Field(ge=0)
    length: float = Field(gt=0)
    side: Literal["both", "left", "right"] = "both"
    friction: str | float = "ice"


class DriveConfig(Config):
    """The driving stage."""

    vehicle: str = Field("sedan", description="whose limits the speeds keep; in BeamNG, the most similar one")
    track: str = Field("putnam", description="a circuit by name, a .csv file or a recorded lap (.rec)")
    lap_length: float | None = Field(None, gt=0, description="of putnam (m); without it, the table's")
    road_width: float = Field(9.0, gt=0, description="of a recorded lap (m)")
    patches: tuple[PatchConfig, ...] = Field((), description="of the icy road; putnam brings its own seven")
    pace: Literal["limit", "recorded"] = Field(
        "limit", description="friction-limited, or a recorded lap's own, where the road allows it"
    )
    limits: dict[str, float] = Field(
        {}, description="of the speeds, where not the vehicle's; see SpeedLimits"
    )
    approach: float = Field(0.0, ge=0, description="m before a patch by which its speed is reached")
    baseline: dict[str, float | bool] = Field({}, description="its gains, where not tuned; see PreviewConfig")
    drivers: tuple[Literal["policy", "baseline"], ...] = Field(("policy", "baseline"), min_length=1)
    conditions: tuple[str, ...] = Field(
        ("dry", "icy"), description="dry, icy, or a surface for the whole road: wet, gravel, snow, ice"
    )
    repeats: int = Field(1, ge=1, description="laps of each kind, each from another place of the track")
    max_time: float = Field(400.0, gt=0, description="simulated seconds after which a lap is given up")

    @model_validator(mode="after")
    def _numbers_fit(self):
        self.speed_limits()
        self.preview()
        if self.pace == "recorded" and not self.track.endswith(SUFFIX):
            raise ValueError(f"pace: 'recorded' needs a recorded lap as track, got {self.track!r}")
        return self

    def speed_limits(self) -> SpeedLimits:
        """Returns the limits of the speed profile: the vehicle's, and what is set otherwise."""
        return SpeedLimits.parse(speed_limits(load_vehicle(self.vehicle)).dump() | self.limits, "limits")

    def preview(self, **facts) -> PreviewConfig:
        """Returns the baseline's configuration: the vehicle's numbers, `TUNED`, facts and what is set."""
        vehicle = load_vehicle(self.vehicle)
        own = PreviewConfig.of(vehicle, **TUNED.get(vehicle.name, _FAR)).dump()
        return PreviewConfig.parse(own | facts | self.baseline, "baseline")


class Source(NamedTuple):
    """The simulator that is driven.

    Attributes:
      name: of it, for results.
      car: the simulator.
      max_angle: mean road-wheel angle of its car at full lock (rad).
      probe: returns further columns of each step's log.
    """

    name: str
    car: SourceSimulator
    max_angle: float
    probe: Callable[[], dict] = dict


class Course(NamedTuple):
    """Where is driven: track, friction of its road by condition, and a recorded lap's speed [N]."""

    track: Track
    roads: dict[str, FrictionMap]
    recorded: np.ndarray | None


def drive_laps(
    config: DriveConfig,
    bundle: str | Path,
    directory: str | Path,
    progress: Progress = silent,
    source: Source | None = None,
) -> dict:
    """Drives the laps of each condition and driver; laps already in the folder are not driven again.

    Args:
      config: the stage's configuration.
      bundle: a policy bundle.
      directory: receives `config.yaml`, `policy.npz`, one log `<condition>_<driver>.npz` each,
        `repeats/<condition>_<driver>_<n>.npz` for further ones, and `results.json`.
      progress: called with the seconds done and in all.
      source: what is driven; without it, the embedded car `config.vehicle`.

    Returns:
      What is in `results.json`: `drives`, one entry per lap with `condition`, `driver`, `repeat`, `end`,
      `metrics`; and `table`, a line per condition and driver as Markdown.

    Raises:
      FileError: if the bundle or the track cannot be used.
      ConfigError: for an unknown condition, or a folder with laps of another configuration or policy.
    """
    directory = Path(directory)
    policy = load_bundle(bundle)
    course = make_course(config)
    for condition in config.conditions:
        if condition not in course.roads:
            raise ConfigError(f"conditions: unknown {condition!r}; known are {', '.join(course.roads)}")
    dt = policy.spec.dt
    source = source or _embedded(config)
    laps = [
        (condition, repeat, who)
        for condition in config.conditions
        for repeat in range(config.repeats)
        for who in config.drivers
    ]
    references = {key: reference(config, course, *key, dt) for key in dict.fromkeys(lap[:2] for lap in laps)}
    _claim(directory, config, Path(bundle), source.name)
    total = sum(references[lap[:2]].length for lap in laps) * dt
    driven, drives = 0.0, []
    for condition, repeat, who in laps:
        path = directory / f"{condition}_{who}.npz"
        if repeat:
            path = directory / "repeats" / f"{condition}_{who}_{repeat + 1}.npz"
        line = references[condition, repeat]
        if path.exists():
            log = Log.load(path)
        else:
            if who == "policy":
                driver = PolicyDriver(policy, line)
            else:
                driver = PreviewDriver(line, dt, config.preview(max_angle=source.max_angle))
            source.car.set_friction(course.roads[condition])
            log = drive(
                source.car,
                driver,
                line,
                dt=dt,
                max_angle=source.max_angle,
                half_width=half_width(course.track),
                max_time=config.max_time,
                probe=source.probe,
                progress=lambda done, _, base=driven, note=f"{condition} {who}": progress(
                    base + done, total, note
                ),
            )
            log.save(path)
        driven += line.length * dt
        drives.append(
            {
                "condition": condition,
                "driver": who,
                "repeat": repeat + 1,
                "end": log.end,
                "metrics": log.metrics(),
            }
        )
    results = {
        "simulator": source.name,
        "settings": config.dump(),
        "lap_length": course.track.length,
        "drives": drives,
        "table": markdown(summary(drives)),
    }
    with atomic_path(directory / "results.json") as temporary:
        temporary.write_text(json.dumps(results, indent=2), encoding="utf-8")
    return results


def half_width(track: Track) -> float:
    """Returns the largest cross-track error (m) with the car still on the road."""
    return float(min(track.width_left.min(), track.width_right.min())) - CAR_HALF_WIDTH


def make_course(config: DriveConfig) -> Course:
    """Returns where a configuration drives.

    Raises:
      FileError: if the recording cannot be used. TrackError: if the track or a patch cannot.
    """
    recorded = None
    if config.track.endswith(SUFFIX):
        track, recorded = recorded_lap(config.track, config.road_width)
    elif config.track == "putnam":
        track = putnam_park(config.lap_length)
    else:
        track = load_track(config.track)
    roads = {"dry": friction_map("asphalt")}
    if config.patches:
        sides = {"both": {}, "left": {"right": 0.0}, "right": {"left": 0.0}}
        roads["icy"] = friction_map(
            "asphalt",
            [
                (strip(track, patch.start, patch.start + patch.length, **sides[patch.side]), patch.friction)
                for patch in config.patches
            ],
        )
    elif config.track == "putnam":
        roads["icy"] = ice_patches(track)
    roads |= {name: friction_map(name) for name in SURFACES if name != "asphalt"}
    return Course(track, roads, recorded)


def course(config: DriveConfig) -> tuple[Track, dict[str, FrictionMap]]:
    """Returns the track and the friction of its road in each condition."""
    return make_course(config)[:2]


def reference(config: DriveConfig, course: Course, condition: str, repeat: int, dt: float) -> Reference:
    """Returns what a lap follows.

    Args:
      config: of the stage. course: of it. condition: a key of its roads.
      repeat: 0 starts at the start line, others elsewhere round the track.
      dt: control step (s).
    """
    track, limits = course.track, config.speed_limits()
    lowest = track_friction(track, course.roads[condition], limits.margin)
    reach = round(config.approach / track.spacing)
    if reach:
        ahead = np.concatenate([lowest, lowest[:reach] if track.closed else np.full(reach, lowest[-1])])
        lowest = np.lib.stride_tricks.sliding_window_view(ahead, reach + 1).min(axis=-1)
    speed = speed_profile(track.curvature, track.spacing, lowest, limits, track.closed)
    if config.pace == "recorded":
        speed = course.recorded if condition == "dry" else np.minimum(speed, course.recorded)
    start = track.length * repeat / config.repeats if track.closed else 0.0
    return lap_reference(track, speed, dt, start=start)


def _embedded(config) -> Source:
    from s3jax.source.car import EmbeddedCar  # with MuJoCo and Numba, which driving the game does not need

    car = EmbeddedCar(config.vehicle)
    return Source(EMBEDDED, car, car.vehicle.steering.max_angle)


def _claim(directory: Path, config: DriveConfig, bundle: Path, name: str) -> None:
    """Copies policy and configuration into a new folder, or checks that they are the ones already there."""
    settings, copy, results = (directory / file for file in ("config.yaml", "policy.npz", "results.json"))
    if results.exists() and json.loads(results.read_text(encoding="utf-8"))["simulator"] != name:
        raise ConfigError(f"{directory}: holds laps of another simulator; use another folder")
    if settings.exists() and (
        DriveConfig.load(settings) != config or copy.read_bytes() != bundle.read_bytes()
    ):
        raise ConfigError(f"{directory}: holds laps of another configuration or policy; use another folder")
    if not settings.exists():
        with atomic_path(copy) as temporary:
            temporary.write_bytes(bundle.read_bytes())
        config.save(settings)
