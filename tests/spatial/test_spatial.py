"""Shared geometry: right values, and the same values under NumPy and JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.spatial.frames import to_body, to_world, wrap_angle
from s3jax.spatial.friction import friction_at, friction_map, friction_value
from s3jax.spatial.observation import ObservationSpec, initial_history, observe, update_history
from s3jax.spatial.reference import (
    EXTENSION,
    WINDOW,
    Reference,
    advance,
    make_reference,
    point_at,
    tracking_error,
)
from s3jax.spatial.state import VehicleState

DT = 0.05


def circle(radius=50.0, speed=10.0, samples=120):
    """A left-hand circle from the origin, heading along +x."""
    angle = np.arange(samples) * DT * speed / radius
    return make_reference(radius * np.sin(angle), radius * (1 - np.cos(angle)), angle, speed, DT)


def random_state(rng):
    return VehicleState(*rng.normal(size=7) * [5, 5, 1, 5, 1, 0.3, 0.1])


def to_jax(tree):
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32 if np.asarray(x).dtype.kind == "f" else None), tree
    )


def test_wrap_angle_keeps_the_direction_and_the_range():
    angle = np.linspace(-20, 20, 401)
    wrapped = wrap_angle(angle)
    assert (wrapped >= -np.pi).all() and (wrapped < np.pi).all()
    np.testing.assert_allclose(np.exp(1j * wrapped), np.exp(1j * angle), atol=1e-12)


def test_frames_are_inverse_and_left_is_positive():
    assert np.allclose(to_body(0.0, 1.0, 0.0), (0.0, 1.0))
    assert np.allclose(to_body(0.0, 1.0, np.pi / 2), (1.0, 0.0))
    np.testing.assert_allclose(to_world(*to_body(2.0, 3.0, 0.7), 0.7), (2.0, 3.0))


def test_friction_later_patches_win_and_corners_may_differ():
    square = [(0, 0), (4, 0), (4, 4), (0, 4)]
    triangle = [(1, 1), (3, 1), (2, 3)]
    friction = friction_map("asphalt", [(square, "snow"), (triangle, 0.1)])
    x, y = np.array([-1.0, 0.5, 2.0, 3.9]), np.array([2.0, 0.5, 2.0, 3.9])
    np.testing.assert_allclose(friction_at(friction, x, y), [1.0, 0.3, 0.1, 0.3])
    np.testing.assert_allclose(friction_at(friction_map(0.7), x, y), 0.7)


@pytest.mark.parametrize("bad", ["mud", 0.0, 3.0, float("nan"), -1.0])
def test_bad_friction_is_refused(bad):
    with pytest.raises(ValueError, match=r"surface|outside"):
        friction_value(bad)


@pytest.mark.parametrize("polygon", [[(0, 0), (1, 1)], [(0, 0, 0)] * 3, [(0, 0), (1, 0), (0, np.inf)]])
def test_bad_polygons_are_refused(polygon):
    with pytest.raises(ValueError, match="patch 0"):
        friction_map(1.0, [(polygon, 0.1)])


def test_reference_curvature_extension_and_length():
    reference = circle()
    assert reference.length == 120
    assert reference.size == 120 + round(EXTENSION / DT)
    np.testing.assert_allclose(reference.samples[:119, 4], 1 / 50, rtol=1e-3)
    tail = reference.samples[119:]
    np.testing.assert_allclose(np.hypot(*np.diff(tail[:, :2], axis=0).T), 10 * DT, rtol=1e-6)
    np.testing.assert_allclose(tail[:, 2], tail[0, 2])


def test_reference_refuses_what_it_cannot_use():
    with pytest.raises(ValueError, match="two samples"):
        make_reference([0.0], [0.0], [0.0], [0.0], DT)
    with pytest.raises(ValueError, match="sample 1 is not finite"):
        make_reference([0.0, np.nan], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0], DT)


def test_cursor_follows_a_car_beside_the_reference_at_another_speed():
    reference = circle()
    cursor = 0.0
    for step in range(1, 100):  # 1.3 times as fast, 1 m to the left
        angle = step * DT * 13.0 / 50.0
        x, y = 49.0 * np.sin(angle), 50.0 - 49.0 * np.cos(angle)
        cursor = advance(reference, cursor, x, y)
        if cursor >= reference.length - 1:
            break
        point = point_at(reference, cursor)
        error = tracking_error(point, VehicleState(x, y, angle + 0.1, 13.0, 0.0, 0.0, 0.0))
        assert cursor == pytest.approx(step * 1.3, abs=0.05)
        assert error.cross_track == pytest.approx(1.0, abs=0.01)
        assert error.heading == pytest.approx(0.1, abs=0.01)
        assert error.speed == pytest.approx(3.0, abs=1e-6)
    assert step == 92


def test_cursor_waits_through_a_stop_and_never_goes_back():
    speed = np.concatenate([np.full(20, 2.0), np.zeros(40), np.full(20, 2.0)])
    x = np.concatenate([[0.0], np.cumsum(speed[:-1] * DT)])
    reference = make_reference(x, 0 * x, 0 * x, speed, DT)
    cursor = 0.0
    for _ in range(25):
        cursor = advance(reference, cursor, x[20], 0.0)
    first = cursor
    assert 20 <= first <= 45
    for _ in range(60):
        previous, cursor = cursor, advance(reference, cursor, x[20], 0.0)
        assert cursor >= previous
    assert 59 <= cursor <= 61  # the stop lasted as long as in the log; then the reference waits for the car
    assert advance(reference, cursor, -5.0, 0.0) >= cursor


def test_cursor_is_bounded_at_the_end():
    reference = circle(samples=10)
    cursor = advance(reference, float(reference.size - 1), 1e3, 1e3)
    assert cursor == reference.size - 1
    assert np.isfinite(point_at(reference, np.array([-5.0, 1e9])).x).all()


def test_stored_end_to_end_references_do_not_leak_into_one_another():
    a, b = circle(), circle(radius=20.0, speed=5.0, samples=90)
    both = np.concatenate([a.samples, b.samples])
    second = Reference(both, offset=a.size, size=b.size, length=b.length)
    cursor = np.array([-1.0, 3.5, 1e6])
    np.testing.assert_array_equal(point_at(second, cursor), point_at(b, cursor))
    assert advance(second, 60.0, 1.0, 2.0) == advance(b, 60.0, 1.0, 2.0)


def test_numpy_and_jax_agree_on_random_input():
    rng = np.random.default_rng(0)
    spec, reference = ObservationSpec(), circle()
    friction = friction_map(0.7, [(rng.normal(size=(5, 2)) * 10, 0.1), (rng.normal(size=(3, 2)) * 10, 1.2)])

    def everything(reference, friction, state, cursor, control):
        history = update_history(initial_history(spec, state), state, control)
        moved = advance(reference, cursor, state.x, state.y)
        return (
            observe(spec, reference, moved, state, history),
            moved,
            friction_at(friction, state.x, state.y),
        )

    compiled = jax.jit(everything)
    for _ in range(50):
        state, cursor, control = random_state(rng), rng.uniform(0, 140), rng.uniform(-1, 1, 2)
        with_numpy = everything(reference, friction, state, cursor, control)
        with_jax = compiled(*to_jax((reference, friction, state, cursor, control)))
        for a, b in zip(with_numpy, with_jax, strict=True):
            assert isinstance(a, np.ndarray | np.generic)
            np.testing.assert_allclose(a, b, atol=2e-4)


def test_observation_parts_are_where_the_spec_says():
    spec = ObservationSpec(preview=3, preview_stride=10, history=2)
    reference = circle()
    state = VehicleState(0.0, 0.5, 0.05, 9.0, 0.1, 0.2, 0.03)
    history = update_history(initial_history(spec, state), state, np.array([0.3, -0.4]))
    observation = observe(spec, reference, 0.0, state, history)
    assert observation.shape == (spec.size,) == (3 + 2 + 12 + 12,)
    np.testing.assert_allclose(observation[:5], [0.5, 0.05, -1.0, 10.0, 1 / 50], rtol=1e-3)
    ahead = to_body(*(reference.samples[10, :2] - [0.0, 0.5]), 0.05)
    np.testing.assert_allclose(observation[5:7], ahead)
    np.testing.assert_allclose(observation[-6:], [9.0, 0.1, 0.2, 0.03, 0.3, -0.4])
    np.testing.assert_allclose(observation[-8:-6], 0.0)


def test_the_digest_names_the_layout():
    assert ObservationSpec().digest() == ObservationSpec().digest()
    assert ObservationSpec().digest() != ObservationSpec(preview=11).digest()
    with pytest.raises(ValueError, match="history"):
        ObservationSpec(history=0)


def test_window_covers_a_car_that_is_far_faster_than_the_reference():
    reference = circle(speed=2.0, samples=200)
    cursor = advance(reference, 0.0, *reference.samples[WINDOW - 1, :2])
    assert cursor == pytest.approx(WINDOW - 1, abs=0.01)
