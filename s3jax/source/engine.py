"""The compiled loop: forces and MuJoCo's step in turn, without Python and without the GIL."""

import ctypes
import functools
import math
from pathlib import Path

import mujoco
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

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


@numba.njit(cache=True, nogil=True)
def run_cars(step, model, where, bodies, count, dt, controls, parameters, actuators, tyres, bristles, road):
    """Runs N cars, one after the other, for `count` substeps under held controls.

    Args:
      step: address of `mj_step`. model: of the MjModel that the cars share.
      where: [N, 6] from `addresses`.
      bodies: [5] index of the four wheels and of the chassis.
      count: substeps. dt: (s).
      controls: [N, 2] steer, pedal.
      parameters: [1] of type `PARAMETERS`. actuators: [N] of type `ACTUATORS`. tyres: [N, 4] of type `TYRE`.
      bristles: [N, 4, 2, ROWS].
      road: base, boxes, polygons and values, as `friction_under` takes them.
    """
    p = parameters[0]
    r = np.empty((3, 3))
    for n in range(len(where)):
        qpos = numba.carray(_pointer(where[n, 1]), (17,), np.float64)
        qvel = numba.carray(_pointer(where[n, 2]), (16,), np.float64)
        servo = numba.carray(_pointer(where[n, 3]), (2,), np.float64)
        xfrc = numba.carray(_pointer(where[n, 4]), (bodies.max() + 1, 6), np.float64)
        qfrc = numba.carray(_pointer(where[n, 5]), (16,), np.float64)
        a = actuators[n]
        ax, ay = 0.0, 0.0
        for _ in range(count):
            vx, vy = qvel[0], qvel[1]
            apply_forces(
                qpos, qvel, controls[n], p, a, tyres[n], bristles[n], road, dt, servo, xfrc, qfrc, bodies, r
            )
            heading = math.sqrt(r[0, 0] ** 2 + r[1, 0] ** 2)
            cos, sin = r[0, 0] / heading, r[1, 0] / heading
            _call(step, model, where[n, 0])
            ax += cos * (qvel[0] - vx) + sin * (qvel[1] - vy)
            ay += cos * (qvel[1] - vy) - sin * (qvel[0] - vx)
        a.substeps += count
        a.mean_ax, a.mean_ay = ax / (dt * count), ay / (dt * count)
