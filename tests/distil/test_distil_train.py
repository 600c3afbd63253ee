import csv

import jax
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.distil import train
from s3jax.distil.train import DistilConfig, DivergedError
from s3jax.dynamics.store import load_dynamics


def config(kind="single_track", **fields):
    values = {
        "model": {"kind": kind},
        "steps": 60,
        "batch": 32,
        "warmup": 10,
        "horizons": [10],
        "evaluate_every": 30,
        "validation": 0.2,
        "test": 0.2,
    }
    return DistilConfig.parse({**values, **fields})


def test_a_network_learns(tmp_path, episodes):
    small = config("ddm", model={"kind": "ddm", "hidden": 8, "dense": 8}, horizons=[5])
    train.fit(small, episodes, tmp_path)
    losses = [float(row["loss"]) for row in metrics(tmp_path / "ddm.csv")]
    assert losses[-1] < 0.8 * losses[0]


def metrics(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_fitting_recovers_the_recorded_car(tmp_path, episodes):
    seen = []
    summary = train.fit(config(steps=240, evaluate_every=80), episodes, tmp_path, seen.append)
    model, params, header = load_dynamics(tmp_path / "single_track.npz")
    start = model.describe(model.init(jax.random.key(0)))
    fitted = model.describe(params)
    true_brake = 4 + 21 / (1 + np.exp(-(np.log((11 - 4) / (25 - 11)) + 0.6)))
    assert abs(fitted["brake"] - true_brake) < 0.5 * abs(start["brake"] - true_brake)
    rows = metrics(tmp_path / "single_track.csv")
    assert [int(row["update"]) for row in rows] == [80, 160, 240] == [p.step for p in seen]
    assert float(rows[-1]["validation_error"]) < 0.8 * float(rows[0]["validation_error"])
    assert summary["validation_error"] == min(float(row["validation_error"]) for row in rows)
    names = header["provenance"]["episodes"]
    assert not set(names["train"]) & set(names["validation"] + names["test"])


def test_the_same_seed_gives_the_same_parameters(tmp_path, episodes):
    for name in ("a", "b"):
        train.fit(config("bicycle"), episodes, tmp_path / name)
    first, second = (load_dynamics(tmp_path / name / "bicycle.npz")[1] for name in ("a", "b"))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_divergence_stops_and_keeps_the_last_good_parameters(tmp_path, episodes):
    episodes[0].states.vx[100] = np.nan
    with pytest.raises(DivergedError, match="bicycle: loss is not finite at update"):
        train.fit(config("bicycle"), episodes, tmp_path)
    _, params, header = load_dynamics(tmp_path / "bicycle.npz")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    assert not header["provenance"]["finished"]


def test_a_mistyped_model_key_is_refused():
    with pytest.raises(ConfigError, match="did you mean hidden"):
        DistilConfig.parse({"model": {"kind": "ddm", "hiden": 3}})
    with pytest.raises(ConfigError, match="unknown kind 'dmd'"):
        DistilConfig.parse({"model": {"kind": "dmd"}})


@pytest.mark.parametrize("name", ["bicycle", "single_track", "ddm", "bicycle_quick", "ddm_quick"])
def test_the_shipped_configurations_load(name, request):
    DistilConfig.load(request.config.rootpath / "configs" / "distil" / f"{name}.yaml")
