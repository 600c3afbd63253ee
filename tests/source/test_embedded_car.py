import threading

import numpy as np
import pytest
import yaml

from s3jax.config import ConfigError
from s3jax.source.base import SourceError, VehicleReading
from s3jax.source.car import EmbeddedCar
from s3jax.source.forces import friction_under
from s3jax.spatial.friction import friction_at, friction_map

DT = 0.05


def controls(seed, count=60):
    rng = np.random.default_rng(seed)
    return np.repeat(np.clip(rng.normal(0, 0.5, (count // 10, 2)), -1, 1), 10, axis=0)


def flat(reading: VehicleReading):
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in reading])


def drive(car, inputs):
    return np.array([flat(car.step(u, DT)) for u in inputs])


@pytest.fixture(scope="module")
def car():
    return EmbeddedCar()


@pytest.mark.parametrize("vehicle", ["sedan", "hatchback", "van"])
def test_stands_in_equilibrium_at_any_pose(vehicle):
    car = EmbeddedCar(vehicle)
    start = car.reset((3.0, -2.0, 2.5))
    body = car.vehicle.body
    assert start.load.sum() == pytest.approx(body.mass * 9.81, rel=1e-6)
    assert start.load[:2].sum() == pytest.approx(body.mass * body.front_share * 9.81, rel=1e-6)
    for _ in range(100):
        reading = car.step([0.0, -1.0], DT)
    assert reading.load.sum() == pytest.approx(body.mass * 9.81, rel=1e-3)
    assert abs(reading.roll) < 1e-6 and abs(reading.pitch) < 1e-3
    # The brake takes its lag to bite, in which the converter creeps by a few millimetres.
    np.testing.assert_allclose((reading.state.x, reading.state.y, reading.state.yaw), (3, -2, 2.5), atol=0.02)


def test_frames_are_iso_8855(car):
    car.set_friction(friction_map(1.0))
    car.reset((10.0, 20.0, 0.5 * np.pi), 15.0)
    for _ in range(20):
        reading = car.step([0.3, 0.2], DT)
    state = reading.state
    assert state.y > 30 and state.steer_angle > 0 and state.yaw_rate > 0 and reading.ay > 0
    assert state.x < 10.0  # heading north and turning left leads west
    assert reading.roll > 0 and reading.load[1] > reading.load[0]  # leans to the right, off the left wheels


def test_reported_velocities_are_the_derivative_of_the_pose(car):
    car.reset((0.0, 0.0, 0.4), 20.0)
    readings = [car.step([0.15, 0.3], 0.01) for _ in range(150)]
    rows = np.array([[r.time, *r.state, r.ax, r.ay] for r in readings])
    t, x, y, yaw, vx, vy, rate, _, ax, ay = rows.T
    middle = slice(1, -1)
    cos, sin = np.cos(yaw), np.sin(yaw)
    along = np.gradient(x, t) * cos + np.gradient(y, t) * sin
    across = np.gradient(y, t) * cos - np.gradient(x, t) * sin
    # A semi-implicit integrator's positions are half a substep ahead: 0.5 ms times 9 m/s^2.
    np.testing.assert_allclose(along[middle], vx[middle], atol=6e-3)
    np.testing.assert_allclose(across[middle], vy[middle], atol=6e-3)
    np.testing.assert_allclose(np.gradient(yaw, t)[middle], rate[middle], atol=2e-3)
    # Row k's acceleration is the mean over the control step that ends there; the half substep times the yaw
    # acceleration times the speed is 0.03.
    mean_ax = np.diff(vx) / 0.01 - 0.5 * (vy * rate)[1:] - 0.5 * (vy * rate)[:-1]
    mean_ay = np.diff(vy) / 0.01 + 0.5 * (vx * rate)[1:] + 0.5 * (vx * rate)[:-1]
    np.testing.assert_allclose(ax[1:], mean_ax, atol=0.04)
    np.testing.assert_allclose(ay[1:], mean_ay, atol=0.04)


def test_state_restores_to_the_bit(car):
    car.set_friction(friction_map("wet"))
    car.reset((1.0, 2.0, 0.3), 18.0)
    drive(car, controls(0))
    state = car.get_state()
    first = drive(car, controls(1))
    car.reset()
    car.set_state(state)
    np.testing.assert_array_equal(drive(car, controls(1)), first)


def test_equal_bits_on_repeat_and_on_other_threads(car):
    friction = friction_map(1.0, [([[20, -50], [60, -50], [60, 50], [20, 50]], "ice")])

    def run(car, results, index):
        car.set_friction(friction)
        car.reset((0.0, 0.0, 0.0), 15.0)
        results[index] = drive(car, controls(3))

    results = [None] * 4
    run(car, results, 0)
    threads = [threading.Thread(target=run, args=(EmbeddedCar(), results, i)) for i in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_friction_under_a_wheel_equals_the_shared_definition():
    rng = np.random.default_rng(0)
    patches = [(rng.uniform(-20, 20, (rng.integers(3, 8), 2)), rng.uniform(0.05, 1.5)) for _ in range(9)]
    friction = friction_map("snow", patches)
    x, y = rng.uniform(-25, 25, (2, 3000))
    boxes = np.concatenate([friction.polygons.min(axis=1), friction.polygons.max(axis=1)], axis=1)
    road = (float(friction.base), boxes, friction.polygons, friction.values)
    ours = [friction_under(*point, *road) for point in zip(x, y, strict=True)]
    np.testing.assert_array_equal(ours, friction_at(friction, x, y))


def test_split_friction_is_felt_per_wheel(car):
    left_half = [[-10, 0], [300, 0], [300, 20], [-10, 20]]
    car.set_friction(friction_map(1.0, [(left_half, "ice")]))
    car.reset((0.0, 0.0, 0.0), 25.0)
    for _ in range(8):
        reading = car.step([0.0, -0.6], DT)
    np.testing.assert_array_equal(reading.friction, [0.1, 1.0, 0.1, 1.0])
    assert reading.state.yaw_rate < -0.05  # pulled towards the side that grips
    car.set_friction(friction_map(1.0))


@pytest.mark.parametrize(
    ("control", "dt", "word"),
    [
        ([np.nan, 0.0], DT, "steer"),
        ([0.0, 1.5], DT, "pedal"),
        ([0.0, -np.inf], DT, "pedal"),
        ([0.0, 0.0, 0.0], DT, "shape"),
        ([0.0, 0.0], 0.0505, "substep"),
        ([0.0, 0.0], 0.0, "substep"),
        ([0.0, 0.0], np.nan, "substep"),
    ],
)
def test_refused_steps_leave_the_state_alone(car, control, dt, word):
    car.reset((0.0, 0.0, 0.0), 12.0)
    car.step([0.2, 0.1], DT)
    before = car.get_state()
    with pytest.raises(SourceError, match=word) as caught:
        car.step(control, dt)
    assert "\n" not in str(caught.value)
    for a, b in zip(before, car.get_state(), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    ("pose", "speed", "word"),
    [
        ((0.0, np.nan, 0.0), 0.0, "pose"),
        ((2e5, 0.0, 0.0), 0.0, "within 100 km"),
        ((0.0, 0.0), 0.0, "pose"),
        ((0.0, 0.0, 0.0), 90.0, "speed"),
        ((0.0, 0.0, 0.0), np.nan, "speed"),
    ],
)
def test_refused_resets_leave_the_state_alone(car, pose, speed, word):
    car.reset((0.0, 0.0, 0.0), 12.0)
    before = car.get_state()
    with pytest.raises(SourceError, match=word):
        car.reset(pose, speed)
    for a, b in zip(before, car.get_state(), strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_state_that_is_not_finite_is_refused(car):
    car.reset((0.0, 0.0, 0.0), 12.0)
    state = car.get_state()
    broken = state._replace(qvel=state.qvel * np.nan)
    with pytest.raises(SourceError, match="state"):
        car.set_state(broken)
    assert car.step([0.0, 0.0], DT).state.vx == pytest.approx(12.0, abs=0.1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"mass": -5}, "body.mass"),
        ({"masss": 5}, "masss"),
        ({"hub_mass": 400}, "unsprung"),
        ({"wheelbase": "long"}, "body.wheelbase"),
    ],
)
def test_refused_vehicles(tmp_path, change, word):
    values = EmbeddedCar().vehicle.dump()
    path = tmp_path / "car.yaml"
    path.write_text(yaml.safe_dump(values | {"body": values["body"] | change}))
    with pytest.raises(ConfigError, match=word) as caught:
        EmbeddedCar(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_vehicle_of_ones_own_drives(tmp_path):
    values = EmbeddedCar().vehicle.dump()
    values["driveline"]["driven"] = "front"
    values["driveline"]["ratios"] = [3.0, 1.5]
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(values))
    car = EmbeddedCar(str(path))
    for _ in range(60):
        reading = car.step([0.0, 0.5], DT)
    assert reading.state.vx > 5 and reading.slip_ratio[:2].min() > reading.slip_ratio[2:].max()


def test_refused_settings():
    with pytest.raises(ConfigError, match="unknown vehicle 'tank'; known: hatchback, sedan, van"):
        EmbeddedCar("tank")
    with pytest.raises(SourceError, match="substep"):
        EmbeddedCar(substep=0.01)
    with pytest.raises(ValueError, match="unknown surface 'lava'"):
        friction_map("lava")
