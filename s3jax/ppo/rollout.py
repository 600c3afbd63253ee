"""Acting in all environments for the steps of one update."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from s3jax.ppo import distribution


class Transition(NamedTuple):
    """One control step of N environments; leaves [N, ...], [T, N, ...] after a rollout."""

    observation: jax.Array
    noise: jax.Array
    raw_action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    next_value: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class Rollout(NamedTuple):
    """A rollout's result.

    Attributes:
      env_state: environments afterwards, each leaf [N, ...].
      observation: [N, D] what they show.
      memory: [N, H] the policy's, or None.
      transitions: leaves [T, N, ...].
      measured: scalar means over steps and environments, by name.
    """

    env_state: Any
    observation: jax.Array
    memory: Any
    transitions: Transition
    measured: dict


def group_keys(key, ids):
    """Returns a key for each group of environments, the same on whatever device the group lies."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, ids)


def reset_keys(keys, num_envs: int):
    """Returns [N] keys, one for each environment, from keys [G] of their groups."""
    return jax.vmap(lambda key: jax.random.split(key, num_envs // keys.shape[0]))(keys).reshape(num_envs)


def rollout(env, network, config, state, world, keys) -> Rollout:
    """Acts for T steps in N environments, resetting each when its episode ends.

    Args:
      env: the environment.
      network: the `ActorCritic`.
      config: the `PPOConfig`.
      state: the `TrainState`, of this device's environments.
      world: what the environments share, this device's part.
      keys: [G] PRNG keys of this device's groups.
    """
    num_envs, groups = state.observation.shape[0], keys.shape[0]
    part = jnp.repeat(jnp.arange(groups), num_envs // groups)

    def act(carry, keys):
        env_state, observation, memory = carry
        noise_keys, fresh_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        shape = num_envs // groups, env.action_size
        noise = jax.vmap(jax.random.normal, (0, None))(noise_keys, shape).reshape(num_envs, -1)
        mean, log_std, value, memory = network.apply(state.params, state.normaliser(observation), memory)
        raw = distribution.sample(noise, mean, log_std)
        step = env.step_many(world, env_state, jnp.tanh(raw))
        next_value = network.apply(state.params, state.normaliser(step.observation), memory, method="value")
        transition = Transition(
            observation=observation,
            noise=noise,
            raw_action=raw,
            log_prob=distribution.log_prob(mean, log_std, raw),
            value=value,
            next_value=next_value,
            reward=step.reward * config.reward_scale,
            terminated=step.terminated,
            truncated=step.truncated,
        )
        fresh = env.reset_many(world, reset_keys(fresh_keys, num_envs), part, groups)
        fresh = (*fresh, network.initial_memory(num_envs))
        done = step.terminated | step.truncated
        carry = jax.tree.map(
            lambda new, old: jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            fresh,
            (step.state, step.observation, memory),
        )
        return carry, (transition, _measure(step))

    keys = jax.vmap(lambda key: jax.random.split(key, config.rollout), out_axes=1)(keys)
    carry = state.env_state, state.observation, state.memory
    carry, (transitions, measured) = jax.lax.scan(act, carry, keys)
    return Rollout(*carry, transitions, {name: jnp.mean(value) for name, value in measured.items()})


def _measure(step) -> dict:
    """Returns means over environments; errors and costs count where the car did not fail, see `summary`."""
    alive = ~step.terminated
    errors = step.error._asdict()
    finite = jnp.isfinite(sum(errors.values()))

    def mean(value):
        return jnp.mean(jnp.where(alive, value, 0.0))

    return {
        "env/reward": jnp.mean(step.reward),
        "env/terminated": jnp.mean(step.terminated),
        "env/truncated": jnp.mean(step.truncated),
        "env/not_finite": jnp.mean(~finite),
        **{f"square/{name}": mean(value**2) for name, value in errors.items()},
        **{f"cost/{name}": mean(value) for name, value in step.costs.items()},
    }


def summary(measured: dict) -> dict:
    """Turns the means of a rollout, over all devices, into metrics: means of squares into RMS errors."""
    alive = jnp.maximum(1.0 - measured["env/terminated"], 1e-6)
    metrics = {}
    for name, value in measured.items():
        kind, rest = name.split("/")
        if kind == "square":
            metrics[f"env/{rest}_rms"] = jnp.sqrt(value / alive)
        else:
            metrics[name] = value / alive if kind == "cost" else value
    return metrics
