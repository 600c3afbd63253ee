"""Residual Transformer: a base model's prediction plus a bounded correction that the recent motion suggests.

The idea is that of Miao et al., "DyTR" (arXiv:2502.11800): learned queries, one per corrected quantity,
attend to the fused history, and only the base model's error is learned. The base is fitted first and frozen.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import pydantic

from s3jax.dynamics import attention, increments, layers
from s3jax.dynamics.attention import AttentionConfig
from s3jax.dynamics.base import Dynamics, DynamicsConfig, move
from s3jax.dynamics.store import dynamics_config
from s3jax.spatial.state import VehicleState

STEER = 0.003
"""Unit of the correction of the road-wheel angle over a step (rad): what the steering gives way by."""


class DytrConfig(DynamicsConfig):
    """Configuration of the residual Transformer.

    Attributes:
      base: configuration of the model that it corrects.
      encoder: size of the network.
      bound: largest correction in units of the training split's root mean square increment, and of `STEER`.
      prior: weight of the penalty on corrections, so that the base keeps doing the work.
    """

    kind: Literal["dytr"] = "dytr"
    base: pydantic.SerializeAsAny[DynamicsConfig] = pydantic.Field({"kind": "ddm"})
    encoder: AttentionConfig = AttentionConfig()
    bound: float = pydantic.Field(2.0, gt=0)
    prior: float = pydantic.Field(1e-3, ge=0)

    @pydantic.field_validator("base", mode="before")
    @classmethod
    def _by_kind(cls, value):
        return dynamics_config(value, "base") if isinstance(value, dict) else value

    @pydantic.model_validator(mode="after")
    def _same_dt(self):
        if self.base.dt != self.dt:
            raise ValueError(f"base: has dt {self.base.dt}, the residual model {self.dt}")
        return self

    @property
    def name(self) -> str:
        """`dytr_` and the name of the base."""
        return f"dytr_{self.base.name}"

    def make(self) -> "Dytr":
        """Returns the model."""
        return Dytr(self)


class Carry(NamedTuple):
    """State, the one before it, the carry of the base, caches of layers and fused history, tokens seen.

    The state inside the base's carry is its own last prediction, before correction. `residual` [4] is the
    last correction of vx, vy, yaw rate and steer angle, in its units.
    """

    state: VehicleState
    before: VehicleState
    base: NamedTuple
    caches: tuple[attention.Cache, ...]
    fused: attention.Cache
    count: jnp.ndarray
    residual: jnp.ndarray


class Dytr(Dynamics):
    """Base model and correction."""

    @property
    def base(self) -> Dynamics:
        """The model that is corrected."""
        return self.config.base.make()

    def init(self, key):
        """Returns a network that corrects nothing yet, over a fresh base."""
        keys = jax.random.split(key, 6)
        encoder = self.config.encoder
        return {
            "base": self.base.init(keys[0]),
            "scale": layers.scale_init(),
            "token": layers.dense_init(keys[1], layers.FEATURES + 3, encoder.width),
            "encoder": attention.encoder_init(keys[2], encoder),
            "queries": jax.random.normal(keys[3], (4, encoder.width)),
            "attention": attention.attention_init(keys[4], encoder),
            "norm": attention.norm_init(encoder.width),
            "hidden": layers.dense_init(keys[5], encoder.width, encoder.width),
            "residual": {"weights": jnp.zeros((4, encoder.width))},
        }

    def calibrate(self, params, statistics):
        """Sets the scale of the network's inputs and outputs."""
        return {**params, "scale": layers.scale_init(statistics)}

    def cold(self, params, state):
        """Returns the carry of a cold base with empty caches."""
        encoder = self.config.encoder
        caches = tuple(attention.empty(encoder) for _ in range(encoder.layers))
        base = self.base.cold(params["base"], state)
        none = jnp.zeros(4, jnp.result_type(float))
        return Carry(state, state, base, caches, attention.empty(encoder), jnp.zeros((), jnp.int32), none)

    def observe(self, params, state, history):
        """Runs the base over a history and then the network in one pass; equal to stepping through it."""

        def follow(loop, row):
            base, before = loop
            state, control, friction = row
            base, predicted = self._base_step(params, base, state, control, friction)
            token = self._token(params, before, state, predicted, control, friction)
            return (base, state), (predicted, token)

        carry = self.cold(params, jax.tree.map(lambda past: past[0], history.states))
        (base, before), (predicted, tokens) = jax.lax.scan(follow, (carry.base, carry.state), tuple(history))
        encoder, reader = self.config.encoder, params["attention"]
        outputs, caches = attention.encode(params["encoder"], encoder, tokens)
        keys, values = attention.keys_values(reader, encoder, outputs)
        query = attention.queries(reader, encoder, params["queries"])
        query = jnp.broadcast_to(query, (len(tokens), *query.shape))
        residual = self._residual(params, outputs, attention.attend(reader, encoder, query, keys, values))
        corrected = jax.vmap(self._correct, (None, 0, 0, 0, 0))(
            params, history.states, predicted, residual, history.frictions
        )
        fused = attention.ring(encoder, keys, values)
        return Carry(state, before, base, caches, fused, carry.count + len(tokens), residual[-1]), corrected

    def step(self, params, carry, control, friction):
        """Advances one control step."""
        encoder, reader = self.config.encoder, params["attention"]
        base, predicted = self._base_step(params, carry.base, carry.state, control, friction)
        token = self._token(params, carry.before, carry.state, predicted, control, friction)
        output, caches = attention.encode_step(params["encoder"], encoder, carry.caches, carry.count, token)
        entry = attention.keys_values(reader, encoder, output)
        fused = attention.store(encoder, carry.fused, carry.count, *entry)
        query = attention.queries(reader, encoder, params["queries"])
        read = attention.attend_cached(reader, encoder, query, fused, carry.count)
        residual = self._residual(params, output, read)
        state = self._correct(params, carry.state, predicted, residual, friction)
        return Carry(state, carry.state, base, caches, fused, carry.count + 1, residual), state

    def _residual(self, params, output, read):
        """Returns the residual [..., 4] that outputs [..., width] and what the queries read of them mean."""
        # One answer per corrected quantity; each sees the present token too.
        answers = params["queries"] + output[..., None, :] + layers.dense(params["attention"]["out"], read)
        answers = jax.nn.gelu(layers.dense(params["hidden"], attention.norm(params["norm"], answers)))
        raw = jnp.sum(params["residual"]["weights"] * answers, axis=-1)
        return increments.soft_clip(raw, self.config.bound)

    def _correct(self, params, before, predicted, residual, friction):
        """Returns the base's prediction corrected by a residual [4], which grip and speed limit."""
        change = residual[:3] * jax.lax.stop_gradient(params["scale"]["increment"])
        change = increments.into_circle(change, increments.grip_limit(friction, self.dt, 0.5, spare=1.0))
        weight = increments.moving(before)
        # On top of the base's body velocities, so that a correction of nothing is the base to the bit.
        return move(
            before,
            predicted.vx + weight * change[0],
            predicted.vy + weight * change[1],
            predicted.yaw_rate + weight * change[2],
            predicted.steer_angle + STEER * residual[3],
            self.dt,
        )

    def penalty(self, params, carry):
        """Returns the prior's penalty on the last correction."""
        return self.config.prior * jnp.mean(carry.residual**2)

    def describe(self, params):
        """Returns the fitted constants of the base."""
        return self.base.describe(params["base"])

    def _base_step(self, params, base, state, control, friction):
        """Steps the base from a state, with what it remembers."""
        frozen = jax.lax.stop_gradient(params["base"])
        return self.base.step(frozen, base._replace(state=state), control, friction)

    def _token(self, params, before, state, predicted, control, friction):
        """Returns the token [width] of a step: what is seen and what the base makes of it."""
        scale = jax.lax.stop_gradient(params["scale"])
        change = increments.of_step(state, predicted, self.dt) / scale["increment"]
        seen = layers.features(scale, before, state, control, friction, self.dt)
        return layers.dense(params["token"], jnp.concatenate([seen, increments.soft_clip(change, 10.0)]))
