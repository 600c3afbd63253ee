"""A run of two processes over loopback, and its checkpoint on another number of devices."""

import csv
import os
import socket
import subprocess
import sys

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
    with open(folder / "run" / "metrics.csv", newline="") as file:
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


def test_two_processes_train_as_one(folder):
    found = rows(folder)
    assert [row["update"] for row in found] == ["1", "2", "3", "4"]
    assert {float(row["env_steps"]) / float(row["update"]) for row in found} == {32 * 8}
    assert float(found[0]["loss/first_ratio_error"]) < 1e-5


@pytest.mark.parametrize("devices", [1, 2])
def test_a_finished_run_opens_on_other_devices(folder, devices):
    assert "finished after 4 updates" in finish(start(folder, "ppo.updates=4", devices=devices))
