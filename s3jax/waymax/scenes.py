"""Scenes to train on inside Waymax: its states beside our references, in one frame, ready to stack."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.scenarios.bank import BankShape, ScenarioBank, fill_bank
from s3jax.scenarios.compact import compact
from s3jax.scenarios.polyline import distance_to_path
from s3jax.scenarios.raw import RawScene, SceneError
from s3jax.scenarios.read import expand, read_scenes
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.store import is_store
from s3jax.scenarios.stream import ScenarioConfig, ScenarioSet
from s3jax.scenarios.tags import columns, runs, select
from s3jax.scenarios.waymax import state_of
from s3jax.scenarios.womd_writer import LIGHTS
from s3jax.waymax.config import WaymaxConfig

STEPS, WARM_UP = 91, 10
"""Steps of a log, and those before the one at which Waymax begins to simulate."""

ROAD_EDGES = (15, 16)
"""Map types that Waymax's off-road metric looks at."""


class Scene(NamedTuple):
    """A scenario and Waymax's state of the same log.

    Attributes:
      scenario: its reference begins where Waymax's simulation does.
      state: Waymax's `SimulatorState` without its simulated part; the ego car is object 0, and positions are
        in the scenario's frame.
      first: step of the log at which the reference begins.
    """

    scenario: Scenario
    state: Any
    first: int

    @property
    def features(self) -> dict[str, float]:
        """Numbers that tags are made of."""
        return self.scenario.features


class SceneBank(NamedTuple):
    """Scenes on the device; all leaves begin with an axis that scenes lie along.

    Attributes:
      scenarios: references and friction.
      states: Waymax's states, each leaf [S, ...].
      first: [S] step of the log at which the reference begins.
    """

    scenarios: ScenarioBank
    states: Any
    first: Any

    @property
    def size(self):
        """[S] rows of each reference, as in `ScenarioBank`."""
        return self.scenarios.size


def load_scenes(patterns: Iterable[str | Path], dt: float, config: WaymaxConfig) -> list[Scene]:
    """Loads scenes of dataset files.

    Args:
      patterns: files, globs or sharded names, as in `s3jax.scenarios.load.load_scenarios`. Not stores, which
        keep too little of the map.
      dt: sample interval of the references (s).
      config: how much of a scene to keep.

    Raises:
      FileError: if a file is missing or a store.
      RecordError: for the first record that cannot be used, naming file, record and byte offset.
      WaymaxError: if Waymax is not installed.
    """
    scenes = []
    for path in expand(patterns):
        if is_store(path):
            raise FileError(f"{path}: a store has no Waymax state; name the files that it was built from")
        for record, scene in read_scenes(path):
            source = f"{path}#{record.index}"
            try:
                scenes.append(make_scene(scene, state_of(record.data, scene), dt, config, source))
            except SceneError as error:
                raise record.error(str(error)) from None
    return scenes


def make_scene(scene: RawScene, state, dt: float, config: WaymaxConfig, source: str) -> Scene:
    """Prepares a scene for training.

    Args:
      scene: the log.
      state: Waymax's state of it.
      dt: sample interval of the reference (s).
      config: how much of it to keep.
      source: where the scene came from.

    Raises:
      SceneError: if the ego car is seen for too short a time after the warm-up.
    """
    if state.log_trajectory.x.shape[1] != STEPS:
        raise SceneError(f"a scene for Waymax has {STEPS} steps, this one {state.log_trajectory.x.shape[1]}")
    valid = scene.tracks.valid.copy()
    valid[scene.sdc, :WARM_UP] = False
    late = dataclasses.replace(scene, tracks=scene.tracks._replace(valid=valid))
    scenario = compact(late, dt, source)
    first = max(runs(valid[scene.sdc]), key=lambda run: run.stop - run.start).start
    log, points, origin = state.log_trajectory, state.roadgraph_points, scenario.origin
    ego = int(np.argmax(state.object_metadata.is_sdc))
    together = log.valid & log.valid[ego]
    gap = np.where(together, np.hypot(log.x - log.x[ego], log.y - log.y[ego]), np.inf).min(axis=1)
    gap[ego] = -1.0  # first, so that its row is known
    objects = np.argsort(gap, kind="stable")[: config.objects]
    path = np.stack([log.x[ego], log.y[ego]], axis=1)[log.valid[ego]]
    distance = distance_to_path(np.stack([points.x, points.y], axis=1), path, np.inf)
    distance[~(points.valid & np.isin(points.types, ROAD_EDGES))] = np.inf
    edges = np.argsort(distance, kind="stable")[: config.points]
    edges = np.sort(edges[np.isfinite(distance[edges])])  # an edge's points stay in their order
    state = state.replace(
        sim_trajectory=None,
        timestep=None,
        sdc_paths=None,
        log_trajectory=_shifted(_rows(log, objects, config.objects), origin),
        object_metadata=_rows(state.object_metadata, objects, config.objects),
        log_traffic_light=_shifted(_rows(state.log_traffic_light, np.arange(LIGHTS), LIGHTS), origin),
        roadgraph_points=_shifted(_rows(points, edges, config.points), origin),
    )
    return Scene(scenario, state, first)


def _rows(tree, rows, size):
    """Returns some rows of every array, then zeros (which are not valid) up to `size`."""

    def take(values):
        out = np.zeros((size, *values.shape[1:]), values.dtype)
        kept = values[rows[rows < len(values)]]
        out[: len(kept)] = kept
        return out

    return jax.tree.map(take, tree)


def _shifted(tree, origin):
    return tree.replace(
        **{
            axis: (np.asarray(tree[axis], float) - shift).astype(np.float32)
            for axis, shift in zip(("x", "y"), origin, strict=True)
        }
    )


class SceneSet(ScenarioSet):
    """The scenes that a configuration names and does not filter out, all in memory.

    Attributes:
      ids, part, shape: as in `ScenarioSet`; all scenes are of one part.
    """

    def __init__(self, config: ScenarioConfig, settings: WaymaxConfig, dt: float):
        """Loads the scenes.

        Args:
          config: which; the procedural tasks, which have no map, do not take part.
          settings: how much of each to keep.
          dt: sample interval of the references (s).

        Raises:
          ConfigError: if no file is named, for an unknown tag, or if no scene is left.
          FileError: as `load_scenes`.
          WaymaxError: if Waymax is not installed.
        """
        if not config.files:
            raise ConfigError("env=waymax: name the WOMD records to drive in, scenarios.files=[FILE, ...]")
        scenes = load_scenes(config.files, dt, settings)
        kept = select(columns([scene.features for scene in scenes]), config.only, config.exclude)
        self._scenes = [scene for scene, keep in zip(scenes, kept, strict=True) if keep]
        if not self._scenes:
            raise ConfigError("env=waymax: no scene is left by scenarios.only and scenarios.exclude")
        self.ids = np.array([scene.scenario.id for scene in self._scenes], "S48")
        self.part = np.zeros(len(self._scenes), int)
        self.shape = BankShape.of([_task(scene) for scene in self._scenes])

    def bank(self, indices: Iterable[int] | None = None) -> SceneBank:
        """Returns a bank, in NumPy, of the scenes of `indices`, or of all."""
        scenes = self._scenes if indices is None else [self._scenes[i] for i in indices]
        return SceneBank(
            scenarios=fill_bank([_task(scene) for scene in scenes], self.shape),
            states=jax.tree.map(lambda *rows: np.stack(rows), *(scene.state for scene in scenes)),
            first=np.array([scene.first for scene in scenes], np.int32),
        )


def _task(scene: Scene):
    return scene.scenario.reference, scene.scenario.friction
