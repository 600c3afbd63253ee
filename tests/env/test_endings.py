"""Episodes end in named ways, one at a time; ensembles also where their members disagree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.dynamics.bicycle import BicycleConfig
from s3jax.dynamics.ensemble import EnsembleConfig
from s3jax.env import EnvConfig, TrackingEnv
from s3jax.env.tracking import _first

WAYS = ["envelope", "disagreement", "corridor", "heading", "end_of_log", "step_limit"]


@pytest.fixture(scope="module")
def env(bicycle):
    return TrackingEnv(EnvConfig.parse({"termination": {"steps": 9}}), bicycle)


@pytest.fixture(scope="module")
def step(env):
    return jax.jit(env.move)


def placed(env, world, step=0, cursor=None, **fields):
    """A car on the dry road, some of its state replaced."""
    state, _ = env.start(world, 1)
    vehicle = state.vehicle._replace(**{name: jnp.asarray(value) for name, value in fields.items()})
    cursor = state.cursor if cursor is None else jnp.asarray(cursor)
    return state.replace(
        vehicle=vehicle, carry=state.carry._replace(state=vehicle), cursor=cursor, step=state.step + step
    )


@pytest.mark.parametrize(
    ("way", "change"),
    [
        (None, {}),
        ("envelope", {"vx": jnp.nan}),
        ("envelope", {"vx": 90.0}),
        ("envelope", {"vx": 90.0, "y": 9.0, "step": 8}),
        ("corridor", {"y": 4.0}),
        ("corridor", {"y": 4.0, "yaw": 2.0}),
        ("heading", {"yaw": 1.4}),
        ("heading", {"yaw": 1.4, "step": 8}),
        ("end_of_log", {"x": 99.0, "cursor": 98.5}),
        ("end_of_log", {"x": 99.0, "cursor": 98.5, "step": 8}),
        ("step_limit", {"step": 8}),
    ],
)
def test_the_first_way_that_applies_counts(env, icy, step, way, change):
    change = dict(change)
    if "x" in change:  # the road is 99 samples of 1 m long
        change["x"] = 98.5
    result = step(icy, placed(env, icy, **change), jnp.zeros(2))
    assert set(result.ended) == set(WAYS)
    assert [name for name, flag in result.ended.items() if flag] == ([way] if way else [])
    failed = way in WAYS[:4]
    assert bool(result.terminated) == failed
    assert bool(result.truncated) == (way in WAYS[4:])
    assert (result.reward == 0) == failed


def test_at_most_one_flag_is_kept():
    flags = np.random.default_rng(0).random((4, 100)) < 0.4
    kept = np.stack(list(_first(dict(zip("abcd", jnp.asarray(flags), strict=True))).values()))
    np.testing.assert_array_equal(kept.sum(0), flags.any(0))
    np.testing.assert_array_equal(kept.argmax(0), flags.argmax(0))


def test_an_ensemble_ends_where_it_disagrees_and_each_car_is_a_member(icy):
    model = EnsembleConfig(member=BicycleConfig(), size=3).make()
    member = BicycleConfig().make().init(None)
    # The members' brakes differ, nothing else does.
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (3,)), member)
    params["brake"] = params["brake"] + jnp.array([-3.0, 0.0, 3.0])
    world = icy._replace(dynamics=params)
    env = TrackingEnv(EnvConfig.parse({"termination": {"disagreement": 0.05}}), model)
    state, _ = jax.jit(jax.vmap(env.reset, (None, 0)))(world, jax.random.split(jax.random.key(0), 60))
    assert set(np.asarray(state.carry.member)) == {0, 1, 2}
    state, _ = env.start(world, 1)
    step = jax.jit(env.move)
    coasting = step(world, state, jnp.zeros(2))
    assert not coasting.terminated
    for _ in range(8):
        result = step(world, state, jnp.array([0.0, -1.0]))
        if result.terminated:
            break
        state = result.state
    assert result.ended["disagreement"] and model.disagreement(result.state.carry) > 0.05
