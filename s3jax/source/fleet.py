"""N cars of one kind in one compiled loop."""

import math

import mujoco
import numpy as np

from s3jax.source import mjcf
from s3jax.source.base import SourceError, VehicleReading
from s3jax.source.driveline import ACTUATORS
from s3jax.source.engine import addresses, mj_step_address, read_cars, run_cars
from s3jax.source.tyre import ROWS, TYRE
from s3jax.source.vehicle import Assists, Vehicle, load_vehicle, pack
from s3jax.spatial.friction import FrictionMap, friction_map
from s3jax.spatial.state import VehicleState

MAX_POSITION = 1e5
MAX_SPEED = 70.0


class Fleet:
    """N cars of one kind; what `EmbeddedCar` and `CarBatch` share.

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
        calm = [w < 0.34 * driveline.limit_speed for w in turbines]  # where a closed throttle does not shift
        gear = calm.index(True) if any(calm) else len(calm) - 1
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

    def motion(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Returns the fields of `VehicleState`, then roll and pitch, of cars first to last - 1: [N, 9].

        Raises:
          SourceError: if a simulation has left the finite numbers.
        """
        where = self._where[first:last]
        out = np.empty((len(where), 9))
        read_cars(where, out)
        if not np.isfinite(out).all():
            raise SourceError("the simulation diverged; use a smaller substep")
        return out

    def reading(self, n: int) -> VehicleReading:
        """Returns what car n reports.

        Raises:
          SourceError: if the simulation has left the finite numbers.
        """
        a, tyres = self.actuators[n], self.tyres[n]
        *state, roll, pitch = self.motion(n, n + 1)[0].tolist()
        return VehicleReading(
            time=int(a["substeps"]) * self.substep,
            state=VehicleState(*state),
            ax=float(a["mean_ax"]),
            ay=float(a["mean_ay"]),
            roll=roll,
            pitch=pitch,
            wheel_speed=self.data[n].qvel[list(mjcf.SPIN_VELOCITY)],
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

        The energy is that of motion, height, springs and the vertical deflection of the tyres, up to a
        constant; that in treads, carcasses and bump stops is left out. The work is that of driveline and
        steering.
        """
        data, stiffness = self.data[n], self.vehicle.tyre.vertical_stiffness
        mujoco.mj_forward(self.model, data)
        mujoco.mj_energyPos(self.model, data)
        mujoco.mj_energyVel(self.model, data)
        a = self.actuators[n]
        tyres = float((self.tyres[n]["load"] ** 2).sum()) / (2 * stiffness)
        return float(data.energy.sum()) + tyres, float(a["drive_work"] + a["steer_work"])


def fitted_vehicle(vehicle, abs: bool | None, traction_control: bool | None) -> Vehicle:
    """Returns a vehicle with its electronic aids on or off; None leaves one as the vehicle has it."""
    vehicle = load_vehicle(vehicle)
    chosen = {"abs": abs, "traction_control": traction_control}
    chosen = {name: on for name, on in chosen.items() if on is not None}
    return vehicle.model_copy(update={"assists": Assists(**(vehicle.assists.dump() | chosen))})


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
