"""The tracking task inside Waymax's own `PlanningAgentEnvironment`, with a distilled model at the wheel.

The model moves the car and keeps its memory; Waymax is handed the pose through its `StateDynamics`, moves
the other road users and measures. Policy and model run at the model's control step and Waymax at its 10 Hz:
the observation, and so the policy, are those of `TrackingEnv`.
"""

import dataclasses
import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from s3jax.config import ConfigError
from s3jax.env import EnvConfig, EnvState, Step, TrackingEnv, World
from s3jax.scenarios.waymax import load_waymax
from s3jax.spatial.frames import to_world, wrap_angle
from s3jax.spatial.state import VehicleState

waymax = load_waymax()
importlib.import_module("tensorflow").config.set_visible_devices([], "GPU")  # or it takes all of the memory

EGO = 0
"""Row of the ego car in the states of a `SceneBank`."""


@struct.dataclass
class WaymaxState:
    """State of one environment.

    Attributes:
      tracking: the tracking task's state: the model's carry, the car, the policy's history.
      trajectory: Waymax's simulated trajectory, fields [objects, steps].
      timestep: [] Waymax's.
    """

    tracking: EnvState
    trajectory: Any
    timestep: jax.Array


def hand_over(environment, state, vehicle: VehicleState):
    """Advances a Waymax environment by one step to where a distilled model has driven the ego car.

    Args:
      environment: a `PlanningAgentEnvironment` made with Waymax's `StateDynamics`.
      state: its state.
      vehicle: the car at the end of the step, fields [], in Waymax's frame.

    Returns:
      The next Waymax state.
    """
    action = waymax.datatypes.Action(data=jnp.stack(_pose(vehicle)), valid=jnp.ones(1, bool))
    return environment.step(state, action)


def _pose(vehicle):
    """Returns x, y, yaw, vel_x, vel_y as Waymax keeps them."""
    velocity = to_world(vehicle.vx, vehicle.vy, vehicle.yaw)
    values = vehicle.x, vehicle.y, wrap_angle(vehicle.yaw), *velocity
    return [jnp.asarray(value, jnp.float32) for value in values]


