"""Distillation: fitting any dynamics model to recordings by its own multi-step predictions."""

import csv
import functools
import hashlib
import json
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pydantic

from s3jax.archive import FileError, atomic_path
from s3jax.config import Config
from s3jax.distil import dataset
from s3jax.distil.dataset import Rows, Windows
from s3jax.dynamics.base import WITHHELD, Dynamics, DynamicsConfig, History
from s3jax.dynamics.store import dynamics_config, load_dynamics, save_dynamics


class DivergedError(ValueError):
    """Training gave a number that is not finite; the message says at which step."""


class LossConfig(Config):
    """Scales at which an error counts one, and the weight of the displacement.

    Attributes:
      speed: of vx (m/s). side: of vy (m/s). yaw_rate: (rad/s). steer_angle: (rad). position: (m).
    """

    speed: float = 0.5
    side: float = 0.3
    yaw_rate: float = 0.1
    steer_angle: float = 0.03
    position: float = 0.5


class DistilConfig(Config):
    """Configuration of a distillation.

    Attributes:
      model: configuration of the model, with its `kind`.
      base: file of a trained model that a residual or ensemble model starts from, relative to the output
        directory; empty for models that need none.
      seed: of everything random.
      steps: parameter updates.
      batch: windows per update.
      warmup: true steps before a prediction.
      horizons: predicted steps, a curriculum in equal parts of `steps`.
      learning_rate: peak, of the networks.
      constant_rate: peak, of the physical constants.
      weight_decay: of the networks' weights.
      clip: bound on the gradient's norm.
      noise: on the history, in units of a third of the loss scales.
      withheld: share of windows in which friction is withheld.
      cold: share of windows that start without a history.
      validation: fraction of the episodes that select the best parameters.
      test: fraction of the episodes that only the evaluation sees.
      evaluate_every: updates between validations.
      patience: validations without improvement after which training stops; 0 never stops.
    """

    model: pydantic.SerializeAsAny[DynamicsConfig]
    base: str = ""
    loss: LossConfig = LossConfig()
    seed: int = 0
    steps: int = pydantic.Field(2000, ge=1)
    batch: int = pydantic.Field(128, ge=1)
    warmup: int = pydantic.Field(20, ge=1)
    horizons: tuple[int, ...] = (5, 20)
    learning_rate: float = pydantic.Field(2e-3, gt=0)
    constant_rate: float = pydantic.Field(2e-2, gt=0)
    weight_decay: float = pydantic.Field(1e-4, ge=0)
    clip: float = pydantic.Field(1.0, gt=0)
    noise: float = pydantic.Field(0.3, ge=0)
    withheld: float = pydantic.Field(0.25, ge=0, le=1)
    cold: float = pydantic.Field(0.2, ge=0, le=1)
    validation: float = pydantic.Field(0.1, gt=0, lt=0.5)
    test: float = pydantic.Field(0.15, ge=0, lt=0.5)
    evaluate_every: int = pydantic.Field(100, ge=1)
    patience: int = pydantic.Field(0, ge=0)

    @pydantic.field_validator("model", mode="before")
    @classmethod
    def _model_by_kind(cls, value):
        return dynamics_config(value, source="model") if isinstance(value, dict) else value

    @property
    def name(self) -> str:
        """Name of the model, and of its file."""
        return self.model.kind


class Progress(NamedTuple):
    """What training has come to: update, updates in all, and a line of text."""

    step: int
    total: int
    text: str


def distil(config: DistilConfig, recordings, output, progress=None) -> dict:
    """Fits a model and writes `<output>/<name>.npz`, its resolved configuration and its metrics.

    A model that is already there, made with the same configuration from the same recordings, is not fitted
    again.

    Args:
      config: what to fit and how.
      recordings: directory of recordings.
      output: directory to write to.
      progress: called with a `Progress` now and then, or None.

    Returns:
      A summary: file, updates, best validation error, seconds, whether it was there already.

    Raises:
      FileError: for recordings that cannot be used.
      DivergedError: if training diverges; the last good parameters are saved.
    """
    output = Path(output)
    path = output / f"{config.name}.npz"
    episodes = dataset.load_episodes(recordings, config.model.dt)
    fingerprint = _fingerprint(config, episodes)
    if path.exists():
        _, _, header = load_dynamics(path)
        if header["provenance"].get("fingerprint") == fingerprint and header["provenance"]["finished"]:
            return {**header["provenance"]["summary"], "file": str(path), "reused": True}
    return fit(config, episodes, output, progress, fingerprint)


