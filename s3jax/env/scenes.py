"""Scenes for worlds of several cars: each road user of a scenario becomes a reference. NumPy."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from s3jax.config import ConfigError
from s3jax.scenarios.bank import BankShape, ScenarioBank, fill_bank
from s3jax.scenarios.load import load_scenarios
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.stream import ScenarioConfig, ScenarioSet
from s3jax.scenarios.tags import runs
from s3jax.spatial.reference import STANDSTILL_SPEED, make_reference

VEHICLE = 1
"""Type of the road users that become references."""

MIN_DURATION = 3.0
"""Shortest log of a road user (s) that becomes a reference."""

MIN_DISTANCE = 8.0
"""Least distance (m) that it has to cover."""

MAX_SPEED = 60.0
"""A log that leaps faster than this (m/s) becomes none."""


def car_scenarios(scenario: Scenario) -> list[Scenario]:
    """Returns a scenario for the ego car and for each moving vehicle of a scene, in the scene's frame.

    The longest run of steps in which a vehicle was seen counts. All share the scene's friction.

    Args:
      scenario: from a dataset or the world generator; its boxes are the other road users' logs.
    """
    cars = [scenario] if _distance(scenario.reference.samples[: scenario.reference.length]) else []
    for row in np.flatnonzero(scenario.box_types == VEHICLE):
        log = scenario.boxes[row].astype(float)
        seen = max(runs(np.isfinite(log).all(axis=1)), key=lambda run: run.stop - run.start, default=None)
        if seen is None:
            continue
        log = log[seen]
        steps = np.hypot(*np.diff(log[:, :2], axis=0).T)
        if (len(log) - 1) * scenario.box_dt < MIN_DURATION or not _distance(log):
            continue
        if steps.max() > MAX_SPEED * scenario.box_dt:
            continue
        cars.append(
            replace(
                scenario,
                id=f"{scenario.id}_{row}",
                reference=_reference(log, scenario.box_dt, scenario.dt),
                ego_size=scenario.box_sizes[row],
            )
        )
    return cars


def group_by_scene(scenarios: list[Scenario], cars: int) -> list[Scenario]:
    """Returns `cars` scenarios per scene, one scene after the other: the rows of a bank for `TrafficEnv`.

    Of more moving vehicles, the first ones are taken, which lie nearest to the ego car's path; of fewer, some
    twice. Scenes with less than half as many are left out.

    Args:
      scenarios: one per scene.
      cars: per world.

    Raises:
      ConfigError: if no scene is left.
    """
    rows, most = [], 0
    for scenario in scenarios:
        found = car_scenarios(scenario)
        most = max(most, len(found))
        if 2 * len(found) >= cars:
            rows += [found[i % len(found)] for i in range(cars)]
    if not rows:
        raise ConfigError(
            f"env.cars = {cars}: no scene has half as many moving vehicles, the most is {most}; lower it or "
            "take scenes with more traffic"
        )
    return rows


class TrafficSet(ScenarioSet):
    """The scenes that a configuration names, does not filter out, and that have enough traffic; in memory.

    Attributes:
      ids, part, shape: as in `ScenarioSet`, of the scenes; all are of one part.
    """

    def __init__(self, config: ScenarioConfig, cars: int, dt: float):
        """Loads the scenes.

        Args:
          config: which; the procedural tasks, which have no other road users, do not take part.
          cars: per world.
          dt: sample interval of the references (s).

        Raises:
          ConfigError: if no file is named, for an unknown tag, or if no scene is left.
          FileError: if a file cannot be used.
        """
        if not config.files:
            raise ConfigError(
                f"env.cars = {cars}: name scenes with other road users, scenarios.files=[FILE, ...]; "
                "`s3jax scenarios generate` makes some"
            )
        scenes = load_scenarios(config.files, dt, only=config.only, exclude=config.exclude)
        rows = group_by_scene(scenes, cars)
        tasks = [(row.reference, row.friction) for row in rows]
        self._tasks = [tasks[i : i + cars] for i in range(0, len(tasks), cars)]
        self.ids = np.array([row.id for row in rows[::cars]], "S48")
        self.part = np.zeros(len(self.ids), int)
        self.shape = BankShape.of(tasks)

    def bank(self, indices: Iterable[int] | None = None) -> ScenarioBank:
        """Returns a bank, in NumPy, of the scenes of `indices`, or of all: `cars` rows for each."""
        indices = range(len(self)) if indices is None else indices
        return fill_bank([task for i in indices for task in self._tasks[i]], self.shape)


def _distance(log):
    return np.hypot(*np.diff(log[:, :2], axis=0).T).sum() >= MIN_DISTANCE


def _reference(log, log_dt, dt):
    """Resamples a log [T, 4] of x, y, yaw, speed; place and heading are held where it stands."""
    log = np.column_stack([log[:, :2], np.unwrap(log[:, 2]), log[:, 3]])
    still = log[:, 3] < STANDSTILL_SPEED
    steps = np.where((still[1:] & still[:-1])[:, None], 0.0, np.diff(log[:, :3], axis=0))
    held = np.concatenate([log[:1, :3], log[:1, :3] + np.cumsum(steps, axis=0)])
    time = np.arange(len(log)) * log_dt
    grid = np.arange(int(time[-1] / dt + 1e-3) + 1) * dt
    columns = [np.interp(grid, time, column) for column in (*held.T, np.where(still, 0.0, log[:, 3]))]
    return make_reference(*columns, dt)
