"""The compiled loop: forces and MuJoCo's step in turn, without Python and without the GIL."""

import ctypes
import functools
import hashlib
import math
from pathlib import Path

import mujoco
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from s3jax.source import driveline, forces, mjcf, tyre
from s3jax.source.forces import apply_forces


@functools.cache
def mj_step_address() -> int:
    """Returns the address of MuJoCo's `mj_step` in the library that the Python package has loaded.

    Raises:
      OSError: if the library is not where the package keeps it.
    """
    folder = Path(mujoco.__file__).parent
    for pattern in ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll", "*/libmujoco*.dylib"):
        for path in sorted(folder.glob(pattern)):
            return ctypes.cast(ctypes.CDLL(str(path)).mj_step, ctypes.c_void_p).value
    raise OSError(f"no MuJoCo library in {folder}")


@numba.extending.intrinsic
def _call(typing, function, model, data):
    """Calls a C function void(void*, void*) by its address. An argument, so that the caller can be cached."""

    def generate(context, builder, signature, arguments):
        integer = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [integer, integer])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), generate


@numba.extending.intrinsic
def _pointer(typing, address):
    """Turns an address into a pointer that `numba.carray` takes."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


def addresses(data) -> np.ndarray:
    """Returns the addresses [6] of an MjData and of its qpos, qvel, ctrl, xfrc_applied and qfrc_applied."""
    arrays = (data.qpos, data.qvel, data.ctrl, data.xfrc_applied, data.qfrc_applied)
    return np.array([data._address, *(array.ctypes.data for array in arrays)], np.uint64)


@numba.njit(cache=True, nogil=True)
def read_cars(where, out):
    """Fills the planar motion [N, 9] of cars: `VehicleState` in its order, then roll and pitch (rad)."""
    for n in range(len(where)):
        q = numba.carray(_pointer(where[n, 1]), (17,), np.float64)
        v = numba.carray(_pointer(where[n, 2]), (16,), np.float64)
        w, i, j, k = q[3], q[4], q[5], q[6]
        yaw = math.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))
        roll = math.atan2(2 * (w * i + j * k), 1 - 2 * (i * i + j * j))
        pitch = math.asin(max(-1.0, min(1.0, 2 * (w * j - k * i))))
        cos, sin = math.cos(yaw), math.sin(yaw)
        out[n, 0], out[n, 1], out[n, 2] = q[0], q[1], yaw
        out[n, 3], out[n, 4] = cos * v[0] + sin * v[1], cos * v[1] - sin * v[0]
        out[n, 5] = (math.sin(roll) * v[4] + math.cos(roll) * v[5]) / math.cos(pitch)
        out[n, 6] = 0.5 * (q[8] + q[11])
        out[n, 7], out[n, 8] = roll, pitch


@numba.njit
def run_car(step, model, where, bodies, count, dt, control, p, a, tyres, bristles, road):
    """Runs one car for `count` substeps under a held control.

    Args:
      step: address of `mj_step`. model: of the MjModel.
      where: [6] from `addresses`.
      bodies: [5] index of the four wheels and of the chassis.
      count: substeps. dt: (s).
      control: [2] steer, pedal.
      p, a, tyres, bristles, road: as `apply_forces` takes them.
    """
    qpos = numba.carray(_pointer(where[1]), (17,), np.float64)
    qvel = numba.carray(_pointer(where[2]), (16,), np.float64)
    servo = numba.carray(_pointer(where[3]), (2,), np.float64)
    xfrc = numba.carray(_pointer(where[4]), (bodies.max() + 1, 6), np.float64)
    qfrc = numba.carray(_pointer(where[5]), (16,), np.float64)
    r = np.empty((3, 3))
    ax, ay = 0.0, 0.0
    for _ in range(count):
        vx, vy = qvel[0], qvel[1]
        apply_forces(qpos, qvel, control, p, a, tyres, bristles, road, dt, servo, xfrc, qfrc, bodies, r)
        level = math.sqrt(r[0, 0] ** 2 + r[1, 0] ** 2)
        cos, sin = r[0, 0] / level, r[1, 0] / level
        _call(step, model, where[0])
        ax += cos * (qvel[0] - vx) + sin * (qvel[1] - vy)
        ay += cos * (qvel[1] - vy) - sin * (qvel[0] - vx)
    a.substeps += count
    a.mean_ax, a.mean_ay = ax / (dt * count), ay / (dt * count)


def _source_digest() -> int:
    modules = (driveline, forces, mjcf, tyre)
    text = b"".join(Path(module.__file__).read_bytes() for module in modules)
    return int.from_bytes(hashlib.sha256(text).digest()[:6])


def _compiled(sources: int):
    # Numba's cache looks only at the file and the closure of the outermost function. Closed over the digest
    # of what it calls, it is compiled anew when any of that changes.
    @numba.njit(cache=True, nogil=True)
    def run_cars(step, model, where, bodies, count, dt, controls, parameters, cars, tyres, bristles, road):
        """Runs N cars, one after the other: `run_car` with a leading axis [N], but for [1] `parameters`."""
        _ = sources
        for n in range(len(where)):
            run_car(
                step, model, where[n], bodies, count, dt, controls[n], parameters[0], cars[n], tyres[n],
                bristles[n], road,
            )  # fmt: skip

    return run_cars


run_cars = _compiled(_source_digest())