@dataclasses.dataclass(frozen=True)
class WaymaxEnv:
    """The environment's static part; what a `TrackingEnv` is to the learner.

    Attributes:
      config: the task.
      model: a `s3jax.dynamics.Dynamics`.

    Raises:
      ConfigError: if Waymax's step is not a multiple of the model's, or there is more than one car.
    """

    config: EnvConfig
    model: Any

    def __post_init__(self):
        if self.config.cars > 1:
            raise ConfigError("env=waymax: Waymax moves one car of ours; leave env.cars at 1")
        step, dt = waymax.datatypes.TIME_INTERVAL, self.model.dt
        if abs(self.every * dt - step) > 1e-6:
            raise ConfigError(
                f"env=waymax: Waymax's step of {step} s is not a multiple of the model's, {dt} s; distil a "
                "model with dt 0.05 or 0.1"
            )

    @functools.cached_property
    def every(self) -> int:
        """Control steps in one of Waymax's."""
        return round(waymax.datatypes.TIME_INTERVAL / self.model.dt)

    @functools.cached_property
    def tracking(self) -> TrackingEnv:
        """The tracking task, which starts where a step of Waymax does."""
        return TrackingEnv(self.config, self.model, start_every=self.every)

    @functools.cached_property
    def environment(self):
        """Waymax's environment."""
        config = waymax.config.EnvironmentConfig(max_num_objects=self.config.waymax.objects)
        return waymax.env.PlanningAgentEnvironment(waymax.dynamics.StateDynamics(), config)

    @property
    def observation_size(self) -> int:
        """Length of an observation."""
        return self.tracking.observation_size

    @property
    def policy_size(self) -> int:
        """Length of the leading part of an observation that the policy sees; the critic sees all."""
        return self.tracking.policy_size

    @property
    def action_size(self) -> int:
        """Length of an action."""
        return self.tracking.action_size

    def reset_many(self, world: World, keys, part, parts: int):
        """Resets N environments as `TrackingEnv.reset_many` does; `world.bank` is a `SceneBank`."""
        states, observations = self.tracking.reset_many(_inner(world), keys, part, parts)
        return jax.vmap(self._begin, (None, 0))(world, states), observations

    def start_many(self, world: World, scenarios):
        """Starts scenarios [N] at their beginning. Returns states and observations [N, D]."""
        states, observations = self.tracking.start_many(_inner(world), scenarios)
        return jax.vmap(self._begin, (None, 0))(world, states), observations

    def step_many(self, world: World, states: WaymaxState, actions) -> Step:
        """Steps N environments with actions [N, 2]; every leaf of the result is [N, ...].

        Waymax's metrics become costs, and those of `config.waymax.terminate` end the episode; so does the
        end of Waymax's log, as a truncation.
        """
        steps = self.tracking.step_many(_inner(world), states.tracking, actions)
        return jax.vmap(self._follow, (None, 0, 0))(world, states, steps)

    def _begin(self, world, tracked):
        """Lets Waymax simulate from where the car was placed: the log behind it, nothing ahead."""
        scene = self._scene(world, tracked)
        state = self.environment.reset(scene)
        timestep = world.bank.first[tracked.scenario] + jnp.asarray(tracked.cursor, jnp.int32) // self.every
        log, steps = scene.log_trajectory, jnp.arange(scene.log_trajectory.num_timesteps)
        trajectory = jax.tree.map(
            lambda logged, empty: jnp.where(steps <= timestep, logged, empty), log, state.sim_trajectory
        )
        here = (jnp.arange(log.num_objects) == EGO)[:, None] & (steps == timestep)
        names = ("x", "y", "yaw", "vel_x", "vel_y")
        placed = zip(names, _pose(tracked.vehicle), strict=True)
        trajectory = trajectory.replace(
            **{name: jnp.where(here, value, trajectory[name]) for name, value in placed}
        )
        return WaymaxState(tracked, trajectory, timestep)

    def _follow(self, world, state, step: Step) -> Step:
        """Completes a step of the tracking task with Waymax's."""
        simulated = self._scene(world, step.state, state.trajectory, state.timestep)
        simulated = hand_over(self.environment, simulated, step.state.vehicle)
        # Between Waymax's steps its clock stands: the pose that was handed over is overwritten.
        due = step.state.step % self.every == 0
        timestep = jnp.where(due, simulated.timestep, state.timestep)
        measured = {name: jnp.where(due, value, 0.0) for name, value in self._measure(simulated).items()}
        settings, ended, going = self.config.waymax, dict(step.ended), ~step.terminated
        for name in settings.terminate:
            ended[f"waymax_{name}"] = failed = (measured[name] > 0) & going
            going = going & ~failed
        over = timestep + 1 >= simulated.log_trajectory.num_timesteps
        ended["end_of_log"] = (step.ended["end_of_log"] | over) & going
        ended["step_limit"] = step.ended["step_limit"] & going & ~over
        costs = {f"waymax_{name}": getattr(settings.costs, name) * measured[name] for name in measured}
        return step._replace(
            state=WaymaxState(step.state, simulated.sim_trajectory, timestep),
            reward=jnp.where(going, step.reward - sum(costs.values()), 0.0),
            terminated=~going,
            truncated=ended["end_of_log"] | ended["step_limit"],
            ended=ended,
            costs=step.costs | costs,
        )

    def _scene(self, world, tracked, trajectory=None, timestep=None):
        """Returns the Waymax state of an environment."""
        scene = jax.tree.map(lambda rows: rows[tracked.scenario], world.bank.states)
        scene = scene.replace(sim_trajectory=trajectory, timestep=timestep)
        return waymax.env.PlanningAgentSimulatorState(**scene)

    def _measure(self, state) -> dict:
        """Returns Waymax's metrics of the ego car by name, each []."""
        # Each metric but the overlap looks at every object by itself; only the ego car's value is wanted.
        simulated, logged = jax.tree.map(
            lambda rows: rows[EGO : EGO + 1], (state.sim_trajectory, state.log_trajectory)
        )
        alone = state.replace(sim_trajectory=simulated, log_trajectory=logged)
        measured = {}
        for name in self.config.waymax.metrics:
            config = waymax.config.MetricsConfig(metrics_to_run=(name,))
            result = waymax.metrics.run_metrics(state if name == "overlap" else alone, config)[name]
            measured[name] = jnp.where(result.valid, result.value, 0.0)[EGO]
        return measured


def _inner(world: World) -> World:
    return world._replace(bank=world.bank.scenarios)
