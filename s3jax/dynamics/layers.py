"""The few network layers that the learned models are made of, as pure functions of their parameters."""

import math

import jax
import jax.numpy as jnp

from s3jax.dynamics import increments
from s3jax.dynamics.base import GRAVITY, Statistics, as_float, known_friction

FEATURES = 14


def dense_init(key, inputs: int, outputs: int, scale: float = 1.0) -> dict:
    """Returns a dense layer's parameters: LeCun-normal weights times `scale`, zero biases."""
    weights = scale / math.sqrt(inputs) * jax.random.normal(key, (inputs, outputs))
    return {"weights": weights, "bias": jnp.zeros(outputs)}


def dense(params, x):
    """Returns x [..., inputs] times the weights plus the bias."""
    return x @ params["weights"] + params["bias"]


def gru_init(key, inputs: int, size: int) -> dict:
    """Returns the parameters of a gated recurrent unit."""
    first, second = jax.random.split(key)
    return {"input": dense_init(first, inputs, 3 * size), "hidden": dense_init(second, size, 3 * size)}


def gru(params, hidden, x):
    """Returns the next hidden state [size] of a gated recurrent unit for an input [inputs].

    Source: K. Cho et al., 2014 (arXiv:1406.1078), with the reset gate after the product.
    """
    update, reset, candidate = jnp.split(dense(params["input"], x), 3, axis=-1)
    update_h, reset_h, candidate_h = jnp.split(dense(params["hidden"], hidden), 3, axis=-1)
    update = jax.nn.sigmoid(update + update_h)
    candidate = jnp.tanh(candidate + jax.nn.sigmoid(reset + reset_h) * candidate_h)
    return update * hidden + (1.0 - update) * candidate


def scale_init(statistics: Statistics = Statistics()) -> dict:  # noqa: B008
    """Returns the constants that scale a network's inputs and outputs; not trained."""
    return {name: as_float(value) for name, value in statistics._asdict().items()}


def features(scale, before, state, control, friction, dt: float):
    """Returns what a network sees of a control step, [FEATURES].

    Body state standardised by the training split; the inertial increments of the step that led to it, in
    units of their root mean square, and the logarithm of the acceleration they amount to in g, without which
    the network would have to find friction in small differences of large numbers; control; and for each axle
    the logarithm of the friction multiplier and whether it is known. The pose is left out.

    Args:
      scale: from `scale_init`.
      before: state one step ago; `state` itself if that is unknown.
      state: present state.
      control: [2].
      friction: [2] multipliers, or `WITHHELD`.
      dt: (s).
    """
    scale = jax.lax.stop_gradient(scale)
    body = jnp.stack([state.vx, state.vy, state.yaw_rate, state.steer_angle])
    change = increments.of_step(before, state, dt)
    used = jnp.sqrt(change[0] ** 2 + change[1] ** 2 + 1e-8) / (GRAVITY * dt)
    multiplier, known = known_friction(friction)
    return jnp.concatenate(
        [
            (body - scale["mean"]) / scale["std"],
            increments.soft_clip(change / scale["increment"], 10.0),
            jnp.log(used + 0.02)[None],
            control,
            jnp.log(multiplier),
            known.astype(body.dtype),
        ]
    )
