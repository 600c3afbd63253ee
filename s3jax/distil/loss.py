"""The loss of a distillation: a model's own multi-step prediction of a recorded window."""

import functools

import jax
import jax.numpy as jnp

from s3jax.distil import dataset
from s3jax.distil.config import DistilConfig, LossConfig
from s3jax.distil.dataset import Rows, Windows
from s3jax.dynamics.base import WITHHELD, History


def batch_loss(model, config: DistilConfig, params, rows: Rows, windows: Windows, horizon: int, key):
    """Returns the mean loss of a batch of windows drawn with a key."""
    keys = jax.random.split(key)
    place = jax.random.uniform(keys[0], (config.batch,))
    which = jnp.clip(jnp.searchsorted(windows.cumulative, place), 0, len(windows.starts) - 1)
    batch = dataset.take(rows, windows.starts[which], config.warmup + horizon + 1)
    loss = functools.partial(window_loss, model, config, params)
    return jnp.mean(jax.vmap(loss)(batch, jax.random.split(keys[1], config.batch)))


def window_loss(model, config: DistilConfig, params, window: Rows, key):
    """Returns the loss of one window: of single steps over its history, then of predictions fed back.

    Args:
      model: the model.
      config: the training configuration.
      params: its parameters.
      window: fields [warmup + horizon + 1, ...].
      key: draws the noise, and whether friction and history are withheld.
    """
    keys = jax.random.split(key, 3)
    frictions = jnp.where(jax.random.bernoulli(keys[0], config.withheld), WITHHELD, window.frictions)
    window = window._replace(frictions=frictions)
    start, history, future = divide(window, config.warmup)
    history = history._replace(states=noisy(keys[1], history.states, config))
    observed, steps = model.observe(params, start, history)
    carry = jax.tree.map(
        functools.partial(jnp.where, jax.random.bernoulli(keys[2], config.cold)),
        model.reset(params, start),
        observed,
    )

    def body(carry, inputs):
        carry, state = model.step(params, carry, *inputs)
        return carry, (state, model.penalty(params, carry))

    controls, frictions = window.controls[config.warmup : -1], window.frictions[config.warmup : -1]
    _, (states, penalties) = jax.lax.scan(body, carry, (controls, frictions))
    truth = jax.tree.map(lambda field: field[1 : config.warmup + 1], window.states)
    steps = prediction_loss(config.loss, steps, truth, config.loss.one_step)
    return jnp.mean(prediction_loss(config.loss, states, future) + penalties) + jnp.mean(steps)


def divide(window: Rows, warmup: int):
    """Returns the start state, the `History` before it and the states after it of a window."""
    start = jax.tree.map(lambda field: field[warmup], window.states)
    past = jax.tree.map(lambda field: field[:warmup], window)
    future = jax.tree.map(lambda field: field[warmup + 1 :], window.states)
    return start, History(*past), future


def prediction_loss(scales: LossConfig, predicted, truth, share: float = 1.0):
    """Returns the pseudo-Huber loss [...] of states, summed over channels, at a share of the scales."""
    distance = (predicted.x - truth.x) ** 2 + (predicted.y - truth.y) ** 2
    squares = (
        ((predicted.vx - truth.vx) / scales.speed) ** 2,
        ((predicted.vy - truth.vy) / scales.side) ** 2,
        ((predicted.yaw_rate - truth.yaw_rate) / scales.yaw_rate) ** 2,
        ((predicted.steer_angle - truth.steer_angle) / scales.steer_angle) ** 2,
        distance / scales.position**2,
    )
    return sum(jnp.sqrt(1.0 + square / share**2) - 1.0 for square in squares)


def noisy(key, states, config: DistilConfig):
    """Returns states [W] with noise on their velocities and steer angle."""
    scales = config.loss
    noise = config.noise * jax.random.normal(key, (4, *states.vx.shape))
    return states._replace(
        vx=states.vx + scales.speed * noise[0],
        vy=states.vy + scales.side * noise[1],
        yaw_rate=states.yaw_rate + scales.yaw_rate * noise[2],
        steer_angle=states.steer_angle + scales.steer_angle * noise[3],
    )
