"""Procedural control tasks: reproducible, drivable, and as the configuration says."""

import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.procedural import FamiliesConfig, FamilyConfig, ProceduralConfig, generate
from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.friction import friction_at

SCENARIOS = generate(ProceduralConfig(count=1200), seed=5)


def counted(scenario):
    return scenario.reference.samples[: scenario.reference.length].T


def test_the_same_seed_gives_the_same_bits():
    again = generate(ProceduralConfig(count=1200), seed=5)
    for one, two in zip(make_bank(SCENARIOS), make_bank(again), strict=True):
        np.testing.assert_array_equal(one, two)
    other = make_bank(generate(ProceduralConfig(count=1200), seed=6))
    assert not np.array_equal(other.samples, make_bank(SCENARIOS).samples)


def test_references_last_as_long_as_asked_and_start_at_the_origin():
    for scenario in SCENARIOS:
        assert scenario.reference.length == 181 and scenario.reference.size == 241
        assert scenario.reference.samples[0, :2].tolist() == [0, 0]
    (longer,) = generate(ProceduralConfig(count=1, duration=20.0), seed=0, dt=0.1)
    assert longer.reference.length == 201 and longer.dt == 0.1


def test_position_heading_and_speed_agree():
    for scenario in SCENARIOS:
        x, y, yaw, speed, _ = counted(scenario)
        step = np.hypot(np.diff(x), np.diff(y))
        np.testing.assert_allclose(step, (speed[1:] + speed[:-1]) / 2 * scenario.dt, rtol=1e-2, atol=2e-3)
        going = step > 0.05
        chord = np.arctan2(np.diff(y), np.diff(x))
        assert np.abs(wrap_angle(chord - (yaw[1:] + yaw[:-1]) / 2))[going].max(initial=0) < 0.01


def test_no_reference_asks_for_more_grip_than_the_road_has():
    for scenario in SCENARIOS:
        x, y, yaw, speed, _ = counted(scenario)
        grip = 9.81 * friction_at(scenario.friction, x, y)
        demand = np.hypot(np.gradient(speed, scenario.dt), speed * np.gradient(yaw, scenario.dt))
        assert (demand / grip).max() < 1.02, scenario.id


def test_every_task_of_interest_occurs():
    features = [scenario.features for scenario in SCENARIOS]
    bases = {float(scenario.friction.base) for scenario in SCENARIOS}
    patches = [len(scenario.friction.values) for scenario in SCENARIOS]
    reached = sum(
        (friction_at(s.friction, *counted(s)[:2]) < s.friction.base).any()
        for s in SCENARIOS
        if len(s.friction.values)
    )
    assert bases == {1.0, 0.7, 0.6, 0.3} and {0, 1, 2} == set(patches)
    assert reached > 0.7 * sum(count > 0 for count in patches)
    assert max(f["max_speed"] for f in features) > 35
    assert min(f["min_accel"] for f in features) < -7
    assert max(f["max_lateral"] for f in features) > 8
    assert max(f["max_curvature"] for f in features) > 1 / 14
    assert sum(f["stopped_time"] >= 1 for f in features) > 0.1 * len(features)
    assert sum(counted(s)[3, 0] == 0 and counted(s)[3].max() > 3 for s in SCENARIOS) > 0.03 * len(SCENARIOS)


def test_the_gentle_family_stays_as_gentle_as_logs():
    gentle = [s for s in SCENARIOS if s.source == "procedural:womd"]
    assert len(gentle) > 200
    assert min(s.features["min_accel"] for s in gentle) > -2.6
    assert max(s.features["max_lateral"] for s in gentle) < 3.2


def test_weights_choose_families_and_nothing_else_is_accepted():
    none = FamilyConfig(weight=0.0)
    only_straight = FamiliesConfig(womd=none, town=none, road=none, s_curve=none, stop_and_go=none)
    drawn = generate(ProceduralConfig(count=20, families=only_straight, patches=(1.0, 0.0, 0.0)), seed=0)
    assert {s.source for s in drawn} == {"procedural:straight"}
    assert all(len(s.friction.values) == 0 for s in drawn)
    assert generate(ProceduralConfig(count=0), seed=0) == []
    for bad in (
        {"duration": -1},
        {"count": -1},
        {"famlies": {}},
        {"families": {"womd": {"speed": [15.0, 5.0]}}},
    ):
        with pytest.raises(ConfigError):
            ProceduralConfig.parse(bad)
