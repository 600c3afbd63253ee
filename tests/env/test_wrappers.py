"""The environment under other libraries' interfaces."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.env import EnvConfig, TrackingEnv
from s3jax.env.wrappers import BraxEnv, gym_vector_env

COUNT = 6
SHORT = {"termination": {"steps": 4}, "start": {"along": 0.5}}


@pytest.fixture(scope="module")
def vector(bicycle, icy):
    pytest.importorskip("gymnasium")
    return gym_vector_env(TrackingEnv(EnvConfig.parse(SHORT), bicycle), icy, COUNT)


def test_a_vector_env_keeps_gymnasiums_contract(vector):
    from gymnasium.vector import AutoresetMode, VectorEnv

    assert isinstance(vector, VectorEnv)
    assert vector.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    observations, infos = vector.reset(seed=1)
    assert infos == {} and observations in vector.observation_space
    vector.action_space.seed(0)
    for step in range(1, 10):
        observations, rewards, terminations, truncations, infos = vector.step(vector.action_space.sample())
        assert observations in vector.observation_space
        assert rewards.shape == terminations.shape == truncations.shape == (COUNT,)
        assert terminations.dtype == truncations.dtype == bool
        done = terminations | truncations
        assert done.all() == (step % 4 == 0)
        assert ("final_obs" in infos) == done.any()
        if done.any():
            np.testing.assert_array_equal(infos["_final_obs"], done)
            assert set(infos["final_info"]["ended"][done]) == {"step_limit"}
            assert all(last in vector.single_observation_space for last in infos["final_obs"][done])
            # The history of a fresh episode has no controls in it; that of the last one has.
            assert (observations[done][:, -2:] == 0).all()
            assert (np.stack(infos["final_obs"][done])[:, -2:] != 0).all()


def test_a_seed_repeats_the_episodes_and_no_seed_does_not(vector):
    def run(seed):
        first, _ = vector.reset(seed=seed)
        return np.stack([first, *(vector.step(np.full((COUNT, 2), 0.1))[0] for _ in range(5))])

    once = run(3)
    np.testing.assert_array_equal(once, run(3))
    assert (once != run(4)).any() and (once != run(None)).any()


def test_gymnasiums_wrappers_go_around_it(vector):
    from gymnasium.wrappers.vector import ClipAction, RecordEpisodeStatistics

    env = ClipAction(RecordEpisodeStatistics(vector))
    env.reset(seed=0)
    for _ in range(4):
        observations, _, _, _, infos = env.step(np.full((COUNT, 2), 9.0, np.float32))
    assert np.isfinite(observations).all()
    np.testing.assert_array_equal(infos["episode"]["l"], 4)


def test_without_gymnasium_the_remedy_is_named():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from s3jax.env.wrappers import gym_vector_env, MissingPackageError\n"
        "try: gym_vector_env(None, None, 1)\n"
        "except MissingPackageError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "Gymnasium is not installed; pip install 's3jax[gym]'"


def test_a_brax_environment_tells_truncation_and_goes_on(bicycle, icy):
    config = EnvConfig.parse(SHORT | {"oracle": "critic"})
    env = BraxEnv(TrackingEnv(config, bicycle), icy)
    state = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), COUNT))
    shapes = {name: (COUNT, *shape) for name, shape in env.observation_size.items()}
    structure = jax.tree.structure(state)
    step = jax.jit(env.step)
    steps = []
    for i in range(1, 7):
        state = step(state, jnp.full((COUNT, 2), 0.1))
        assert jax.tree.structure(state) == structure
        assert {name: value.shape for name, value in state.obs.items()} == shapes
        np.testing.assert_array_equal(state.done, float(i == 4))
        np.testing.assert_array_equal(state.info["truncation"], float(i == 4))
        np.testing.assert_array_equal(state.metrics["ended_step_limit"], float(i == 4))
        steps.append(float(state.info["steps"][0]))
        assert float(state.info["episode_metrics"]["length"][0]) == steps[-1]
    assert steps == [1, 2, 3, 4, 1, 2]
    np.testing.assert_array_equal(
        state.obs["privileged_state"][:, : config.observation.size], state.obs["state"]
    )
