"""Collecting recordings: a configured mix of drivers, tracks and surfaces, driven on all cores."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from s3jax.config import Config, ConfigError
from s3jax.progress import Progress, silent
from s3jax.source.coverage import CoverageConfig, coverage_of
from s3jax.source.recording import SUFFIX, is_complete, read_recording
from s3jax.source.vehicle import load_vehicle
from s3jax.spatial.friction import friction_value


def _surface(name):
    if name not in ("ice_patches", "patchwork"):
        friction_value(name)
    return name


def _ordered(span):
    if span[0] > span[1]:
        raise ValueError("expected two numbers, the first not above the second")
    return span


Span = Annotated[tuple[float, float], AfterValidator(_ordered)]


class MixConfig(Config):
    """Episodes of one kind.

    Attributes:
      driver: who drives; `preview` and `policy` follow a track, the others roam on `plane`.
      policy: bundle of a policy, for driver `policy`: a second round of data where the policy leads.
      track: a circuit of `s3jax.tracks`, a CSV file, or `plane`, which has no edges.
      surface: a named surface; `ice_patches`, Putnam Park's seven; or `patchwork`, random patches of any
        friction, also under the wheels of one side only.
      episodes: how many. duration: of each (s).
      usage: span of the share of the friction limit that the speed profile of a track uses.
      speed: span of the speeds of the other drivers (m/s).
      start_speed: span (m/s), negative to roll backward; None is the driver's own.
      noise: span of the standard deviation of the noise on steer and pedal.
    """

    driver: Literal["preview", "policy", "manoeuvres", "random", "limit"]
    policy: str = ""
    track: str = "plane"
    surface: Annotated[str, AfterValidator(_surface)] = "asphalt"
    episodes: int = Field(1, ge=0)
    duration: float = Field(30.0, gt=0)
    usage: Span = (0.5, 0.95)
    speed: Span = (3.0, 32.0)
    start_speed: Span | None = None
    noise: Span = (0.0, 0.0)

    @model_validator(mode="after")
    def _fits_together(self):
        if (self.driver == "policy") != bool(self.policy):
            raise ValueError("driver policy needs policy, a bundle, and no other driver takes one")
        if self.driver in ("preview", "policy"):
            if self.track == "plane" or self.surface == "patchwork":
                raise ValueError(f"driver {self.driver} needs a track, without patchwork")
        elif self.track != "plane" or self.surface == "ice_patches":
            raise ValueError(f"driver {self.driver} drives on track plane, without ice_patches")
        return self


def _mix(driver, track, duration, episodes, **more) -> tuple[MixConfig, ...]:
    """Returns one entry per surface, `episodes` being surface -> how many."""
    return tuple(
        MixConfig(driver=driver, track=track, surface=surface, duration=duration, episodes=count, **more)
        for surface, count in episodes.items()
    )


_TRACKED = {"asphalt": 7, "wet": 3, "snow": 4, "ice_patches": 8}
_SCRIPTED = {"asphalt": 6, "wet": 2, "gravel": 1, "snow": 3, "ice": 2, "patchwork": 3}
DEFAULT_MIX = (
    *_mix("preview", "putnam", 40.0, _TRACKED, noise=(0.0, 0.06)),
    *_mix("preview", "skid_pad", 20.0, {"asphalt": 2, "wet": 1, "snow": 2}, noise=(0.0, 0.1)),
    *_mix("preview", "skid_pad", 20.0, {"ice": 1}, usage=(0.3, 0.7)),
    *_mix("manoeuvres", "plane", 40.0, _SCRIPTED),
    *_mix("random", "plane", 30.0, {"asphalt": 3, "wet": 1, "snow": 2, "ice": 1, "patchwork": 3}),
    *_mix("limit", "plane", 30.0, {"asphalt": 3, "wet": 1, "snow": 2, "patchwork": 1}),
    *_mix("random", "plane", 10.0, {"asphalt": 1, "snow": 1}, start_speed=(-6.0, -2.0), speed=(0.0, 6.0)),
    *_mix("preview", "esses", 40.0, {"asphalt": 2, "wet": 1, "snow": 1}, noise=(0.0, 0.06)),
)  # fmt: skip
"""Half an hour and more of driving. `esses` is for evaluation: a distillation keeps it apart (`reserved`)."""


class CollectConfig(Config):
    """What to record.

    Attributes:
      vehicle: a name or a YAML file. abs: anti-lock brakes. traction_control: likewise.
      dt: control step (s). substep: of the integration (s).
      seed: of everything random.
      scale: multiplies every episode's duration.
      workers: threads; 0 is one per core.
      mix: the episodes.
      coverage: which states the recordings should reach.
    """

    vehicle: str = "sedan"
    abs: bool = False
    traction_control: bool = False
    dt: float = Field(0.05, gt=0)
    substep: float = Field(0.001, gt=0)
    seed: int = Field(0, ge=0)
    scale: float = Field(1.0, gt=0)
    workers: int = Field(0, ge=0)
    mix: tuple[MixConfig, ...] = DEFAULT_MIX
    coverage: CoverageConfig = CoverageConfig()


class Episode(NamedTuple):
    """An episode to record: its file's name, how it is driven, and its own seed."""

    name: str
    mix: MixConfig
    seed: tuple[int, ...]


