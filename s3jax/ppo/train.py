"""The training stage: scenarios and a dynamics model in; a run folder with checkpoints and curves out.

A run folder is self-contained: `config.yaml`, `dynamics.npz` (a copy of the model), `metrics.csv` and
`checkpoints/`. Training in a folder that holds an interrupted run goes on with it, to the bit.
"""

import signal
import threading
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from s3jax.archive import atomic_path
from s3jax.config import Config, ConfigError
from s3jax.dynamics.store import check_compatible, load_dynamics
from s3jax.env import EnvConfig, TrackingEnv, World
from s3jax.env.episodes import run_episodes, summarise
from s3jax.errors import DivergedError
from s3jax.ppo.checkpoints import METRIC, Checkpointer, load_policy
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.curves import Curves
from s3jax.ppo.learner import Learner
from s3jax.ppo.policy import initial_memory, mean_action, policy_of
from s3jax.progress import Progress, silent
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.load import load_scenarios
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.tags import select, table


class ScenarioConfig(Config):
    """Which scenarios to train and evaluate on."""

    files: tuple[str, ...] = Field(
        (), description="WOMD files, patterns or stores, added to the procedural scenarios"
    )
    procedural: ProceduralConfig = ProceduralConfig()
    only: tuple[str, ...] = Field((), description="keep scenarios with at least one of these tags")
    exclude: tuple[str, ...] = Field((), description="drop scenarios with any of these tags")
    held_out: float = Field(0.1, gt=0, lt=1, description="share kept for evaluation")


class TrainConfig(Config):
    """The training stage."""

    seed: int = Field(0, ge=0)
    scenarios: ScenarioConfig = ScenarioConfig()
    env: EnvConfig = EnvConfig()
    ppo: PPOConfig = PPOConfig()
    log_every: int = Field(10, gt=0, description="updates")
    evaluate_every: int = Field(50, gt=0, description="updates; also the checkpoint interval")


def train(
    config: TrainConfig, dynamics_path: str | Path, directory: str | Path, progress: Progress = silent
) -> dict:
    """Trains a policy, or goes on with an interrupted run in the same folder.

    Args:
      config: the stage's configuration.
      dynamics_path: a distilled model.
      directory: the run folder.
      progress: called with updates done and in all.

    Returns:
      A summary: `finished`, `updates`, `env_steps`, `compile_seconds`, `train_seconds` and `held_out`, the
      last metrics on held-out scenarios.

    Raises:
      FileError: if the dynamics or a scenario file cannot be used.
      ConfigError: if the folder holds another run, or no scenario is left.
      DivergedError: if a gradient is not finite.
    """
    directory = Path(directory)
    env, world, held_out = build(config, dynamics_path)
    _claim(directory, config, Path(dynamics_path).read_bytes())
    learner = Learner(config.ppo, env)
    key = jax.random.key(config.seed)
    steps_per_update = config.ppo.num_envs * config.ppo.rollout

    with Checkpointer(directory / "checkpoints") as checkpointer, _StopSignal() as stop:
        start = checkpointer.latest() or 0
        curves = Curves(directory / "metrics.csv", start)
        if start:
            state = checkpointer.restore(jax.eval_shape(learner.init, world, key))
        else:
            state = jax.jit(learner.init)(world, key)
        progress(start, config.ppo.updates, "compiling")
        clock = time.perf_counter()
        update = jax.jit(learner.update, donate_argnums=0).lower(state, world).compile()
        evaluate = (
            jax.jit(partial(evaluate_policy, env))
            .lower(held_out, policy_of(state, env.policy_size))
            .compile()
        )
        compile_seconds = time.perf_counter() - clock

        clock = time.perf_counter()
        done, last = start, start == config.ppo.updates
        while not last:
            state, metrics = update(state, world)
            done += 1
            last = done == config.ppo.updates or stop.requested
            evaluates = last or done % config.evaluate_every == 0
            if not evaluates and done % config.log_every:
                continue
            row = {"update": done, "env_steps": done * steps_per_update} | _fetch(metrics)
            if row["loss/skipped"]:
                raise DivergedError(
                    f"update {done}: {row['loss/skipped']:.0f} gradient steps were not finite. The last good "
                    f"checkpoint in {directory} is that of update {checkpointer.latest() or 0}; lower "
                    "ppo.learning_rate and start another run folder"
                )
            row["steps_per_second"] = (done - start) * steps_per_update / (time.perf_counter() - clock)
            if evaluates:
                measured = _fetch(evaluate(held_out, policy_of(state, env.policy_size)))
                row |= {f"held_out/{name}": value for name, value in measured.items()}
                checkpointer.save(done, state, policy_of(state, env.policy_size), measured[METRIC])
            curves.append(row)
            progress(done, config.ppo.updates, f"cross-track {row['env/cross_track_rms']:.2f} m")
        return {
            "finished": done == config.ppo.updates,
            "updates": done,
            "env_steps": done * steps_per_update,
            "compile_seconds": compile_seconds,
            "train_seconds": time.perf_counter() - clock,
            "held_out": curves.last("held_out/"),
        }


