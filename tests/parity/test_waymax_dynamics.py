"""Our bicycle as a Waymax `DynamicsModel`, against Waymax's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")

FIELDS = ("x", "y", "yaw", "vel_x", "vel_y")


@pytest.fixture(scope="module")
def models(waymax):
    from s3jax.waymax.dynamics import BicycleModel

    return waymax.dynamics.InvertibleBicycleModel(), BicycleModel(like_waymax=True), BicycleModel()


def test_the_bicycle_equals_waymax_on_the_same_actions(waymax, models, states):
    """Every object of every scene, at logged and displaced poses, random actions beyond the bounds too."""
    theirs, ours, _ = models
    spec, same = theirs.action_spec(), ours.action_spec()
    assert spec.shape == same.shape and spec.dtype == same.dtype
    np.testing.assert_array_equal((spec.minimum, spec.maximum), np.float32((same.minimum, same.maximum)))
    rng, worst = np.random.default_rng(0), 0.0
    for state, _ in states:
        log = jax.tree.map(jnp.asarray, state.log_trajectory)
        for step in (0, 40, 90):
            now = jax.tree.map(lambda values, step=step: values[:, step : step + 1], log)
            data = jnp.asarray(rng.normal(0, (4.0, 0.2), (128, 2)), jnp.float32)
            action = waymax.datatypes.Action(data=data, valid=jnp.ones((128, 1), bool))
            one, two = theirs.compute_update(action, now), ours.compute_update(action, now)
            two.validate()
            np.testing.assert_array_equal(one.valid, two.valid)
            for name in FIELDS:
                gap = jnp.abs(one[name] - two[name])[now.valid]
                scale = 1.0 + jnp.abs(one[name])[now.valid]
                worst = max(worst, float(jnp.max(gap / scale, initial=0.0)))
    print(f"bicycle: largest relative difference {worst:.1e}")
    assert worst < 5e-6


def test_the_inverse_equals_waymax(waymax, models, states):
    theirs, ours, _ = models
    worst, seen = 0.0, 0
    for state, _ in states:
        log = jax.tree.map(jnp.asarray, state.log_trajectory)
        for step in (0, 10, 50, 89):
            one, two = (model.inverse(log, state.object_metadata, step) for model in (theirs, ours))
            np.testing.assert_array_equal(one.valid, two.valid)
            worst = max(worst, float(jnp.max(jnp.abs(one.data - two.data))))
            seen += int(one.valid.sum())
    print(f"inverse: {seen} transitions, largest difference {worst:.1e}")
    assert worst < 1e-4


def drive(waymax, model, state, control, steps=79):
    environment = waymax.env.PlanningAgentEnvironment(model, waymax.config.EnvironmentConfig())
    action = waymax.datatypes.Action(data=jnp.asarray(control, jnp.float32), valid=jnp.ones(1, bool))

    @jax.jit
    def run(state):
        state = environment.reset(state)
        return jax.lax.scan(lambda s, _: (environment.step(s, action), None), state, None, length=steps)[0]

    final = run(jax.tree.map(jnp.asarray, state))
    row = int(np.argmax(state.object_metadata.is_sdc))
    return {name: np.asarray(final.sim_trajectory[name])[row, 10 : 11 + steps] for name in FIELDS}


def test_driven_in_the_planning_environment_the_paths_are_equal(waymax, models, states):
    for state, _ in states[-2:]:
        one, two = (drive(waymax, model, state, (1.0, 0.02)) for model in models[:2])
        for name in FIELDS:
            np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=2e-4, err_msg=name)


def test_our_default_mends_its_faults(waymax, models, states):
    """Braking to rest: theirs trembles around a standstill, ours stands. A circle: ours stays on it."""
    theirs, _, ours = models
    state = states[0][0]
    for model, stands in ((theirs, False), (ours, True)):
        path = drive(waymax, model, state, (-6.0, 0.0))
        speed = np.hypot(path["vel_x"], path["vel_y"])[-20:]
        assert (speed.max() == 0.0) == stands
    log = state.log_trajectory
    moving = state.replace(log_trajectory=log.replace(
        vel_x=(-2.0 * np.cos(log.yaw)).astype(np.float32), vel_y=(-2.0 * np.sin(log.yaw)).astype(np.float32)
    ))  # fmt: skip
    for model, sign in ((theirs, 1.0), (ours, -1.0)):
        path = drive(waymax, model, moving, (0.0, 0.0), steps=5)
        along = path["vel_x"] * np.cos(path["yaw"]) + path["vel_y"] * np.sin(path["yaw"])
        np.testing.assert_allclose(along[1:], 2.0 * sign, rtol=1e-5)
    path = drive(waymax, ours, moving, (0.0, 0.2))
    centre = path["x"][0] - np.sin(path["yaw"][0]) / 0.2, path["y"][0] + np.cos(path["yaw"][0]) / 0.2
    radius = np.hypot(path["x"] - centre[0], path["y"] - centre[1])
    np.testing.assert_allclose(radius, 5.0, atol=2e-3)


def test_our_inverse_undoes_our_model(waymax, models, states):
    ours, (state, _) = models[2], states[0]
    path = drive(waymax, ours, state, (0.7, 0.04), steps=40)
    trajectory = waymax.datatypes.Trajectory(
        **{name: jnp.asarray(value)[None] for name, value in path.items()},
        **dict.fromkeys(("z", "length", "width", "height", "timestamp_micros"), jnp.zeros((1, 41))),
        valid=jnp.ones((1, 41), bool),
    )
    for step in (0, 20, 39):
        action = ours.inverse(trajectory, None, step)
        np.testing.assert_allclose(action.data[0], (0.7, 0.04), atol=2e-3)
