"""The training stage: scenarios and a dynamics model in; a run folder with checkpoints and curves out.

A run folder is self-contained: `config.yaml`, `dynamics.npz` (a copy of the model), `checkpoints/`, and the
curves as `metrics.csv`, `curves.png` and `tensorboard/`. Training in a folder that holds an interrupted run
goes on with it, to the bit.
"""

import contextlib
import math
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from filelock import FileLock, Timeout
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pydantic import Field

from s3jax.archive import atomic_path
from s3jax.config import Config, ConfigError
from s3jax.curves import Curves
from s3jax.dynamics.store import check_compatible, load_dynamics
from s3jax.env import EnvConfig, TrackingEnv, TrafficEnv, World
from s3jax.env.episodes import Episodes, run_episodes, summarise
from s3jax.env.scenes import TrafficSet
from s3jax.ppo.checkpoints import METRIC, Checkpointer, load_policy
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.devices import AXIS, SPREAD, WHOLE, check_groups, make_mesh, place
from s3jax.ppo.guards import COUNTS, check_finite, explained
from s3jax.ppo.learner import Learner
from s3jax.ppo.policy import initial_memory, mean_action, policy_of
from s3jax.ppo.stop import StopSignal
from s3jax.ppo.trace import Trace
from s3jax.progress import Progress, silent
from s3jax.scenarios.stream import ScenarioConfig, ScenarioSet, ScenarioStream
from s3jax.viz.training import LivePicture
from s3jax.weights_and_biases import start_run


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
      `steps_per_second` and `profiled` of this call; `held_out`, the last metrics on held-out scenarios,
      of process 0 only, which alone writes curves.

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
        mesh, first = make_mesh(), jax.process_index() == 0
        env, worlds = build(config, dynamics_path, mesh)
        if first:
            stack.enter_context(_claim(directory, config, Path(dynamics_path).read_bytes()))
        checkpointer = stack.enter_context(Checkpointer(directory / "checkpoints"))
        start = checkpointer.latest() or 0
        if first:
            curves = stack.enter_context(_curves(directory, config, start))
            picture = LivePicture(directory / "curves.png", directory / "metrics.csv")
        trace = stack.enter_context(Trace(directory / "profile", start)) if profile and first else None

        stop.hold()
        progress(start, config.ppo.updates, "compiling")
        clock = time.perf_counter()
        learner, key = Learner(config.ppo, env, mesh), jax.random.key(config.seed)
        number = worlds.number(max(start - 1, 0))
        world = worlds.train(number)
        state = checkpointer.restore(learner.abstract(world, key)) if start else learner.init(world, key)
        update = learner.update.lower(state, world).compile()
        policy = policy_of(state, env.policy_size)
        evaluate = _evaluator(env, mesh).lower(worlds.held_out, policy).compile()
        compile_seconds = time.perf_counter() - clock
        stop.end_if_requested()
        progress(start, config.ppo.updates, "training")

        began = clock = time.perf_counter()
        done = logged = start
        counts, last = dict.fromkeys(COUNTS, 0.0), start == config.ppo.updates
        while not last:
            if worlds.number(done) != number:
                number = worlds.number(done)
                world = worlds.train(number)
                state = learner.restart(state, world)
            state, metrics = update(state, world)
            done += 1
            counts = {name: count + metrics[name] for name, count in counts.items()}
            if trace:
                trace.after(done, metrics)
            last = done == config.ppo.updates or _agreed(stop, done % config.log_every == 0)
            evaluates = last or done % config.evaluate_every == 0
            if not evaluates and done % config.log_every:
                continue
            row = {"update": done, "env_steps": done * steps_per_update} | _fetch(metrics | counts)
            if evaluates:
                policy = policy_of(state, env.policy_size)
                measured = _fetch(evaluate(worlds.held_out, policy))
                row |= {f"held_out/{name}": value for name, value in measured.items()}
            check_finite(row, directory, checkpointer.latest() or 0)
            row["env/return"] = _return_per_episode(row, steps_per_update)
            row["steps_per_second"] = (done - logged) * steps_per_update / (time.perf_counter() - clock)
            clock, logged, counts = time.perf_counter(), done, dict.fromkeys(COUNTS, 0.0)
            if first:  # before the checkpoint, so that a run that goes on from it lacks no row
                curves.append(row)
            if evaluates:
                checkpointer.save(done, state, policy, measured[METRIC])
                if first:
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
            "held_out": curves.last("held_out/") if first else {},
        }


