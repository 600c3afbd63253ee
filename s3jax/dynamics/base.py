"""What every vehicle dynamics model is: pure functions from a carry and a control to the next state.

A model is a frozen, hashable object (static under `jax.jit`) that holds only its configuration. Its
parameters are a nested dictionary of arrays that the caller passes in. All functions are unbatched; the
caller vmaps them, over the carry, control and friction and, if it wants one car each, over the parameters.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pydantic

from s3jax.config import Config
from s3jax.spatial.frames import to_world, wrap_angle
from s3jax.spatial.state import VehicleState

GRAVITY = 9.81

WITHHELD = 0.0
"""Friction that the model is not told. Any multiplier <= 0 means this; a real one is at least 0.01."""


class DynamicsConfig(Config):
    """Base of every model's configuration.

    Attributes:
      kind: name of the model, which is the module of `s3jax.dynamics` that defines it.
      dt: control step (s).
      base: configuration of the model that this one corrects, for residual models; its parameters are the
        entry `base` of this model's.
    """

    kind: str
    dt: float = pydantic.Field(0.05, ge=0.005, le=0.2)
    base: None = None

    @property
    def name(self) -> str:
        """Name of the model and of its file."""
        return self.kind

    def make(self) -> "Dynamics":
        """Returns the model."""
        raise NotImplementedError


class History(NamedTuple):
    """The W control steps that lead to a state, oldest first.

    Row k is the state at an instant and what was applied from there to the next instant; the last row leads
    to the state that the history belongs to.

    Attributes:
      states: fields [W].
      controls: [W, 2] steer, pedal in [-1, 1].
      frictions: [W, 2] multipliers under the front and rear axle.
    """

    states: VehicleState
    controls: Any
    frictions: Any


class Statistics(NamedTuple):
    """Spread of a training split, which networks use to scale their inputs and outputs.

    Attributes:
      mean: [4] mean of vx, vy (m/s), yaw rate (rad/s) and steer angle (rad).
      std: [4] standard deviation of the same.
      increment: [3] root mean square of the inertial increment of vx, vy and yaw rate over a control step.
    """

    mean: Any = (15.0, 0.0, 0.0, 0.0)
    std: Any = (10.0, 1.0, 0.4, 0.15)
    increment: Any = (0.2, 0.2, 0.05)


@dataclasses.dataclass(frozen=True)
class Dynamics:
    """A dynamics model. Subclasses define `init`, `cold` and `step`.

    Friction is given per axle as [front, rear] multipliers of peak grip at the present position; `WITHHELD`
    in an entry hides it from the model. The state is the whole of what a recording measures; whatever else
    a model remembers (actuators, recurrent state, caches) is in its carry, a NamedTuple with a `state` field.
    """

    config: Any

    @property
    def dt(self) -> float:
        """Control step (s)."""
        return self.config.dt

    def init(self, key):
        """Returns fresh parameters: a nested dictionary of arrays."""
        raise NotImplementedError

    def calibrate(self, params, statistics: Statistics):
        """Returns the parameters with their constants set from a training split. Default: unchanged."""
        return params

    def cold(self, params, state: VehicleState):
        """Returns the carry of a car about which nothing but its state is known."""
        raise NotImplementedError

    def step(self, params, carry, control, friction):
        """Advances one control step.

        Args:
          params: parameters.
          carry: from `reset` or the last step.
          control: [2] steer, pedal in [-1, 1].
          friction: [2] multipliers under the front and rear axle, or `WITHHELD`.

        Returns:
          The next carry and the next `VehicleState`.
        """
        raise NotImplementedError

    def draw(self, carry, key):
        """Returns the carry with what is random about a car drawn. Default: unchanged."""
        return carry

    def disagreement(self, carry):
        """Returns how far the model doubts its last step, a scalar. Default: 0, for it cannot tell."""
        return jnp.zeros(())

    def penalty(self, params, carry):
        """Returns the regularisation of the training step that led to a carry, a scalar. Default: none."""
        return jnp.zeros(())

    def describe(self, params) -> dict:
        """Returns the fitted physical constants by name, for reading."""
        return {}

    def reset(self, params, state: VehicleState, history: History | None = None):
        """Returns the carry of a car in a state.

        Args:
          params: parameters.
          state: fields [].
          history: what led to the state. Without it the model starts cold.
        """
        state = jax.tree.map(as_float, state)
        if history is None:
            return self.cold(params, state)
        return self.observe(params, state, jax.tree.map(as_float, history))[0]

    def observe(self, params, state: VehicleState, history: History):
        """Follows the true steps that led to a state, predicting each of them from the one before.

        Args:
          params: parameters.
          state: fields [].
          history: what led to it, W rows.

        Returns:
          The carry of a car in the state, and the predicted states at the end of each row, fields [W].
        """
        following = jax.tree.map(
            lambda past, now: jnp.concatenate([past[1:], now[None]]), history.states, state
        )

        def follow(carry, row):
            control, friction, truth = row
            carry, predicted = self.step(params, carry, control, friction)
            return carry._replace(state=truth), predicted

        carry = self.cold(params, jax.tree.map(lambda past: past[0], history.states))
        return jax.lax.scan(follow, carry, (history.controls, history.frictions, following))


def rollout(model: Dynamics, params, carry, controls, frictions):
    """Steps a model open loop.

    Args:
      model: the model.
      params: its parameters.
      carry: where to start.
      controls: [T, 2].
      frictions: [T, 2].

    Returns:
      The last carry and the states after each step, fields [T].
    """

    def body(carry, inputs):
        return model.step(params, carry, *inputs)

    return jax.lax.scan(body, carry, (controls, frictions))


def as_float(value):
    """Returns an array of JAX's default float type, never weakly typed."""
    return jnp.asarray(value, jnp.result_type(float))


