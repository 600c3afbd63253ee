import csv

import numpy as np
import pytest

from s3jax.distil import DistilConfig, dataset, distil
from s3jax.dynamics.store import load_dynamics

RECIPE = {
    "models": [{"kind": "bicycle"}],
    "steps": 20,
    "batch": 16,
    "warmup": 10,
    "horizons": [5],
    "evaluate_every": 10,
    "validation": 0.2,
    "test": 0.2,
}


@pytest.fixture
def recordings(tmp_path, monkeypatch, episodes):
    monkeypatch.setattr(dataset, "load_episodes", lambda directory, dt: episodes)
    return tmp_path / "recordings"


def test_a_finished_model_is_not_fitted_again(tmp_path, recordings):
    reports = []
    config = DistilConfig.parse(RECIPE)
    first = distil(config, recordings, tmp_path, lambda *report: reports.append(report))
    assert [report[:2] for report in reports] == [(10, 20), (20, 20), (20, 20)]
    assert not first["models"]["bicycle"]["reused"]
    bits = (tmp_path / "bicycle.npz").read_bytes()
    again = distil(config, recordings, tmp_path)
    assert again["models"]["bicycle"]["reused"]
    assert (tmp_path / "bicycle.npz").read_bytes() == bits
    assert again["table"] == first["table"] and "| bicycle |" in first["table"]
    changed = distil(DistilConfig.parse({**RECIPE, "seed": 1}), recordings, tmp_path)
    assert not changed["models"]["bicycle"]["reused"]


def test_what_is_written(tmp_path, recordings):
    config = DistilConfig.parse(RECIPE)
    distil(config, recordings, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "bicycle.npz",
        "bicycle.csv",
        "config.yaml",
        "evaluation.json",
        "evaluation.md",
        "tensorboard",
    }
    assert DistilConfig.load(tmp_path / "out" / "config.yaml") == config
    provenance = load_dynamics(tmp_path / "out" / "bicycle.npz")[2]["provenance"]
    names = provenance["episodes"]
    assert not set(names["train"]) & set(names["validation"] + names["test"])
    assert 1.5 < provenance["constants"]["wheelbase"] < 4.5
    rows = list(csv.DictReader((tmp_path / "out" / "bicycle.csv").read_text().splitlines()))
    assert [row["update"] for row in rows] == ["10", "20"]
    assert np.isfinite([float(row["loss"]) for row in rows]).all()
