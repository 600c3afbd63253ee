"""Parameters of the embedded car: typed, read from `vehicles/*.yaml`, packed for the compiled code."""

from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from s3jax.config import Config, ConfigError

GRAVITY = 9.81
MAX_GEARS = 8

Positive = Field(gt=0)


class Body(Config):
    """Masses and dimensions.

    Attributes:
      mass: of the whole car (kg).
      front_share: of the weight on the front axle.
      wheelbase: (m). track_front: (m). track_rear: (m).
      cg_height: of the whole car (m).
      roll_inertia: of the sprung mass about its centre (kg m^2). pitch_inertia. yaw_inertia.
      hub_mass: carrier of one wheel (kg). wheel_mass: of one wheel (kg).
      wheel_spin_inertia: about the axle (kg m^2). wheel_diameter_inertia: about a diameter.
      wheel_radius: unloaded (m).
      drag_area: drag coefficient times frontal area (m^2). lift_area: likewise for lift (m^2).
    """

    mass: float = Positive
    front_share: float = Field(gt=0.2, lt=0.8)
    wheelbase: float = Positive
    track_front: float = Positive
    track_rear: float = Positive
    cg_height: float = Positive
    roll_inertia: float = Positive
    pitch_inertia: float = Positive
    yaw_inertia: float = Positive
    hub_mass: float = Positive
    wheel_mass: float = Positive
    wheel_spin_inertia: float = Positive
    wheel_diameter_inertia: float = Positive
    wheel_radius: float = Positive
    drag_area: float = Field(ge=0)
    lift_area: float = Field(ge=0)


class Suspension(Config):
    """Vertical slides with springs, dampers, anti-roll bars and bump stops.

    Attributes:
      spring_front: rate at the wheel (N/m). spring_rear.
      damper_front: (N s/m). damper_rear.
      roll_bar_front: rate on the difference of the two deflections (N/m). roll_bar_rear.
      bump_clearance: deflection at which the stop is met (m). bump_rate: cubic rate of the stop (N/m^3).
      bump_damping: of the stop (N s/m).
      bump_steer: toe-out of a front wheel per upward deflection (rad/m).
    """

    spring_front: float = Positive
    spring_rear: float = Positive
    damper_front: float = Positive
    damper_rear: float = Positive
    roll_bar_front: float = Field(ge=0)
    roll_bar_rear: float = Field(ge=0)
    bump_clearance: float = Positive
    bump_rate: float = Field(ge=0)
    bump_damping: float = Field(ge=0)
    bump_steer: float


class Tyre(Config):
    """The brush tyre; see `tyre.py` for the equations.

    Attributes:
      vertical_stiffness: (N/m). vertical_damping: (N s/m).
      nominal_load: load at which the following hold (N).
      patch_half_length: of the contact patch (m). patch_exponent: of its growth with load.
      tread_stiffness_x: per length of patch (N/m^2). tread_stiffness_y.
      carcass_stiffness_x: (N/m). carcass_stiffness_y. carcass_damping: (N s/m).
      static_friction: multiplier of the road's friction at rest. sliding_friction: at high sliding speed.
      stribeck_speed: sliding speed over which one becomes the other (m/s).
      load_sensitivity: relative loss of friction per relative excess load.
      rolling_resistance: coefficient.
    """

    vertical_stiffness: float = Positive
    vertical_damping: float = Positive
    nominal_load: float = Positive
    patch_half_length: float = Positive
    patch_exponent: float = Positive
    tread_stiffness_x: float = Positive
    tread_stiffness_y: float = Positive
    carcass_stiffness_x: float = Positive
    carcass_stiffness_y: float = Positive
    carcass_damping: float = Positive
    static_friction: float = Positive
    sliding_friction: float = Positive
    stribeck_speed: float = Positive
    load_sensitivity: float = Field(ge=0)
    rolling_resistance: float = Field(ge=0)


class Steering(Config):
    """From the control to the road wheels.

    Attributes:
      max_angle: mean road-wheel angle at full control (rad). max_rate: (rad/s). lag: time constant (s).
      stiffness: of the column at a wheel (N m/rad). damping: (N m s/rad).
      ackermann: 0 parallel, 1 full Ackermann geometry.
    """

    max_angle: float = Field(gt=0, lt=1.2)
    max_rate: float = Positive
    lag: float = Positive
    stiffness: float = Positive
    damping: float = Positive
    ackermann: float = Field(ge=0, le=1)


class Brakes(Config):
    """Friction brakes.

    Attributes:
      max_torque: of all four at full pedal (N m). front_share: of it.
      lag: time constant (s).
    """

    max_torque: float = Positive
    front_share: float = Field(ge=0, le=1)
    lag: float = Positive


class Driveline(Config):
    """Engine, torque converter, automatic gearbox and open differential.

    Attributes:
      driven: axle.
      max_torque: (N m). max_power: (W). engine_inertia: (kg m^2).
      idle_speed: (rad/s). limit_speed: (rad/s). lag: of a rising throttle (s); a falling one takes 0.4 of it.
      friction_torque: drag of the engine (N m). friction_slope: its growth with speed (N m s).
      converter_capacity: pump torque at stall over speed squared (N m s^2).
      converter_ratio: torque ratio at stall.
      ratios: of the gears. final_ratio. efficiency: of gears and axle.
      shift_time: (s).
      differential_damping: torque per difference of the wheel speeds (N m s).
    """

    driven: Literal["front", "rear"]
    max_torque: float = Positive
    max_power: float = Positive
    engine_inertia: float = Positive
    idle_speed: float = Positive
    limit_speed: float = Positive
    lag: float = Positive
    friction_torque: float = Field(ge=0)
    friction_slope: float = Field(ge=0)
    converter_capacity: float = Positive
    converter_ratio: float = Field(ge=1)
    ratios: tuple[float, ...] = Field(min_length=1, max_length=MAX_GEARS)
    final_ratio: float = Positive
    efficiency: float = Field(gt=0, le=1)
    shift_time: float = Positive
    differential_damping: float = Field(ge=0)

    @model_validator(mode="after")
    def _ratios_fall(self):
        if any(low <= high for low, high in zip(self.ratios, self.ratios[1:], strict=False)):
            raise ValueError("ratios must fall from gear to gear")
        return self


