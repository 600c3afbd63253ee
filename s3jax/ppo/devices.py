"""Devices: one mesh axis over all devices of all processes, along which environments and scenarios lie.

One process with one device is the same program as many processes with many.
"""

import os
import socket

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from s3jax.config import ConfigError

AXIS = "devices"
"""Name of the mesh axis."""

SPREAD, WHOLE = PartitionSpec(AXIS), PartitionSpec()
"""An array that is spread over the devices along its first axis, and one that every device holds."""


def make_mesh(devices=None) -> Mesh:
    """Returns the mesh over `devices`, by default all devices of all processes."""
    devices = jax.devices() if devices is None else devices
    return Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))


def check_groups(groups: int, mesh: Mesh) -> None:
    """Checks that groups of environments can be spread evenly over the devices.

    Raises:
      ConfigError: with the remedy.
    """
    if groups % mesh.size:
        raise ConfigError(
            f"ppo.groups = {groups} cannot be spread over {mesh.size} devices; make it a multiple of them"
        )


def place(mesh: Mesh, local, spec: PartitionSpec):
    """Puts a pytree of arrays on the devices.

    Args:
      mesh: the devices.
      local: arrays; of what is `SPREAD`, this process's part along the first axis.
      spec: `SPREAD` or `WHOLE`.
    """
    sharding = NamedSharding(mesh, spec)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), local)


def start_processes(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> int:
    """Joins this process to a run of several; does nothing in a run of one. Comes before any use of JAX.

    Tasks of SLURM or Open MPI and hosts of a TPU slice find one another by themselves. Others are told by
    arguments, or by the variables S3JAX_COORDINATOR (host:port), S3JAX_PROCESSES and S3JAX_PROCESS.

    Args:
      coordinator: host:port of process 0.
      processes: how many there are.
      process: which of them this is, from 0.

    Returns:
      The number of this process.

    Raises:
      ConfigError: if only some of the three are given, or the others cannot be reached.
    """
    told = (
        coordinator or os.environ.get("S3JAX_COORDINATOR"),
        _integer(processes, "S3JAX_PROCESSES"),
        _integer(process, "S3JAX_PROCESS"),
    )
    if all(value is None for value in told):
        if _in_cluster():
            _initialise()
        return jax.process_index()
    if any(value is None for value in told):
        raise ConfigError(
            "a run of several processes needs all of --coordinator HOST:PORT, --processes and --process"
        )
    if not 0 <= told[2] < told[1]:
        raise ConfigError(f"--process {told[2]} is not one of {told[1]} processes, counted from 0")
    _initialise(coordinator_address=told[0], num_processes=told[1], process_id=told[2])
    return told[2]


def _in_cluster() -> bool:
    tasks = max(int(os.environ.get(name, "1")) for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"))
    return tasks > 1 or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")


def _integer(value, variable):
    text = os.environ.get(variable)
    if value is not None or text is None:
        return value
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{variable} = {text!r} is not a whole number") from None


def _initialise(**arguments):
    try:
        jax.distributed.initialize(**arguments)
    except (RuntimeError, ValueError, socket.gaierror) as error:
        raise ConfigError(f"cannot join the other processes ({error})") from None
