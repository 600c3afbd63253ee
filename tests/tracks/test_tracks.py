import numpy as np
import pytest

from s3jax.spatial.friction import friction_at
from s3jax.spatial.reference import EXTENSION, advance
from s3jax.tracks import (
    SpeedLimits,
    TrackError,
    ice_patches,
    lap_reference,
    lap_speed,
    point_at_arc,
    project,
    putnam_park,
    skid_pad,
    speed_profile,
    strip,
    track_friction,
    track_from_segments,
)


@pytest.fixture(scope="module")
def putnam():
    return putnam_park()


@pytest.mark.parametrize("length", [None, 2765.0])
def test_putnam_closes_exactly_at_its_length(length):
    track = putnam_park(length)
    assert track.length == pytest.approx(length or 2840.03, abs=1e-6)
    end = point_at_arc(track, track.length * (1 - 1e-12))
    np.testing.assert_allclose([end.x, end.y, end.yaw], [0, 0, -2 * np.pi], atol=1e-6)
    # Clothoids: curvature changes no faster than linearly over the ramp.
    slope = np.diff(track.curvature, append=track.curvature[0]) / track.spacing
    assert np.abs(slope).max() <= np.ptp([-0.02997, 0.01574]) / 20.0 * (2840.03 / track.length) + 1e-9
    assert 1 / np.abs(track.curvature).max() == pytest.approx(33.4 * track.length / 2840.03, rel=0.02)


def test_samples_are_spaced_and_consistent(putnam):
    dx, dy = (np.diff(a, append=a[0]) for a in (putnam.x, putnam.y))
    np.testing.assert_allclose(np.hypot(dx, dy), putnam.spacing, atol=2e-4)
    middle = point_at_arc(putnam, putnam.s + 0.5 * putnam.spacing)
    np.testing.assert_allclose(np.sin(np.arctan2(dy, dx) - middle.yaw), 0, atol=2e-3)


def test_projection_inverts_position(putnam):
    rng = np.random.default_rng(0)
    s, lateral = rng.uniform(0, putnam.length, 500), rng.uniform(-6, 6, 500)
    at = point_at_arc(putnam, s, lateral)
    found_s, found_lateral = project(putnam, at.x, at.y)
    gap = (found_s - s + 10) % putnam.length - 10
    np.testing.assert_allclose(gap, 0, atol=5e-3)
    np.testing.assert_allclose(found_lateral, lateral, atol=1e-3)


def test_an_arc_and_a_clothoid_against_closed_form():
    track = track_from_segments("s", [(100, 0), (100, 0.01), (100, 0)], 8.0, closed=False)
    assert track.yaw[-1] == pytest.approx(1.0, abs=1e-9)
    # Half way through the ramp of 20 m the heading is that of a clothoid: A s^2 / 2 with A = 0.01 / 20.
    at = point_at_arc(track, 100.0)
    assert float(at.yaw) == pytest.approx(0.5 * 0.01 / 20 * 10**2, abs=1e-4)
    assert float(at.curvature) == pytest.approx(0.005, abs=1e-6)


def test_refuses_what_cannot_be_a_track():
    with pytest.raises(TrackError, match="too far to close"):
        track_from_segments("open", [(500, 0), (100, 0.01), (30, 0)], 8.0)
    with pytest.raises(TrackError, match="positive length"):
        track_from_segments("bad", [(-5, 0), (100, 0.01)], 8.0)
    with pytest.raises(TrackError, match="lie on putnam"):
        ice_patches(skid_pad())


def test_strips_cover_their_interval_and_side(putnam):
    from s3jax.spatial.friction import friction_map

    friction = friction_map(1.0, [(strip(putnam, 1690.0, 1720.0, left=0.0), 0.1)])
    s = np.array([1680.0, 1691.0, 1705.0, 1719.0, 1730.0])
    right, left = point_at_arc(putnam, s, -2.0), point_at_arc(putnam, s, 2.0)
    np.testing.assert_array_equal(friction_at(friction, right.x, right.y), [1, 0.1, 0.1, 0.1, 1])
    np.testing.assert_array_equal(friction_at(friction, left.x, left.y), 1.0)
    with pytest.raises(TrackError, match="expected 0 < end - start"):
        strip(putnam, 100.0, 90.0)


