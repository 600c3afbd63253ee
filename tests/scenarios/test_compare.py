"""Distances between two sets of scenarios."""

from types import SimpleNamespace

import numpy as np
import pytest

from s3jax.cli import main
from s3jax.scenarios import compare
from s3jax.scenarios.build import build_worlds
from s3jax.scenarios.worlds import WorldConfig
from s3jax.spatial.reference import make_reference

DT = 0.05


def circle(speed, radius):
    """A car on a circle, to the left."""
    yaw = np.arange(200) * DT * speed / radius
    reference = make_reference(radius * np.sin(yaw), -radius * np.cos(yaw), yaw, np.full(200, speed), DT)
    return SimpleNamespace(dt=DT, reference=reference)


def test_channels_are_those_of_the_circle():
    found = compare.samples([circle(10.0, 50.0)])
    expected = {"speed": 10.0, "acceleration": 0.0, "lateral": 2.0, "yaw_rate": 0.2, "curvature": 0.02}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-3)


def test_distances():
    one, other = compare.samples([circle(10.0, 50.0)]), compare.samples([circle(12.0, 50.0)])
    assert compare.distances(one, one)["speed"][:] == (0.0, 0.0, 0.0)
    far = compare.distances(one, other)["speed"]
    assert far.wasserstein == pytest.approx(2.0, abs=1e-3)
    assert far.jensen_shannon == pytest.approx(1.0)
    standing = compare.samples([circle(1.0, 50.0)])
    assert np.isnan(compare.distances(one, standing)["curvature"].wasserstein)


def test_the_command_prints_a_table_and_draws(tmp_path, capsys):
    for seed in (0, 1):
        build_worlds(WorldConfig(), 3, tmp_path / f"s{seed}", seed=seed, workers=1)
    picture = tmp_path / "compare.png"
    assert main(["scenarios", "compare", f"{tmp_path}/s0", f"{tmp_path}/s1", "--out", str(picture)]) == 0
    assert "Jensen-Shannon" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
