"""Deviations from the distilled car do to it what they are named after."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.dynamics.base import guard_values
from s3jax.dynamics.ddm import DdmConfig
from s3jax.dynamics.ensemble import EnsembleConfig
from s3jax.dynamics.single_track import GUARDS, SingleTrackConfig
from s3jax.dynamics.transformer import TransformerConfig
from s3jax.env import EnvConfig, TrackingEnv, perturbation
from s3jax.env.config import RandomisationConfig

BOTH = RandomisationConfig(mass=(0.8, 1.3), stiffness=(0.7, 1.2))


def test_draws_fill_their_ranges_and_the_new_ones_are_off_by_default():
    drawn = jax.vmap(lambda key: perturbation.draw(RandomisationConfig(), key))(
        jax.random.split(jax.random.key(0), 300)
    )
    for name, (low, high) in RandomisationConfig():
        value = np.asarray(getattr(drawn, name))
        assert low <= value.min() and value.max() <= high + 1e-6
        assert value.max() - value.min() >= 0.9 * (high - low)
    assert (drawn.lag == 0).all() and (drawn.mass == 1).all() and (drawn.stiffness == 1).all()


def test_mass_and_stiffness_scale_the_constants_of_a_model():
    params = SingleTrackConfig().make().init(None)
    before = guard_values(GUARDS, params)
    drawn = perturbation.none()._replace(mass=jnp.asarray(1.25), stiffness=jnp.asarray(0.7))
    after = guard_values(GUARDS, perturbation.apply(BOTH, drawn, params))
    for name in GUARDS:
        gain = 1.0
        if name in perturbation.SCALED["mass"]:
            gain = 1 / 1.25
        if name in perturbation.SCALED["stiffness"]:
            gain = 0.7
        assert float(after[name]) == pytest.approx(gain * float(before[name]), rel=1e-3), name
    same = perturbation.apply(BOTH, perturbation.none(), params)
    assert all(float(same[name]) == float(params[name]) for name in params)
    assert perturbation.apply(RandomisationConfig(), drawn, params) is params


def test_constants_are_found_inside_other_models_or_refused():
    ensemble = EnsembleConfig(member=DdmConfig(hidden=4, dense=4), size=2).make()
    shapes = jax.eval_shape(ensemble.init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.1), shapes)
    scaled = perturbation.apply(BOTH, perturbation.none()._replace(mass=jnp.asarray(1.2)), params)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), scaled, params)
    names = {name for name, differs in changed["constants"].items() if differs}
    assert names == set(perturbation.SCALED["mass"])
    assert not any(jax.tree.leaves({k: v for k, v in changed.items() if k != "constants"}))
    other = jax.eval_shape(TransformerConfig().make().init, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"randomisation\.mass scales brake"):
        perturbation.apply(BOTH, perturbation.none(), other)


def test_a_heavier_car_is_slower_and_a_lagging_control_late(icy):
    model = SingleTrackConfig().make()
    world = icy._replace(dynamics=model.init(None))
    env = TrackingEnv(EnvConfig(randomisation=BOTH), model)
    state, _ = env.start(world, 1)
    step = jax.jit(env.move)

    def drive(**deviations):
        values = {name: jnp.asarray(value) for name, value in deviations.items()}
        now = state.replace(perturbation=state.perturbation._replace(**values))
        for _ in range(10):
            now = step(world, now, jnp.ones(2)).state
        return now

    plain = drive()
    assert drive(mass=1.3).vehicle.vx < plain.vehicle.vx < drive(mass=0.8).vehicle.vx
    assert abs(float(drive(stiffness=0.7).vehicle.vy - plain.vehicle.vy)) > 1e-3
    late = drive(lag=0.45)  # a tenth of the way in each step of 0.05 s
    np.testing.assert_array_equal(plain.held, [1.0, 1.0])
    np.testing.assert_array_equal(late.history[-1, 4:], plain.history[-1, 4:])
    commands = np.minimum(np.arange(1, 11)[:, None] * np.array([0.15, 0.2]), 1.0)
    held = np.zeros(2)
    for command in commands:
        held += 0.1 * (command - held)
    np.testing.assert_allclose(late.held, held, rtol=1e-5)
