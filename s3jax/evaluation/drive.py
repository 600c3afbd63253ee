"""The driving stage: laps of Putnam Park in the embedded car, by policy and baseline, dry and icy."""

import json
from pathlib import Path

from pydantic import Field

from beamng_bridge.bundle import load_bundle
from s3jax.archive import atomic_path
from s3jax.config import Config, ConfigError
from s3jax.evaluation.closed_loop import Log, PolicyDriver, drive
from s3jax.evaluation.table import markdown
from s3jax.progress import Progress, silent
from s3jax.source.base import SourceSimulator
from s3jax.source.drivers import PreviewConfig, PreviewDriver
from s3jax.source.vehicle import load_vehicle
from s3jax.spatial.friction import FrictionMap, friction_map
from s3jax.tracks.circuits import ice_patches, putnam_park
from s3jax.tracks.reference import lap_reference
from s3jax.tracks.speed import SpeedLimits, lap_speed
from s3jax.tracks.track import Track

EMBEDDED = "embedded car"
"""Name of the default simulator in results."""

CAR_HALF_WIDTH = 0.9
"""Half the car's width (m): its centre has to stay this far inside the edge of the track."""


TUNED = {"look_distance": 2.0, "look_time": 0.15, "understeer": 0.0025}
"""The baseline's gains: the least cross-track error among those that finished both laps of Putnam Park at 70
and at 85 % of the friction limit, over look distances of 1 to 3 m, look times of 0.1 to 0.6 s and understeer
gains of 0.002 and 0.0025 rad s^2/m. Closer looks track better in calm driving, and spin at 85 %."""


class DriveConfig(Config):
    """The driving stage."""

    vehicle: str = "sedan"
    lap_length: float | None = Field(None, gt=0, description="m; without it that of the segment table")
    limits: SpeedLimits = Field(SpeedLimits(), description="friction-limited speed profile of the reference")
    baseline: PreviewConfig | None = Field(None, description="without it, `TUNED`")
    conditions: tuple[str, ...] = Field(("dry", "icy"), description="dry, icy or both")
    max_time: float = Field(400.0, gt=0, description="simulated seconds after which a lap is given up")


def drive_laps(
    config: DriveConfig,
    bundle: str | Path,
    directory: str | Path,
    progress: Progress = silent,
    simulator: SourceSimulator | None = None,
    name: str = EMBEDDED,
) -> dict:
    """Drives one lap per condition and driver; laps already in the folder are not driven again.

    Args:
      config: the stage's configuration.
      bundle: a policy bundle.
      directory: receives `config.yaml`, one log `<condition>_<driver>.npz` each, and `results.json`.
      progress: called with the seconds done and in all.
      simulator: what is driven; without it, the embedded car `config.vehicle`.
      name: of the simulator, for the results.

    Returns:
      What is in `results.json`: `drives`, one entry per lap with `condition`, `driver`, `end`, `metrics`; and
      `table`, the same as Markdown.

    Raises:
      FileError: if the bundle cannot be used.
      ConfigError: for an unknown condition, or a folder with laps of another configuration or policy.
    """
    directory = Path(directory)
    policy = load_bundle(bundle)
    track, roads = course(config)
    for condition in config.conditions:
        if condition not in roads:
            raise ConfigError(f"conditions: unknown {condition!r}; known are {', '.join(roads)}")
    dt = policy.spec.dt
    car = simulator or _embedded_car(config)
    baseline = config.baseline or PreviewConfig.of(load_vehicle(config.vehicle), **TUNED)
    laps = {}
    for condition in config.conditions:
        reference = lap_reference(track, lap_speed(track, roads[condition], config.limits), dt)
        laps[condition, "policy"] = reference, PolicyDriver(policy, reference)
        laps[condition, "baseline"] = reference, PreviewDriver(reference, dt, baseline)
    _claim(directory, config, Path(bundle), name)
    total = sum(float(reference.length) for reference, _ in laps.values()) * dt
    driven, drives = 0.0, []
    half_width = float(min(track.width_left.min(), track.width_right.min())) - CAR_HALF_WIDTH
    for (condition, who), (reference, driver) in laps.items():
        path = directory / f"{condition}_{who}.npz"
        if path.exists():
            log = Log.load(path)
        else:
            car.set_friction(roads[condition])
            log = drive(
                car,
                driver,
                reference,
                dt=dt,
                half_width=half_width,
                max_time=config.max_time,
                progress=lambda done, _, base=driven, note=f"{condition} {who}": progress(
                    base + done, total, note
                ),
            )
            log.save(path)
        driven += reference.length * dt
        drives.append({"condition": condition, "driver": who, "end": log.end, "metrics": log.metrics()})
    results = {
        "simulator": name,
        "settings": config.dump(),
        "lap_length": track.length,
        "drives": drives,
        "table": markdown(drives),
    }
    with atomic_path(directory / "results.json") as temporary:
        temporary.write_text(json.dumps(results, indent=2), encoding="utf-8")
    return results


def course(config: DriveConfig) -> tuple[Track, dict[str, FrictionMap]]:
    """Returns the track and the friction of its road in each condition."""
    track = putnam_park(config.lap_length)
    return track, {"dry": friction_map("asphalt"), "icy": ice_patches(track)}


def _embedded_car(config):
    from s3jax.source.car import EmbeddedCar  # with MuJoCo and Numba, which driving the game does not need

    return EmbeddedCar(config.vehicle)


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
