"""The training stage on tiny sizes: interruption, refusals, what it leaves behind."""

import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_run import config, last_state, write_dynamics

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.ppo.checkpoints import load_policy
from s3jax.ppo.train import evaluate_run, train
from s3jax.scenarios.build import build_worlds
from s3jax.scenarios.worlds import WorldConfig


@pytest.fixture(scope="module")
def dynamics(tmp_path_factory):
    return write_dynamics(tmp_path_factory.mktemp("dynamics") / "single_track.npz")


def test_a_signal_before_the_first_update_ends_the_run_at_once(tmp_path, dynamics):
    def terminate(done, total, note=""):
        if note == "compiling":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        train(config("ppo.updates=2"), dynamics, tmp_path, terminate)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert train(config("ppo.updates=2"), dynamics, tmp_path)["finished"]


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


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory as Linux tells it")
def test_memory_does_not_grow_with_the_updates(tmp_path, dynamics):
    resident = {}

    def measure(done, total, note=""):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident[done] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    run = config("ppo.updates=1000", "log_every=10", "evaluate_every=100")
    assert train(run, dynamics, tmp_path, measure)["finished"]
    # A training state kept at every update would take more than 60 MiB.
    # (The picture of the curves, drawn after the last one, takes some of its own.)
    assert resident[990] - resident[200] < 20.0


def test_banks_change_and_a_run_that_goes_on_sees_the_same_ones(tmp_path, dynamics):
    def interrupt(done, total, note=""):
        if done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    run = config("ppo.updates=9", "scenarios.bank=6", "scenarios.resample_every=2")
    train(run, dynamics, tmp_path / "whole")
    assert train(run, dynamics, tmp_path / "parts", interrupt)["updates"] == 4  # where the bank changes
    assert train(run, dynamics, tmp_path / "parts")["finished"]
    (_, whole), (_, parts) = last_state(tmp_path / "whole"), last_state(tmp_path / "parts")
    jax.tree.map(np.testing.assert_array_equal, whole, parts)


def test_several_cars_share_a_world(tmp_path, dynamics):
    build_worlds(WorldConfig(), 40, tmp_path / "worlds", workers=1)
    run = config("env.cars=2", f"scenarios.files=[{tmp_path}/worlds]", "ppo.updates=2")
    summary = train(run, dynamics, tmp_path / "run")
    assert summary["finished"] and 0 <= summary["held_out"]["ended_collision"] <= 1
    with pytest.raises(ConfigError, match=r"env.cars = 2: name scenes with other road users"):
        train(config("env.cars=2"), dynamics, tmp_path / "none")


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
        ("scenarios.exclude=[moving, stationary]", "no scenario of 20 is left"),
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