def known_friction(friction):
    """Separates friction [...] from whether it is known.

    Returns:
      The multiplier (1 where withheld) and a boolean mask, both [...].
    """
    known = friction > WITHHELD
    return jnp.where(known, friction, 1.0), known


def move(state: VehicleState, vx, vy, yaw_rate, steer_angle, dt: float) -> VehicleState:
    """Integrates the pose by the mid-point rule over a step in which the body velocities changed.

    Args:
      state: at the start of the step, fields [].
      vx: forward velocity at its end (m/s).
      vy: leftward velocity at its end (m/s).
      yaw_rate: at its end (rad/s).
      steer_angle: at its end (rad).
      dt: length of the step (s).
    """
    turn = 0.5 * dt * (state.yaw_rate + yaw_rate)
    dx, dy = to_world(0.5 * dt * (state.vx + vx), 0.5 * dt * (state.vy + vy), state.yaw + 0.5 * turn)
    return VehicleState(
        x=state.x + dx,
        y=state.y + dy,
        yaw=wrap_angle(state.yaw + turn),
        vx=vx,
        vy=vy,
        yaw_rate=yaw_rate,
        steer_angle=steer_angle,
    )


class Guard(NamedTuple):
    """Range of a physical constant. Its parameter is the logit of its place in the range.

    Attributes:
      low: lower bound.
      high: upper bound.
      initial: value before fitting.
      log: whether the place is measured on a logarithmic scale.
    """

    low: float
    high: float
    initial: float
    log: bool = False


def guard_logits(guards: dict[str, Guard]) -> dict:
    """Returns the parameters, name -> [], at which every constant has its initial value."""

    def logit(guard):
        scale = math.log if guard.log else float
        place = (scale(guard.initial) - scale(guard.low)) / (scale(guard.high) - scale(guard.low))
        return as_float(math.log(place / (1 - place)))

    return {name: logit(guard) for name, guard in guards.items()}


def guard_values(guards: dict[str, Guard], logits: dict) -> dict:
    """Returns the constants, name -> [], each strictly inside its range."""

    def value(guard, logit):
        place = jax.nn.sigmoid(logit)
        if guard.log:
            return guard.low * jnp.exp(place * math.log(guard.high / guard.low))
        return guard.low + (guard.high - guard.low) * place

    return {name: value(guard, logits[name]) for name, guard in guards.items()}
