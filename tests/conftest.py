"""A policy made by hand, which drives Putnam Park well enough, so that no test has to train one.

Tests share the programs that they compile, also with the processes that they start, in a folder that is
removed at the end.
"""

import os
import tempfile

import numpy as np
import pytest

from beamng_bridge.bundle import PolicySpec, save_bundle
from s3jax.compilation_cache import use_compilation_cache
from s3jax.spatial.observation import ObservationSpec

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers take the folder over
    _compiled = tempfile.TemporaryDirectory(prefix="s3jax_compiled_", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled.name
use_compilation_cache()


@pytest.fixture(scope="session")
def hand_made_bundle(tmp_path_factory):
    """Linear feedback on errors, curvature and speed ahead, as a bundle with one layer."""
    spec = ObservationSpec()
    preview, last = 5, 5 + 4 * spec.preview + 6 * (spec.history - 1)
    kernel, bias = np.zeros((spec.size, 2)), np.array([0.0, 0.12])
    kernel[[0, 1, preview + 3, last + 4], 0] = -0.36, -5.4, 39.0, -6.0
    kernel[[2, 3, preview + 6, last + 5], 1] = -1.4, -1.8, 1.8, -4.0
    kernel, bias = kernel.astype(np.float32), bias.astype(np.float32)
    observations = np.random.default_rng(0).normal(size=(8, spec.size)).astype(np.float32)
    path = tmp_path_factory.mktemp("policy") / "policy.npz"
    save_bundle(
        path,
        PolicySpec(spec, (4.0, 4.0), 0.05, "silu", 1000.0),
        {"actor": {"dense_0": {"kernel": kernel, "bias": bias}}},
        np.zeros(spec.size),
        np.ones(spec.size),
        (observations, np.tanh(observations @ kernel + bias)),
        {"note": "made by hand"},
    )
    return path