def build(config: TrainConfig, dynamics_path: str | Path) -> tuple[TrackingEnv, World, World]:
    """Returns the environment, the world to train in and the world of held-out scenarios.

    Raises:
      FileError: if the dynamics or a scenario file cannot be used.
      ConfigError: if no scenario would be left in either world.
    """
    model, dynamics, header = load_dynamics(dynamics_path)
    check_compatible(header, model.dt, dynamics_path)
    scenarios = generate(config.scenarios.procedural, config.seed, model.dt)
    if config.scenarios.files:
        scenarios = scenarios + load_scenarios(config.scenarios.files, model.dt)
    kept = select(table(scenarios), config.scenarios.only, config.scenarios.exclude)
    scenarios = [scenario for scenario, keep in zip(scenarios, kept, strict=True) if keep]
    count = round(len(scenarios) * config.scenarios.held_out)
    if not 0 < count < len(scenarios):
        raise ConfigError(
            f"{len(scenarios)} scenarios cannot be split with held_out = {config.scenarios.held_out}; "
            "raise scenarios.procedural.count or name more files"
        )
    order = np.random.default_rng(config.seed).permutation(len(scenarios))
    held_out, train = (make_bank([scenarios[i] for i in part]) for part in np.split(order, [count]))
    env = TrackingEnv(config.env, model)
    return env, *(World(jax.tree.map(jnp.asarray, bank), dynamics) for bank in (train, held_out))


def evaluate_policy(env: TrackingEnv, world: World, policy: dict) -> dict:
    """Drives every scenario of a world with a policy's mean action; returns scalar metrics."""
    scenarios = jnp.arange(world.bank.size.shape[0])
    memory = initial_memory(policy, len(scenarios))
    return summarise(run_episodes(env, world, scenarios, partial(mean_action, policy), memory))


def evaluate_run(directory: str | Path, which: str = "best") -> dict:
    """Drives a run's held-out scenarios with its policy.

    Args:
      directory: the run folder.
      which: "best" or "latest" checkpoint.

    Returns:
      Scalar metrics by name, and the checkpoint's `update`.

    Raises:
      FileError: if the folder holds no run or no checkpoint.
    """
    directory = Path(directory)
    policy, update = load_policy(directory / "checkpoints", which)
    env, _, held_out = build(TrainConfig.load(directory / "config.yaml"), directory / "dynamics.npz")
    return {"update": update} | _fetch(jax.jit(partial(evaluate_policy, env))(held_out, policy))


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


def _claim(directory: Path, config: TrainConfig, dynamics: bytes) -> None:
    """Makes a run folder self-contained, or checks that the run already there is the same one."""
    settings, copy = directory / "config.yaml", directory / "dynamics.npz"
    if settings.exists() and (TrainConfig.load(settings) != config or copy.read_bytes() != dynamics):
        raise ConfigError(
            f"{directory}: holds a run with another configuration or model; choose another folder"
        )
    if not settings.exists():
        with atomic_path(copy) as temporary:
            temporary.write_bytes(dynamics)
        config.save(settings)


def _fetch(metrics: dict) -> dict:
    return {name: float(value) for name, value in jax.device_get(metrics).items()}