class Assists(Config):
    """Electronic aids, both off by default.

    Attributes:
      abs: anti-lock brakes. traction_control: of the engine.
    """

    abs: bool = False
    traction_control: bool = False


class Vehicle(Config):
    """All parameters of a car."""

    name: str
    body: Body
    suspension: Suspension
    tyre: Tyre
    steering: Steering
    brakes: Brakes
    driveline: Driveline
    assists: Assists = Assists()

    @model_validator(mode="after")
    def _sprung(self):
        if 4 * (self.body.hub_mass + self.body.wheel_mass) >= 0.5 * self.body.mass:
            raise ValueError("body.mass: the unsprung mass must be less than half of it")
        return self


class Layout:
    """Quantities that follow from a vehicle's parameters.

    Attributes:
      front: distance from the centre of gravity to the front axle (m). rear: to the rear axle, positive.
      sprung_mass: (kg). sprung_x: of its centre, ahead of the car's (m). sprung_height: above the road (m).
      wheel_load: [2] static load of a front and a rear wheel (N).
      sprung_load: [2] what of it the springs carry (N).
      hub_height: [2] height of the wheel centres at rest (m).
    """

    def __init__(self, vehicle: Vehicle):
        body = vehicle.body
        corner = body.hub_mass + body.wheel_mass
        self.front = body.wheelbase * (1 - body.front_share)
        self.rear = body.wheelbase * body.front_share
        self.sprung_mass = body.mass - 4 * corner
        self.sprung_x = -2 * corner * (self.front - self.rear) / self.sprung_mass
        shares = np.array([body.front_share, 1 - body.front_share])
        self.wheel_load = 0.5 * body.mass * GRAVITY * shares
        self.sprung_load = self.wheel_load - corner * GRAVITY
        self.hub_height = body.wheel_radius - self.wheel_load / vehicle.tyre.vertical_stiffness
        unsprung_moment = 2 * corner * self.hub_height.sum()
        self.sprung_height = (body.mass * body.cg_height - unsprung_moment) / self.sprung_mass


def vehicle_names() -> tuple[str, ...]:
    """Returns the names of the vehicles that come along."""
    folder = resources.files("s3jax.source") / "vehicles"
    return tuple(sorted(path.name[:-5] for path in folder.iterdir() if path.name.endswith(".yaml")))


def load_vehicle(vehicle: str | Path | Vehicle) -> Vehicle:
    """Returns a vehicle given by name, by YAML file or as it is.

    Raises:
      ConfigError: for an unknown name, or a file that cannot be used.
    """
    if isinstance(vehicle, Vehicle):
        return vehicle
    if str(vehicle).endswith((".yaml", ".yml")):
        return Vehicle.load(vehicle)
    if vehicle not in vehicle_names():
        raise ConfigError(
            f"unknown vehicle {vehicle!r}; known: {', '.join(vehicle_names())}, or a .yaml file"
        )
    with resources.as_file(resources.files("s3jax.source") / "vehicles" / f"{vehicle}.yaml") as path:
        return Vehicle.load(path)


def _dtype(model) -> list:
    fields = []
    for name in model.model_fields:
        fields.append((name, np.float64, (MAX_GEARS,)) if name == "ratios" else (name, np.float64))
    return fields


_SECTIONS = {
    "body": Body, "suspension": Suspension, "tyre": Tyre, "steering": Steering, "brakes": Brakes,
    "driveline": Driveline, "assists": Assists,
}  # fmt: skip
_LAYOUT = ("front", "rear", "sprung_x", "sprung_height", "hub_front", "hub_rear")
PARAMETERS = np.dtype(
    [(name, _dtype(model)) for name, model in _SECTIONS.items()]
    + [("layout", [(name, np.float64) for name in _LAYOUT]), ("gears", np.int64)]
)
"""Record type of the parameters in compiled code: the sections of `Vehicle`, and what follows from them."""


def pack(vehicle: Vehicle) -> np.ndarray:
    """Returns the parameters [1] as a record array of type `PARAMETERS`."""
    record = np.zeros(1, PARAMETERS)
    for name, model in _SECTIONS.items():
        section = getattr(vehicle, name)
        for field in model.model_fields:
            value = getattr(section, field)
            if field == "driven":
                value = float(value == "front")
            if field == "ratios":
                value = np.pad(value, (0, MAX_GEARS - len(value)), mode="edge")
            record[name][field] = value
    layout = Layout(vehicle)
    hubs = {"hub_front": layout.hub_height[0], "hub_rear": layout.hub_height[1]}
    for field in _LAYOUT:
        record["layout"][field] = hubs[field] if field in hubs else getattr(layout, field)
    record["gears"] = len(vehicle.driveline.ratios)
    return record
