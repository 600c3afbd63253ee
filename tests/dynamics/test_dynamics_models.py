import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.distil.stability import stability
from s3jax.dynamics.base import WITHHELD, History, rollout
from s3jax.dynamics.store import make_dynamics
from s3jax.spatial.state import VehicleState

ENCODER = {"width": 16, "heads": 2, "layers": 2, "window": 8}
MODELS = {
    "bicycle": {"kind": "bicycle"},
    "single_track": {"kind": "single_track"},
    "ddm": {"kind": "ddm", "hidden": 16, "dense": 16},
    "transformer": {"kind": "transformer", "encoder": ENCODER},
    "dytr_ddm": {"kind": "dytr", "encoder": ENCODER, "base": {"kind": "ddm", "hidden": 16, "dense": 16}},
    "dytr_bicycle": {"kind": "dytr", "encoder": ENCODER, "base": {"kind": "bicycle"}},
    "ensemble": {"kind": "ensemble", "size": 2, "member": {"kind": "ddm", "hidden": 16, "dense": 16}},
}
PHYSICAL = ("bicycle", "single_track", "ddm", "dytr_ddm", "ensemble")
"""Models that behave like a car before they are fitted."""


def state(**fields):
    return VehicleState(**{name: fields.get(name, 0.0) for name in VehicleState._fields})


@functools.cache
def make(kind):
    model = make_dynamics(MODELS[kind])
    return model, model.init(jax.random.key(0))


@functools.partial(jax.jit, static_argnums=0)
def drive(model, params, start, controls, frictions):
    return rollout(model, params, model.reset(params, start), controls, frictions)[1]


def hold(steer, pedal, friction, steps):
    return jnp.tile(jnp.array([steer, pedal]), (steps, 1)), jnp.full((steps, 2), friction)


@pytest.mark.parametrize("kind", PHYSICAL)
def test_a_parked_car_stays_parked(kind):
    model, params = make(kind)
    end = drive(model, params, state(yaw=1.0, steer_angle=0.2), *hold(0.5, -1.0, 1.0, 200))
    assert np.hypot(end.x, end.y).max() < 0.2
    assert np.abs(end.vy).max() < 0.01


@pytest.mark.parametrize("kind", PHYSICAL)
def test_braking_stops_without_reversing(kind):
    model, params = make(kind)
    end = drive(model, params, state(vx=25.0), *hold(0.0, -1.0, 1.0, 120))
    assert np.all(np.asarray(end.vx) >= 0.0)
    assert end.vx[-1] < 0.1
    assert abs(end.y[-1]) < 0.1


@pytest.mark.parametrize("kind", PHYSICAL)
def test_left_is_positive(kind):
    model, params = make(kind)
    end = drive(model, params, state(vx=8.0), *hold(0.3, 0.05, 1.0, 20))
    assert end.y[-1] > 0.2 and end.yaw[-1] > 0.05 and end.yaw_rate[-1] > 0 and end.steer_angle[-1] > 0


@pytest.mark.parametrize("kind", MODELS)
def test_random_driving_stays_in_the_envelope(kind):
    model, params = make(kind)
    result = stability(model, params, environments=64, seconds=15.0)
    assert result["finite"] == 1.0
    assert result["inside"] == {"standstill": 1.0, "reverse": 1.0, "town": 1.0, "fast": 1.0, "all": 1.0}


def test_a_model_that_runs_away_is_found_out():
    class Runaway(type(make("bicycle")[0])):
        def step(self, params, carry, control, friction):
            carry, state = super().step(params, carry, control, friction)
            state = state._replace(vx=1.02 * state.vx + 0.1)
            return carry._replace(state=state), state

    model, params = make("bicycle")
    result = stability(Runaway(model.config), params, environments=8, seconds=20.0)
    assert result["inside"]["all"] == 0.0


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_through_two_seconds_are_finite(kind):
    model, params = make(kind)
    controls, frictions = hold(0.4, -0.8, 0.5, 40)

    def distance(params, controls, frictions, speed):
        end = drive(model, params, state(vx=speed), controls, frictions)
        return end.x[-1] + end.y[-1] + end.yaw_rate[-1]

    speeds = jnp.array([0.0, 1.0, 30.0])
    gradient = jax.vmap(jax.grad(distance, argnums=(0, 1, 2, 3)), (None, None, None, 0))
    gradients = jax.jit(gradient)(params, controls, frictions, speeds)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradients))
    assert np.all(np.abs(gradients[1][1:]).max((1, 2)) > 0)


@pytest.mark.parametrize("kind", MODELS)
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


@pytest.mark.parametrize("kind", MODELS)
def test_carry_keeps_its_structure_and_types(kind):
    model, params = make(kind)
    carry = model.reset(params, state(vx=3))
    after, _ = model.step(params, carry, jnp.zeros(2), jnp.ones(2))
    assert jax.tree.structure(carry) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(carry), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)


@pytest.mark.parametrize("kind", ["single_track", "ddm", "transformer"])
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


def test_an_untrained_correction_is_the_base():
    model, params = make("dytr_ddm")
    controls, frictions = hold(0.3, 0.4, 0.6, 30)
    corrected = drive(model, params, state(vx=15.0), controls, frictions)
    base = drive(model.base, params["base"], state(vx=15.0), controls, frictions)
    for a, b in zip(corrected, base, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_car_of_an_ensemble_is_one_member_and_knows_the_spread():
    model, params = make("ensemble")
    controls, frictions = hold(0.3, 0.4, 0.6, 30)
    carry = model.reset(params, state(vx=15.0))
    members = {int(model.draw(carry, jax.random.key(i)).member) for i in range(20)}
    assert members == {0, 1}
    for i in members:
        _, path = rollout(model, params, carry._replace(member=jnp.int32(i)), controls, frictions)
        alone = drive(model.member, model.part(params, i), state(vx=15.0), controls, frictions)
        for a, b in zip(path, alone, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    after, _ = rollout(model, params, carry, controls, frictions)
    assert float(model.disagreement(after)) > 0
    same = jax.tree.map(lambda leaf: jnp.stack([leaf[0], leaf[0]]), params)
    after, _ = rollout(model, same, carry, controls, frictions)
    assert float(model.disagreement(after)) == pytest.approx(0, abs=1e-6)


def test_a_shifted_tyre_pulls_the_car_to_its_side_and_a_parked_car_nowhere():
    model, params = make("single_track")
    shifted = params | {"shift_front": params["shift_front"] + 0.5}
    end = drive(model, shifted, state(vx=15.0), *hold(0.0, 0.1, 1.0, 40))
    straight = drive(model, params, state(vx=15.0), *hold(0.0, 0.1, 1.0, 40))
    assert abs(float(straight.y[-1])) < 1e-3
    # The car turns until the front wheels roll at their shift: a steer angle of the same size.
    shift = model.describe(shifted)["shift_front"]
    steered = drive(model, params, state(vx=15.0, steer_angle=shift), *hold(shift / 0.55, 0.1, 1.0, 40))
    assert float(end.yaw[-1]) == pytest.approx(float(steered.yaw[-1]), rel=0.1)
    parked = drive(model, shifted, state(), *hold(0.0, -1.0, 1.0, 40))
    assert abs(float(parked.y[-1])) < 1e-3
