"""Several cars in a world: entering, seeing and hitting each other, and never a car of another world."""

from dataclasses import replace as with_fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.env import EnvConfig, TrafficEnv, World, layout, make_env
from s3jax.env.scenes import car_scenarios, group_by_scene
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.compact import compact
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.worlds import WorldConfig, generate_world

DT = 0.05
CARS, FIELDS = 3, len(layout.NEIGHBOUR_FIELDS)
LENGTH, WIDTH = 4.0, 2.0


def make(bicycle, **config):
    traffic = {"neighbours": 2, "length": [LENGTH, LENGTH], "width": [WIDTH, WIDTH]} | config.pop(
        "traffic", {}
    )
    start = {"cross_track": 0.0, "heading": 0.0, "speed": 0.0}
    return make_env(EnvConfig.parse({"cars": CARS, "traffic": traffic, "start": start} | config), bicycle)


@pytest.fixture(scope="module")
def world(bicycle, straight):
    """Two scenes of three parallel lanes each; those of the second lie on those of the first."""
    lanes = [straight(speed, 200, y=4.0 * lane) for speed in (10.0, 20.0) for lane in range(CARS)]
    return World(jax.tree.map(jnp.asarray, make_bank(lanes)), bicycle.init(jax.random.key(0)))


@pytest.fixture(scope="module")
def env(bicycle):
    return make(bicycle)


@pytest.fixture(scope="module")
def step(env):
    return jax.jit(env.step_many)


@pytest.fixture(scope="module")
def started(env, world):
    """Both scenes, each car at the beginning of its lane."""
    return jax.jit(env.start_many)(world, jnp.arange(2 * CARS))


def neighbours(env, observation):
    start = env.config.observation.size + 2
    return np.asarray(observation)[:, start : start + 2 * FIELDS].reshape(-1, 2, FIELDS)


def moved(states, **fields):
    vehicle = states.env.vehicle
    values = {name: getattr(vehicle, name).at[jnp.array(i)].set(v) for name, (i, v) in fields.items()}
    vehicle = vehicle._replace(**values)
    carry = states.env.carry._replace(state=vehicle)
    return states.replace(env=states.env.replace(vehicle=vehicle, carry=carry))


def test_cars_see_the_nearest_of_their_own_world(env, world, started):
    states, observation = started
    assert isinstance(env, TrafficEnv) and observation.shape == (6, env.observation_size)
    assert env.observation_size == env.config.observation.size + 2 + 2 * FIELDS
    np.testing.assert_allclose(observation[:, env.config.observation.size :][:, :2], [[LENGTH, WIDTH]] * 6)
    seen = neighbours(env, observation)
    # x, y, cos, sin, vx, vy, length, width, present; the first car sees the lane beside it, then the next
    np.testing.assert_allclose(seen[0], [[0, 4, 1, 0, 0, 0, 4, 2, 1], [0, 8, 1, 0, 0, 0, 4, 2, 1]], atol=1e-5)
    np.testing.assert_allclose(seen[4][:, :2], [[0, -4], [0, 4]], atol=1e-5)
    turned = moved(states, yaw=(0, np.pi / 2), x=(1, 60.0))
    seen = neighbours(env, jax.jit(env._observe_many)(world, turned))
    # Car 0 looks along y: lane 2 is 8 m ahead; car 1 is too far away to be seen.
    np.testing.assert_allclose(seen[0, 0], [8, 0, 0, -1, -10, -10, 4, 2, 1], atol=1e-4)
    np.testing.assert_array_equal(seen[0, 1], 0.0)


def test_only_cars_of_one_world_collide(env, world, started, step):
    states, _ = started
    result = step(world, states, jnp.zeros((6, 2)))
    assert not result.terminated.any()  # although cars of the two scenes stand in each other
    states = moved(states, y=(1, 1.9))
    result = step(world, states, jnp.zeros((6, 2)))
    np.testing.assert_array_equal(result.ended["collision"], [True, True, False, False, False, False])
    np.testing.assert_array_equal(result.terminated, result.ended["collision"])
    np.testing.assert_array_equal(result.reward[:2], -1.0)
    np.testing.assert_array_equal(result.costs["collision"], [1, 1, 0, 0, 0, 0])
    result = step(world, moved(states, y=(1, 2.1)), jnp.zeros((6, 2)))
    assert not result.ended["collision"].any()


def test_a_car_that_came_apart_harms_nobody(env, world, started, step):
    states, _ = started
    broken = jax.tree.map(lambda x: x.at[0].set(jnp.nan) if x.dtype == jnp.float32 else x, states.env.carry)
    result = step(world, states.replace(env=states.env.replace(carry=broken)), jnp.zeros((6, 2)))
    np.testing.assert_array_equal(result.terminated, [True] + [False] * 5)
    np.testing.assert_array_equal(result.ended["envelope"], result.terminated)
    assert np.isfinite(result.observation[1:]).all() and np.isfinite(result.reward).all()


@pytest.fixture(scope="module")
def reset(env, world):
    return jax.jit(lambda key: env.reset_many(world, jax.random.split(key, 6), jnp.zeros(6, int), 1))


