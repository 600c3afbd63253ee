"""PPO as a whole on probe environments whose value and policy are known."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.env import World
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.learner import Learner
from s3jax.ppo.loss import Batch, loss
from s3jax.ppo.policy import mean_action, policy_of
from s3jax.spatial.reference import TrackingError

SMALL = PPOConfig(
    num_envs=64,
    rollout=16,
    updates=60,
    minibatches=4,
    groups=4,
    actor_hidden=(16,),
    critic_hidden=(16,),
    learning_rate=5e-3,
    discount=0.9,
    reward_scale=1.0,
)


NOTHING = World(bank=jnp.zeros(8), dynamics=())
"""What the probe environments share."""


class Result(NamedTuple):
    state: jax.Array
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    error: TrackingError = TrackingError(*jnp.zeros(3))
    costs: dict = {}  # noqa: RUF012


@dataclasses.dataclass(frozen=True)
class Probe:
    """An environment of a few steps; `kind` says what it probes. The state is [clock, sign]."""

    kind: str
    observation_size = 2
    action_size = 2

    @property
    def policy_size(self):
        return 1 if self.kind == "hidden" else 2

    def reset_many(self, world, keys, part, parts):
        return jax.vmap(self.reset)(keys)

    def step_many(self, world, states, actions):
        return jax.vmap(self.step)(states, actions)

    def reset(self, key):
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        state = jnp.stack([jnp.zeros(()), sign])
        return state, self.observe(state)

    def observe(self, state):
        if self.kind == "remember":
            return jnp.stack([state[0], jnp.where(state[0] == 0, state[1], 0.0)])
        return state * jnp.array(
            [self.kind in ("two_step", "poison"), self.kind not in ("constant", "two_step")]
        )

    def step(self, state, action):
        clock, sign = state
        yes, no = jnp.array(True), jnp.array(False)
        after = jnp.stack([clock + 1, sign])
        terminated, truncated = yes, no
        if self.kind == "constant":
            reward = jnp.ones(())
        elif self.kind in ("observed", "hidden"):
            reward = sign
        elif self.kind == "remember":
            terminated = clock == 2
            reward = jnp.where(terminated, -((action[0] - 0.6 * sign) ** 2), 0.0)
        elif self.kind == "two_step":
            reward, terminated = jnp.where(clock == 1, 1.0, 0.0), clock == 1
        elif self.kind == "action":
            reward = -((action[0] - 0.5 * sign) ** 2) - (action[1] + 0.3) ** 2
        elif self.kind == "endless":
            reward, terminated, truncated = jnp.ones(()), no, clock == 3
        elif self.kind == "poison":  # one in many environments turns into NaN and has to be ended
            bad = (clock == 2) & (sign > 0) & (action[0] > 0.3)
            after = jnp.where(bad, jnp.nan, after)
            reward, terminated, truncated = jnp.where(bad, 0.0, 1.0), bad, clock == 3
        return Result(after, self.observe(after), reward, terminated, truncated)


def train(kind, config=SMALL, seed=0):
    learner = Learner(config, Probe(kind))
    state = learner.init(NOTHING, jax.random.key(seed))
    update = learner.update
    for _ in range(config.updates):
        state, metrics = update(state, NOTHING)
    assert update._cache_size() == 1  # compiled once
    return learner, state, metrics


def steps_taken(state):
    _, (adam, _) = state.opt_state
    return adam.count


def value_and_control(learner, state, observation):
    observation = state.normaliser(jnp.array(observation))
    memory = learner.network.initial_memory(len(observation))
    mean, _, value, _ = learner.network.apply(state.params, observation, memory)
    return np.asarray(value), np.tanh(mean)


def test_constant_reward_gives_its_value():
    value, _ = value_and_control(*train("constant")[:2], [[0.0, 0.0]])
    assert value[0] == pytest.approx(1.0, abs=0.05)


def test_value_depends_on_the_observation():
    value, _ = value_and_control(*train("observed")[:2], [[0.0, 1.0], [0.0, -1.0]])
    np.testing.assert_allclose(value, [1.0, -1.0], atol=0.1)


def test_value_is_discounted():
    value, _ = value_and_control(*train("two_step")[:2], [[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(value, [0.9, 1.0], atol=0.06)


def test_policy_finds_the_rewarded_control_for_each_observation():
    learner, state, metrics = train("action", replace(SMALL, updates=120))
    _, control = value_and_control(learner, state, [[0.0, 1.0], [0.0, -1.0]])
    np.testing.assert_allclose(control, [[0.5, -0.3], [-0.5, -0.3]], atol=0.06)
    assert metrics["loss/skipped"] == 0


def test_truncation_is_bootstrapped():
    """Reward 1 for ever, cut every 4 steps: the value is 1 / (1 - 0.9), not a sum over 4 steps (3.4)."""
    config = replace(SMALL, updates=150)
    value, _ = value_and_control(*train("endless", config)[:2], [[0.0, 1.0], [0.0, -1.0]])
    np.testing.assert_allclose(value, 10.0, atol=0.5)


def test_a_poisoned_environment_is_ended_and_does_not_spread():
    _, state, metrics = train("poison", replace(SMALL, updates=10))
    assert metrics["env/terminated"] > 0
    assert metrics["loss/skipped"] == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.params, state.normaliser)))


def test_a_poisoned_gradient_is_skipped_and_counted():
    learner = Learner(SMALL, Probe("constant"))
    state = learner.init(NOTHING, jax.random.key(0))
    before = jax.tree.map(np.asarray, state.params)
    bad = Learner(replace(SMALL, reward_scale=1e38), Probe("constant"))  # the squared return overflows
    state, metrics = bad.update(state, NOTHING)
    assert metrics["loss/skipped"] == SMALL.epochs * SMALL.minibatches
    jax.tree.map(np.testing.assert_array_equal, state.params, before)


def test_the_first_ratio_is_one_and_runs_repeat_to_the_bit():
    runs = [train("action", replace(SMALL, updates=5)) for _ in range(2)]
    assert runs[0][2]["loss/first_ratio_error"] < 1e-5
    jax.tree.map(np.testing.assert_array_equal, runs[0][1].params, runs[1][1].params)


def test_buffers_are_donated():
    learner = Learner(SMALL, Probe("constant"))
    state = learner.init(NOTHING, jax.random.key(0))
    compiled = learner.update.lower(state, NOTHING).compile()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state.params))
    assert compiled.memory_analysis().alias_size_in_bytes >= 3 * size  # parameters and Adam's two moments


def test_a_memory_keeps_what_was_shown_once():
    """The sign is shown at the first of three steps and asked for at the last."""
    config = replace(SMALL, memory=8, updates=150)
    learner, state, _ = train("remember", config)
    assert remembered(learner, state) < 0.15
    blind = train("remember", replace(config, memory=0))[:2]
    assert remembered(*blind) > 0.45


def remembered(learner, state):
    """Returns the largest error of the last action after either sign was shown."""
    signs, memory = jnp.array([1.0, -1.0]), learner.network.initial_memory(2)
    for clock in range(3):
        shown = jnp.stack([jnp.full(2, 1.0 * clock), signs * (clock == 0)], -1)
        mean, *_, memory = learner.network.apply(state.params, state.normaliser(shown), memory)
    return np.abs(np.tanh(mean[:, 0]) - 0.6 * signs).max()


def test_a_critic_may_see_what_the_policy_does_not():
    learner, state, _ = train("hidden", replace(SMALL, updates=120))
    value, control = value_and_control(learner, state, [[0.0, 1.0], [0.0, -1.0]])
    np.testing.assert_allclose(value, [1.0, -1.0], atol=0.15)
    np.testing.assert_array_equal(control[0], control[1])
    policy = policy_of(state, learner.env.policy_size)
    assert policy["mean"].shape == (1,)
    np.testing.assert_allclose(mean_action(policy, jnp.zeros((1, 2)))[0][0], control[0], atol=1e-6)


def test_seeds_train_side_by_side_as_they_would_alone():
    config = replace(SMALL, updates=3)
    learner = Learner(config, Probe("action"), seeds=2)
    state = learner.init(NOTHING, jax.random.key(0))
    for _ in range(3):
        state, metrics = learner.update(state, NOTHING)
    assert metrics["env/reward"].shape == (2,)
    alone = Learner(config, Probe("action"))
    for i, key in enumerate(jax.random.split(jax.random.key(0), 2)):
        single = alone.init(NOTHING, key)
        for _ in range(3):
            single, _ = alone.update(single, NOTHING)
        of_this_seed = jax.tree.map(lambda leaf, i=i: leaf[i], state.params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), of_this_seed, single.params)


def test_an_update_stops_where_the_policy_has_moved_too_far():
    config = replace(SMALL, updates=3, learning_rate=0.05)
    _, free, measured = train("action", config)
    assert measured["loss/stopped"] == 0
    steps = config.epochs * config.minibatches
    assert steps_taken(free) == 3 * steps
    # A step of this size goes too far at once, so that every update stops after its first.
    _, held, measured = train("action", replace(config, max_kl=1e-4))
    assert measured["loss/stopped"] == pytest.approx(1 - 1 / steps)
    assert steps_taken(held) == 3


def test_a_value_is_not_rewarded_for_moving_beyond_its_clip():
    batch = Batch(
        observation=jnp.zeros((1, 4, 2)),
        start=jnp.zeros((1, 4), bool),
        memory=None,
        noise=jnp.zeros((1, 4, 2)),
        raw_action=jnp.zeros((1, 4, 2)),
        log_prob=jnp.zeros((1, 4)),
        value=jnp.zeros((1, 4)),
        advantage=jnp.zeros((1, 4)),
        value_target=jnp.ones((1, 4)),
    )
    network = Learner(SMALL, Probe("constant")).network
    params = network.init(jax.random.key(0), jnp.zeros((1, 2)), None)
    params["params"]["critic"]["dense_1"]["bias"] = jnp.full(1, 0.5)  # moved by 0.5 towards the target
    for clip, expected in ((None, 0.125), (1.0, 0.125), (0.2, 0.32)):
        parts = loss(params, network, replace(SMALL, value_clip=clip), batch, 0.0)[1]
        assert parts["value"] == pytest.approx(expected)


def replace(config, **changes):
    return PPOConfig.parse(config.dump() | changes)
