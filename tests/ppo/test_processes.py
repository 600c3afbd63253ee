"""A run of two processes over loopback, and its checkpoint on another number of devices."""

import csv
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from tiny_run import OVERRIDES, write_dynamics


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def start(folder, *arguments, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-m", "s3jax", "train", "--dynamics", folder / "car.npz"]
    return subprocess.Popen(
        [*command, "--out", folder / "run", *OVERRIDES, *arguments],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


def rows(folder):
    path = folder / "run" / "metrics.csv"
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that holds a finished run of two processes."""
    folder = tmp_path_factory.mktemp("processes")
    write_dynamics(folder / "car.npz")
    where = ["--coordinator", f"localhost:{free_port()}", "--processes", "2", "--process"]
    first, second = (start(folder, "ppo.updates=4", *where, str(i)) for i in range(2))
    assert "finished after 4 updates" in finish(first)
    assert "update" not in finish(second)  # only process 0 talks
    return folder


def test_two_processes_learn_what_one_does(folder, tmp_path):
    write_dynamics(tmp_path / "car.npz")
    finish(start(tmp_path, "ppo.updates=4"))
    for two, one in zip(rows(folder), rows(tmp_path), strict=True):
        for name in (
            "update",
            "env_steps",
            "env/reward",
            "env/cross_track_rms",
            "loss/value",
            "loss/entropy",
        ):
            assert float(two[name]) == pytest.approx(float(one[name]), rel=1e-3, abs=1e-5), name


def test_an_interrupted_run_goes_on_with_another_number_of_devices(tmp_path):
    write_dynamics(tmp_path / "car.npz")
    process = start(tmp_path, "ppo.updates=60", devices=2)
    while len(rows(tmp_path)) < 3 and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)
    assert process.returncode == 130
    assert "finished after 60 updates" in finish(start(tmp_path, "ppo.updates=60", devices=1))
    assert [float(row["update"]) for row in rows(tmp_path)] == list(range(1, 61))


def test_devices_that_do_not_fit_the_groups_are_refused(tmp_path):
    write_dynamics(tmp_path / "car.npz")
    process = start(tmp_path, devices=3)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1 and err.count("Traceback") == 0
    assert "ppo.groups = 2 cannot be spread over 3 devices" in err
