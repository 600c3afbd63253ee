import jax
import numpy as np
import pytest

from s3jax.distil import dataset
from s3jax.distil.conditioning import conditioning
from s3jax.distil.inspect import inspect_dynamics, trace
from s3jax.dynamics.store import make_dynamics, save_dynamics

SMALL = {"kind": "ddm", "hidden": 8, "dense": 8}


def fresh(config):
    model = make_dynamics(config)
    return model, model.init(jax.random.key(0))


def test_pictures_are_drawn(tmp_path, monkeypatch, episodes):
    monkeypatch.setattr(dataset, "load_episodes", lambda directory, dt: episodes)
    paths = []
    for config in ({"kind": "bicycle"}, {"kind": "single_track"}, SMALL):
        paths.append(tmp_path / f"{config['kind']}.npz")
        save_dynamics(paths[-1], *fresh(config))
    written = inspect_dynamics(paths, tmp_path, tmp_path / "pictures")
    names = {path.name for path in written}
    assert names == {"rollouts.png", "single_track_tyres.png", "ddm_tyres.png", "ddm_belief.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_a_trace_is_one_coefficient_per_row_inside_its_guard(episodes):
    model, params = fresh(SMALL)
    values = trace(model, params, episodes[0], withheld=True)
    assert values["grip_front"].shape == (len(episodes[0].controls),)
    assert values["grip_front"].min() > 0.6 and values["grip_front"].max() < 1.4


@pytest.mark.parametrize("kind", ["bicycle", "single_track"])
def test_only_a_model_with_tyres_minds_what_it_is_told(kind, episodes):
    table = conditioning(*fresh({"kind": kind}), episodes)
    everything = table["all"]
    assert 0 < table["excited"]["starts"] + table["calm"]["starts"] < everything["starts"]
    if kind == "bicycle":
        assert everything["given"] == everything["withheld"] == everything["wrong"]
    else:
        assert everything["given"] < everything["withheld"] < everything["wrong"]
    assert np.isfinite(everything["ratio"])
