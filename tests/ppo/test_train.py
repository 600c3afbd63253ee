"""The training stage on tiny sizes: exact resume, refusals, interruption."""

import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.curves import read_rows
from s3jax.dynamics.single_track import SingleTrackConfig
from s3jax.dynamics.store import save_dynamics
from s3jax.ppo.checkpoints import Checkpointer, load_policy
from s3jax.ppo.train import TrainConfig, evaluate_run, train

TINY = [
    "ppo.num_envs=32",
    "ppo.rollout=8",
    "ppo.minibatches=2",
    "ppo.groups=2",
    "ppo.epochs=1",
    "ppo.actor_hidden=[16]",
    "ppo.critic_hidden=[16]",
    "scenarios.procedural.count=20",
    "log_every=1",
    "evaluate_every=2",
]


@pytest.fixture(scope="module")
def dynamics(tmp_path_factory):
    path = tmp_path_factory.mktemp("dynamics") / "single_track.npz"
    model = SingleTrackConfig().make()
    save_dynamics(path, model, model.init(jax.random.key(0)))
    return path


def config(*overrides):
    return TrainConfig.load(None, [*TINY, *overrides])


def last_state(directory):
    """Returns every array of the latest checkpoint, as saved."""
    with Checkpointer(directory / "checkpoints") as checkpointer:
        return checkpointer.latest(), checkpointer.restore(None)


def test_a_killed_run_goes_on_to_the_bit(tmp_path, dynamics):
    """Kills a run in its own process, resumes it here, and compares with a run that nothing happened to."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(config("ppo.updates=6"), dynamics, whole)
    command = [sys.executable, "-m", "s3jax", "train", "--dynamics", dynamics, "--out", broken, *TINY]
    process = subprocess.Popen([*map(str, command), "ppo.updates=6"], stderr=subprocess.PIPE)
    while not (broken / "checkpoints" / "2").exists():
        assert process.poll() is None, process.stderr.read().decode()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    summary = train(config("ppo.updates=6"), dynamics, broken)
    assert summary["finished"] and summary["updates"] == 6
    (step_a, a), (step_b, b) = last_state(whole), last_state(broken)
    assert step_a == step_b == 6
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(*map(raw, (x, y))), a, b)
    assert [row["update"] for row in read_rows(broken / "metrics.csv")] == [1, 2, 3, 4, 5, 6]


def raw(x):
    return np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def test_sigint_saves_and_the_run_can_go_on(tmp_path, dynamics):
    def interrupt(done, total, note=""):
        if done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    run = config("ppo.updates=50", "evaluate_every=50")
    summary = train(run, dynamics, tmp_path, interrupt)
    assert not summary["finished"]
    assert summary["updates"] == 4  # the signal came after update 3 was reported
    assert load_policy(tmp_path / "checkpoints", "latest")[1] == summary["updates"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_finished_run_evaluates_to_what_it_reported(tmp_path, dynamics):
    summary = train(config("ppo.updates=2"), dynamics, tmp_path)
    again = train(config("ppo.updates=2"), dynamics, tmp_path)
    assert again["finished"] and again["held_out"] == summary["held_out"]
    measured = evaluate_run(tmp_path, "latest")
    for name, value in summary["held_out"].items():
        assert measured[name] == pytest.approx(value, rel=1e-4)


def test_a_folder_of_another_run_is_refused(tmp_path, dynamics):
    train(config("ppo.updates=2"), dynamics, tmp_path)
    with pytest.raises(ConfigError, match="another configuration"):
        train(config("ppo.updates=3"), dynamics, tmp_path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("scenarios.procedural.count=1", "1 scenarios cannot be split"),
        ("scenarios.held_out=0.001", "cannot be split"),
        ("scenarios.only=[u_turm]", "did you mean u_turn"),
        ("scenarios.exclude=[moving, stationary]", "cannot be split"),
    ],
)
def test_too_few_scenarios_are_refused_with_the_remedy(tmp_path, dynamics, override, message):
    with pytest.raises(ConfigError, match=message):
        train(config(override), dynamics, tmp_path)


def test_missing_files_are_named(tmp_path, dynamics):
    with pytest.raises(FileError, match=r"absent\.npz: no such file"):
        train(config(), tmp_path / "absent.npz", tmp_path / "run")
    with pytest.raises(FileError, match=r"absent\.tfrecord"):
        train(config(f"scenarios.files=[{tmp_path}/absent.tfrecord]"), dynamics, tmp_path / "run")
    with pytest.raises(FileError, match="no checkpoints"):
        evaluate_run(tmp_path / "nowhere")
