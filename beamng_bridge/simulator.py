"""BeamNG.tech as a source simulator, in lock-step: the same protocol as the embedded car."""

import math

import numpy as np

from beamng_bridge.frames import (
    Alignment,
    Mounting,
    game_inputs,
    heading,
    placement,
    turn_rate,
    vehicle_state,
)
from beamng_bridge.session import Session, SessionError
from beamng_bridge.surfaces import RoadSurface
from s3jax.source.base import VehicleReading
from s3jax.spatial.frames import to_body, to_world
from s3jax.spatial.friction import FrictionMap, friction_at, friction_map
from s3jax.spatial.state import VehicleState

UNMOVED, PLAIN = Alignment(), Mounting()

PUSH = 12.0
"""Acceleration (m/s^2) at which the game pushes the car to its starting speed."""

_WHEELS = np.array([[1.35, 0.8], [1.35, -0.8], [-1.35, 0.8], [-1.35, -0.8]])
"""About where the wheels are (m), to say what friction they should feel."""


class BeamNGCar:
    """Drives the car of a session; fills `s3jax.source.base.SourceSimulator` but for get_state and set_state.

    The game is paused between steps, so a bridge that dies stops the car. What the game does not send is
    NaN in the readings. Friction patches are virtual: the model of the whole road is switched when the car's
    centre of gravity enters or leaves one, at control steps, so all wheels change at once.

    Args:
      session: a loaded scenario.
      alignment: where the track lies in the level.
      mounting: of the car.
      surface: the level's road, whose friction is set; None leaves it as it is.
    """

    def __init__(
        self,
        session: Session,
        alignment: Alignment = UNMOVED,
        mounting: Mounting = PLAIN,
        surface: RoadSurface | None = None,
    ):
        self._session, self._alignment, self._mounting, self._surface = session, alignment, mounting, surface
        self._friction = friction_map(1.0)

    @property
    def max_angle(self) -> float:
        """Mean road-wheel angle at full lock (rad)."""
        return self._mounting.max_angle

    @property
    def has_surface(self) -> bool:
        """Whether the road's friction can be set."""
        return self._surface is not None

    def set_friction(self, friction: FrictionMap) -> None:
        """Sets the road's friction; takes effect at the next reset or step.

        Raises:
          SessionError: if it differs from 1 somewhere and the session has no surface to switch.
        """
        if self._surface is None and (float(friction.base) != 1.0 or len(friction.values)):
            raise SessionError("this session has no road surface to switch; name the road's ground model")
        self._friction = friction

    def reset(self, pose=(0.0, 0.0, 0.0), speed: float = 0.0) -> VehicleReading:
        """Places the car so that, pushed to the speed, it passes the pose x (m), y (m), yaw (rad) with it.

        Raises:
          SessionError: if the car does not end up there.
        """
        session, dt = self._session, 0.05
        seconds = math.ceil(max(speed / PUSH, 1.0) / dt) * dt
        run_up = 0.5 * speed * seconds
        back_x, back_y = to_world(run_up, 0.0, pose[2])
        start = (pose[0] - back_x, pose[1] - back_y, pose[2])
        self._switch(*start[:2])
        session.teleport(*placement(start, self._alignment, self._mounting))
        session.send({"steering": 0.0, "throttle": 0.0, "brake": 1.0, "parkingbrake": 0.0})  # inputs latch
        session.step(0.5)
        state, _ = session.poll()
        self._check(state, start, 0.0, "after the teleport")
        session.send({"brake": 0.0})
        if speed > 0:
            session.set_velocity(speed, seconds)
            session.step(seconds)
        state, electrics = session.poll()
        self._check(state, pose, speed, "after the push to its speed")
        self._start, self._headings, self._times = float(state["time"]), [], []
        return self.reading(state, electrics)

    def show(self, pose) -> VehicleState:
        """Puts the car at a pose x (m), y (m), yaw (rad), without a reset; returns where it then is."""
        self._session.teleport(*placement(pose, self._alignment, self._mounting), reset=False)
        state, electrics = self._session.poll()
        return vehicle_state(state, electrics, 0.0, self._alignment, self._mounting)

    def step(self, control, dt: float) -> VehicleReading:
        """Holds control [steer, pedal] for dt seconds of simulated time.

        Raises:
          SessionError: if the game does not answer, or answers with something else than this step.
        """
        self.switch_surface()
        self._session.send(game_inputs(control))
        self._session.step(dt)
        return self.reading(*self._session.poll(advanced=dt))

    def switch_surface(self) -> None:
        """Gives the road the friction of the place where the car was last."""
        self._switch(self._last.x, self._last.y)

    def reading(self, state: dict, electrics: dict) -> VehicleReading:
        """Returns the reading of what the sensors said, at a later time than before."""
        self._headings = [*self._headings[-2:], heading(state["dir"])]
        self._times = [*self._times[-2:], float(state["time"])]
        rate = turn_rate(self._headings, self._times)
        now = vehicle_state(state, electrics, rate, self._alignment, self._mounting)
        before, dt = now, 1.0
        if len(self._times) > 1:
            before, dt = self._last, self._times[-1] - self._times[-2]
        self._last = now
        x, y = to_world(_WHEELS[:, 0], _WHEELS[:, 1], now.yaw)
        unknown = np.full(4, np.nan)
        return VehicleReading(
            time=self._times[-1] - self._start,
            state=now,
            ax=(now.vx - before.vx) / dt - rate * now.vy,
            ay=(now.vy - before.vy) / dt + rate * now.vx,
            roll=math.nan,
            pitch=math.nan,
            wheel_speed=unknown,
            friction=friction_at(self._friction, now.x + x, now.y + y),
            slip_ratio=unknown,
            slip_angle=unknown,
            load=unknown,
            throttle=float(electrics.get("throttle", math.nan)),
            brake=float(electrics.get("brake", math.nan)),
            gear=int(electrics.get("gear_index", 0)),
            engine_speed=float(electrics.get("rpm", math.nan)) * math.pi / 30,
        )

    def get_state(self):
        """Raises SessionError: the game's state cannot be read."""
        raise SessionError("BeamNG's exact state cannot be read")

    def set_state(self, state):
        """Raises SessionError: the game's state cannot be set."""
        raise SessionError("BeamNG's exact state cannot be set")

    def close(self) -> None:
        """Restores the road's surface and closes the session."""
        try:
            if self._surface is not None and not self._session.lost:
                self._surface.restore()
        finally:
            self._session.close()

    def _switch(self, x, y):
        if self._surface is not None:
            self._surface.set(float(friction_at(self._friction, np.asarray(x), np.asarray(y))))

    def _check(self, state, pose, speed, when):
        found = vehicle_state(state, {"steering": 0.0}, 0.0, self._alignment, self._mounting)
        along, across = to_body(found.x - pose[0], found.y - pose[1], pose[2])
        turned = math.remainder(found.yaw - pose[2], 2 * math.pi)
        if (
            abs(along) > 3.0
            or abs(across) > 0.5
            or abs(turned) > 0.1
            or abs(found.vx - speed) > 1.0 + 0.1 * speed
        ):
            raise SessionError(
                f"{when} the car is {along:.1f} m ahead and {across:.1f} m left of its place, turned by "
                f"{math.degrees(turned):.0f} deg, at {found.vx:.1f} instead of {speed:.1f} m/s. Is the level "
                "flat and free there, and the track aligned with it?"
            )
