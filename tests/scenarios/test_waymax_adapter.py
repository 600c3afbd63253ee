"""What of the Waymax adapter can be tested without Waymax; the rest is in tests/parity."""

import subprocess
import sys

import numpy as np
import pytest

from s3jax.scenarios.example import encode_example, parse_example
from s3jax.scenarios.waymax import WaymaxError, load_waymax, state_layout
from s3jax.scenarios.womd_writer import features_from_scene
from s3jax.scenarios.world_kinds import WorldConfig
from s3jax.scenarios.worlds import generate_world


def test_the_layout_is_that_of_waymax():
    world = generate_world(WorldConfig(), 1, "left")
    features = features_from_scene(world.scene, world.route)
    layout = state_layout(parse_example(encode_example(features)))
    count = len(world.scene.tracks.ids)
    log, meta = layout["log_trajectory"], layout["object_metadata"]
    assert {name: (value.shape, value.dtype.name) for name, value in log.items()} == {
        **{name: ((128, 91), "float32") for name in log},
        "valid": ((128, 91), "bool"),
        "timestamp_micros": ((128, 91), "int32"),
    }
    assert meta["is_sdc"].tolist() == [True] + [False] * 127
    assert log["valid"].any(axis=1).sum() == count
    np.testing.assert_allclose(log["x"][0], world.scene.tracks.x[0], atol=1e-5)
    # One size per object at all steps, -1 for padding.
    assert (log["length"] == log["length"][:, :1]).all()
    assert log["length"][0, 0] == pytest.approx(5.29) and (log["length"][count:] == -1).all()
    assert (np.abs(log["yaw"]) <= np.float32(np.pi)).all()
    points, paths = layout["roadgraph_points"], layout["sdc_paths"]
    assert points["x"].shape == (20_000,) and points["valid"].sum() > 500
    assert paths["x"].shape == (10, 300) and paths["on_route"].tolist() == [[True]] + [[False]] * 9
    assert layout["log_traffic_light"]["state"].shape == (16, 91)


@pytest.fixture
def forget_waymax():
    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] == "waymax"]:
            del sys.modules[name]

    forget()
    yield
    forget()


def test_a_stranger_named_waymax_is_recognised(tmp_path, monkeypatch, forget_waymax):
    (tmp_path / "waymax").mkdir()
    (tmp_path / "waymax" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WaymaxError, match="is not the simulator") as caught:
        load_waymax()
    assert str(tmp_path) in str(caught.value) and "pip uninstall waymax" in str(caught.value)


def test_what_waymax_needs_is_named(tmp_path, monkeypatch, forget_waymax):
    (tmp_path / "waymax.py").write_text("import no_such_package_of_waymax")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WaymaxError, match="needs no_such_package_of_waymax"):
        load_waymax()


def test_scenarios_load_without_jax_and_tensorflow():
    names = "load store build tags stats draw procedural worlds womd_writer waymax bank"
    code = (
        f"import sys\nfor name in '{names}'.split(): __import__('s3jax.scenarios.' + name)\n"
        "print([m for m in ('jax', 'flax', 'tensorflow', 'waymax', 'fsspec') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