def episodes_of(config: CollectConfig) -> list[Episode]:
    """Returns the episodes of a configuration; names and seeds depend on nothing else."""
    episodes = []
    for entry, mix in enumerate(config.mix):
        track = Path(mix.track).stem
        for number in range(mix.episodes):
            name = f"{entry:02d}_{mix.driver}_{track}_{mix.surface}_{number:02d}{SUFFIX}"
            episodes.append(Episode(name, mix, (config.seed, entry, number)))
    return episodes


def collect(config: CollectConfig, directory, progress: Progress = silent) -> dict:
    """Records the episodes that a directory does not hold yet, a file each, and the configuration.

    An interrupted collection goes on where it was; episodes are the same bits in any order and on any
    number of threads.

    Args:
      config: what to record.
      directory: of the recordings.
      progress: called with episodes done and in all.

    Returns:
      A summary: `episodes`, `simulated_minutes`, `coverage` (a `Coverage`) and `table`, its text.

    Raises:
      ConfigError: if the directory holds recordings of another configuration, or the configuration cannot
        be driven.
    """
    from s3jax.source.episode import Tracks, record_episode

    directory = Path(directory)
    vehicle = load_vehicle(config.vehicle)
    episodes = episodes_of(config)
    tracks = Tracks(episodes, config, vehicle)
    _claim(config, directory)
    todo = [episode for episode in episodes if not is_complete(directory / episode.name)]
    progress(len(episodes) - len(todo), len(episodes))
    with ThreadPoolExecutor(config.workers or os.cpu_count()) as pool:
        # The longest first, so that no thread is left with one at the end.
        todo.sort(key=lambda episode: -episode.mix.duration)
        jobs = [pool.submit(record_episode, episode, config, vehicle, tracks, directory) for episode in todo]
        try:
            for number, job in enumerate(jobs, len(episodes) - len(todo) + 1):
                progress(number, len(episodes), note=job.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    recordings = [read_recording(directory / episode.name) for episode in episodes]
    coverage = coverage_of(recordings, config.coverage)
    minutes = sum(recording.header["rows"] for recording in recordings) * config.dt / 60
    return {
        "episodes": len(episodes),
        "simulated_minutes": minutes,
        "coverage": coverage,
        "table": coverage.table(),
    }


def _claim(config: CollectConfig, directory: Path) -> None:
    """Saves the configuration, or refuses a directory of another one."""
    path = directory / "collect.yaml"
    if path.exists():
        before = CollectConfig.load(path).dump()
        now = config.dump()
        changed = [key for key in now if before[key] != now[key] and key not in ("workers", "coverage")]
        if changed:
            raise ConfigError(
                f"{directory}: holds recordings with another {', '.join(changed)}; choose another directory"
            )
    directory.mkdir(parents=True, exist_ok=True)
    config.save(path)
