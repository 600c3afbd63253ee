"""A small world of straight roads and a car whose steps compile fast."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.dynamics.bicycle import BicycleConfig
from s3jax.env import World
from s3jax.scenarios.bank import make_bank
from s3jax.spatial.friction import friction_map
from s3jax.spatial.reference import make_reference

DT = 0.05


def _straight(speed, samples=100, friction=None, y=0.0):
    x = np.arange(samples) * DT * speed
    reference = make_reference(x, y + 0 * x, 0 * x, np.full(samples, speed), DT)
    return SimpleNamespace(dt=DT, reference=reference, friction=friction or friction_map(1.0))


@pytest.fixture(scope="session")
def straight():
    """Makes a scenario of a straight road along x: speed (m/s), samples, friction map, y (m)."""
    return _straight


@pytest.fixture(scope="session")
def bicycle():
    """A kinematic bicycle."""
    return BicycleConfig().make()


@pytest.fixture(scope="session")
def icy(bicycle):
    """A world of two roads: one with ice from 20 to 40 m, one dry."""
    ice = [([(20, -5), (40, -5), (40, 5), (20, 5)], "ice")]
    bank = make_bank([_straight(10.0, friction=friction_map(0.7, ice)), _straight(20.0)])
    return World(jax.tree.map(jnp.asarray, bank), bicycle.init(jax.random.key(0)))
