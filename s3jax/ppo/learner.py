"""PPO (Schulman et al. 2017, arXiv 1707.06347): rollout, advantages and epochs in one jitted update.

The update runs on every device of a mesh over that device's own environments and scenarios. Devices meet
in three places: the gradient of each minibatch, one average of the update's statistics, and one of the
observations' variance. Environments form fixed groups, each on one device with its own part of the
scenarios and its own random numbers, so that the number of devices does not change the algorithm.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh

from s3jax.config import ConfigError
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.devices import AXIS, SPREAD, WHOLE, make_mesh
from s3jax.ppo.gae import gae
from s3jax.ppo.loss import Batch, loss
from s3jax.ppo.networks import ActorCritic
from s3jax.ppo.normaliser import Normaliser
from s3jax.ppo.rollout import group_keys, reset_keys, rollout, summary
from s3jax.ppo.shuffle import group_minibatches


@struct.dataclass
class TrainState:
    """Everything that training changes; all of it is checkpointed.

    Attributes:
      params: actor and critic.
      opt_state: the optimiser's.
      normaliser: observation statistics, frozen during a rollout and its update.
      env_state: environments, each leaf [N, ...].
      observation: [N, D].
      memory: [N, H] the policy's, or None.
      key: PRNG key.
      update: [] updates done.
    """

    params: Any
    opt_state: Any
    normaliser: Normaliser
    env_state: Any
    observation: jax.Array
    memory: Any
    key: jax.Array
    update: jax.Array


_LAYOUT = TrainState(
    params=WHOLE,
    opt_state=WHOLE,
    normaliser=WHOLE,
    env_state=SPREAD,
    observation=SPREAD,
    memory=SPREAD,
    key=WHOLE,
    update=WHOLE,
)


@dataclasses.dataclass(frozen=True)
class Learner:
    """PPO's static part: sizes, the environment, the devices.

    Attributes:
      config: PPO's configuration.
      env: the environment.
      mesh: devices over which environments and scenarios are spread.

    Raises:
      ConfigError: if the groups cannot be spread evenly over the devices.
    """

    config: PPOConfig
    env: Any
    mesh: Mesh = dataclasses.field(default_factory=make_mesh)

    def __post_init__(self):
        if self.config.groups % self.mesh.size:
            raise ConfigError(
                f"ppo.groups = {self.config.groups} cannot be spread over {self.mesh.size} devices; "
                "make it a multiple of them"
            )

    @property
    def network(self) -> ActorCritic:
        """The actor and critic."""
        return ActorCritic(
            actor_hidden=self.config.actor_hidden,
            critic_hidden=self.config.critic_hidden,
            policy_size=self.env.policy_size,
            action_size=self.env.action_size,
            memory_size=self.config.memory,
            initial_log_std=self.config.initial_log_std,
        )

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam with gradient clipping and a linearly falling learning rate."""
        config = self.config
        steps = config.updates * config.epochs * config.minibatches
        schedule = optax.linear_schedule(config.learning_rate, config.final_learning_rate, steps)
        return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.adam(schedule, eps=1e-5))

    def init(self, world, key) -> TrainState:
        """Returns the state before the first update; its types are strong, so that nothing recompiles.

        Args:
          world: scenario bank, spread over the devices, and dynamics parameters. The number of scenarios is
            a multiple of `groups`.
          key: PRNG key.
        """
        return self._on_devices(self._init, (_layout(world), WHOLE), _LAYOUT)(world, key)

    def update(self, state: TrainState, world) -> tuple[TrainState, dict]:
        """Does one PPO update.

        Args:
          state: the training state; donate it.
          world: scenario bank and dynamics parameters.

        Returns:
          The new state and scalar metrics by name.
        """
        layouts = (_LAYOUT, _layout(world)), (_LAYOUT, WHOLE)
        return self._on_devices(self._update, *layouts)(state, world)

    def _on_devices(self, function, in_specs, out_specs):
        # What is returned as the same on all devices is: it comes from the averages below.
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )

    def _groups(self):
        """Returns the numbers [G] of this device's groups."""
        count = self.config.groups // self.mesh.size
        return jax.lax.axis_index(AXIS) * count + jnp.arange(count)

    def _init(self, world, key):
        key, params_key, reset_key = jax.random.split(key, 3)
        num_envs, ids = self.config.num_envs // self.mesh.size, self._groups()
        keys = reset_keys(group_keys(reset_key, ids), num_envs)
        part = jnp.repeat(jnp.arange(len(ids)), num_envs // len(ids))
        env_state, observation = self.env.reset_many(world, keys, part, len(ids))
        memory = self.network.initial_memory(num_envs)
        params = self.network.init(params_key, observation, memory)
        state = TrainState(
            params=params,
            opt_state=self.optimiser.init(params),
            normaliser=Normaliser.create(self.env.observation_size),
            env_state=env_state,
            observation=observation,
            memory=memory,
            key=key,
            update=jnp.zeros((), jnp.int32),
        )
        return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)

    def _update(self, state, world):
        config, ids = self.config, self._groups()
        key, rollout_key, epoch_key = jax.random.split(state.key, 3)
        result = rollout(self.env, self.network, config, state, world, group_keys(rollout_key, ids))
        batch = self._batch(state, result.transitions)
        values = {"advantage": batch.advantage, "target": batch.value_target}
        moments = {name: (jnp.mean(value), jnp.mean(value**2)) for name, value in values.items()}
        measured, moments = jax.lax.pmean((result.measured, moments), AXIS)
        variance = {name: jnp.maximum(square - mean**2, 1e-8) for name, (mean, square) in moments.items()}
        advantage = (batch.advantage - moments["advantage"][0]) / jnp.sqrt(variance["advantage"])
        batch = batch._replace(advantage=advantage)
        share = jnp.minimum(state.update / config.updates, 1.0)
        entropy_weight = config.entropy_weight + share * (config.final_entropy_weight - config.entropy_weight)

        def epoch(carry, key):
            parts = group_minibatches(group_keys(key, ids), batch, config.minibatches)
            return jax.lax.scan(partial(self._minibatch, entropy_weight), carry, parts)

        carry = state.params, state.opt_state, jnp.zeros((), bool)
        (params, opt_state, _), losses = jax.lax.scan(
            epoch, carry, jax.random.split(epoch_key, config.epochs)
        )
        metrics = summary(measured) | {f"loss/{name}": jnp.mean(value) for name, value in losses.items()}
        metrics["loss/skipped"] = jnp.sum(losses["skipped"])
        metrics["loss/first_ratio_error"] = losses["ratio_error"][0, 0]
        metrics["loss/explained_variance"] = 1 - variance["advantage"] / variance["target"]
        metrics["policy/std"] = jnp.mean(jnp.exp(params["params"]["log_std"]))
        state = TrainState(
            params=params,
            opt_state=opt_state,
            normaliser=state.normaliser.update(result.transitions.observation, AXIS),
            env_state=result.env_state,
            observation=result.observation,
            memory=result.memory,
            key=key,
            update=state.update + 1,
        )
        return state, metrics

    def _batch(self, state, transitions) -> Batch:
        """Returns what the loss needs; advantages are not normalised yet."""
        advantage = gae(
            transitions.reward,
            transitions.value,
            transitions.next_value,
            transitions.terminated,
            transitions.truncated,
            self.config.discount,
            self.config.trace,
        )
        done = transitions.terminated | transitions.truncated
        return Batch(
            observation=state.normaliser(transitions.observation),
            start=jnp.roll(done, 1, axis=0).at[0].set(False),
            memory=None if state.memory is None else state.memory[None],
            noise=transitions.noise,
            raw_action=transitions.raw_action,
            log_prob=transitions.log_prob,
            value=transitions.value,
            advantage=advantage,
            value_target=advantage + transitions.value,
        )

    def _minibatch(self, entropy_weight, carry, batch):
        """Takes one gradient step, unless its gradient is not finite or the policy has moved too far."""
        params, opt_state, stopped = carry
        gradient = jax.grad(loss, has_aux=True)(params, self.network, self.config, batch, entropy_weight)
        grads, parts = jax.lax.pmean(gradient, AXIS)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(norm)
        if self.config.max_kl is not None:
            stopped |= parts["kl"] > self.config.max_kl
        updates, new_opt_state = self.optimiser.update(grads, opt_state, params)
        new_params = optax.apply_updates(params, updates)
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite & ~stopped, new, old),
            (new_params, new_opt_state),
            (params, opt_state),
        )
        counts = {"skipped": 1.0 - finite, "stopped": 1.0 * stopped}
        return (params, opt_state, stopped), parts | {"grad_norm": norm} | counts


def _layout(world):
    return world._replace(bank=SPREAD, dynamics=WHOLE)
