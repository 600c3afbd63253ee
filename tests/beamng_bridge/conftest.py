"""The emulated game, and a session of the real, unmodified beamngpy client with it."""

import importlib.util

import pytest


@pytest.fixture(scope="session")
def beamngpy():
    if importlib.util.find_spec("beamngpy") is None:
        pytest.skip("beamngpy is not installed")


@pytest.fixture
def emulator(beamngpy):
    from beamng_bridge.emulator import Emulator, Game

    with Emulator(Game()) as emulator:
        yield emulator


@pytest.fixture
def session(emulator):
    from beamng_bridge.session import Session, SessionConfig

    with Session(SessionConfig(port=emulator.port)) as session:
        yield session


@pytest.fixture
def mounting(emulator):
    from beamng_bridge.emulator.game import NODE_BEHIND, NODE_RIGHT
    from beamng_bridge.frames import Mounting

    max_angle = emulator.game.car.vehicle.steering.max_angle
    return Mounting(forward=NODE_BEHIND, left=NODE_RIGHT, max_angle=max_angle)
