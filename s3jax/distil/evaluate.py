"""How well dynamics models predict: one step, open loop by surface, and staying in the envelope."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from s3jax.archive import FileError, atomic_path
from s3jax.distil import dataset
from s3jax.distil.loss import divide
from s3jax.dynamics.base import WITHHELD, Dynamics, rollout
from s3jax.dynamics.envelope import inside
from s3jax.dynamics.store import load_dynamics

CHANNELS = ("vx", "vy", "yaw_rate", "steer_angle")
HORIZONS = (0.5, 1.0, 2.0, 5.0)
WARMUP = 1.0
STRIDE = 0.25
LONG = 10.0
NEW = ("new drive", "new track")
SURFACES = ("asphalt", "wet", "gravel", "snow", "ice", "transition")


def evaluate_files(paths, recordings, output=None) -> dict:
    """Evaluates model files side by side on episodes that none of them was fitted to.

    Args:
      paths: model files of one control step.
      recordings: directory of recordings. Episodes that a model was trained or validated on are left out.
      output: directory for `evaluation.json` and `evaluation.md`, or None.

    Returns:
      Model name -> what `evaluate` returns.

    Raises:
      FileError: for a file that cannot be used, or if no unseen episode is left.
    """
    loaded = {Path(path).stem: load_dynamics(path) for path in paths}
    dt = {name: model.dt for name, (model, _, _) in loaded.items()}
    if len(set(dt.values())) != 1:
        raise FileError(f"the models differ in dt and cannot be compared: {dt}")
    seen, tracks = set(), set()
    for _, _, header in loaded.values():
        episodes = header["provenance"].get("episodes", {})
        seen.update(episodes.get("train", ()), episodes.get("validation", ()))
        tracks.update(header["provenance"].get("tracks", ()))
    episodes = dataset.load_episodes(recordings, next(iter(dt.values())))
    unseen = [episode for episode in episodes if dataset.identity(episode) not in seen]
    if not unseen:
        raise FileError(f"{recordings}: every recording was used to fit one of the models")
    results = {
        name: evaluate(model, params, unseen, tracks=tracks) for name, (model, params, _) in loaded.items()
    }
    if output is not None:
        write(results, output)
    return results


def write(results: dict, output) -> None:
    """Writes `evaluation.json` and `evaluation.md` to a directory."""
    for name, text in (
        ("evaluation.json", json.dumps(results, indent=1)),
        ("evaluation.md", markdown(results)),
    ):
        with atomic_path(Path(output) / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def evaluate(model: Dynamics, params, episodes, friction: str = "given", tracks=()) -> dict:
    """Measures a model on episodes.

    Each prediction starts from a recorded state with `WARMUP` seconds of recorded history and follows the
    recorded controls. Starts are `STRIDE` seconds apart. A stretch in which friction changes by more than a
    quarter counts as `transition`, whatever the surfaces.

    Args:
      model: the model.
      params: its parameters.
      episodes: of the model's control step.
      friction: what the model is told: `given` (the truth), `withheld`, or `wrong` (1.1 - friction, at
        least 0.1, which takes ice for asphalt and asphalt for ice).
      tracks: that the model was fitted on; empty if that is not known.

    Returns:
      `one_step`: channel -> surface -> root mean square error after one step.
      `open_loop`: horizon (s) -> surface -> errors in position (m), yaw (rad) and speed (m/s): mean over
      starts, the 95th percentile of position, and the number of starts.
      `envelope`: fraction of `LONG`-second predictions that stay in the envelope, or None without any.
      The surface `all` is every start. If tracks are given, `new drive` is every start on one of them and
      `new track` every start on another one.

    Raises:
      FileError: if every episode is too short.
    """
    windows = windows_of(episodes, model.dt, max(HORIZONS))
    if windows is None:
        raise FileError(f"no episode is as long as the {WARMUP + max(HORIZONS)} s that an evaluation needs")
    held = _held_out(episodes, model.dt, tracks)
    warmup = round(WARMUP / model.dt)
    predicted = predict(model, params, windows, friction, warmup)
    truth = jax.tree.map(lambda field: np.asarray(field[:, warmup + 1 :]), windows.states)
    told = np.asarray(windows.frictions)[:, warmup:]

    first = {name: getattr(predicted, name)[:, 0] - getattr(truth, name)[:, 0] for name in CHANNELS}
    groups = _groups(told[:, :1]) | held
    one_step = {
        name: {group: _rms(error[members]) for group, members in groups.items()}
        for name, error in first.items()
    }
    position = np.hypot(predicted.x - truth.x, predicted.y - truth.y)
    yaw = dataset.yaw_error(predicted.yaw, truth.yaw)
    speed = np.abs(np.hypot(predicted.vx, predicted.vy) - np.hypot(truth.vx, truth.vy))
    open_loop = {}
    for horizon in HORIZONS:
        k = round(horizon / model.dt)
        open_loop[f"{horizon:g}"] = {
            group: {
                "position": float(position[members, k - 1].mean()),
                "position_p95": float(np.percentile(position[members, k - 1], 95)),
                "yaw": float(yaw[members, k - 1].mean()),
                "speed": float(speed[members, k - 1].mean()),
                "starts": len(members),
            }
            for group, members in (_groups(told[:, : k + 1]) | held).items()
        }
    return {
        "one_step": one_step,
        "open_loop": open_loop,
        "envelope": envelope_fraction(model, params, episodes),
        "friction": friction,
        "episodes": len(episodes),
    }


def windows_of(episodes, dt: float, seconds: float) -> dataset.Rows | None:
    """Returns windows of `WARMUP` and some seconds, `STRIDE` apart; None if every episode is shorter."""
    rows, index = dataset.join(episodes)
    starts, length = _starts(index, dt, seconds)
    return dataset.take(rows, jnp.asarray(starts), length) if len(starts) else None


def _starts(index, dt: float, seconds: float):
    """Returns the first rows of windows of `WARMUP` and some seconds, `STRIDE` apart, and their length."""
    length = round((WARMUP + seconds) / dt) + 1
    return dataset.window_starts(index, length, round(STRIDE / dt)), length


def _held_out(episodes, dt: float, tracks) -> dict[str, np.ndarray]:
    """Returns what of the windows is new (`new drive`, `new track`) -> indices of those it is true of."""
    if not tracks:
        return {}
    index = np.repeat(np.arange(len(episodes)), [len(episode.controls) for episode in episodes])
    known = np.array([episode.track in tracks for episode in episodes])
    known = known[index[_starts(index, dt, max(HORIZONS))[0]]]
    groups = zip(NEW, (np.flatnonzero(known), np.flatnonzero(~known)), strict=True)
    return {name: members for name, members in groups if len(members)}


def predict(model: Dynamics, params, windows: dataset.Rows, friction: str = "given", warmup: int = 20):
    """Returns the states, NumPy fields [M, T - warmup - 1], that a model predicts over windows [M, T]."""
    told = {
        "given": windows.frictions,
        "withheld": jnp.full_like(windows.frictions, WITHHELD),
        "wrong": jnp.maximum(1.1 - windows.frictions, 0.1),
    }[friction]
    return jax.tree.map(np.asarray, _predict(model, warmup, params, windows._replace(frictions=told)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predict(model, warmup, params, windows):
    def one(window):
        start, history, _ = divide(window, warmup)
        carry = model.reset(params, start, history)
        return rollout(model, params, carry, window.controls[warmup:-1], window.frictions[warmup:-1])[1]

    return jax.vmap(one)(windows)


def envelope_fraction(model: Dynamics, params, episodes) -> float | None:
    """Returns the fraction of `LONG`-second predictions under recorded controls that stay in the envelope."""
    windows = windows_of(episodes, model.dt, LONG)
    if windows is None:
        return None
    warmup = round(WARMUP / model.dt)
    predicted = predict(model, params, windows, warmup=warmup)
    start = jax.tree.map(lambda field: np.asarray(field[:, warmup : warmup + 1]), windows.states)
    before = jax.tree.map(lambda a, b: np.concatenate([a, b[:, :-1]], axis=1), start, predicted)
    return float(np.mean(np.all(np.asarray(inside(before, predicted, model.dt)), axis=1)))


def markdown(results: dict) -> str:
    """Returns the results of several models as Markdown tables."""
    lines = ["## One step: root mean square error", ""]
    units = {"vx": "m/s", "vy": "m/s", "yaw_rate": "rad/s", "steer_angle": "rad"}
    lines += _table(
        ["model", *(f"{name} ({units[name]})" for name in CHANNELS), "10 s in envelope"],
        [
            [
                name,
                *(f"{result['one_step'][channel]['all']:.4f}" for channel in CHANNELS),
                "–" if result["envelope"] is None else f"{100 * result['envelope']:.1f} %",
            ]
            for name, result in results.items()
        ],
    )
    lines += ["", "## Open loop: mean error in position (m) / yaw (rad) / speed (m/s)", ""]
    lines += _table(
        ["model", *(f"{horizon:g} s" for horizon in HORIZONS)],
        [
            [
                name,
                *(
                    "{position:.2f} / {yaw:.3f} / {speed:.2f}".format(**row["all"])
                    for row in result["open_loop"].values()
                ),
            ]
            for name, result in results.items()
        ],
    )
    present = [group for group in SURFACES if any(group in r["open_loop"]["2"] for r in results.values())]
    lines += ["", "## Position error at 2 s (m) by surface", ""]
    lines += _table(
        ["model", *present],
        [
            [name, *(_cell(result["open_loop"]["2"].get(group)) for group in present)]
            for name, result in results.items()
        ],
    )
    held = [group for group in NEW if any(group in r["open_loop"]["2"] for r in results.values())]
    if held:
        lines += ["", "## Position error (m) by what is new to the models", ""]
        lines += _table(
            ["model", *(f"{group}, {horizon:g} s" for group in held for horizon in HORIZONS)],
            [
                [name, *(_mean(result["open_loop"][f"{h:g}"].get(group)) for group in held for h in HORIZONS)]
                for name, result in results.items()
            ],
        )
    return "\n".join(lines) + "\n"


def _mean(entry) -> str:
    return f"{entry['position']:.2f}" if entry else "–"


def _cell(entry) -> str:
    return f"{entry['position']:.2f} (p95 {entry['position_p95']:.2f}, n {entry['starts']})" if entry else "–"


def _table(head, rows) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _groups(frictions: np.ndarray) -> dict[str, np.ndarray]:
    """Returns surface -> indices of the stretches [M, T, 2] on it."""
    names = np.array([dataset.surface_of(stretch) for stretch in frictions])
    groups = {"all": np.arange(len(names))}
    return groups | {name: np.flatnonzero(names == name) for name in SURFACES if (names == name).any()}


def _rms(error) -> float:
    return float(np.sqrt(np.mean(np.square(error))))
