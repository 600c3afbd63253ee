"""The training stage: scenarios and a dynamics model in; a run folder with checkpoints and curves out.

A run folder is self-contained: `config.yaml`, `dynamics.npz` (a copy of the model), `checkpoints/`, and the
curves as `metrics.csv`, `curves.png` and `tensorboard/`. Training in a folder that holds an interrupted run
goes on with it, to the bit.
"""

import contextlib
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from filelock import FileLock, Timeout
from pydantic import Field

from s3jax.archive import atomic_path
from s3jax.config import Config, ConfigError
from s3jax.curves import Curves
from s3jax.dynamics.store import check_compatible, load_dynamics
from s3jax.env import EnvConfig, TrackingEnv, World
from s3jax.env.episodes import run_episodes, summarise
from s3jax.ppo.checkpoints import METRIC, Checkpointer, load_policy
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.guards import COUNTS, check_finite, explained
from s3jax.ppo.learner import Learner
from s3jax.ppo.policy import initial_memory, mean_action, policy_of
from s3jax.ppo.stop import StopSignal
from s3jax.ppo.trace import Trace
from s3jax.progress import Progress, silent
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.load import load_scenarios
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.tags import select, table
from s3jax.viz.training import LivePicture
from s3jax.weights_and_biases import start_run


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
    wandb: str | None = Field(None, min_length=1, description="project of Weights & Biases; none: not used")


def train(
    config: TrainConfig,
    dynamics_path: str | Path,
    directory: str | Path,
    progress: Progress = silent,
    profile: bool = False,
) -> dict:
    """Trains a policy, or goes on with an interrupted run in the same folder.

    SIGINT and SIGTERM save and end the run; before its first update, they raise KeyboardInterrupt.

    Args:
      config: the stage's configuration.
      dynamics_path: a distilled model.
      directory: the run folder.
      progress: called with updates done and in all.
      profile: write a profile of a few updates to `profile/`.

    Returns:
      A summary: `finished`, `updates` and `env_steps` in all; `compile_seconds`, `train_seconds`,
      `steps_per_second` and `profiled` of this call; `held_out`, the last metrics on held-out scenarios.

    Raises:
      FileError: if the dynamics or a scenario file cannot be used, the folder cannot be written, or its
        curves were damaged.
      ConfigError: if the folder holds another run or is in use, or no scenario is left.
      DivergedError: if something is not finite.
      OutOfMemoryError: if the sizes are too large for the device.
    """
    directory = Path(directory)
    steps_per_update = config.ppo.num_envs * config.ppo.rollout
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopSignal())
        stack.enter_context(explained(directory))
        env, world, held_out = build(config, dynamics_path)
        stack.enter_context(_claim(directory, config, Path(dynamics_path).read_bytes()))
        checkpointer = stack.enter_context(Checkpointer(directory / "checkpoints"))
        start = checkpointer.latest() or 0
        curves = stack.enter_context(_curves(directory, config, start))
        picture = LivePicture(directory / "curves.png", directory / "metrics.csv")
        trace = stack.enter_context(Trace(directory / "profile", start)) if profile else None

        stop.hold()
        progress(start, config.ppo.updates, "compiling")
        clock = time.perf_counter()
        learner, key = Learner(config.ppo, env), jax.random.key(config.seed)
        if start:
            state = checkpointer.restore(jax.eval_shape(learner.init, world, key))
        else:
            state = learner.init(world, key)
        update = learner.update.lower(state, world).compile()
        evaluate = (
            jax.jit(partial(evaluate_policy, env))
            .lower(held_out, policy_of(state, env.policy_size))
            .compile()
        )
        compile_seconds = time.perf_counter() - clock
        stop.end_if_requested()
        progress(start, config.ppo.updates, "training")

        began = clock = time.perf_counter()
        done = logged = start
        counts, last = dict.fromkeys(COUNTS, 0.0), start == config.ppo.updates
        while not last:
            state, metrics = update(state, world)
            done += 1
            counts = {name: count + metrics[name] for name, count in counts.items()}
            if trace:
                trace.after(done, metrics)
            last = done == config.ppo.updates or stop.requested
            evaluates = last or done % config.evaluate_every == 0
            if not evaluates and done % config.log_every:
                continue
            row = {"update": done, "env_steps": done * steps_per_update} | _fetch(metrics | counts)
            if evaluates:
                policy = policy_of(state, env.policy_size)
                measured = _fetch(evaluate(held_out, policy))
                row |= {f"held_out/{name}": value for name, value in measured.items()}
            check_finite(row, directory, checkpointer.latest() or 0)
            row["env/return"] = _return_per_episode(row, steps_per_update)
            row["steps_per_second"] = (done - logged) * steps_per_update / (time.perf_counter() - clock)
            clock, logged, counts = time.perf_counter(), done, dict.fromkeys(COUNTS, 0.0)
            curves.append(row)  # before the checkpoint, so that a run that goes on from it lacks no row
            if evaluates:
                checkpointer.save(done, state, policy, measured[METRIC])
                picture.update(last)
            progress(done, config.ppo.updates, _note(row))
        train_seconds = time.perf_counter() - began
        return {
            "finished": done == config.ppo.updates,
            "updates": done,
            "env_steps": done * steps_per_update,
            "compile_seconds": compile_seconds,
            "train_seconds": train_seconds,
            "steps_per_second": (done - start) * steps_per_update / train_seconds,
            "profiled": bool(trace and trace.finish()),
            "held_out": curves.last("held_out/"),
        }


