"""Transformer: a network that predicts the motion from the last second of it, without a vehicle model.

Only what needs no learning is built in: the steering actuator, transport, grip as a bound on acceleration,
and rolling without slip below walking pace.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import pydantic

from s3jax.dynamics import actuators, attention, increments, layers
from s3jax.dynamics.attention import AttentionConfig
from s3jax.dynamics.base import Dynamics, DynamicsConfig, guard_logits, guard_values
from s3jax.dynamics.single_track import VehicleConfig
from s3jax.spatial.state import VehicleState


class TransformerConfig(DynamicsConfig):
    """Configuration of the Transformer.

    Attributes:
      vehicle: the data sheet, used below walking pace.
      encoder: size of the network.
      bound: largest increment in units of the training split's root mean square.
    """

    kind: Literal["transformer"] = "transformer"
    vehicle: VehicleConfig = VehicleConfig()
    encoder: AttentionConfig = AttentionConfig()
    bound: float = pydantic.Field(8.0, gt=0)

    def make(self) -> "Transformer":
        """Returns the model."""
        return Transformer(self)


class Carry(NamedTuple):
    """State, the one before it, caches of the layers and the number [] of tokens seen."""

    state: VehicleState
    before: VehicleState
    caches: tuple[attention.Cache, ...]
    count: jnp.ndarray


class Transformer(Dynamics):
    """One token per control step, keys and values cached."""

    def init(self, key):
        """Returns a network whose first prediction is close to coasting."""
        keys = jax.random.split(key, 3)
        width = self.config.encoder.width
        return {
            "steering": guard_logits(actuators.STEERING),
            "scale": layers.scale_init(),
            "token": layers.dense_init(keys[0], layers.FEATURES, width),
            "encoder": attention.encoder_init(keys[1], self.config.encoder),
            "norm": attention.norm_init(width),
            "increments": layers.dense_init(keys[2], width, 3, scale=0.1),
        }

    def calibrate(self, params, statistics):
        """Sets the scale of the network's inputs and outputs."""
        return {**params, "scale": layers.scale_init(statistics)}

    def cold(self, params, state):
        """Returns the carry with empty caches."""
        encoder = self.config.encoder
        caches = tuple(attention.empty(encoder) for _ in range(encoder.layers))
        return Carry(state, state, caches, jnp.zeros((), jnp.int32))

    def observe(self, params, state, history):
        """Follows a history in one pass; equal to stepping through it."""
        before = jax.tree.map(lambda past: jnp.concatenate([past[:1], past[:-1]]), history.states)
        seen = jax.vmap(layers.features, (None, 0, 0, 0, 0, None))(params["scale"], before, *history, self.dt)
        tokens = layers.dense(params["token"], seen)
        outputs, caches = attention.encode(params["encoder"], self.config.encoder, tokens)
        predicted = jax.vmap(self.move, (None, 0, 0, 0, 0))(params, outputs, *history)
        last = jax.tree.map(lambda past: past[-1], history.states)
        return Carry(state, last, caches, jnp.full((), len(tokens), jnp.int32)), predicted

    def step(self, params, carry, control, friction):
        """Advances one control step."""
        seen = layers.features(params["scale"], carry.before, carry.state, control, friction, self.dt)
        token = layers.dense(params["token"], seen)
        output, caches = attention.encode_step(
            params["encoder"], self.config.encoder, carry.caches, carry.count, token
        )
        state = self.move(params, output, carry.state, control, friction)
        return Carry(state, carry.state, caches, carry.count + 1), state

    def move(self, params, output, state, control, friction):
        """Returns the next state that an output [width] of the encoder means."""
        change = self.read(params, output, friction)
        values = guard_values(actuators.STEERING, params["steering"])
        angle = actuators.steer(values, state.steer_angle, control[0], self.dt)
        return self.roll(state, increments.apply(state, change, angle, self.dt))

    def read(self, params, output, friction):
        """Returns the bounded increments [3] that an output [width] of the encoder means."""
        raw = layers.dense(params["increments"], attention.norm(params["norm"], output))
        scale = jax.lax.stop_gradient(params["scale"]["increment"])
        change = scale * increments.soft_clip(raw, self.config.bound)
        return increments.into_circle(change, increments.grip_limit(friction, self.dt, 1.3, spare=3.0))

    def roll(self, before: VehicleState, after: VehicleState) -> VehicleState:
        """Returns the next state, rolling near standstill; forces reverse no car that does not slide."""
        vehicle = self.config.vehicle
        weight = increments.moving(after)
        vx = jnp.maximum(after.vx, jnp.minimum(before.vx, 0.0) - 2.0 * jnp.abs(before.vy))
        rolling = vx * jnp.tan(after.steer_angle) / (vehicle.front_axle + vehicle.rear_axle)
        yaw_rate = rolling + weight * (after.yaw_rate - rolling)
        vy = weight * after.vy + (1.0 - weight) * vehicle.rear_axle * rolling
        return increments.move(before, vx, vy, yaw_rate, after.steer_angle, self.dt)
