"""The distillation stage: recordings in, one file per model and a table of their errors out."""

import hashlib
import json
import shutil
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from s3jax.archive import FileError
from s3jax.distil import dataset, evaluate
from s3jax.distil.config import DistilConfig
from s3jax.distil.train import Fit, fit
from s3jax.distil.vehicle import data_sheet, with_vehicle
from s3jax.dynamics.ensemble import EnsembleConfig
from s3jax.dynamics.store import load_dynamics, save_dynamics
from s3jax.progress import Progress, silent


def distil(config: DistilConfig, recordings, output, progress: Progress = silent) -> dict:
    """Fits every model of a configuration to recordings and compares them on episodes none has seen.

    Writes for each model `<name>.npz`, its curves (`<name>.csv`, of an ensemble one for each member, and
    `tensorboard/<name>`) and, while it is being fitted, a folder of
    checkpoints; then `config.yaml`, `evaluation.json` and `evaluation.md`. Interrupted and called again, it
    goes on where it was: a model made with the same configuration from the same recordings is not fitted
    again, and a half-fitted one continues to the same bits.

    Args:
      config: what to fit and how.
      recordings: directory of recordings.
      output: directory to write to.
      progress: called as progress(updates done, updates of all models, note).

    Returns:
      `models`: name -> file, updates, validation error (m), seconds and whether it was there already;
      `evaluation`: name -> result of `evaluate.evaluate`; `table`: the same as Markdown.

    Raises:
      FileError: for recordings or a base model that cannot be used.
      DivergedError: if training diverges.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    episodes = dataset.load_episodes(recordings, config.dt)
    config = for_episodes(config, episodes)
    split = dataset.split_episodes(episodes, config.validation, config.test, config.seed, config.reserved)
    config.save(output / "config.yaml")
    total = config.steps * len(config.models)
    models = {}
    for i, model_config in enumerate(config.models):

        def shifted(done, _, note="", before=i * config.steps):
            progress(before + done, total, note)

        models[model_config.name] = distil_one(model_config, config, split, output, shifted)
        shifted(config.steps, None)
    results = {}
    for name, entry in models.items():
        model, params, _ = load_dynamics(entry["file"])
        results[name] = evaluate.evaluate(model, params, split.test, tracks=dataset.tracks_of(split))
    evaluate.write(results, output)
    return {"models": models, "evaluation": results, "table": evaluate.markdown(results)}


def for_episodes(config: DistilConfig, episodes) -> DistilConfig:
    """Returns the configuration with the data sheet of the recorded vehicle, if the episodes know it.

    Raises:
      FileError: if the episodes are of different vehicles.
    """
    if len({json.dumps(episode.vehicle, sort_keys=True) for episode in episodes}) > 1:
        names = sorted({str(episode.vehicle.get("name")) for episode in episodes})
        raise FileError(
            f"the recordings are of different vehicles ({', '.join(names)}); distil one at a time"
        )
    if not episodes[0].vehicle:
        return config
    vehicle = data_sheet(episodes[0].vehicle, episodes[0].name)
    models = tuple(with_vehicle(model, vehicle) for model in config.models)
    return config.model_copy(update={"models": models})


def distil_one(model_config, config: DistilConfig, split: dataset.Split, output: Path, progress) -> dict:
    """Fits one model, unless its file is there already; see `distil`."""
    path = output / f"{model_config.name}.npz"
    base = _base(model_config, output)
    fingerprint = _fingerprint(model_config, config, split, base)
    there = _provenance(path)
    if there.get("fingerprint") == fingerprint:
        return {**there["summary"], "file": str(path), "reused": True}

    began = time.monotonic()
    checkpoints = output / f"{model_config.name}_checkpoints" / fingerprint[:16]
    if isinstance(model_config, EnsembleConfig):
        results = []
        for k in range(model_config.size):

            def shared(done, total, note="", k=k):
                progress(
                    (k * total + done) // model_config.size, total, f"{k + 1}/{model_config.size} {note}"
                )

            seeded = config.model_copy(update={"seed": config.seed + k})
            directory, curves = checkpoints / f"member{k}", output / f"{model_config.name}_member{k}"
            results.append(_fit(model_config.member, seeded, split, base, directory, curves, shared))
        params = jax.tree.map(lambda *members: jnp.stack(members), *(result.params for result in results))
    else:
        curves = output / model_config.name
        results = [_fit(model_config, config, split, base, checkpoints, curves, progress)]
        params = results[0].params
    summary = {
        "updates": sum(int(result.state.step) for result in results),
        "validation_error": float(np.mean([result.state.best_error for result in results])),
        "seconds": round(time.monotonic() - began, 1),
    }
    model = model_config.make()
    provenance = {
        "fingerprint": fingerprint,
        "summary": summary,
        "training": config.dump(),
        "episodes": {name: list(map(dataset.identity, getattr(split, name))) for name in split._fields},
        "tracks": dataset.tracks_of(split),
        "constants": model.describe(params),
    }
    save_dynamics(path, model, params, provenance)
    shutil.rmtree(checkpoints.parent)
    return {**summary, "file": str(path), "reused": False}


def _provenance(path: Path) -> dict:
    """Returns the provenance of the model file that is there; empty if there is none that this s3jax made."""
    try:
        return load_dynamics(path)[2]["provenance"]
    except FileError:
        return {}


def _fit(
    model_config, config: DistilConfig, split: dataset.Split, base, checkpoints, curves, progress
) -> Fit:
    """Fits one model from fresh parameters, over its base's if it has one."""
    model = model_config.make()
    rows, index = dataset.join(split.train)
    params = model.init(jax.random.key(config.seed))
    params = model.calibrate(params, dataset.statistics_of(rows, index, model.dt))
    if base is not None:
        params = {**params, "base": base}
    return fit(model, params, config, split, checkpoints, curves, progress)


def _base(model_config, output: Path):
    """Returns the fitted parameters of the model that a residual model corrects; None for other models."""
    if isinstance(model_config, EnsembleConfig):
        return _base(model_config.member, output)
    if model_config.base is None:
        return None
    path = output / f"{model_config.base.name}.npz"
    if not path.exists():
        raise FileError(f"{path}: no such file; {model_config.name} needs its base fitted first")
    model, params, _ = load_dynamics(path)
    if model.config != model_config.base:
        raise FileError(
            f"{path}: was made with {model.config.dump()}, but the base of {model_config.name} is "
            f"{model_config.base.dump()}"
        )
    return params


def _fingerprint(model_config, config: DistilConfig, split: dataset.Split, base) -> str:
    """Returns a digest of everything that decides the parameters."""
    recipe = {**config.dump(), "models": model_config.dump()}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for episode in (*split.train, *split.validation):
        digest.update(dataset.identity(episode).encode())
    for leaf in jax.tree.leaves(base):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
