import copy
import functools

import jax
import numpy as np
import pytest

from s3jax.distil.dataset import Episode
from s3jax.dynamics.base import rollout
from s3jax.dynamics.store import make_dynamics
from s3jax.spatial.state import VehicleState

SURFACES = (1.0, 0.7, 0.3, 0.1)


@functools.cache
def made_episodes(count=12, rows=200):
    """Drives a single track that no model here starts as: other tyres, brakes and lags."""
    model = make_dynamics({"kind": "single_track"})
    params = model.init(jax.random.key(0))
    params = params | {
        name: params[name] + shift
        for name, shift in (("stiffness_front", -0.7), ("grip_rear", 0.4), ("brake", 0.6), ("drive", -0.5))
    }
    episodes = []
    run = jax.jit(lambda start, u, f: rollout(model, params, model.reset(params, start), u, f)[1])
    for i in range(count):
        rng = np.random.default_rng(i)
        controls = np.clip(np.repeat(rng.normal(0, 0.4, (rows // 10, 2)), 10, axis=0), -1, 1)
        controls[:, 0] *= 0.2
        frictions = np.full((rows, 2), SURFACES[i % 4])
        if i % 3 == 0:
            frictions[rows // 2 :] = SURFACES[(i + 1) % 4]
        start = VehicleState(0.0, 0.0, 0.0, float(rng.uniform(5, 20)), 0.0, 0.0, 0.0)
        later = run(start, controls.astype(np.float32), frictions.astype(np.float32))
        states = VehicleState(*(np.append(a, np.asarray(b)[:-1]) for a, b in zip(start, later, strict=True)))
        episodes.append(Episode(f"episode{i:02d}", 0.05, states, controls, frictions, {}))
    return episodes


@pytest.fixture
def episodes():
    return copy.deepcopy(list(made_episodes()))
