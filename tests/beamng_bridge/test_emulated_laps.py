"""The real client drives the emulated game as the source simulator is driven in-process."""

import math

import numpy as np
import pytest

from beamng_bridge import frames
from beamng_bridge.bundle import load_bundle
from beamng_bridge.frames import Alignment
from beamng_bridge.session import SessionError
from beamng_bridge.simulator import BeamNGCar
from beamng_bridge.surfaces import RoadSurface, ground_models
from s3jax.evaluation.closed_loop import FINISHED, PolicyDriver, drive
from s3jax.evaluation.drive import DriveConfig, course
from s3jax.source.car import EmbeddedCar
from s3jax.spatial.friction import friction_at, friction_map
from s3jax.tracks.reference import lap_reference
from s3jax.tracks.speed import lap_speed

CONFIG = DriveConfig()
TRACK, ROADS = course(CONFIG)
ALIGNMENT = Alignment(x=120.0, y=-40.0, yaw=0.7)


class SwitchedCar(EmbeddedCar):
    """The embedded car on a road whose friction changes for all wheels at once, as virtual patches do."""

    def __init__(self, road):
        super().__init__()
        self._road = road

    def step(self, control, dt):
        state = self._fleet.reading(0).state
        here = friction_at(self._road, np.asarray(state.x), np.asarray(state.y))
        self.set_friction(friction_map(float(here)))
        return super().step(control, dt)


def lap(simulator, bundle, road, **options):
    reference = lap_reference(TRACK, lap_speed(TRACK, ROADS[road], CONFIG.speed_limits()), 0.05)
    driver = PolicyDriver(load_bundle(bundle), reference)
    options = {"max_angle": 0.6, "half_width": 3.6, "max_time": 400.0} | options
    return drive(simulator, driver, reference, dt=0.05, **options)


@pytest.mark.parametrize("road", ["dry", "icy"])
def test_a_lap_is_the_lap_of_the_car_behind_it_within_5_cm(road, session, mounting, hand_made_bundle):
    car = BeamNGCar(session, ALIGNMENT, mounting, RoadSurface(session, "ASPHALT"))
    car.set_friction(ROADS[road])
    found = lap(car, hand_made_bundle, road)
    assert found.end == FINISHED
    expected = lap(SwitchedCar(ROADS[road]), hand_made_bundle, road)
    assert len(found.columns["x"]) == len(expected.columns["x"])
    apart = np.hypot(*(found.columns[name] - expected.columns[name] for name in ("x", "y")))
    print(f"{road}: at most {100 * apart.max():.2f} cm apart")
    assert apart.max() < 0.05
    assert ground_models(session)["ASPHALT"]["static"] == pytest.approx(1.0)  # the last row of the lap is dry
    car.close()


FLIPS = {
    "steering": lambda m: m.setattr(
        "beamng_bridge.simulator.game_inputs",
        lambda control: {
            name: -value if name == "steering" else value
            for name, value in frames.game_inputs(control).items()
        },
    ),
    "pedals": lambda m: m.setattr(
        "beamng_bridge.simulator.game_inputs", lambda control: frames.game_inputs([control[0], -control[1]])
    ),
    "heading": lambda m: (
        m.setattr(frames, "heading", lambda d: -math.atan2(d[1], d[0])),
        m.setattr("beamng_bridge.simulator.heading", lambda d: -math.atan2(d[1], d[0])),
    ),
    "yaw rate": lambda m: m.setattr(
        "beamng_bridge.simulator.turn_rate", lambda headings, times: -frames.turn_rate(headings, times)
    ),
    "quaternion": lambda m: m.setattr(
        "beamng_bridge.simulator.placement",
        lambda *a: (frames.placement(*a)[0], tuple(np.array(frames.placement(*a)[1]) * [1, 1, -1, 1])),
    ),
    "lateral velocity": lambda m: flip(m, "vy"),
    "wheel angle": lambda m: flip(m, "steer_angle"),
    "left offset": lambda m: flip(m, "y"),
}


def flip(monkeypatch, field):
    def flipped(*args):
        state = frames.vehicle_state(*args)
        return state._replace(**{field: -getattr(state, field)})

    monkeypatch.setattr("beamng_bridge.simulator.vehicle_state", flipped)


@pytest.mark.parametrize("sign", FLIPS)
def test_a_flipped_sign_shows(sign, session, mounting, monkeypatch):
    """What the bridge reports of a left turn differs from what the car behind the emulator did."""

    def turn():
        car = BeamNGCar(session, Alignment(yaw=0.4), mounting)
        car.reset((5.0, 3.0, -0.6), 12.0)
        for _ in range(30):
            reading = car.step([0.15, 0.1], 0.05)
        return reading.state

    own = EmbeddedCar()
    own.reset((5.0, 3.0, -0.6), 12.0)
    for _ in range(30):
        expected = own.step([0.15, 0.1], 0.05).state
    np.testing.assert_allclose(turn(), expected, atol=0.02)
    FLIPS[sign](monkeypatch)
    try:
        found = np.array(turn())
    except SessionError:
        return  # it noticed by itself that the car is not where it put it
    assert np.abs(found - np.array(expected)).max() > 0.04


def test_a_road_without_a_surface_cannot_be_iced(session, mounting):
    car = BeamNGCar(session, ALIGNMENT, mounting)
    car.set_friction(friction_map(1.0))
    with pytest.raises(SessionError, match="no road surface to switch"):
        car.set_friction(ROADS["icy"])


def test_the_start_is_checked(session, mounting):
    car = BeamNGCar(session, Alignment(), mounting)
    session.teleport = lambda *args: None  # the game pretends to have done it
    with pytest.raises(SessionError, match=r"after the teleport the car is .* m ahead"):
        car.reset((50.0, 0.0, 0.0), 0.0)


def test_ground_models_are_set_read_back_and_restored(session, emulator):
    surface = RoadSurface(session, "asphalt", scales=[[0.1, 0.05], [1.0, 1.0]])
    surface.set(0.1)
    for name in ("ASPHALT", "GROUNDMODEL_ASPHALT1"):  # and its alias
        assert ground_models(session)[name] == pytest.approx({"static": 0.05, "sliding": 0.034})
    sent = emulator.messages
    surface.set(0.1)
    assert emulator.messages == sent
    surface.restore()
    assert ground_models(session)["ASPHALT"] == {"static": 1.0, "sliding": 0.68}
    with pytest.raises(SessionError, match="no ground model LAVA; it has ASPHALT"):
        RoadSurface(session, "LAVA")
    with pytest.raises(SessionError, match=r"BeamNG refused lua: .*attempt to index global 'os'"):
        session.lua("os.exit()")