def test_reset_cars_wait_unseen_and_enter_where_there_is_room(env, world, reset, step):
    waited, proposed = [], set()
    for seed in range(20):
        states, observation = reset(jax.random.key(seed))
        assert states.waiting.all() and (observation == 0).all()
        scene = np.asarray(states.scene).reshape(-1, CARS)
        assert (scene == scene[:, :1]).all()
        proposed |= set(scene[:, 0])
        for number in range(4):
            result = step(world, states, jnp.zeros((6, 2)))
            before, states = np.asarray(states.waiting), result.state
            assert not result.terminated[before].any() and (result.reward[before] == 0).all()
            assert not result.ended["collision"].any()
            driving = ~np.asarray(states.waiting)
            x, y = np.asarray(states.env.vehicle.x), np.asarray(states.env.vehicle.y)
            gap = np.hypot(*(v.reshape(-1, CARS, 1) - v.reshape(-1, 1, CARS) for v in (x, y)))
            met = driving.reshape(-1, CARS, 1) & driving.reshape(-1, 1, CARS) & ~np.eye(CARS, dtype=bool)
            if number == 0:
                least = np.hypot(LENGTH, WIDTH) + env.config.traffic.clearance
                assert gap[met].min(initial=np.inf) > least - 1e-3
            assert (np.asarray(result.observation)[~driving] == 0).all()
            own = np.asarray(states.env.scenario) // CARS == np.asarray(states.scene)
            assert own[driving].all()
        waited.append(1 - driving.mean())
    assert np.mean(waited) < 0.1 and proposed == {0, 1}


def test_a_car_enters_the_scene_and_the_time_of_its_world(world, started, reset, step):
    states, _ = started
    for _ in range(3):
        states = step(world, states, jnp.zeros((6, 2))).state
    one = jnp.arange(6) % CARS == 0  # the first car of each world is reset
    entered = 0
    for seed in range(10):
        fresh, _ = reset(jax.random.key(seed))
        mixed = jax.tree.map(
            lambda a, b: jnp.where(one.reshape(-1, *[1] * (a.ndim - 1)), a, b), fresh, states
        )
        after = step(world, mixed, jnp.zeros((6, 2))).state
        there = np.asarray(one & ~after.waiting)
        np.testing.assert_array_equal(np.asarray(after.scene)[there], np.array([0, 0, 0, 1, 1, 1])[there])
        np.testing.assert_array_equal(np.asarray(after.env.step)[there], 4)
        entered += there.sum()
    assert entered > 10


def test_a_full_road_keeps_cars_waiting(world, straight, reset, step):
    stands = make_bank([straight(0.0, 200)] * 6)
    crowded = world._replace(bank=jax.tree.map(jnp.asarray, stands))
    states, _ = reset(jax.random.key(0))
    for _ in range(2):
        states = step(crowded, states, jnp.zeros((6, 2))).state
    np.testing.assert_array_equal((~states.waiting).reshape(2, CARS).sum(1), 1)


def test_cars_that_would_start_in_another_wait(env, world, straight):
    lanes = [straight(10.0, 200), straight(10.0, 200), straight(10.0, 200, y=4.0)]
    bank = jax.tree.map(jnp.asarray, make_bank(lanes * 2))
    states, _ = jax.jit(env.start_many)(world._replace(bank=bank), jnp.arange(6))
    np.testing.assert_array_equal(states.waiting, [False, True, False] * 2)


def test_numbers_that_cannot_be_grouped_are_refused(env, world):
    for count, parts in ((4, 1), (6, 4)):
        with pytest.raises(ConfigError, match="multiples of"):
            env.reset_many(world, jax.random.split(jax.random.key(0), count), jnp.zeros(count, int), parts)


def test_every_moving_vehicle_of_a_scene_becomes_a_reference():
    generated = generate_world(WorldConfig(), 4, "s_curve")
    scene = compact(generated.scene, DT, "procedural:s_curve")
    cars = car_scenarios(scene)
    assert len(cars) >= 8 and cars[0] is scene
    for car in cars[1:]:
        row = int(car.id.rpartition("_")[2])
        log = scene.boxes[row][np.isfinite(scene.boxes[row, :, 0])]
        samples = car.reference.samples
        np.testing.assert_allclose(samples[0, :2], log[0, :2], atol=1e-3)
        driven = samples[: car.reference.length]
        np.testing.assert_allclose(driven[: 2 * len(log) : 2, :2][: len(log)], log[:, :2], atol=0.35)
        assert car.friction is scene.friction and scene.box_types[row] == 1
    rows = group_by_scene([scene], 5)
    assert [row.id for row in rows] == [car.id for car in cars[:5]]
    few = with_fields(
        scene, boxes=scene.boxes[:0], box_sizes=scene.box_sizes[:0], box_types=scene.box_types[:0]
    )
    assert len(group_by_scene([few], 2)) == 2
    with pytest.raises(ConfigError, match=r"env\.cars = 16"):
        group_by_scene([few], 16)
    assert isinstance(rows[0], Scenario)
