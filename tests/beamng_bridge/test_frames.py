"""Frames and signs of the bridge, against values worked out by hand."""

import math

import numpy as np
import pytest

from beamng_bridge import frames
from beamng_bridge.frames import Alignment, Mounting

ALIGNMENT, MOUNTING = Alignment(x=10.0, y=-4.0, yaw=math.pi / 2, z=0.3), Mounting(forward=0.5, left=0.1)


def test_left_is_minus_for_the_game_and_pedals_are_apart():
    assert frames.game_inputs([0.25, 0.5]) == {"steering": -0.25, "throttle": 0.5, "brake": 0.0}
    assert frames.game_inputs([-2.0, -0.5]) == {"steering": 1.0, "throttle": 0.0, "brake": 0.5}
    electrics = {"steering_input": -0.25, "throttle_input": 0.0, "brake_input": 0.5}
    np.testing.assert_allclose(frames.our_control(electrics), [0.25, -0.5])
    for control in ([math.nan, 0.0], [0.0, math.inf]):
        with pytest.raises(ValueError, match="is not finite and was not sent"):
            frames.game_inputs(control)


@pytest.mark.parametrize(
    ("yaw", "quaternion"),
    [
        (-math.pi / 2, (0.0, 0.0, 0.0, 1.0)),  # identity faces -y
        (math.pi / 2, (0.0, 0.0, -1.0, 0.0)),  # half a turn faces +y
        (math.pi, (0.0, 0.0, -math.sqrt(0.5), -math.sqrt(0.5))),  # faces -x
    ],
)
def test_the_quaternion_of_a_teleport(yaw, quaternion):
    _, found = frames.placement((0.0, 0.0, yaw), Alignment(), Mounting())
    np.testing.assert_allclose(np.array(found) * np.sign(np.dot(found, quaternion)), quaternion, atol=1e-12)


def test_a_car_in_the_level_is_where_it_is_on_the_track():
    # The track's x axis points along the level's +y. A car at 20 m on it, heading along it, moving at 8 m/s.
    (x, y, z), _ = frames.placement((20.0, 0.0, 0.0), ALIGNMENT, MOUNTING)
    assert (x, y, z) == pytest.approx((10.0 + 0.1, -4.0 + 20.0 - 0.5, 0.3))
    state = {"pos": [x, y, z], "dir": [0.0, 1.0, 0.0], "vel": [-2.0, 8.0, 0.0]}
    found = frames.vehicle_state(state, {"steering": 225.0}, 0.4, ALIGNMENT, MOUNTING)
    assert (found.x, found.y, found.yaw) == pytest.approx((20.0, 0.0, 0.0))
    # The node moves 2 m/s to the left; the centre of gravity, ahead of it and turning left, faster.
    assert (found.vx, found.vy) == pytest.approx((8.0 - 0.4 * 0.1, 2.0 + 0.4 * 0.5))
    assert found.steer_angle == pytest.approx(0.3)  # half of the lock, + left


def test_the_turn_rate_is_exact_for_constant_angular_acceleration_and_across_a_full_turn():
    t = np.array([0.0, 0.05, 0.10])
    yaw = 3.1 + 0.5 * t + 1.5 * t * t
    wrapped = np.arctan2(np.sin(yaw), np.cos(yaw)).tolist()
    assert frames.turn_rate(wrapped, t) == pytest.approx(0.5 + 3.0 * 0.10)
    assert frames.turn_rate(wrapped[:2], t[:2]) == pytest.approx((yaw[1] - yaw[0]) / 0.05)
    assert frames.turn_rate(wrapped[:1], t[:1]) == 0.0
    uneven = np.array([0.0, 0.02, 0.10])
    assert frames.turn_rate(0.5 * uneven + 1.5 * uneven**2, uneven) == pytest.approx(0.5 + 3.0 * 0.10)
