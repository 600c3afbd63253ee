"""What a user of the bridge sets, and how a car is opened with it."""

import contextlib
from pathlib import Path

from pydantic import Field

from beamng_bridge.calibration import Calibration
from beamng_bridge.frames import Alignment, Mounting, measured_mounting
from beamng_bridge.realtime import RealTimeCar, RealTimeConfig
from beamng_bridge.session import Session, SessionConfig, connect
from beamng_bridge.simulator import BeamNGCar
from beamng_bridge.surfaces import RoadSurface
from s3jax.config import Config, ConfigError
from s3jax.evaluation.drive import DriveConfig


class BridgeConfig(Config):
    """The bridge. `mounting.forward` and `mounting.left` are measured and need not be set."""

    session: SessionConfig = SessionConfig()
    real_time: RealTimeConfig = RealTimeConfig()
    alignment: Alignment = Field(Alignment(), description="where the track lies in the level; see `align`")
    mounting: Mounting = Mounting()
    road: str | None = Field(
        "ASPHALT", description="ground model of the road; see `surfaces`; null: leave it"
    )
    calibration: Path | None = Field(None, description="file of `surfaces --calibrate`")
    drive: DriveConfig = DriveConfig()

    def measured(self) -> Calibration | None:
        """Returns the road's calibration, if there is one.

        Raises:
          ConfigError: if the file cannot be used, or is of another road.
        """
        if self.calibration is None:
            return None
        found = Calibration.load(self.calibration)
        if self.road is None or found.road != self.road.upper():
            raise ConfigError(f"{self.calibration}: measured on {found.road}, but the road is {self.road}")
        return found


@contextlib.contextmanager
def open_car(config: BridgeConfig, real_time: bool = False):
    """Yields the session and the car of a configuration; restores the road and leaves the car braking.

    Raises:
      SessionError: if the game cannot be used.
    """
    config.measured()  # before the game is bothered
    with connect(config.session, tries=1) as session:
        car = make_car(session, config, real_time)
        try:
            yield session, car
        finally:
            car.close()


def make_car(session: Session, config: BridgeConfig, real_time: bool = False) -> BeamNGCar:
    """Returns the car of a session, its centre of gravity measured."""
    surface = None
    if config.road:
        measured = config.measured()
        surface = RoadSurface(session, config.road, measured.scales if measured else None)
    parts = (session, config.alignment, session_mounting(session, config), surface)
    return RealTimeCar(*parts, real_time=config.real_time) if real_time else BeamNGCar(*parts)


def session_mounting(session: Session, config: BridgeConfig) -> Mounting:
    """Returns the mounting of a session's car, its centre of gravity measured."""
    state, _ = session.poll()
    return measured_mounting(state, session.centre_of_gravity(), config.mounting)
