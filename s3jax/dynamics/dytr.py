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
from s3jax.dynamics.base import Dynamics, DynamicsConfig, as_float, move
from s3jax.dynamics.store import dynamics_config
from s3jax.spatial.state import VehicleState


class DytrConfig(DynamicsConfig):
    """Configuration of the residual Transformer.

    Attributes:
      base: configuration of the model that it corrects.
      encoder: size of the network.
      bound: largest correction in units of the training split's root mean square increment.
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

    The state inside the base's carry is its own last prediction, before correction.
    """

    state: VehicleState
    before: VehicleState
    base: NamedTuple
    caches: tuple[attention.Cache, ...]
    fused: attention.Cache
    count: jnp.ndarray


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
            "queries": jax.random.normal(keys[3], (3, encoder.width)),
            "attention": attention.attention_init(keys[4], encoder),
            "norm": attention.norm_init(encoder.width),
            "hidden": layers.dense_init(keys[5], encoder.width, encoder.width),
            "residual": {"weights": jnp.zeros((3, encoder.width))},
        }

    def calibrate(self, params, statistics):
        """Sets the scale of the network's inputs and outputs."""
        return {**params, "scale": layers.scale_init(statistics)}

    def cold(self, params, state):
        """Returns the carry of a cold base with empty caches."""
        encoder = self.config.encoder
        caches = tuple(attention.empty(encoder) for _ in range(encoder.layers))
        base = self.base.cold(params["base"], state)
        return Carry(state, state, base, caches, attention.empty(encoder), jnp.zeros((), jnp.int32))

    def reset(self, params, state, history=None):
        """Runs the base over the history and then the network in one pass; equal to stepping through it."""
        state = jax.tree.map(as_float, state)
        if history is None:
            return self.cold(params, state)
        history = jax.tree.map(as_float, history)

        def observe(loop, row):
            base, before = loop
            state, control, friction = row
            base, predicted = self._base_step(params, base, state, control, friction)
            return (base, state), self._token(params, before, state, predicted, control, friction)

        carry = self.cold(params, jax.tree.map(lambda past: past[0], history.states))
        (base, before), tokens = jax.lax.scan(observe, (carry.base, carry.state), tuple(history))
        encoder = self.config.encoder
        outputs, caches = attention.encode(params["encoder"], encoder, tokens)
        fused = attention.ring(encoder, *attention.keys_values(params["attention"], encoder, outputs))
        return Carry(state, before, base, caches, fused, carry.count + len(tokens))

    def step(self, params, carry, control, friction):
        """Advances one control step."""
        base, predicted, caches, fused, residual = self._predict(params, carry, control, friction)
        weight = increments.moving(carry.state)
        # On top of the base's body velocities, so that a correction of nothing is the base to the bit.
        state = move(
            carry.state,
            predicted.vx + weight * residual[0],
            predicted.vy + weight * residual[1],
            predicted.yaw_rate + weight * residual[2],
            predicted.steer_angle,
            self.dt,
        )
        return Carry(state, carry.state, base, caches, fused, carry.count + 1), state

    def penalty(self, params, carry, control, friction):
        """Returns the prior's penalty on the correction."""
        *_, residual = self._predict(params, carry, control, friction)
        return self.config.prior * jnp.mean((residual / params["scale"]["increment"]) ** 2)

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

    def _predict(self, params, carry, control, friction):
        """Returns the base's carry and next state, the next caches and the bounded correction [3]."""
        encoder = self.config.encoder
        base, predicted = self._base_step(params, carry.base, carry.state, control, friction)
        token = self._token(params, carry.before, carry.state, predicted, control, friction)
        output, caches = attention.encode_step(params["encoder"], encoder, carry.caches, carry.count, token)
        entry = attention.keys_values(params["attention"], encoder, output)
        fused = attention.store(encoder, carry.fused, carry.count, *entry)
        query = attention.queries(params["attention"], encoder, params["queries"])
        read = attention.attend_cached(params["attention"], encoder, query, fused, carry.count)
        # One answer per corrected quantity; each sees the present token too.
        answers = params["queries"] + output + layers.dense(params["attention"]["out"], read)
        answers = jax.nn.gelu(layers.dense(params["hidden"], attention.norm(params["norm"], answers)))
        raw = jnp.sum(params["residual"]["weights"] * answers, axis=-1)
        increment = jax.lax.stop_gradient(params["scale"]["increment"])
        residual = increment * increments.soft_clip(raw, self.config.bound)
        limit = increments.grip_limit(friction, self.dt, 0.5, spare=1.0)
        return base, predicted, caches, fused, increments.into_circle(residual, limit)
