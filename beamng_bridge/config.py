"""What a user of the bridge sets, and how a car is opened with it."""

import contextlib

from pydantic import Field

from beamng_bridge.frames import Alignment, Mounting, measured_mounting
from beamng_bridge.session import Session, SessionConfig, connect
from beamng_bridge.simulator import BeamNGCar
from beamng_bridge.surfaces import RoadSurface
from s3jax.config import Config
from s3jax.evaluation.drive import DriveConfig


class BridgeConfig(Config):
    """The bridge. `mounting.forward` and `mounting.left` are measured and need not be set."""

    session: SessionConfig = SessionConfig()
    alignment: Alignment = Field(Alignment(), description="where the track lies in the level; see `align`")
    mounting: Mounting = Mounting()
    road: str | None = Field(
        "ASPHALT", description="ground model of the road; see `surfaces`; null: leave it"
    )
    calibration: tuple[tuple[float, float], ...] | None = Field(
        None, description="friction multiplier and scale of the ground model, ascending; see `surfaces`"
    )
    drive: DriveConfig = DriveConfig()


@contextlib.contextmanager
def open_car(config: BridgeConfig):
    """Yields the session and the car of a configuration; restores the road and leaves the car braking.

    Raises:
      SessionError: if the game cannot be used.
    """
    with connect(config.session, tries=1) as session:
        car = make_car(session, config)
        try:
            yield session, car
        finally:
            car.close()


def make_car(session: Session, config: BridgeConfig) -> BeamNGCar:
    """Returns the car of a session, its centre of gravity measured."""
    state, _ = session.poll()
    mounting = measured_mounting(state, session.centre_of_gravity(), config.mounting)
    surface = RoadSurface(session, config.road, config.calibration) if config.road else None
    return BeamNGCar(session, config.alignment, mounting, surface)
