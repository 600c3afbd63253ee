"""Stacking scenarios, and reading them back under NumPy and under jit."""

import jax
import numpy as np
import pytest

from s3jax.scenarios.bank import ScenarioBank, friction, make_bank, reference
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.scenario import Scenario
from s3jax.spatial.friction import friction_at, friction_map
from s3jax.spatial.reference import make_reference, point_at


def scenario(length, patches=(), dt=0.05):
    time = np.arange(length) * dt
    reference = make_reference(7 * time, 0 * time, 0 * time, 7.0, dt)
    return Scenario("s", "test", dt, reference, friction=friction_map(0.9, patches))


SQUARE = [[10, -2], [20, -2], [20, 2], [10, 2]]
BANK = make_bank(
    [scenario(181), scenario(50, [(SQUARE, 0.1)]), scenario(99, [(SQUARE[:3], 0.2), (SQUARE, 0.3)])]
)


def test_padding_repeats_the_last_row_and_hides_unused_patches():
    assert BANK.samples.shape == (3 * 241, 5) and BANK.samples.dtype == np.float32
    assert BANK.size.tolist() == [241, 110, 159] and BANK.length.tolist() == [181, 50, 99]
    np.testing.assert_array_equal(
        BANK.samples[241 + 110 : 2 * 241], np.repeat(BANK.samples[[241 + 109]], 131, axis=0)
    )
    assert BANK.polygons.shape == (3, 2, 4, 2)
    assert friction_at(friction(BANK, 0), 15.0, 0.0) == np.float32(0.9)
    assert friction_at(friction(BANK, 1), 15.0, 0.0) == np.float32(0.1)
    assert friction_at(friction(BANK, 2), 19.0, -1.0) == np.float32(0.3)


def test_jit_with_a_traced_index_equals_numpy():
    scenarios = generate(ProceduralConfig(count=20, patches=(0.0, 0.0, 1.0)), seed=3)
    bank = make_bank(scenarios)

    @jax.jit
    def look(bank: ScenarioBank, i, cursor, x, y):
        return point_at(reference(bank, i), cursor), friction_at(friction(bank, i), x, y)

    for i, one in enumerate(scenarios):
        x, y = one.reference.samples[60, :2]
        point, grip = look(bank, i, 57.25, x, y)
        expected = point_at(one.reference, 57.25)
        np.testing.assert_allclose(np.array(point), np.array(expected), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(
            np.array(point), np.array(point_at(reference(bank, i), 57.25)), rtol=1e-6, atol=1e-5
        )
        assert grip == pytest.approx(friction_at(one.friction, x, y), rel=1e-5)


def test_no_scenarios_and_mixed_intervals_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        make_bank([])
    with pytest.raises(ValueError, match="different dt"):
        make_bank([scenario(50), scenario(50, dt=0.1)])
