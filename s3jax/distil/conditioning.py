"""What friction means to a model: told the truth, told nothing, told a lie."""

import jax
import jax.numpy as jnp
import numpy as np

from s3jax.archive import FileError
from s3jax.distil import evaluate
from s3jax.distil.dataset import Rows
from s3jax.dynamics.base import GRAVITY, Dynamics
from s3jax.dynamics.increments import of_step

EXCITED = 0.5
"""Share of the available grip that a history must have used to count as one that could reveal friction."""


def conditioning(model: Dynamics, params, episodes, horizon: float = 2.0) -> dict:
    """Measures how much a model's prediction depends on being told friction.

    Args:
      model: the model.
      params: its parameters.
      episodes: of the model's control step.
      horizon: of the predictions (s).

    Returns:
      `all`, `excited` and `calm` -> `given`, `withheld`, `wrong` (mean position error at the horizon, m),
      `ratio` (withheld / given) and `starts`. A start is excited if in the second before it, on one
      surface that stays the same over the prediction, the car used more than `EXCITED` of the grip.

    Raises:
      FileError: if every episode is too short.
    """
    windows = evaluate.windows_of(episodes, model.dt, horizon)
    if windows is None:
        raise FileError(f"no episode is as long as the {evaluate.WARMUP + horizon} s that the study needs")
    warmup = round(evaluate.WARMUP / model.dt)
    errors = {}
    for told in ("given", "withheld", "wrong"):
        predicted = evaluate.predict(model, params, windows, told, warmup)
        errors[told] = np.hypot(
            predicted.x[:, -1] - np.asarray(windows.states.x)[:, -1],
            predicted.y[:, -1] - np.asarray(windows.states.y)[:, -1],
        )
    friction = np.asarray(windows.frictions)
    constant = friction.max((1, 2)) <= 1.25 * friction.min((1, 2))
    used = grip_used(windows, model.dt)[:, :warmup].max(1)
    groups = {
        "all": np.ones(len(used), bool),
        "excited": constant & (used > EXCITED),
        "calm": constant & (used <= EXCITED),
    }
    return {
        name: {told: float(error[members].mean()) for told, error in errors.items()}
        | {
            "ratio": float(errors["withheld"][members].mean() / errors["given"][members].mean()),
            "starts": int(members.sum()),
        }
        for name, members in groups.items()
        if members.any()
    }


def grip_used(windows: Rows, dt: float) -> np.ndarray:
    """Returns the share [M, T - 1] of friction times gravity that each step of windows [M, T] used."""
    before, after = (
        jax.tree.map(lambda f, s=s: f[:, s], windows.states) for s in (slice(-1), slice(1, None))
    )
    change = of_step(before, after, dt)
    grip = jnp.min(windows.frictions[:, :-1], axis=-1) * GRAVITY * dt
    return np.asarray(jnp.hypot(change[0], change[1]) / grip)
