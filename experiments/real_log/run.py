"""Predicts a real race car: our models and a re-creation of the published DDM on the same log.

Usage: python experiments/real_log/run.py LOG.csv [--epochs 100] [--updates 1500] [--out results.json]

Two splits: `published` draws 80 % of all windows at random to train on, as the authors do (windows overlap,
so what is tested was nearly seen); `honest` trains on the first 70 % of the drive, validates on the next
10 % and tests on the last 20 %. Errors are of one step (root mean square) and of 15 steps (0.6 s) open loop
from recorded controls (mean distance at the end, and root mean square of the velocities there).
"""

import argparse
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import published_ddm as published

from s3jax.distil import dataset
from s3jax.distil.config import DistilConfig
from s3jax.distil.evaluate import predict
from s3jax.distil.import_csv import CsvMapping, import_csv
from s3jax.distil.stage import for_episodes
from s3jax.distil.train import fit
from s3jax.source.recording import read_recording
from s3jax.spatial.state import VehicleState

ROOT = Path(__file__).resolve().parents[2]
STEPS = 15
STRIDE = 5
CHUNK = 20.0


def main():
    """Runs both splits and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--models", nargs="+", default=["single_track", "ddm"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        mapping = CsvMapping.load(ROOT / "configs" / "import" / "iac.yaml")
        import_csv(args.log, mapping, directory)
        (drive,) = dataset.load_episodes(directory, mapping.dt)
        columns = read_recording(next(Path(directory).glob("*.rec"))).columns
    moving = np.flatnonzero(columns["vx"] >= 5.0)
    drive = cut(drive, moving[0], moving[-1] + 1)
    results = {}
    for split in ("published", "honest"):
        results[split] = compare(drive, split, args)
    for split, table in results.items():
        print(f"\n{split} split: one step vx, vy (m/s), yaw rate (rad/s) | 15 steps: m, then the same")
        for name, row in table.items():
            print(f"{name:28s}", *(f"{value:9.4f}" for value in row.values()))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


def cut(episode, low, high, name=None):
    """Returns rows low to high of an episode."""
    states = VehicleState(*(field[low:high] for field in episode.states))
    return episode._replace(
        name=name or episode.name,
        states=states,
        controls=episode.controls[low:high],
        frictions=episode.frictions[low:high],
    )


def compare(drive, kind: str, args) -> dict:
    """Returns model -> errors on one split."""
    dt, rows = drive.dt, len(drive.controls)
    length = published.HISTORY + STEPS + 1
    starts = np.arange(rows - length)
    if kind == "published":
        order = np.random.default_rng(0).permutation(starts)
        train, test = (
            np.sort(order[: int(0.8 * len(order))]),
            np.sort(order[int(0.8 * len(order)) :])[::STRIDE],
        )
        bounds = None
    else:
        bounds = (0, int(0.7 * rows), int(0.8 * rows), rows)
        train = starts[starts + length <= bounds[1]]
        test = starts[starts >= bounds[2]][::STRIDE]

    results = {}
    columns = {name: jnp.asarray(getattr(drive.states, name), jnp.float32) for name in VehicleState._fields}
    columns["pedal"] = jnp.asarray(drive.controls[:, 1], jnp.float32)
    features, body = published.table(columns)
    params, scale, _ = published.train(jax.random.key(0), features, body, jnp.asarray(train), args.epochs, dt)
    rows_all, _ = dataset.join([drive])
    windows = dataset.take(rows_all, jnp.asarray(test), length)
    begin = jax.tree.map(lambda field: field[:, published.HISTORY - 1], windows.states)
    for name, refresh in (("published DDM", False), ("published DDM, refreshed", True)):
        path = jax.vmap(
            lambda state, start, refresh=refresh: published.predict(
                params, scale, features, state, start, STEPS, dt, refresh
            )
        )(begin, jnp.asarray(test))
        results[name] = errors(path, windows, published.HISTORY)

    chunk = round(CHUNK / dt)
    pieces = [cut(drive, low, low + chunk, f"{low}") for low in range(0, rows - chunk + 1, chunk)]
    if kind == "published":
        # Our trainer splits by stretch; to give it no less data than the random windows, it trains on all.
        split = dataset.Split(pieces, pieces[::8], [])
    else:
        low = [[int(piece.name) for piece in pieces].index(int(p.name)) * chunk for p in pieces]
        split = dataset.Split(
            [p for p, at in zip(pieces, low, strict=True) if at + chunk <= bounds[1]],
            [cut(drive, bounds[1], bounds[2], "validation")],
            [],
        )
    ours = jax.tree.map(lambda field: field[:, : published.HISTORY + STEPS], windows)
    for name in args.models:
        config = DistilConfig.parse(
            {
                "models": [{"kind": name, "dt": dt}],
                "steps": args.updates,
                "warmup": published.HISTORY,
                "horizons": [STEPS],
                "withheld": 0.0,
                "cold": 0.0,
            }
        )
        config = for_episodes(config, pieces)
        model = config.models[0].make()
        joined, index = dataset.join(split.train)
        params = model.calibrate(model.init(jax.random.key(0)), dataset.statistics_of(joined, index, dt))
        with tempfile.TemporaryDirectory() as directory:
            curves = Path(directory) / name
            fitted = fit(
                model, params, config, split, directory, curves, lambda *report: print(*report, flush=True)
            )
        path = predict(model, fitted.params, ours, warmup=published.HISTORY - 1)
        results[f"s3jax {name}"] = errors(path, windows, published.HISTORY)
    return results


def errors(path, windows, first: int) -> dict:
    """Returns the errors of predicted states [M, STEPS] that begin at row `first` of the windows."""
    truth = jax.tree.map(lambda field: np.asarray(field)[:, first : first + STEPS], windows.states)
    fields = ("vx", "vy", "yaw_rate")
    difference = {name: np.asarray(getattr(path, name)) - getattr(truth, name) for name in fields}
    distance = np.hypot(
        np.asarray(path.x)[:, -1] - truth.x[:, -1], np.asarray(path.y)[:, -1] - truth.y[:, -1]
    )

    def rms(error):
        return float(np.sqrt(np.mean(error**2)))

    return (
        {f"one_step_{name}": rms(difference[name][:, 0]) for name in fields}
        | {"distance": float(distance.mean())}
        | {f"open_loop_{name}": rms(difference[name][:, -1]) for name in fields}
    )


if __name__ == "__main__":
    main()
