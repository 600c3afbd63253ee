"""The training stage: scenarios and a dynamics model in, a run folder with checkpoints and curves out."""

import csv
import signal
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from s3jax.archive import atomic_path
from s3jax.config import Config, ConfigError
from s3jax.dynamics import load_dynamics
from s3jax.env import EnvConfig, TrackingEnv, World
from s3jax.env.episodes import run_episodes, summarise
from s3jax.ppo.checkpoints import METRIC, Checkpointer
from s3jax.ppo.learner import Learner, PPOConfig
from s3jax.progress import Progress, silent
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.load import load_scenarios


class ScenarioConfig(Config):
    """Which scenarios to train and evaluate on."""

    files: tuple[str, ...] = Field(
        (), description="WOMD files or patterns, added to the procedural scenarios"
    )
    procedural: ProceduralConfig = ProceduralConfig()
    held_out: float = Field(0.1, gt=0, lt=1, description="share kept for evaluation")


class TrainConfig(Config):
    """The training stage."""

    seed: int = Field(0, ge=0)
    scenarios: ScenarioConfig = ScenarioConfig()
    env: EnvConfig = EnvConfig()
    ppo: PPOConfig = PPOConfig()
    log_every: int = Field(5, gt=0, description="updates")
    evaluate_every: int = Field(25, gt=0, description="updates; also the checkpoint interval")


class DivergedError(RuntimeError):
    """Training met numbers that are not finite; the message says where and what to go back to."""


def train(
    config: TrainConfig, dynamics_path: str | Path, directory: str | Path, progress: Progress = silent
) -> dict:
    """Trains a policy, or goes on with an interrupted run in the same folder.

    Args:
      config: the stage's configuration; saved as `config.yaml` in the folder.
      dynamics_path: a distilled model.
      directory: the run folder: `config.yaml`, `metrics.csv`, `checkpoints/`.
      progress: called with updates done and in all.

    Returns:
      A summary: `finished`, `updates`, `env_steps`, `compile_seconds`, `train_seconds`, and the last
      held-out metrics.

    Raises:
      ConfigError: if the folder holds a run of another configuration, or no scenario is left.
      DivergedError: if the loss is not finite.
    """
    directory = Path(directory)
    _claim(directory, config)
    model, dynamics, _ = load_dynamics(dynamics_path)
    bank, held_out = scenario_banks(config, model.dt)
    world, held_out_world = World(bank, dynamics), World(held_out, dynamics)
    learner = Learner(config.ppo, TrackingEnv(config.env, model))
    key = jax.random.key(config.seed)

    with Checkpointer(directory / "checkpoints") as checkpointer, _StopSignal() as stop:
        start = checkpointer.latest() or 0
        if start:
            state = checkpointer.restore(jax.eval_shape(learner.init, world, key))
        else:
            state = jax.jit(learner.init)(world, key)
        rows = _read_rows(directory / "metrics.csv", start)
        clock = time.perf_counter()
        update = jax.jit(learner.update, donate_argnums=0).lower(state, world).compile()
        evaluate = jax.jit(
            lambda params, normaliser, world: evaluate_policy(learner, params, normaliser, world)
        )
        evaluate = evaluate.lower(state.params, state.normaliser, held_out_world).compile()
        compile_seconds = time.perf_counter() - clock
        clock = time.perf_counter()
        steps_per_update = config.ppo.num_envs * config.ppo.rollout
        held_out_metrics = _last_held_out(rows)
        for done in range(start + 1, config.ppo.updates + 1):
            state, metrics = update(state, world)
            last = done == config.ppo.updates or stop.requested
            if done % config.log_every and done % config.evaluate_every and not last:
                continue
            row = {"update": done, "env_steps": done * steps_per_update} | _fetch(metrics)
            row["steps_per_second"] = (done - start) * steps_per_update / (time.perf_counter() - clock)
            if not np.isfinite(row["loss/policy"]) or row["loss/skipped"]:
                raise DivergedError(
                    f"update {done}: {row['loss/skipped']:.0f} gradient steps were not finite; the last good "
                    f"checkpoint is update {checkpointer.latest() or 0} in {directory}. Lower "
                    "ppo.learning_rate or start another run folder"
                )
            if done % config.evaluate_every == 0 or last:
                held_out_metrics = _fetch(evaluate(state.params, state.normaliser, held_out_world))
                row |= {f"held_out/{name}": value for name, value in held_out_metrics.items()}
                checkpointer.save(done, state, held_out_metrics[METRIC])
            rows.append(row)
            _write_rows(directory / "metrics.csv", rows)
            progress(done, config.ppo.updates, f"cross-track {row['env/cross_track_rms']:.2f} m")
            if stop.requested:
                break
        return {
            "finished": int(state.update) == config.ppo.updates,
            "updates": int(state.update),
            "env_steps": int(state.update) * steps_per_update,
            "compile_seconds": compile_seconds,
            "train_seconds": time.perf_counter() - clock,
            "held_out": held_out_metrics,
        }


def evaluate_policy(learner: Learner, params, normaliser, world: World) -> dict:
    """Drives every scenario of a world with the mean action; returns scalar metrics."""
    count = world.bank.size.shape[0]

    def act(observation):
        mean, _ = learner.network.apply(params, normaliser(observation), method="policy")
        return jnp.tanh(mean)

    return summarise(run_episodes(learner.env, world, jnp.arange(count), act))


def scenario_banks(config: TrainConfig, dt: float):
    """Returns the scenarios to train on and those held out, as banks on the device.

    Raises:
      ConfigError: if either would be empty.
    """
    scenarios = generate(config.scenarios.procedural, config.seed, dt)
    if config.scenarios.files:
        scenarios = scenarios + load_scenarios(config.scenarios.files, dt)
    order = np.random.default_rng(config.seed).permutation(len(scenarios))
    count = round(len(scenarios) * config.scenarios.held_out)
    if not 0 < count < len(scenarios):
        raise ConfigError(
            f"{len(scenarios)} scenarios cannot be split with held_out = {config.scenarios.held_out}; "
            "raise scenarios.procedural.count or name more files"
        )
    held_out, train = np.split(order, [count])
    banks = (make_bank([scenarios[i] for i in part]) for part in (train, held_out))
    return tuple(jax.tree.map(jnp.asarray, bank) for bank in banks)


class _StopSignal:
    """Turns the first SIGINT or SIGTERM into a request to stop; a second one acts as usual."""

    def __enter__(self):
        self.requested = False
        self._previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number, _):
        self.requested = True
        signal.signal(number, self._previous[number])


def _claim(directory: Path, config: TrainConfig) -> None:
    """Writes the configuration into a new run folder, or checks that it is the one already there."""
    path = directory / "config.yaml"
    if path.exists() and TrainConfig.load(path) != config:
        raise ConfigError(f"{path}: the run there has another configuration; choose another folder")
    config.save(path)


def _fetch(metrics: dict) -> dict:
    return {name: float(value) for name, value in jax.device_get(metrics).items()}


def _read_rows(path: Path, until: int) -> list[dict]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    return [row for row in rows if row["update"] <= until]


def _write_rows(path: Path, rows: list[dict]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _last_held_out(rows: list[dict]) -> dict:
    found = [row for row in rows if f"held_out/{METRIC}" in row]
    prefix = "held_out/"
    return {k.removeprefix(prefix): v for k, v in found[-1].items() if k.startswith(prefix)} if found else {}