def build(config: TrainConfig, dynamics_path: str | Path) -> tuple[TrackingEnv, World, World]:
    """Returns the environment, the world to train in and the world of held-out scenarios.

    Raises:
      FileError: if the dynamics or a scenario file cannot be used.
      ConfigError: if no scenario would be left in either world.
      WaymaxError: for `env=waymax`, if Waymax is not installed.
    """
    model, dynamics, header = load_dynamics(dynamics_path)
    check_compatible(header, model.dt, dynamics_path)
    if config.env.kind == "waymax":
        from s3jax.waymax.stage import build_in_waymax  # needs Waymax

        return build_in_waymax(config, model, dynamics)
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


@contextlib.contextmanager
def _claim(directory: Path, config: TrainConfig, dynamics: bytes):
    """Makes a run folder self-contained, or checks that it holds the same run; locks it in the block."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(directory / ".lock", blocking=False).acquire()
    except Timeout:
        raise ConfigError(f"{directory}: another process is training there; choose another folder") from None
    with lock:
        settings, copy = directory / "config.yaml", directory / "dynamics.npz"
        if settings.exists():
            theirs = TrainConfig.load(settings).model_copy(update={"wandb": config.wandb})
            if theirs != config or copy.read_bytes() != dynamics:
                raise ConfigError(
                    f"{directory}: holds a run with another configuration or model; choose another folder"
                )
        else:
            with atomic_path(copy) as temporary:
                temporary.write_bytes(dynamics)
            config.save(settings)
        yield


def _curves(directory: Path, config: TrainConfig, start: int) -> Curves:
    run = start_run(config.wandb, directory, config.dump()) if config.wandb else None
    return Curves(directory / "metrics.csv", start, directory / "tensorboard", "env_steps", run)


def _return_per_episode(row: dict, steps: int) -> float:
    """Returns the reward of an update's `steps` per episode that ended in it."""
    return row["env/reward"] / max(row["env/terminated"] + row["env/truncated"], 1 / steps)


def _note(row: dict) -> str:
    return (
        f"{row['steps_per_second']:,.0f} steps/s, return {row['env/return']:.1f}, "
        f"cross-track {row['env/cross_track_rms']:.2f} m"
    )


def _fetch(metrics: dict) -> dict:
    return {name: float(value) for name, value in jax.device_get(metrics).items()}
