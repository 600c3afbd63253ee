"""One program on any number of devices."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from s3jax.config import ConfigError
from s3jax.env import EnvConfig, TrackingEnv
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.devices import start_processes
from s3jax.ppo.learner import Learner


@pytest.fixture(scope="module")
def trained():
    """Three updates on 1 and on 8 virtual devices."""
    script = Path(__file__).parent / "on_devices.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_eight_devices_learn_what_one_does(trained):
    """Parameters, optimiser, normaliser, observations and metrics, in double precision."""
    assert trained["moved"] > 1e-3
    assert trained["difference"] < 1e-10


def test_it_compiles_once(trained):
    assert trained["alone"]["compiled_again"] == trained["spread"]["compiled_again"] == 0


def test_devices_exchange_one_gradient_per_minibatch_and_no_rollouts(trained):
    kernel = [69, 24]  # of the GRU's input
    collectives = trained["spread"]["collectives"]
    gradients = [shapes for _, shapes in collectives if kernel in shapes]
    assert len(gradients) == 1  # in the loop over minibatches
    assert len(gradients[0]) >= trained["parameters"]
    assert {kind for kind, _ in collectives} == {"all-reduce"}
    others = [shape for _, shapes in collectives if kernel not in shapes for shape in shapes]
    assert all(len(shape) <= 1 for shape in others)  # scalars, and moments of the observation
    assert len(collectives) <= 5


def test_groups_that_cannot_be_spread_are_refused():
    class Mesh:
        size = 3

    with pytest.raises(ConfigError, match="groups = 8 cannot be spread over 3 devices"):
        Learner(PPOConfig(), TrackingEnv(EnvConfig(), None), Mesh())


def test_incomplete_or_wrong_process_numbers_are_refused(monkeypatch):
    with pytest.raises(ConfigError, match="needs all of --coordinator"):
        start_processes("localhost:1234")
    with pytest.raises(ConfigError, match="--process 2 is not one of 2"):
        start_processes("localhost:1234", 2, 2)
    monkeypatch.setenv("S3JAX_PROCESSES", "two")
    with pytest.raises(ConfigError, match="S3JAX_PROCESSES = 'two' is not a whole number"):
        start_processes()
