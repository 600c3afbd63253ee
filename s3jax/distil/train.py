"""The trainer: fits any dynamics model to episodes, with validation, checkpoints and exact resume."""

import contextlib
import functools
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from s3jax.archive import FileError
from s3jax.curves import Curves
from s3jax.distil import dataset
from s3jax.distil.checkpoints import Checkpoints
from s3jax.distil.config import DistilConfig
from s3jax.distil.dataset import Rows
from s3jax.distil.loss import batch_loss, divide
from s3jax.dynamics.base import Dynamics, rollout
from s3jax.errors import DivergedError

VALIDATION = 2.0
"""Seconds of the predictions that select the best parameters."""

FROZEN = {"base", "scale"}
"""Parts of a model's parameters that training leaves alone."""


class TrainState(NamedTuple):
    """All that changes while training.

    Attributes:
      params: parameters after `step` updates.
      optimiser: its state.
      step: [] updates made.
      best: parameters with the lowest validation error so far.
      best_error: [] that error (m).
      stale: [] validations since then.
    """

    params: dict
    optimiser: tuple
    step: jnp.ndarray
    best: dict
    best_error: jnp.ndarray
    stale: jnp.ndarray


class Fit(NamedTuple):
    """Result of `fit`: the best parameters, the last training state and a row of metrics per validation."""

    params: dict
    state: TrainState
    metrics: list[dict]


def fit(
    model: Dynamics, params, config: DistilConfig, split: dataset.Split, directory, curves: Path, progress
) -> Fit:
    """Fits a model, going on from a checkpoint if the directory has one.

    Args:
      model: the model.
      params: its first parameters.
      config: the recipe.
      split: episodes to train and validate on.
      directory: for checkpoints of this very run.
      curves: where the run can be watched, `<curves>.csv` and `tensorboard/` beside it.
      progress: called as progress(updates done, updates in all, note).

    Raises:
      FileError: for episodes that are too short.
      DivergedError: if a loss is not finite. The checkpoint before it stays.
    """
    rows, index = dataset.join(split.train)
    windows = dataset.balanced_windows(rows, index, config.warmup, max(config.horizons))
    held = validation_windows(split.validation, config)
    state, key = start(config, params), jax.random.key(config.seed)
    # What does not shape the compiled program is left out of it, so that members of an ensemble share one.
    recipe = config.model_copy(update={"seed": 0, "models": ()})
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(directory))
        state, metrics = checkpoints.restore(state)
        table = curves.with_name(f"{curves.name}.csv")
        watched = stack.enter_context(
            Curves(table, int(state.step), curves.parent / "tensorboard" / curves.name)
        )
        while int(state.step) < config.steps and not (config.patience and state.stale >= config.patience):
            began, done = time.monotonic(), int(state.step)
            count = min(config.evaluate_every - done % config.evaluate_every, config.steps - done)
            horizon = config.horizons[done * len(config.horizons) // config.steps]
            state, losses = update(model, recipe, horizon, count, state, rows, windows, key)
            losses = np.asarray(losses)
            if not np.isfinite(losses).all():
                broken = done + int(np.argmin(np.isfinite(losses)))
                raise DivergedError(
                    f"{model.config.name}: the loss of update {broken} (drawn with seed {config.seed}) "
                    f"is not finite; the last good state, after update {done}, is in {directory}"
                )
            error = validation_error(model, config.warmup, state.params, held)
            state = judge(state, error)
            metrics.append(
                {
                    "update": int(state.step),
                    "horizon": horizon,
                    "loss": float(losses.mean()),
                    "validation_error": float(error),
                    "seconds": round(time.monotonic() - began, 3),
                }
            )
            watched.append(metrics[-1])
            checkpoints.save(state, metrics)
            note = f"{model.config.name} {error:.2f} m off after {VALIDATION:g} s"
            progress(int(state.step), config.steps, note)
    return Fit(state.best, state, metrics)


def start(config: DistilConfig, params) -> TrainState:
    """Returns the training state before the first update."""
    return TrainState(
        params=params,
        optimiser=make_optimiser(config).init(params),
        step=jnp.zeros((), jnp.int32),
        best=params,
        best_error=jnp.full((), jnp.inf),
        stale=jnp.zeros((), jnp.int32),
    )


def judge(state: TrainState, error) -> TrainState:
    """Keeps the parameters if their validation error (m) is the lowest yet."""
    if error < state.best_error:
        return state._replace(best=state.params, best_error=error, stale=jnp.zeros_like(state.stale))
    return state._replace(stale=state.stale + 1)


def make_optimiser(config: DistilConfig):
    """Returns Adam with clipping and a cosine schedule, one rate for networks and one for constants."""

    def adam(rate):
        schedule = optax.warmup_cosine_decay_schedule(
            0.1 * rate, rate, min(100, config.steps // 10), config.steps, 0.02 * rate
        )
        return optax.adamw(schedule, weight_decay=config.weight_decay, mask=_decayed)

    def label(path, leaf):
        if FROZEN & {key.key for key in path}:
            return "frozen"
        return "constant" if leaf.ndim == 0 else "network"

    rules = {
        "network": adam(config.learning_rate),
        "constant": adam(config.constant_rate),
        "frozen": optax.set_to_zero(),
    }
    labels = functools.partial(jax.tree_util.tree_map_with_path, label)
    return optax.chain(optax.clip_by_global_norm(config.clip), optax.multi_transform(rules, labels))


def _decayed(params):
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key == "weights", params)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def update(model, config: DistilConfig, horizon: int, count: int, state: TrainState, rows, windows, key):
    """Makes `count` parameter updates; a batch depends on the key and the number of its update alone.

    Returns:
      The next state and the losses [count].
    """
    optimiser = make_optimiser(config)

    def body(state, _):
        draw = jax.random.fold_in(key, state.step)
        loss, gradient = jax.value_and_grad(batch_loss, argnums=2)(
            model, config, state.params, rows, windows, horizon, draw
        )
        change, optimiser_state = optimiser.update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, change)
        return state._replace(params=params, optimiser=optimiser_state, step=state.step + 1), loss

    return jax.lax.scan(body, state, length=count)


def validation_windows(episodes, config: DistilConfig, limit: int = 512) -> Rows:
    """Returns evenly spread windows of the validation episodes.

    Raises:
      FileError: if every episode is too short.
    """
    rows, index = dataset.join(episodes)
    length = config.warmup + round(VALIDATION / config.dt) + 1
    starts = dataset.window_starts(index, length)
    if not len(starts):
        raise FileError(f"no validation episode is as long as {length * config.dt:.1f} s")
    chosen = starts[np.linspace(0, len(starts) - 1, min(limit, len(starts))).round().astype(int)]
    return dataset.take(rows, jnp.asarray(chosen), length)


@functools.partial(jax.jit, static_argnums=(0, 1))
def validation_error(model: Dynamics, warmup: int, params, windows: Rows):
    """Returns the mean distance (m) between predicted and true position at the windows' end."""

    def distance(window):
        start, history, future = divide(window, warmup)
        carry = model.reset(params, start, history)
        _, states = rollout(model, params, carry, window.controls[warmup:-1], window.frictions[warmup:-1])
        return jnp.hypot(states.x[-1] - future.x[-1], states.y[-1] - future.y[-1])

    return jnp.mean(jax.vmap(distance)(windows))
