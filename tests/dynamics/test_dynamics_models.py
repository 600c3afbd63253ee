import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.dynamics.base import WITHHELD, History, rollout
from s3jax.dynamics.envelope import inside
from s3jax.dynamics.store import make_dynamics
from s3jax.spatial.state import VehicleState

KINDS = ("bicycle", "single_track", "ddm")
SLIPPING = ("single_track", "ddm")


def state(**fields):
    return VehicleState(**{name: fields.get(name, 0.0) for name in VehicleState._fields})


@functools.cache
def make(kind):
    model = make_dynamics({"kind": kind})
    return model, model.init(jax.random.key(0))


@functools.partial(jax.jit, static_argnums=0)
def drive(model, params, start, controls, frictions):
    return rollout(model, params, model.reset(params, start), controls, frictions)[1]


def hold(steer, pedal, friction, steps):
    return jnp.tile(jnp.array([steer, pedal]), (steps, 1)), jnp.full((steps, 2), friction)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parked_car_stays_parked(kind):
    model, params = make(kind)
    end = drive(model, params, state(yaw=1.0, steer_angle=0.2), *hold(0.5, -1.0, 1.0, 200))
    assert np.hypot(end.x, end.y).max() < 0.2
    assert np.abs(end.vy).max() < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_braking_stops_without_reversing(kind):
    model, params = make(kind)
    end = drive(model, params, state(vx=25.0), *hold(0.0, -1.0, 1.0, 120))
    assert np.all(np.asarray(end.vx) >= 0.0)
    assert end.vx[-1] < 0.1
    assert abs(end.y[-1]) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_left_is_positive(kind):
    model, params = make(kind)
    end = drive(model, params, state(vx=8.0), *hold(0.3, 0.05, 1.0, 20))
    assert end.y[-1] > 0.2 and end.yaw[-1] > 0.05 and end.yaw_rate[-1] > 0 and end.steer_angle[-1] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_random_driving_stays_in_the_envelope(kind):
    model, params = make(kind)
    if kind == "bicycle":
        pytest.skip("wheels that never slip have no friction circle")
    keys = jax.random.split(jax.random.key(1), 4)
    cars, steps = 64, 400
    controls = jax.random.uniform(keys[0], (cars, steps // 8, 2), minval=-1.0, maxval=1.0)
    frictions = jax.random.uniform(keys[1], (cars, steps // 4, 2), minval=0.05, maxval=1.2)
    frictions = jnp.where(jax.random.bernoulli(keys[2], 0.2, frictions.shape), WITHHELD, frictions)
    speeds = jnp.tile(jnp.array([0.0, -5.0, 20.0, 60.0]), cars // 4)
    start = jax.tree.map(lambda zero: jnp.full(cars, zero), state())._replace(vx=speeds)
    end = jax.vmap(functools.partial(drive, model, params))(
        start, jnp.repeat(controls, 8, axis=1), jnp.repeat(frictions, 4, axis=1)
    )
    before = jax.tree.map(lambda a, b: jnp.concatenate([a[:, None], b[:, :-1]], axis=1), start, end)
    assert bool(jnp.all(inside(before, end, model.dt)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("speed", [0.0, 1.0, 30.0])
def test_gradients_through_two_seconds_are_finite(kind, speed):
    model, params = make(kind)
    controls, frictions = hold(0.4, -0.8, 0.5, 40)

    def distance(params, controls, frictions):
        end = drive(model, params, state(vx=speed), controls, frictions)
        return end.x[-1] + end.y[-1] + end.yaw_rate[-1]

    gradients = jax.jit(jax.grad(distance, argnums=(0, 1, 2)))(params, controls, frictions)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradients))
    if speed:
        assert float(jnp.abs(gradients[1]).max()) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_continues_a_rollout(kind):
    model, params = make(kind)
    controls = jax.random.uniform(jax.random.key(2), (30, 2), minval=-0.5, maxval=0.5)
    frictions = jnp.full((30, 2), 0.8)
    start = state(vx=12.0)
    whole = drive(model, params, start, controls, frictions)
    first = jax.tree.map(lambda zero, later: jnp.concatenate([jnp.array([zero]), later]), start, whole)
    history = History(jax.tree.map(lambda f: f[:20], first), controls[:20], frictions[:20])
    carry = model.reset(params, jax.tree.map(lambda f: f[20], first), history)
    _, rest = rollout(model, params, carry, controls[20:], frictions[20:])
    for a, b in zip(rest, jax.tree.map(lambda f: f[20:], whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_carry_keeps_its_structure_and_types(kind):
    model, params = make(kind)
    carry = model.reset(params, state(vx=3))
    after, _ = model.step(params, carry, jnp.zeros(2), jnp.ones(2))
    assert jax.tree.structure(carry) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(carry), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)


@pytest.mark.parametrize("kind", SLIPPING)
def test_withheld_friction_is_neither_an_error_nor_asphalt(kind):
    model, params = make(kind)
    withheld, told = (
        drive(model, params, state(vx=15.0), *hold(0.3, 0.0, friction, 40)) for friction in (WITHHELD, 1.0)
    )
    assert bool(jnp.isfinite(withheld.x).all())
    assert abs(float(withheld.yaw[-1] - told.yaw[-1])) > 0.01


@pytest.mark.parametrize("friction", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("control", [(1.0, 0.0), (1.0, 1.0), (0.5, -1.0), (0.0, -1.0)])
def test_single_track_uses_its_grip_and_no_more(friction, control):
    model, params = make("single_track")
    values = model.describe(params)
    path = drive(model, params, state(vx=20.0), *hold(*control, friction, 40))
    vx, vy, turn = (0.5 * (np.asarray(f)[1:] + np.asarray(f)[:-1]) for f in (path.vx, path.vy, path.yaw_rate))
    ax = np.diff(path.vx) / model.dt - vy * turn
    ay = np.diff(path.vy) / model.dt + vx * turn
    used = np.hypot(ax, ay)[20:]
    grip = max(values["grip_front"], values["grip_rear"]) * friction * 9.81
    assert 0.4 * grip < used.mean()
    assert used.max() < 1.02 * grip + 0.3  # drag and rolling resistance


def test_single_track_understeer_follows_the_linear_formula():
    # Yaw rate gain of the linear single track: V / (L + V^2 (b/Cf - a/Cr) / (L g) g), stiffnesses per load.
    model, params = make("single_track")
    values = model.describe(params)
    vehicle = model.config.vehicle
    length, speed = vehicle.front_axle + vehicle.rear_axle, 20.0
    steps = 200
    end = drive(model, params, state(vx=speed), *hold(0.02, 0.1, 1.0, steps))
    gradient = (1.0 / values["stiffness_front"] - 1.0 / values["stiffness_rear"]) / 9.81
    v, angle = float(end.vx[-1]), float(end.steer_angle[-1])
    expected = v * angle / (length + gradient * v * v)
    assert float(end.yaw_rate[-1]) == pytest.approx(expected, rel=0.03)


def test_single_track_rolls_without_slip_at_walking_pace():
    model, params = make("single_track")
    end = drive(model, params, state(vx=1.0), *hold(0.5, 0.02, 1.0, 60))
    length = model.config.vehicle.front_axle + model.config.vehicle.rear_axle
    expected = float(end.vx[-1]) * np.tan(float(end.steer_angle[-1])) / length
    assert float(end.yaw_rate[-1]) == pytest.approx(expected, rel=0.05)


def test_single_track_converges_with_the_sub_step():
    coarse = make_dynamics({"kind": "single_track", "substep": 0.0125})
    fine = make_dynamics({"kind": "single_track", "substep": 0.001})
    params = coarse.init(jax.random.key(0))
    controls, frictions = hold(0.25, 0.2, 0.9, 40)
    ends = [drive(model, params, state(vx=15.0), controls, frictions) for model in (coarse, fine)]
    assert float(jnp.hypot(ends[0].x[-1] - ends[1].x[-1], ends[0].y[-1] - ends[1].y[-1])) < 0.3
