"""PPO (Schulman et al. 2017, arXiv 1707.06347): rollout, advantages and epochs in one jitted update."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from pydantic import Field

from s3jax.config import Config
from s3jax.env import TrackingEnv, World
from s3jax.ppo import distribution
from s3jax.ppo.gae import gae
from s3jax.ppo.networks import ActorCritic
from s3jax.ppo.normaliser import Normaliser
from s3jax.ppo.shuffle import group_minibatches


class PPOConfig(Config):
    """Sizes and coefficients of PPO."""

    num_envs: int = Field(1024, gt=0)
    rollout: int = Field(32, gt=0, description="control steps per environment and update")
    updates: int = Field(600, gt=0)
    epochs: int = Field(3, gt=0)
    minibatches: int = Field(8, gt=0)
    groups: int = Field(8, gt=0, description="fixed shuffling groups; a multiple of the device count")
    actor_hidden: tuple[int, ...] = (64, 64)
    critic_hidden: tuple[int, ...] = (96, 96)
    initial_log_std: float = -1.0
    learning_rate: float = Field(1e-3, gt=0)
    final_learning_rate: float = Field(5e-5, ge=0, description="reached linearly at the last update")
    discount: float = Field(0.97, gt=0, lt=1)
    trace: float = Field(0.95, ge=0, le=1, description="lambda of GAE")
    clip: float = Field(0.2, gt=0)
    value_weight: float = Field(0.5, ge=0)
    entropy_weight: float = Field(3e-4, ge=0)
    max_grad_norm: float = Field(0.5, gt=0)
    reward_scale: float = Field(0.1, gt=0)

    def model_post_init(self, _):
        """Checks that the batch divides.

        Raises:
          ValueError: with the remedy.
        """
        if self.num_envs % (self.groups * self.minibatches):
            raise ValueError(
                f"ppo.num_envs = {self.num_envs} must be a multiple of "
                f"ppo.groups x ppo.minibatches = {self.groups * self.minibatches}"
            )


@struct.dataclass
class TrainState:
    """Everything that training changes; all of it is checkpointed.

    Attributes:
      params: actor and critic.
      opt_state: the optimiser's.
      normaliser: observation statistics, frozen during a rollout and its update.
      env_state: environments, each leaf [N, ...].
      observation: [N, D].
      key: PRNG key.
      update: [] updates done.
    """

    params: Any
    opt_state: Any
    normaliser: Normaliser
    env_state: Any
    observation: jax.Array
    key: jax.Array
    update: jax.Array


class Transition(NamedTuple):
    """One control step of all environments; leaves [N, ...], [T, N, ...] after a rollout."""

    observation: jax.Array
    raw_action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    next_value: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class Batch(NamedTuple):
    """What the loss needs of each sample."""

    observation: jax.Array  # normalised
    raw_action: jax.Array
    log_prob: jax.Array
    advantage: jax.Array
    value_target: jax.Array


@dataclasses.dataclass(frozen=True)
class Learner:
    """PPO's static part: sizes, the environment, the network.

    Attributes:
      config: PPO's configuration.
      env: the environment.
    """

    config: PPOConfig
    env: TrackingEnv

    @property
    def network(self) -> ActorCritic:
        """The actor and critic."""
        config = self.config
        return ActorCritic(
            config.actor_hidden, config.critic_hidden, self.env.action_size, config.initial_log_std
        )

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam with gradient clipping and a linearly falling learning rate."""
        config = self.config
        steps = config.updates * config.epochs * config.minibatches
        schedule = optax.linear_schedule(config.learning_rate, config.final_learning_rate, steps)
        return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.adam(schedule, eps=1e-5))

    def init(self, world: World, key) -> TrainState:
        """Returns the state before the first update; its types are strong, so that nothing recompiles."""
        key, params_key, reset_key = jax.random.split(key, 3)
        reset_keys = jax.random.split(reset_key, self.config.num_envs)
        env_state, observation = jax.vmap(self.env.reset, (None, 0))(world, reset_keys)
        params = self.network.init(params_key, observation[:1])
        state = TrainState(
            params=params,
            opt_state=self.optimiser.init(params),
            normaliser=Normaliser.create(self.env.observation_size),
            env_state=env_state,
            observation=observation,
            key=key,
            update=jnp.zeros((), jnp.int32),
        )
        return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)

    def update(self, state: TrainState, world: World) -> tuple[TrainState, dict]:
        """Does one PPO update.

        Args:
          state: the training state; donate it.
          world: scenario bank and dynamics parameters.

        Returns:
          The new state and scalar metrics by name.
        """
        config = self.config
        key, rollout_key, epoch_key = jax.random.split(state.key, 3)
        env_state, observation, transitions, measured = self._rollout(state, world, rollout_key)
        advantage = gae(
            transitions.reward,
            transitions.value,
            transitions.next_value,
            transitions.terminated,
            transitions.truncated,
            config.discount,
            config.trace,
        )
        batch = Batch(
            observation=state.normaliser(transitions.observation),
            raw_action=transitions.raw_action,
            log_prob=transitions.log_prob,
            advantage=advantage,
            value_target=advantage + transitions.value,
        )

        def epoch(carry, key):
            shuffle_key, entropy_key = jax.random.split(key)
            parts = group_minibatches(shuffle_key, batch, config.groups, config.minibatches)
            keys = jax.random.split(entropy_key, config.minibatches)
            return jax.lax.scan(self._minibatch, carry, (parts, keys))

        carry = state.params, state.opt_state
        (params, opt_state), losses = jax.lax.scan(epoch, carry, jax.random.split(epoch_key, config.epochs))
        metrics = measured | {f"loss/{name}": jnp.mean(value) for name, value in losses.items()}
        metrics["loss/skipped"] = jnp.sum(losses["skipped"])
        metrics["loss/first_ratio_error"] = losses["ratio_error"][0, 0]
        residual = jnp.var(advantage) / jnp.maximum(jnp.var(batch.value_target), 1e-8)
        metrics["loss/explained_variance"] = 1.0 - residual
        metrics["policy/std"] = jnp.mean(jnp.exp(params["params"]["log_std"]))
        state = TrainState(
            params=params,
            opt_state=opt_state,
            normaliser=state.normaliser.update(transitions.observation),
            env_state=env_state,
            observation=observation,
            key=key,
            update=state.update + 1,
        )
        return state, metrics

    def _rollout(self, state, world, key):
        """Acts for T steps in all environments, resetting each when its episode ends."""
        network, params, num_envs = self.network, state.params, self.config.num_envs

        def act(carry, key):
            env_state, observation = carry
            sample_key, reset_key = jax.random.split(key)
            mean, log_std, value = network.apply(params, state.normaliser(observation))
            raw = distribution.sample(sample_key, mean, log_std)
            step = jax.vmap(self.env.step, (None, 0, 0))(world, env_state, jnp.tanh(raw))
            next_value = network.apply(params, state.normaliser(step.observation), method="value")
            transition = Transition(
                observation=observation,
                raw_action=raw,
                log_prob=distribution.log_prob(mean, log_std, raw),
                value=value,
                next_value=next_value,
                reward=step.reward * self.config.reward_scale,
                terminated=step.terminated,
                truncated=step.truncated,
            )
            done = step.terminated | step.truncated
            fresh = jax.vmap(self.env.reset, (None, 0))(world, jax.random.split(reset_key, num_envs))
            carry = jax.tree.map(
                lambda new, old: jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                fresh,
                (step.state, step.observation),
            )
            alive = ~step.terminated
            measured = {
                "env/reward": jnp.mean(step.reward),
                "env/terminated": jnp.mean(step.terminated),
                "env/truncated": jnp.mean(step.truncated),
                **{
                    f"square/{name}": jnp.sum(jnp.where(alive, value**2, 0.0))
                    / jnp.maximum(jnp.sum(alive), 1)
                    for name, value in step.error._asdict().items()
                },
                **{f"cost/{name}": jnp.mean(jnp.where(alive, v, 0.0)) for name, v in step.costs.items()},
            }
            return carry, (transition, measured)

        keys = jax.random.split(key, self.config.rollout)
        (env_state, observation), (transitions, measured) = jax.lax.scan(
            act, (state.env_state, state.observation), keys
        )
        measured = {name: jnp.mean(value) for name, value in measured.items()}
        for name in [name for name in measured if name.startswith("square/")]:
            measured[f"env/{name.removeprefix('square/')}_rms"] = jnp.sqrt(measured.pop(name))
        return env_state, observation, transitions, measured

    def _minibatch(self, carry, inputs):
        """Takes one gradient step; keeps the parameters where the gradient is not finite."""
        params, opt_state = carry
        batch, key = inputs
        (_, aux), grads = jax.value_and_grad(self._loss, has_aux=True)(params, batch, key)
        norm = optax.tree.norm(grads)
        ok = jnp.isfinite(norm)
        updates, new_opt_state = self.optimiser.update(grads, opt_state, params)
        new_params = optax.apply_updates(params, updates)
        carry = jax.tree.map(
            lambda new, old: jnp.where(ok, new, old), (new_params, new_opt_state), (params, opt_state)
        )
        return carry, aux | {"grad_norm": norm, "skipped": (~ok).astype(jnp.float32)}

    def _loss(self, params, batch, key):
        config = self.config
        mean, log_std, value = self.network.apply(params, batch.observation)
        log_ratio = distribution.log_prob(mean, log_std, batch.raw_action) - batch.log_prob
        ratio = jnp.exp(log_ratio)
        advantage = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + 1e-8)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
        value_loss = 0.5 * jnp.mean((value - batch.value_target) ** 2)
        entropy = jnp.mean(distribution.entropy(key, mean, log_std))
        loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        return loss, {
            "policy": policy_loss,
            "value": value_loss,
            "entropy": entropy,
            "kl": jnp.mean(ratio - 1 - log_ratio),  # Schulman's k3 estimator
            "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > config.clip),
            "ratio_error": jnp.max(jnp.abs(ratio - 1)),
        }