def test_seven_ice_patches_scale_with_the_lap():
    for length in (None, 2765.0):
        track = putnam_park(length)
        friction = ice_patches(track)
        assert len(friction.values) == 7
        values = friction_at(friction, track.x, track.y)
        starts = np.flatnonzero((values < 1) & (np.roll(values, 1) == 1))
        ends = np.flatnonzero((values < 1) & (np.roll(values, -1) == 1))
        assert len(starts) == 7
        assert np.all((ends - starts > 12) & (ends - starts < 42))
        straight = np.abs(track.curvature[starts]) < 1e-3
        assert 2 <= straight.sum() <= 5  # some on straights, some in corners


def test_speed_profile_of_a_circle_is_the_textbook_one():
    track = skid_pad(radius=50.0)
    limits = SpeedLimits(lateral=8.0, usage=0.5)
    speed = speed_profile(track.curvature, track.spacing, 0.7, limits)
    np.testing.assert_allclose(speed, np.sqrt(8.0 * 0.5 * 0.7 * 50.0), rtol=1e-9)


def test_speed_profile_stays_inside_the_friction_circle(putnam):
    limits = SpeedLimits()
    friction = ice_patches(putnam)
    lowest = track_friction(putnam, friction, limits.margin)
    speed = lap_speed(putnam, friction, limits)
    following = np.roll(speed, -1)
    accel = (following**2 - speed**2) / (2 * putnam.spacing)
    lateral = speed**2 * np.abs(putnam.curvature)
    assert np.all(lateral <= limits.lateral * lowest * limits.usage * (1 + 1e-9))
    weakest = np.minimum(lowest, np.roll(lowest, -1))
    assert np.all(accel >= -limits.brake * weakest * limits.usage - 1e-6)
    assert np.all(accel <= np.minimum(limits.drive, limits.power / speed) * limits.usage + 1e-6)
    # It slows before a patch: on its first metre it is no faster than the patch allows to keep going.
    assert (putnam.spacing / speed).sum() > (putnam.spacing / lap_speed(putnam, ice_free(friction))).sum() + 5


def ice_free(friction):
    return friction._replace(values=friction.values * 0 + 1.0)


def test_speed_profiles_come_in_batches(putnam):
    friction = np.array([1.0, 0.3])[:, None]
    batch = speed_profile(np.stack([putnam.curvature] * 2), putnam.spacing, friction)
    for i in range(2):
        np.testing.assert_array_equal(
            batch[i], speed_profile(putnam.curvature, putnam.spacing, friction[i, 0])
        )


def test_open_profiles_keep_their_ends():
    curvature = np.zeros(200)
    curvature[150:160] = 0.05
    speed = speed_profile(curvature, 1.0, closed=False)
    assert speed[0] == 45.0 and speed[100] > speed[150] and speed[-1] > speed[155]


@pytest.mark.parametrize("start", [0.0, 1234.56])
def test_lap_reference_is_true_to_track_and_time(putnam, start):
    dt = 0.05
    speed = lap_speed(putnam, ice_patches(putnam))
    reference = lap_reference(putnam, speed, dt, start=start)
    x, y, yaw, v, curvature = reference.samples.T
    assert reference.size - reference.length == EXTENSION / dt
    travelled = np.hypot(np.diff(x), np.diff(y))
    np.testing.assert_allclose(travelled, 0.5 * (v[1:] + v[:-1]) * dt, atol=0.02)
    last = reference.length - 1
    assert yaw[last] - yaw[0] == pytest.approx(-2 * np.pi, abs=0.05)
    assert np.hypot(x[last] - x[0], y[last] - y[0]) < v[last] * dt
    s, lateral = project(putnam, x, y)
    np.testing.assert_allclose(lateral, 0, atol=1e-3)
    np.testing.assert_allclose(curvature, np.interp(s, putnam.s, putnam.curvature), atol=5e-4)
    assert last * dt == pytest.approx((2 * putnam.spacing / (speed + np.roll(speed, 1))).sum(), abs=dt)


def test_a_point_that_follows_a_reference_reaches_its_end(putnam):
    reference = lap_reference(putnam, lap_speed(putnam, ice_free(ice_patches(putnam))), 0.05)
    cursor = 0.0
    for row in reference.samples[: reference.length]:
        cursor = float(advance(reference, cursor, row[0], row[1]))
    assert cursor == pytest.approx(reference.length - 1, abs=0.05)


def test_references_refuse_standstill(putnam):
    with pytest.raises(TrackError, match=r"at least 0\.1 m/s"):
        lap_reference(putnam, np.zeros(len(putnam.x)), 0.05)