def fit(config: DistilConfig, episodes, output: Path, progress=None, fingerprint: str = "") -> dict:
    """Fits a model to episodes; see `distil`."""
    began = time.monotonic()
    split = dataset.split_episodes(episodes, config.validation, config.test, config.seed)
    rows, index = dataset.join(split.train)
    windows = dataset.balanced_windows(rows, index, config.warmup, max(config.horizons))
    held = validation_windows(split.validation, config)

    model = config.model.make()
    params = model.init(jax.random.key(config.seed))
    params = model.calibrate(params, dataset.statistics_of(rows, index, model.dt))
    optimiser = make_optimiser(config)
    state = TrainState(params, optimiser.init(params), jnp.zeros((), jnp.int32))
    best, best_error, stale, metrics = params, np.inf, 0, []

    def save(params, finished):
        provenance = {
            "fingerprint": fingerprint,
            "finished": finished,
            "training": config.dump(),
            "episodes": {name: [e.name for e in getattr(split, name)] for name in split._fields},
            "summary": {
                "updates": int(state.step),
                "validation_error": float(best_error),
                "seconds": round(time.monotonic() - began, 1),
            },
        }
        save_dynamics(output / f"{config.name}.npz", model, params, provenance)
        _write_metrics(output / f"{config.name}.csv", metrics)
        return {**provenance["summary"], "file": str(output / f"{config.name}.npz"), "reused": False}

    config.save(output / f"{config.name}.yaml")
    while int(state.step) < config.steps:
        done = int(state.step)
        count = min(config.evaluate_every, config.steps - done)
        horizon = config.horizons[done * len(config.horizons) // config.steps]
        last, (state, losses) = state, update(model, config, horizon, count, state, rows, windows)
        losses = np.asarray(losses)
        if not np.isfinite(losses).all():
            step = done + int(np.argmin(np.isfinite(losses)))
            state = last
            save(best, finished=False)
            raise DivergedError(
                f"{config.name}: loss is not finite at update {step}; the best parameters so far are in "
                f"{output / config.name}.npz"
            )
        error = float(validation_error(model, config, state.params, held))
        best, best_error, stale = (
            (state.params, error, 0) if error < best_error else (best, best_error, stale + 1)
        )
        metrics.append(
            {
                "update": int(state.step),
                "horizon": horizon,
                "loss": float(losses.mean()),
                "validation_error": error,
                "seconds": round(time.monotonic() - began, 2),
            }
        )
        if progress:
            text = f"{config.name}: loss {losses.mean():.4f}, error at 2 s {error:.2f} m"
            progress(Progress(int(state.step), config.steps, text))
        if config.patience and stale >= config.patience:
            break
    return save(best, finished=True)


class TrainState(NamedTuple):
    """Parameters, optimiser state and the number of updates made."""

    params: dict
    optimiser: tuple
    step: jnp.ndarray


def make_optimiser(config: DistilConfig):
    """Returns Adam with clipping and a cosine schedule, one rate for networks and one for constants."""

    def adam(rate):
        schedule = optax.warmup_cosine_decay_schedule(
            0.1 * rate, rate, min(100, config.steps // 10), config.steps, 0.02 * rate
        )
        return optax.adamw(schedule, weight_decay=config.weight_decay, mask=_decayed)

    def label(params):
        return jax.tree.map(lambda leaf: "constant" if leaf.ndim == 0 else "network", params)

    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.multi_transform(
            {"network": adam(config.learning_rate), "constant": adam(config.constant_rate)}, label
        ),
    )


def _decayed(params):
    return jax.tree_util.tree_map_with_path(lambda path, _: getattr(path[-1], "key", "") == "weights", params)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def update(model: Dynamics, config: DistilConfig, horizon: int, count: int, state, rows: Rows, windows):
    """Makes `count` parameter updates.

    Returns:
      The next state and the losses [count].
    """
    optimiser = make_optimiser(config)

    def body(state, _):
        key = jax.random.fold_in(jax.random.key(config.seed), state.step)
        loss, gradient = jax.value_and_grad(batch_loss, argnums=2)(
            model, config, state.params, rows, windows, horizon, key
        )
        change, optimiser_state = optimiser.update(gradient, state.optimiser, state.params)
        return TrainState(optax.apply_updates(state.params, change), optimiser_state, state.step + 1), loss

    return jax.lax.scan(body, state, length=count)


def batch_loss(model, config: DistilConfig, params, rows: Rows, windows: Windows, horizon: int, key):
    """Returns the mean loss of a batch of windows drawn with a key."""
    keys = jax.random.split(key)
    place = jax.random.uniform(keys[0], (config.batch,))
    which = jnp.clip(jnp.searchsorted(windows.cumulative, place), 0, len(windows.starts) - 1)
    batch = dataset.take(rows, windows.starts[which], config.warmup + horizon + 1)
    loss = functools.partial(window_loss, model, config, params)
    return jnp.mean(jax.vmap(loss)(batch, jax.random.split(keys[1], config.batch)))


def window_loss(model, config: DistilConfig, params, window: Rows, key):
    """Returns the loss of one window: history, then predictions fed back into the model.

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
    carry = jax.tree.map(
        functools.partial(jnp.where, jax.random.bernoulli(keys[2], config.cold)),
        model.reset(params, start),
        model.reset(params, start, history),
    )

    def body(carry, inputs):
        penalty = model.penalty(params, carry, *inputs)
        carry, state = model.step(params, carry, *inputs)
        return carry, (state, penalty)

    controls, frictions = window.controls[config.warmup : -1], window.frictions[config.warmup : -1]
    _, (states, penalties) = jax.lax.scan(body, carry, (controls, frictions))
    return jnp.mean(prediction_loss(config.loss, states, future) + penalties)


def divide(window: Rows, warmup: int):
    """Returns the start state, the `History` before it and the states after it of a window."""
    start = jax.tree.map(lambda field: field[warmup], window.states)
    past = jax.tree.map(lambda field: field[:warmup], window)
    future = jax.tree.map(lambda field: field[warmup + 1 :], window.states)
    return start, History(*past), future


def prediction_loss(scales: LossConfig, predicted, truth):
    """Returns the pseudo-Huber loss [...] of predicted states, summed over channels."""
    distance = (predicted.x - truth.x) ** 2 + (predicted.y - truth.y) ** 2
    squares = (
        ((predicted.vx - truth.vx) / scales.speed) ** 2,
        ((predicted.vy - truth.vy) / scales.side) ** 2,
        ((predicted.yaw_rate - truth.yaw_rate) / scales.yaw_rate) ** 2,
        ((predicted.steer_angle - truth.steer_angle) / scales.steer_angle) ** 2,
        distance / scales.position**2,
    )
    return sum(jnp.sqrt(1.0 + square) - 1.0 for square in squares)


def noisy(key, states, config: DistilConfig):
    """Returns states [W] with noise on their velocities and steer angle."""
    scales, size = config.loss, config.noise / 3.0
    noise = size * jax.random.normal(key, (4, *states.vx.shape))
    return states._replace(
        vx=states.vx + scales.speed * noise[0],
        vy=states.vy + scales.side * noise[1],
        yaw_rate=states.yaw_rate + scales.yaw_rate * noise[2],
        steer_angle=states.steer_angle + scales.steer_angle * noise[3],
    )


def validation_windows(episodes, config: DistilConfig, seconds: float = 2.0, limit: int = 512) -> Rows:
    """Returns evenly spread windows of the validation episodes.

    Raises:
      FileError: if every episode is too short.
    """
    rows, index = dataset.join(episodes)
    length = config.warmup + round(seconds / config.model.dt) + 1
    starts = dataset.window_starts(index, length)
    if not len(starts):
        raise FileError(f"no validation episode is as long as {length * config.model.dt:.1f} s")
    chosen = starts[np.linspace(0, len(starts) - 1, min(limit, len(starts))).round().astype(int)]
    return dataset.take(rows, jnp.asarray(chosen), length)


@functools.partial(jax.jit, static_argnums=(0, 1))
def validation_error(model: Dynamics, config: DistilConfig, params, windows: Rows):
    """Returns the mean distance (m) between predicted and true position at the windows' end."""
    from s3jax.dynamics.base import rollout

    def distance(window):
        start, history, future = divide(window, config.warmup)
        carry = model.reset(params, start, history)
        controls, frictions = window.controls[config.warmup : -1], window.frictions[config.warmup : -1]
        _, states = rollout(model, params, carry, controls, frictions)
        return jnp.hypot(states.x[-1] - future.x[-1], states.y[-1] - future.y[-1])

    return jnp.mean(jax.vmap(distance)(windows))


def _fingerprint(config: DistilConfig, episodes) -> str:
    digest = hashlib.sha256(json.dumps(config.dump(), sort_keys=True).encode())
    for episode in episodes:
        digest.update(episode.name.encode())
        digest.update(np.stack(episode.states).tobytes())
    return digest.hexdigest()


def _write_metrics(path: Path, metrics: list[dict]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(metrics[0]) if metrics else ["update"])
        writer.writeheader()
        writer.writerows(metrics)
