"""Track a reference trajectory with a distilled car.

All functions are pure and unbatched: the caller vmaps them over environments. What does not change
within an episode and is shared by all environments, the scenario bank and the dynamics parameters,
travels beside the state as a `World`, so that it is never copied and never becomes a constant of a
compiled program.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from pydantic import Field

from s3jax.config import Config
from s3jax.scenarios.bank import ScenarioBank, friction, reference
from s3jax.spatial.control import apply_action
from s3jax.spatial.friction import friction_at
from s3jax.spatial.observation import ObservationSpec, initial_history, observe, update_history
from s3jax.spatial.reference import TrackingError, advance, point_at, tracking_error
from s3jax.spatial.state import VehicleState

Range = tuple[float, float]


class StartConfig(Config):
    """How a car is placed at the start of an episode. Deviations are uniform in [-value, value]."""

    along: float = Field(
        0.7, ge=0.0, le=1.0, description="start anywhere in this leading share of the scenario"
    )
    cross_track: float = Field(0.5, ge=0.0, description="m")
    heading: float = Field(0.08, ge=0.0, description="rad")
    speed: float = Field(2.0, ge=0.0, description="m/s")


class RandomisationConfig(Config):
    """What differs from the distilled car within an episode, each uniform in its range.

    Without the delay a policy learns gains that the distilled car just bears and the source does not: at
    45 m/s it weaves.
    """

    steer_gain: Range = (0.85, 1.15)
    steer_bias: Range = (-0.01, 0.01)
    pedal_gain: Range = (0.9, 1.1)
    friction_gain: Range = (0.8, 1.1)
    delay: Range = Field((0.0, 1.0), description="of the control, in control steps, at most 1")


class RewardConfig(Config):
    """Weights of the reward: 1 for each step survived, less these costs."""

    cross_track: float = Field(2.0, ge=0.0, description="per m")
    heading: float = Field(0.5, ge=0.0, description="per rad")
    speed: float = Field(0.25, ge=0.0, description="per m/s")
    steer_rate: float = Field(0.1, ge=0.0, description="per (1/s)^2")
    pedal_rate: float = Field(0.01, ge=0.0, description="per (1/s)^2")


class TerminationConfig(Config):
    """Bounds that end an episode."""

    cross_track: float = Field(3.5, gt=0.0, description="m")
    heading: float = Field(1.2, gt=0.0, description="rad")
    steps: int = Field(240, gt=0, description="control steps after which an episode is truncated")


class EnvConfig(Config):
    """The tracking task."""

    observation: ObservationSpec = ObservationSpec()
    control_rate: Range = Field((3.0, 4.0), description="change of steer and pedal at full action (1/s)")
    axles: Range = Field((1.29, -1.41), description="front and rear axle ahead of the centre of gravity (m)")
    start: StartConfig = StartConfig()
    randomisation: RandomisationConfig = RandomisationConfig()
    reward: RewardConfig = RewardConfig()
    termination: TerminationConfig = TerminationConfig()


class World(NamedTuple):
    """What all environments share.

    Attributes:
      bank: the scenarios, on the device.
      dynamics: parameters of the dynamics model.
    """

    bank: ScenarioBank
    dynamics: Any


class Perturbation(NamedTuple):
    """Deviations from the distilled car, drawn at each reset; each []."""

    steer_gain: Any
    steer_bias: Any
    pedal_gain: Any
    friction_gain: Any
    delay: Any


@struct.dataclass
class EnvState:
    """State of one environment.

    Attributes:
      scenario: [] index into the bank.
      carry: the dynamics model's carry.
      vehicle: the car.
      cursor: [] place on the reference.
      history: [H, 6] recent states and controls.
      step: [] control steps since the reset.
      perturbation: this episode's deviations from the distilled car.
    """

    scenario: jax.Array
    carry: Any
    vehicle: VehicleState
    cursor: jax.Array
    history: jax.Array
    step: jax.Array
    perturbation: Perturbation


class Step(NamedTuple):
    """Result of one control step.

    Attributes:
      state: state after the step; not reset.
      observation: [D] observation after the step.
      reward: [].
      terminated: [] the car left the corridor, turned round or its state is not finite.
      truncated: [] the scenario or the step limit ended; the value of the last observation still counts.
      error: tracking error after the step.
      costs: reward term by name, each [].
    """

    state: EnvState
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    error: TrackingError
    costs: dict


@dataclasses.dataclass(frozen=True)
class TrackingEnv:
    """The environment's static part: its configuration and the dynamics model.

    Attributes:
      config: the task.
      model: a `s3jax.dynamics.Dynamics`.
    """

    config: EnvConfig
    model: Any

    @property
    def observation_size(self) -> int:
        """Length of an observation."""
        return self.config.observation.size

    @property
    def policy_size(self) -> int:
        """Length of the leading part of an observation that the policy sees; the critic sees all."""
        return self.observation_size

    action_size = 2

    def reset_many(self, world: World, keys, part, parts: int):
        """Resets N environments; keys [N], part [N]. Returns states and observations [N, D]."""
        return jax.vmap(lambda key, part: self.reset(world, key, part, parts))(keys, part)

    def step_many(self, world: World, states: EnvState, actions) -> Step:
        """Steps N environments with actions [N, 2]; every leaf of the result is [N, ...]."""
        return jax.vmap(self.step, (None, 0, 0))(world, states, actions)

    def reset(self, world: World, key, part=0, parts: int = 1) -> tuple[EnvState, jax.Array]:
        """Starts an episode on a random scenario, somewhere on it, a little off the reference.

        Args:
          world: bank and dynamics parameters.
          key: PRNG key.
          part: [] which of the bank's `parts` equal parts to draw the scenario from.
          parts: number of parts; divides the number of scenarios.

        Returns:
          The state and the observation [D].
        """
        scenario_key, along_key, offset_key, perturbation_key = jax.random.split(key, 4)
        count = world.bank.size.shape[0] // parts
        scenario = part * count + jax.random.randint(scenario_key, (), 0, count)
        start = self.config.start
        span = reference(world.bank, scenario).length - 1
        cursor = jax.random.uniform(along_key, maxval=start.along) * span
        limits = jnp.array([start.cross_track, start.heading, start.speed])
        offset = limits * jax.random.uniform(offset_key, (3,), minval=-1.0)
        ranges = jnp.array(list(self.config.randomisation.dump().values()))
        draw = jax.random.uniform(perturbation_key, (len(ranges),))
        perturbation = Perturbation(*(ranges[:, 0] + draw * (ranges[:, 1] - ranges[:, 0])))
        return self._start(world, scenario, cursor, offset, perturbation)

    def start(self, world: World, scenario) -> tuple[EnvState, jax.Array]:
        """Starts scenario [] at its beginning, on the reference, with the car as distilled."""
        one, zero = jnp.ones(()), jnp.zeros(())
        return self._start(world, scenario, zero, jnp.zeros(3), Perturbation(one, zero, one, one, zero))

    def _start(self, world, scenario, cursor, offset, perturbation):
        point = point_at(reference(world.bank, scenario), cursor)
        cross_track, heading, speed = offset
        vx = jnp.maximum(point.speed + speed, 0.0)
        front, rear = self.config.axles
        yaw_rate = vx * point.curvature
        vehicle = VehicleState(
            x=point.x - jnp.sin(point.yaw) * cross_track,
            y=point.y + jnp.cos(point.yaw) * cross_track,
            yaw=point.yaw + heading,
            vx=vx,
            vy=-rear * yaw_rate,  # the rear wheels roll without slip
            yaw_rate=yaw_rate,
            steer_angle=jnp.arctan((front - rear) * point.curvature),
        )
        state = EnvState(
            scenario=scenario,
            carry=self.model.reset(world.dynamics, vehicle),
            vehicle=vehicle,
            cursor=cursor,
            history=initial_history(self.config.observation, vehicle),
            step=jnp.zeros((), jnp.int32),
            perturbation=perturbation,
        )
        return state, self.observe(world, state)

    def observe(self, world: World, state: EnvState):
        """Returns the observation [D] of a state."""
        road = reference(world.bank, state.scenario)
        return observe(self.config.observation, road, state.cursor, state.vehicle, state.history)

    def step(self, world: World, state: EnvState, action) -> Step:
        """Changes the control and holds it for one step.

        Args:
          world: bank and dynamics parameters.
          state: the environment.
          action: [2] change of steer and pedal in [-1, 1], as a share of `control_rate`.
        """
        perturbation = state.perturbation
        previous = state.history[-1, 4:]
        control = apply_action(previous, action, self.config.control_rate, self.model.dt)
        held = control + perturbation.delay * (previous - control)
        applied = jnp.stack(
            [
                jnp.clip(held[0] * perturbation.steer_gain + perturbation.steer_bias, -1.0, 1.0),
                jnp.clip(held[1] * perturbation.pedal_gain, -1.0, 1.0),
            ]
        )
        carry, vehicle = self.model.step(world.dynamics, state.carry, applied, self._friction(world, state))
        road = reference(world.bank, state.scenario)
        cursor = advance(road, state.cursor, vehicle.x, vehicle.y)
        error = tracking_error(point_at(road, cursor), vehicle)

        weights, bounds = self.config.reward, self.config.termination
        rate = (control - previous) / self.model.dt
        costs = {
            "cross_track": weights.cross_track * jnp.abs(error.cross_track),
            "heading": weights.heading * jnp.abs(error.heading),
            "speed": weights.speed * jnp.abs(error.speed),
            "steer_rate": weights.steer_rate * rate[0] ** 2,
            "pedal_rate": weights.pedal_rate * rate[1] ** 2,
        }
        inside = (jnp.abs(error.cross_track) <= bounds.cross_track) & (
            jnp.abs(error.heading) <= bounds.heading
        )
        terminated = ~inside  # also when an error is not a number
        step = state.step + 1
        truncated = ((cursor >= road.length - 1) | (step >= bounds.steps)) & ~terminated
        state = EnvState(
            scenario=state.scenario,
            carry=carry,
            vehicle=vehicle,
            cursor=cursor,
            history=update_history(state.history, vehicle, control),
            step=step,
            perturbation=perturbation,
        )
        reward = jnp.where(terminated, 0.0, 1.0 - sum(costs.values()))
        return Step(state, self.observe(world, state), reward, terminated, truncated, error, costs)

    def _friction(self, world, state):
        """Friction [2] under the front and rear axle."""
        offset = jnp.array(self.config.axles)
        x = state.vehicle.x + offset * jnp.cos(state.vehicle.yaw)
        y = state.vehicle.y + offset * jnp.sin(state.vehicle.yaw)
        return state.perturbation.friction_gain * friction_at(friction(world.bank, state.scenario), x, y)