class Worlds:
    """The worlds of a run on its devices.

    Attributes:
      held_out: scenarios for evaluation.
    """

    def __init__(self, stream: ScenarioStream, dynamics, mesh: Mesh):
        """Puts the dynamics parameters and the held-out scenarios on the devices of a mesh."""
        self._stream, self._mesh = stream, mesh
        self._dynamics = place(mesh, dynamics, WHOLE)
        self.held_out = self._world(stream.held_out)

    def number(self, update: int) -> int:
        """Returns which world update number `update`, from 0, is trained in."""
        return self._stream.interval(update)

    def train(self, number: int) -> World:
        """Returns a world to train in."""
        return self._world(self._stream.bank(number))

    def _world(self, bank):
        return World(place(self._mesh, bank, SPREAD), self._dynamics)


def build(config: TrainConfig, dynamics_path: str | Path, mesh: Mesh) -> tuple[TrackingEnv, Worlds]:
    """Returns the environment and the worlds to train and to evaluate in.

    Raises:
      FileError: if the dynamics or a scenario file cannot be used.
      ConfigError: if no scenario would be left in either world, or the devices do not fit `ppo.groups`.
      WaymaxError: for `env=waymax`, if Waymax is not installed.
    """
    check_groups(config.ppo.groups, mesh)
    model, dynamics, header = load_dynamics(dynamics_path)
    check_compatible(header, model.dt, dynamics_path)
    if config.env.kind == "waymax":
        from s3jax.waymax.env import WaymaxEnv  # needs Waymax
        from s3jax.waymax.scenes import SceneSet

        env = WaymaxEnv(config.env, model)
        scenarios = SceneSet(config.scenarios, config.env.waymax, model.dt)
    elif config.env.cars > 1:
        env = TrafficEnv(config.env, model)
        scenarios = TrafficSet(config.scenarios, config.env.cars, model.dt)
    else:
        env = TrackingEnv(config.env, model)
        scenarios = ScenarioSet(config.scenarios, config.seed, model.dt)
    stream = ScenarioStream(
        scenarios, config.scenarios, config.seed, config.ppo.groups, jax.process_index(), jax.process_count()
    )
    return env, Worlds(stream, dynamics, mesh)


def evaluate_policy(env: TrackingEnv, mesh: Mesh, world: World, policy: dict) -> dict:
    """Drives every scenario of a world with a policy's mean action; returns scalar metrics.

    Each device drives the scenarios that lie on it.
    """

    def drive(world, policy):
        scenarios = jnp.arange(world.bank.size.shape[0])
        memory = initial_memory(policy, len(scenarios))
        return run_episodes(env, world, scenarios, partial(mean_action, policy), memory)

    steps = PartitionSpec(None, AXIS)
    drive = jax.shard_map(
        drive,
        mesh=mesh,
        in_specs=(World(SPREAD, WHOLE), WHOLE),
        out_specs=Episodes(steps, steps, steps, SPREAD, SPREAD),
        check_vma=False,
    )
    return summarise(drive(world, policy), env.model.dt)


def _evaluator(env, mesh):
    """Returns `evaluate_policy` as a function of world and policy, jitted."""
    return jax.jit(partial(evaluate_policy, env, mesh), out_shardings=NamedSharding(mesh, WHOLE))


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
    config = TrainConfig.load(directory / "config.yaml")
    mesh = make_mesh(jax.devices()[: math.gcd(config.ppo.groups, jax.device_count())])
    env, worlds = build(config, directory / "dynamics.npz", mesh)
    return {"update": update} | _fetch(_evaluator(env, mesh)(worlds.held_out, policy))


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


def _agreed(stop: StopSignal, together: bool) -> bool:
    """Whether a signal has come to any process; several only ask one another when they are `together`."""
    if jax.process_count() == 1:
        return stop.requested
    return together and bool(np.any(multihost_utils.process_allgather(np.array(stop.requested))))


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
