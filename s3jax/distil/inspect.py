"""Pictures of what a model does: predictions beside the recorded drive, tyre curves, beliefs."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from s3jax.archive import FileError
from s3jax.distil import dataset, evaluate
from s3jax.dynamics.base import WITHHELD
from s3jax.dynamics.ddm import Ddm
from s3jax.dynamics.single_track import SingleTrack, axle_coefficients
from s3jax.dynamics.store import load_dynamics
from s3jax.dynamics.tyre import magic_formula
from s3jax.viz.style import save, styled, subplots

TRACED = ("stiffness_front", "stiffness_rear", "grip_front", "grip_rear", "brake", "power")
SHOWN = 6


@styled
def inspect_dynamics(paths, recordings, output) -> list[Path]:
    """Draws models of one control step.

    Writes `rollouts.png` (5 s predictions of all models beside the recorded drive) and, for a model with
    tyres, `<name>_tyres.png`; for a DDM also `<name>_belief.png`: over the recorded drive with the strongest
    change of friction, its coefficients and, with friction withheld, the peak grip it believes in.

    Args:
      paths: model files.
      recordings: directory of recordings.
      output: directory for the pictures.

    Returns:
      The files written.

    Raises:
      FileError: for a file that cannot be used or episodes that are too short.
    """
    output = Path(output)
    loaded = {Path(path).stem: load_dynamics(path)[:2] for path in paths}
    episodes = dataset.load_episodes(recordings, next(iter(loaded.values()))[0].dt)
    written = [save(draw_rollouts(loaded, episodes), output / "rollouts.png")]
    for name, (model, params) in loaded.items():
        if isinstance(model, SingleTrack):
            written.append(save(draw_tyres(model, params, episodes), output / f"{name}_tyres.png"))
        if isinstance(model, Ddm):
            written.append(save(draw_belief(model, params, episodes), output / f"{name}_belief.png"))
    return written


def draw_rollouts(models: dict, episodes, seconds: float = 5.0):
    """Returns a figure of predictions, name -> (model, params), beside the recorded paths."""
    dt = next(iter(models.values()))[0].dt
    windows = evaluate.windows_of(episodes, dt, seconds)
    if windows is None:
        raise FileError(f"no episode is as long as {evaluate.WARMUP + seconds} s")
    warmup = round(evaluate.WARMUP / dt)
    # Spread over how far the car turns, so that the picture does not show straights only.
    turned = np.abs(np.asarray(windows.states.yaw_rate)).mean(1)
    chosen = np.argsort(turned)[(np.linspace(0.2, 0.98, SHOWN) * (len(turned) - 1)).astype(int)]
    windows = jax.tree.map(lambda field: field[chosen], windows)
    figure, axes = subplots(2, SHOWN // 2, (12, 8))
    predictions = {name: evaluate.predict(*model, windows, warmup=warmup) for name, model in models.items()}
    for i, axis in enumerate(axes.flat):
        x, y = (np.asarray(f)[i, warmup:] for f in (windows.states.x, windows.states.y))
        axis.plot(x - x[0], y - y[0], "k", linewidth=3, alpha=0.3, label="recorded")
        for name, states in predictions.items():
            axis.plot(states.x[i] - x[0], states.y[i] - y[0], label=name)
        surface = dataset.surface_of(np.asarray(windows.frictions)[i, warmup:])
        axis.set(
            title=f"{surface}, {float(windows.states.vx[i, warmup]):.0f} m/s",
            aspect="equal",
            adjustable="datalim",
        )
        axis.set(xlabel="x (m)", ylabel="y (m)")
    axes.flat[0].legend()
    figure.suptitle(f"{seconds:g} s predicted from recorded controls")
    return figure


def draw_tyres(model: SingleTrack, params, episodes):
    """Returns a figure of lateral force / load over slip angle on several surfaces, front and rear."""
    slip = np.linspace(0.0, 0.25, 200)
    figure, axes = subplots(1, 2, (11, 4.5), sharey=True)
    axes = axes[0]
    for friction, name in ((1.0, "asphalt"), (0.7, "wet"), (0.3, "snow"), (0.1, "ice")):
        for axis, coefficients in zip(axes, _median_axles(model, params, episodes, friction), strict=True):
            c = coefficients
            force = c.peak * magic_formula(slip, c.stiffness / (c.shape * c.peak), c.shape, c.curvature)
            axis.plot(np.degrees(slip), force, label=name)
    for axis, end in zip(axes, ("front", "rear"), strict=True):
        axis.set(title=f"{end} axle", xlabel="slip angle (deg)", ylabel="lateral force / load")
        axis.grid(alpha=0.3)
    axes[0].legend()
    return figure


def draw_belief(model: Ddm, params, episodes):
    """Returns a figure of a DDM's coefficients and its belief in grip over a drive onto other friction."""
    episode = max(episodes, key=lambda e: (np.abs(np.diff(e.frictions[:, 0])) > 0.1).sum())
    time = np.arange(len(episode.controls)) * model.dt
    given = trace(model, params, episode, withheld=False)
    hidden = trace(model, params, episode, withheld=True)
    figure, axes = subplots(3, 1, (11, 9), sharex=True)
    top, middle, bottom = axes.flat
    top.plot(
        time, episode.frictions[:, 0], "k", linewidth=3, alpha=0.3, label="friction under the front axle"
    )
    top.plot(time, hidden["hidden_front"], label="believed peak grip, front (friction withheld)")
    top.plot(time, hidden["hidden_rear"], label="believed peak grip, rear")
    top.set(ylabel="friction coefficient")
    for name in TRACED:
        middle.plot(time, given[name] / np.median(given[name]), label=name)
    middle.set(ylabel="coefficient / its median")
    bottom.plot(time, episode.states.vx, label="vx (m/s)")
    bottom.plot(time, 10.0 * episode.states.yaw_rate, label="10 yaw rate (rad/s)")
    bottom.plot(time, 10.0 * episode.controls[:, 1], label="10 pedal")
    bottom.set(xlabel="time (s)")
    for axis in (top, middle, bottom):
        axis.legend(loc="upper right", fontsize="small")
        axis.grid(alpha=0.3)
    figure.suptitle(episode.name)
    return figure


def trace(model: Ddm, params, episode: dataset.Episode, withheld: bool) -> dict:
    """Returns a DDM's coefficients, name -> [T], while it watches a recorded drive."""
    rows, _ = dataset.join([episode])
    frictions = jnp.full_like(rows.frictions, WITHHELD) if withheld else rows.frictions

    def watch(carry, row):
        state, control, friction = row
        carry = carry._replace(state=state)
        _, offsets = model.estimate(params, carry, control, friction)
        return model.step(params, carry, control, friction)[0], model.coefficients(params, offsets)

    start = model.reset(params, jax.tree.map(lambda field: field[0], rows.states))
    _, values = jax.jit(lambda start, rows: jax.lax.scan(watch, start, rows))(
        start, (rows.states, rows.controls, frictions)
    )
    return {name: np.asarray(value) for name, value in values.items()}


def _median_axles(model: SingleTrack, params, episodes, friction: float):
    """Returns the axles' coefficients on a friction; a DDM's are its medians over the first episodes."""
    if isinstance(model, Ddm):
        traces = [trace(model, params, episode, withheld=False) for episode in episodes[:SHOWN]]
        values = {name: np.median(np.concatenate([t[name] for t in traces])) for name in traces[0]}
    else:
        values = {name: np.float32(value) for name, value in model.describe(params).items()}
    return jax.tree.map(np.asarray, axle_coefficients(values, jnp.full(2, friction)))
