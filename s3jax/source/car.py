"""The embedded source simulator: one multi-body car on brush tyres."""

import math
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np

from s3jax.source import mjcf
from s3jax.source.base import SourceError, VehicleReading
from s3jax.source.driveline import ACTUATORS
from s3jax.source.engine import addresses, mj_step_address, run_cars
from s3jax.source.tyre import ROWS, TYRE
from s3jax.source.vehicle import Vehicle, load_vehicle, pack
from s3jax.spatial.friction import FrictionMap, friction_map
from s3jax.spatial.state import VehicleState

MAX_POSITION = 1e5
MAX_SPEED = 70.0


class CarState(NamedTuple):
    """Everything that changes while a car drives; `EmbeddedCar.set_state` restores it to the bit.

    Attributes:
      qpos: [17]. qvel: [16] of the multi-body model.
      actuators: [] record. tyres: [4] records. bristles: [4, 2, rows].
    """

    qpos: np.ndarray
    qvel: np.ndarray
    actuators: np.ndarray
    tyres: np.ndarray
    bristles: np.ndarray


class Fleet:
    """N cars of one kind in one compiled loop; the arrays that `EmbeddedCar` and `CarBatch` share.

    Attributes:
      vehicle: the parameters.
      substep: of the integration (s).
      data: the N multi-body states.
      actuators: [N] records. tyres: [N, 4] records. bristles: [N, 4, 2, rows].
    """

    def __init__(self, vehicle: Vehicle, substep: float, count: int):
        if not (math.isfinite(substep) and 1e-5 <= substep <= 2e-3):
            raise SourceError(f"substep {substep} s is outside [0.00001, 0.002]")
        self.vehicle, self.substep = vehicle, float(substep)
        self.model = mujoco.MjModel.from_xml_string(mjcf.mjcf(vehicle, substep))
        self.data = [mujoco.MjData(self.model) for _ in range(count)]
        self.actuators = np.zeros(count, ACTUATORS)
        self.tyres = np.zeros((count, 4), TYRE)
        self.bristles = np.zeros((count, 4, 2, ROWS))
        self.set_friction(friction_map(1.0))
        self._parameters = pack(vehicle)
        self._where = np.stack([addresses(data) for data in self.data])
        names = (*mjcf.WHEEL_BODIES, "chassis")
        self._bodies = np.array(
            [mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_BODY, name) for name in names]
        )
        self._step = np.uint64(mj_step_address())
        self._model_address = np.uint64(self.model._address)

    def set_friction(self, friction: FrictionMap) -> None:
        """Sets the road's friction for all cars."""
        values = np.ascontiguousarray(friction.values, float)
        polygons = np.ascontiguousarray(friction.polygons, float)
        base = float(friction.base)
        if not (np.isfinite(polygons).all() and np.all(values > 0) and math.isfinite(base) and base > 0):
            raise SourceError("friction: expected finite corners and positive finite multipliers")
        boxes = np.concatenate([polygons.min(axis=1), polygons.max(axis=1)], axis=1)
        self._road = (base, boxes, polygons, values)

    def substeps(self, dt: float) -> int:
        """Returns the substeps of a control step.

        Raises:
          SourceError: unless `dt` is a positive multiple of the substep.
        """
        count = round(dt / self.substep) if math.isfinite(dt) else 0
        if count < 1 or abs(count * self.substep - dt) > 1e-9:
            raise SourceError(f"dt {dt} s is not a positive multiple of the substep of {self.substep} s")
        return count

    def place(self, n: int, pose, speed: float) -> None:
        """Puts car n at rest in its springs at a pose, rolling straight on at a speed.

        Raises:
          SourceError: for a pose or a speed out of range; nothing is changed.
        """
        x, y, yaw = check_pose(pose)
        speed = float(speed)
        if not abs(speed) <= MAX_SPEED:
            raise SourceError(f"speed {speed} m/s is outside [-{MAX_SPEED:.0f}, {MAX_SPEED:.0f}]")
        data, p = self.data[n], self._parameters[0]
        mujoco.mj_resetData(self.model, data)
        data.qpos[0:2] = x, y
        data.qpos[3:7] = math.cos(0.5 * yaw), 0.0, 0.0, math.sin(0.5 * yaw)
        data.qvel[0:2] = speed * math.cos(yaw), speed * math.sin(yaw)
        radius = self.vehicle.body.wheel_radius
        hubs = (p["layout"]["hub_front"], p["layout"]["hub_rear"])
        for wheel, spin in enumerate(mjcf.SPIN_VELOCITY):
            data.qvel[spin] = speed / (radius - (radius - hubs[wheel // 2]) / 3)
        self.tyres[n] = 0
        self.tyres[n]["torque_limit"] = 1.0
        self.tyres[n]["load"] = np.repeat([radius - hub for hub in hubs], 2)
        self.tyres[n]["load"] *= self.vehicle.tyre.vertical_stiffness
        self.tyres[n]["friction"] = self._road[0]
        self.bristles[n] = 0
        driveline = self.vehicle.driveline
        turbines = [max(speed, 0) / radius * ratio * driveline.final_ratio for ratio in driveline.ratios]
        gear = next((i for i, w in enumerate(turbines) if w < 0.5 * driveline.limit_speed), len(turbines) - 1)
        self.actuators[n] = np.zeros((), ACTUATORS)
        self.actuators[n]["gear"] = gear
        self.actuators[n]["engine_speed"] = max(driveline.idle_speed, turbines[gear])
        self.actuators[n]["shift_clock"] = -1.0
        self.actuators[n]["traction"] = 1.0

    def run(self, controls: np.ndarray, count: int, first: int = 0, last: int | None = None) -> None:
        """Runs cars first to last - 1 for `count` substeps under controls [N, 2]; releases the GIL."""
        cars = slice(first, last)
        run_cars(
            self._step, self._model_address, self._where[cars], self._bodies, count, self.substep,
            controls[cars], self._parameters, self.actuators[cars], self.tyres[cars], self.bristles[cars],
            self._road,
        )  # fmt: skip

    def reading(self, n: int) -> VehicleReading:
        """Returns what car n reports.

        Raises:
          SourceError: if the simulation has left the finite numbers.
        """
        q, v, a, tyres = self.data[n].qpos, self.data[n].qvel, self.actuators[n], self.tyres[n]
        w, i, j, k = q[3:7].tolist()
        yaw = math.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))
        roll = math.atan2(2 * (w * i + j * k), 1 - 2 * (i * i + j * j))
        pitch = math.asin(max(-1.0, min(1.0, 2 * (w * j - k * i))))
        x, y, vx, vy = float(q[0]), float(q[1]), float(v[0]), float(v[1])
        if not math.isfinite(x + vx + yaw):
            raise SourceError("the simulation diverged; use a smaller substep")
        cos, sin = math.cos(yaw), math.sin(yaw)
        state = VehicleState(
            x=x,
            y=y,
            yaw=yaw,
            vx=cos * vx + sin * vy,
            vy=cos * vy - sin * vx,
            yaw_rate=float(math.sin(roll) * v[4] + math.cos(roll) * v[5]) / math.cos(pitch),
            steer_angle=0.5 * float(q[8] + q[11]),
        )
        return VehicleReading(
            time=int(a["substeps"]) * self.substep,
            state=state,
            ax=float(a["mean_ax"]),
            ay=float(a["mean_ay"]),
            roll=roll,
            pitch=pitch,
            wheel_speed=v[list(mjcf.SPIN_VELOCITY)],
            friction=tyres["friction"].copy(),
            slip_ratio=tyres["slip_ratio"].copy(),
            slip_angle=tyres["slip_angle"].copy(),
            load=tyres["load"].copy(),
            throttle=float(a["throttle"]),
            brake=float(a["brake"]),
            gear=int(a["gear"]) + 1,
            engine_speed=float(a["engine_speed"]),
        )

    def energy(self, n: int) -> tuple[float, float]:
        """Returns the mechanical energy of car n (J) and the work put into it since its reset (J).

        The energy is that of motion, springs and height, up to a constant; the tyres' own is left out. The
        work is that of driveline and steering.
        """
        data = self.data[n]
        mujoco.mj_forward(self.model, data)
        mujoco.mj_energyPos(self.model, data)
        mujoco.mj_energyVel(self.model, data)
        a = self.actuators[n]
        return float(data.energy.sum()), float(a["drive_work"] + a["steer_work"])


class EmbeddedCar:
    """The default source simulator; fills `s3jax.source.base.SourceSimulator`.

    Args:
      vehicle: a name (`sedan`, `hatchback`, `van`), a YAML file or a `Vehicle`.
      substep: of the integration (s); control steps are multiples of it.
      abs: turns the anti-lock brakes on or off; None leaves it to the vehicle.
      traction_control: likewise.

    Raises:
      ConfigError: for a vehicle that cannot be used.
      SourceError: for a substep out of range.
    """

    def __init__(
        self,
        vehicle: str | Path | Vehicle = "sedan",
        substep: float = 0.001,
        abs: bool | None = None,
        traction_control: bool | None = None,
    ):
        vehicle = load_vehicle(vehicle)
        aids = {"abs": abs, "traction_control": traction_control}
        chosen = {name: on for name, on in aids.items() if on is not None}
        vehicle = vehicle.model_copy(update={"assists": vehicle.assists.model_copy(update=chosen)})
        self._fleet = Fleet(vehicle, substep, 1)
        self.reset()

    @property
    def vehicle(self) -> Vehicle:
        """The parameters."""
        return self._fleet.vehicle

    @property
    def substep(self) -> float:
        """Step of the integration (s)."""
        return self._fleet.substep

    def reset(self, pose=(0.0, 0.0, 0.0), speed: float = 0.0) -> VehicleReading:
        """Places the car at pose x (m), y (m), yaw (rad), rolling at speed (m/s), backward if negative.

        Raises:
          SourceError: for a pose or a speed out of range; the state is unchanged.
        """
        self._fleet.place(0, pose, speed)
        return self._fleet.reading(0)

    def set_friction(self, friction: FrictionMap) -> None:
        """Sets the road's friction, evaluated under each wheel at each substep."""
        self._fleet.set_friction(friction)

    def step(self, control, dt: float) -> VehicleReading:
        """Holds control [steer, pedal] in [-1, 1] for dt seconds.

        Raises:
          SourceError: for a control or a dt that cannot be used; the state is unchanged.
        """
        count = self._fleet.substeps(dt)
        self._fleet.run(check_controls(control, (2,))[None], count)
        return self._fleet.reading(0)

    def get_state(self) -> CarState:
        """Returns the exact state. The road's friction is a setting, not part of it."""
        fleet, data = self._fleet, self._fleet.data[0]
        return CarState(
            qpos=data.qpos.copy(),
            qvel=data.qvel.copy(),
            actuators=fleet.actuators[0].copy(),
            tyres=fleet.tyres[0].copy(),
            bristles=fleet.bristles[0].copy(),
        )

    def set_state(self, state: CarState) -> None:
        """Restores what `get_state` returned, to the bit."""
        fleet, data = self._fleet, self._fleet.data[0]
        mujoco.mj_resetData(fleet.model, data)
        data.qpos[:], data.qvel[:] = state.qpos, state.qvel
        fleet.actuators[0], fleet.tyres[0], fleet.bristles[0] = state.actuators, state.tyres, state.bristles

    def energy(self) -> tuple[float, float]:
        """Returns the mechanical energy and the work put in since the reset (J); see `Fleet.energy`."""
        return self._fleet.energy(0)

    def close(self) -> None:
        """Releases nothing: the car lives in memory only."""


def check_pose(pose) -> tuple[float, float, float]:
    """Returns x, y (m) and yaw (rad).

    Raises:
      SourceError: unless they are three finite numbers, x and y within `MAX_POSITION`.
    """
    pose = np.asarray(pose, float)
    if pose.shape != (3,) or not np.isfinite(pose).all():
        raise SourceError(f"pose {pose.tolist()}: expected finite x (m), y (m), yaw (rad)")
    if np.abs(pose[:2]).max() > MAX_POSITION:
        raise SourceError(f"pose {pose.tolist()}: x and y must lie within {MAX_POSITION / 1e3:.0f} km of 0")
    return tuple(pose.tolist())


def check_controls(controls, shape) -> np.ndarray:
    """Returns controls as float64.

    Raises:
      SourceError: unless they have the shape, are finite and lie in [-1, 1] (to rounding of float32).
    """
    values = np.asarray(controls, float)
    if values.shape != shape:
        raise SourceError(f"control: expected shape {shape} of steer and pedal, got {values.shape}")
    bad = ~(np.abs(values) <= 1.0 + 1e-6)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        name = ("steer", "pedal")[where[-1]]
        raise SourceError(f"control {name} is {values[where]}, outside [-1, 1]")
    return np.clip(values, -1.0, 1.0)
