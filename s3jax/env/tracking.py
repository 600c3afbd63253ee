"""Track a reference trajectory with a distilled car.

All functions are pure; unless their name ends in `_many` they are unbatched. What does not change within an
episode and is shared by all environments, the scenario bank and the dynamics parameters, travels beside the
state as a `World`, so that it is never copied and never becomes a constant of a compiled program.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from s3jax.dynamics import envelope
from s3jax.env import layout, perturbation
from s3jax.env.config import EnvConfig
from s3jax.env.perturbation import Perturbation
from s3jax.scenarios.bank import ScenarioBank, friction, reference
from s3jax.spatial.control import apply_action
from s3jax.spatial.friction import friction_at
from s3jax.spatial.observation import initial_history, observe, update_history
from s3jax.spatial.reference import TrackingError, advance, point_at, tracking_error
from s3jax.spatial.state import VehicleState


class World(NamedTuple):
    """What all environments share.

    Attributes:
      bank: the scenarios, on the device.
      dynamics: parameters of the dynamics model.
    """

    bank: ScenarioBank
    dynamics: Any


@struct.dataclass
class EnvState:
    """State of one environment.

    Attributes:
      scenario: [] index into the bank.
      carry: the dynamics model's carry.
      vehicle: the car.
      cursor: [] place on the reference.
      history: [H, 6] recent states, as sensed, and controls.
      held: [2] control behind the delay and the lag.
      step: [] control steps since the reset.
      perturbation: this episode's deviations from the distilled car.
      told: [] whether the policy is told the surface.
      sensed: the car as the policy sees it, or None without noise.
      key: PRNG key of the noise, or None without noise.
    """

    scenario: jax.Array
    carry: Any
    vehicle: VehicleState
    cursor: jax.Array
    history: jax.Array
    held: jax.Array
    step: jax.Array
    perturbation: Perturbation
    told: jax.Array
    sensed: VehicleState | None
    key: Any


class Step(NamedTuple):
    """Result of one control step.

    Attributes:
      state: state after the step; not reset.
      observation: [D] observation after the step.
      reward: [].
      terminated: [] the episode failed.
      truncated: [] the scenario or the step limit ended; the value of the last observation still counts.
      ended: name -> [] whether the episode ended in this way; at most one is true, and one is if the episode
        ended. Failures are `envelope` (a motion that no car makes, or not finite), `disagreement` (of an
        ensemble), `corridor` and `heading`; truncations `end_of_log` and `step_limit`.
      error: tracking error after the step.
      costs: reward term by name, each [].
    """

    state: EnvState
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    ended: dict
    error: TrackingError
    costs: dict


@dataclasses.dataclass(frozen=True)
class TrackingEnv:
    """The environment's static part: its configuration and the dynamics model.

    Attributes:
      config: the task.
      model: a `s3jax.dynamics.Dynamics`.
      start_every: reference samples between the places where episodes start; 0 for anywhere.
    """

    config: EnvConfig
    model: Any
    start_every: int = 0

    action_size = 2

    @property
    def observation_size(self) -> int:
        """Length of an observation."""
        return self.policy_size + layout.size(layout.critic_parts(self.config))

    @property
    def policy_size(self) -> int:
        """Length of the leading part of an observation that the policy sees; the critic sees all."""
        return layout.size(layout.policy_parts(self.config))

    def reset_many(self, world: World, keys, part, parts: int):
        """Resets N environments; keys [N], part [N]. Returns states and observations [N, D]."""
        return jax.vmap(lambda key, part: self.reset(world, key, part, parts))(keys, part)

    def start_many(self, world: World, scenarios):
        """Starts scenarios [N] at their beginning. Returns states and observations [N, D]."""
        return jax.vmap(self.start, (None, 0))(world, scenarios)

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
        scenario_key, along_key, key = jax.random.split(key, 3)
        count = world.bank.size.shape[0] // parts
        scenario = part * count + jax.random.randint(scenario_key, (), 0, count)
        state = self.place(world, scenario, self.draw_cursor(world, scenario, along_key), key)
        return state, self.observe(world, state)

    def start(self, world: World, scenario) -> tuple[EnvState, jax.Array]:
        """Starts scenario [] at its beginning, on the reference, with the car as distilled and no noise."""
        yes = jnp.ones((), bool)
        state = self._begin(world, scenario, jnp.zeros(()), jnp.zeros(3), perturbation.none(), yes)
        return state, self.observe(world, state)

    def draw_cursor(self, world: World, scenario, key):
        """Returns random places [...] to start at on the references of scenarios [...]."""
        share = jax.random.uniform(key, jnp.shape(scenario), maxval=self.config.start.along)
        cursor = share * (world.bank.length[scenario] - 1)
        if self.start_every:
            cursor = jnp.floor(cursor / self.start_every) * self.start_every
        return cursor

    def place(self, world: World, scenario, cursor, key) -> EnvState:
        """Starts scenario [] at a cursor [], with everything else about the episode drawn."""
        offset_key, perturbation_key, told_key, member_key, noise_key = jax.random.split(key, 5)
        start = self.config.start
        limits = jnp.array([start.cross_track, start.heading, start.speed])
        offset = limits * jax.random.uniform(offset_key, (3,), minval=-1.0)
        drawn = perturbation.draw(self.config.randomisation, perturbation_key)
        told = jax.random.bernoulli(told_key, 1.0 - self.config.surface_dropout)
        noise_key = noise_key if any(self.config.noise.scales) else None
        state = self._begin(world, scenario, cursor, offset, drawn, told, noise_key)
        return state.replace(carry=self.model.draw(state.carry, member_key))

    def _begin(self, world, scenario, cursor, offset, drawn, told, key=None):
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
        sensed, key = self._sense(vehicle, key)
        return EnvState(
            scenario=scenario,
            carry=self.model.reset(world.dynamics, vehicle),
            vehicle=vehicle,
            cursor=cursor,
            history=initial_history(self.config.observation, vehicle if sensed is None else sensed),
            held=jnp.zeros(2),
            step=jnp.zeros((), jnp.int32),
            perturbation=drawn,
            told=told,
            sensed=sensed,
            key=key,
        )

    def _sense(self, vehicle, key):
        """Returns the car as sensed and the next key, both None where there is no noise."""
        if key is None:
            return None, None
        key, noise_key = jax.random.split(key)
        noise = jnp.array(self.config.noise.scales) * jax.random.normal(noise_key, (len(vehicle),))
        return VehicleState(*(value + noise[i] for i, value in enumerate(vehicle))), key

    def observe(self, world: World, state: EnvState):
        """Returns the observation [D] of a state."""
        return jnp.concatenate([*self.policy_view(world, state), *self.critic_view(world, state)])

    def policy_view(self, world: World, state: EnvState) -> list:
        """Returns the parts of the observation that the policy sees."""
        spec, road = self.config.observation, reference(world.bank, state.scenario)
        car = state.vehicle if state.sensed is None else state.sensed
        surface = 0.0
        if spec.surface:
            surface = jnp.where(state.told, jnp.mean(self._road_friction(world, state)), 0.0)
        seen = observe(spec, road, state.cursor, car, state.history, surface)
        return [seen, self._oracle(world, state)] if self.config.oracle == "policy" else [seen]

    def critic_view(self, world: World, state: EnvState) -> list:
        """Returns the parts of the observation that only the critic sees."""
        return [self._oracle(world, state)] if self.config.oracle == "critic" else []

    def _oracle(self, world, state):
        spec, road = self.config.observation, reference(world.bank, state.scenario)
        ahead = point_at(road, state.cursor + spec.preview_stride * jnp.arange(1, spec.preview + 1))
        gain, surface = state.perturbation.friction_gain, friction(world.bank, state.scenario)
        return layout.oracle(
            gain * self._road_friction(world, state),
            gain * friction_at(surface, ahead.x, ahead.y),
            tracking_error(point_at(road, state.cursor), state.vehicle),
            state,
        )

    def step(self, world: World, state: EnvState, action) -> Step:
        """Changes the control and holds it for one step.

        Args:
          world: bank and dynamics parameters.
          state: the environment.
          action: [2] change of steer and pedal in [-1, 1], as a share of `control_rate`.
        """
        step = self.move(world, state, action)
        return step._replace(observation=self.observe(world, step.state))

    def move(self, world: World, state: EnvState, action) -> Step:
        """Does what `step` does but observe."""
        drawn, dt = state.perturbation, self.model.dt
        previous = state.history[-1, 4:]
        control = apply_action(previous, action, self.config.control_rate, dt)
        delayed = control + drawn.delay * (previous - control)
        follow = dt / (dt + drawn.lag)
        held = follow * delayed + (1.0 - follow) * state.held
        applied = jnp.stack([held[0] * drawn.steer_gain + drawn.steer_bias, held[1] * drawn.pedal_gain])
        params = perturbation.apply(self.config.randomisation, drawn, world.dynamics)
        grip = drawn.friction_gain * self._road_friction(world, state)
        carry, vehicle = self.model.step(params, state.carry, jnp.clip(applied, -1.0, 1.0), grip)
        road = reference(world.bank, state.scenario)
        cursor = advance(road, state.cursor, vehicle.x, vehicle.y)
        error = tracking_error(point_at(road, cursor), vehicle)

        weights, bounds = self.config.reward, self.config.termination
        rate = (control - previous) / dt
        costs = {
            "cross_track": weights.cross_track * jnp.abs(error.cross_track),
            "heading": weights.heading * jnp.abs(error.heading),
            "speed": weights.speed * jnp.abs(error.speed),
            "steer_rate": weights.steer_rate * rate[0] ** 2,
            "pedal_rate": weights.pedal_rate * rate[1] ** 2,
        }
        step = state.step + 1
        failures = {
            "envelope": ~envelope.inside(state.vehicle, vehicle, dt),
            "disagreement": self.model.disagreement(carry) > bounds.disagreement,
            "corridor": ~(jnp.abs(error.cross_track) <= bounds.cross_track),
            "heading": ~(jnp.abs(error.heading) <= bounds.heading),
        }
        limits = {"end_of_log": cursor >= road.length - 1, "step_limit": step >= bounds.steps}
        ended = _first(failures | limits)
        terminated = sum((ended[name] for name in failures), jnp.zeros((), bool))
        sensed, key = self._sense(vehicle, state.key)
        state = EnvState(
            scenario=state.scenario,
            carry=carry,
            vehicle=vehicle,
            cursor=cursor,
            history=update_history(state.history, vehicle if sensed is None else sensed, control),
            held=held,
            step=step,
            perturbation=drawn,
            told=state.told,
            sensed=sensed,
            key=key,
        )
        return Step(
            state=state,
            observation=None,
            reward=jnp.where(terminated, 0.0, 1.0 - sum(costs.values())),
            terminated=terminated,
            truncated=ended["end_of_log"] | ended["step_limit"],
            ended=ended,
            error=error,
            costs=costs,
        )

    def _road_friction(self, world, state):
        """Returns the road's nominal friction [2] under the front and rear axle."""
        offset = jnp.array(self.config.axles)
        x = state.vehicle.x + offset * jnp.cos(state.vehicle.yaw)
        y = state.vehicle.y + offset * jnp.sin(state.vehicle.yaw)
        return friction_at(friction(world.bank, state.scenario), x, y)


def _first(flags: dict) -> dict:
    """Returns the flags with all but the first true one cleared."""
    kept, before = {}, jnp.zeros((), bool)
    for name, flag in flags.items():
        kept[name] = flag & ~before
        before = before | flag
    return kept
