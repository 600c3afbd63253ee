"""PPO (Schulman et al. 2017, arXiv 1707.06347): rollout, advantages and epochs in one jitted update.

The update runs on every device of a mesh over that device's own environments and scenarios. Devices meet
in three places: the gradient of each minibatch, one average of the update's statistics, and one of the
observations' variance. Environments form fixed groups, each on one device with its own part of the
scenarios and its own random numbers, so that the number of devices does not change the algorithm.
"""

import dataclasses
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from s3jax.ppo.config import PPOConfig
from s3jax.ppo.devices import AXIS, SPREAD, WHOLE, check_groups, make_mesh
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


@dataclasses.dataclass(frozen=True)
class Learner:
    """PPO's static part: sizes, the environment, the devices.

    Attributes:
      config: PPO's configuration.
      env: the environment.
      mesh: devices over which environments and scenarios are spread.
      seeds: number of independent policies to train at once, each in its own environments; every leaf of
        the training state and of the metrics then has them as its first axis. None for one policy.

    Raises:
      ConfigError: if the groups cannot be spread evenly over the devices.
    """

    config: PPOConfig
    env: Any
    mesh: Mesh = dataclasses.field(default_factory=make_mesh)
    seeds: int | None = None

    def __post_init__(self):
        check_groups(self.config.groups, self.mesh)

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

    @cached_property
    def init(self):
        """`init(world, key) -> TrainState`, jitted: the state before the first update.

        `world` holds the scenario bank, spread over the devices, and the dynamics parameters; the number of
        scenarios is a multiple of `groups`.
        """

        def init(world, key):
            function = self._init
            if self.seeds is not None:
                key, function = jax.random.split(key, self.seeds), jax.vmap(function, (None, 0))
            return self._on_devices(function, (_parts(world), WHOLE), self._layout)(world, key)

        return jax.jit(init, out_shardings=self.shardings)

    @cached_property
    def update(self):
        """`update(state, world) -> (TrainState, metrics)`, jitted: one PPO update; it donates the state.

        The metrics are scalars by name.
        """

        def update(state, world):
            function = self._update if self.seeds is None else jax.vmap(self._update, (0, None))
            inputs, outputs = (self._layout, _parts(world)), (self._layout, WHOLE)
            return self._on_devices(function, inputs, outputs)(state, world)

        outputs = self.shardings, NamedSharding(self.mesh, WHOLE)
        return jax.jit(update, donate_argnums=0, out_shardings=outputs)

    @cached_property
    def restart(self):
        """`restart(state, world) -> TrainState`, jitted: new episodes everywhere, for another bank."""

        def restart(state, world):
            function = self._restart if self.seeds is None else jax.vmap(self._restart, (0, None))
            return self._on_devices(function, (self._layout, _parts(world)), self._layout)(state, world)

        return jax.jit(restart, donate_argnums=0, out_shardings=self.shardings)

    def abstract(self, world, key) -> TrainState:
        """Returns shapes, types and shardings of the training state, for a checkpoint to be restored into."""
        return jax.tree.map(
            lambda sharding, leaves: jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), leaves
            ),
            self.shardings,
            jax.eval_shape(self.init, world, key),
        )

    @property
    def shardings(self) -> TrainState:
        """Where the training state lies; a prefix of its tree."""
        return jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec),
            self._layout,
            is_leaf=lambda x: isinstance(x, PartitionSpec),
        )

    @property
    def _layout(self) -> TrainState:
        spread = SPREAD if self.seeds is None else PartitionSpec(None, AXIS)
        return TrainState(
            params=WHOLE,
            opt_state=WHOLE,
            normaliser=WHOLE,
            env_state=spread,
            observation=spread,
            memory=spread,
            key=WHOLE,
            update=WHOLE,
        )

    def _on_devices(self, function, inputs, outputs):
        # Not checked, because it is true by construction: what differs between devices meets in a mean.
        return jax.shard_map(function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

    def _groups(self):
        """Returns the numbers [G] of this device's groups."""
        count = self.config.groups // self.mesh.size
        return jax.lax.axis_index(AXIS) * count + jnp.arange(count)

    def _init(self, world, key):
        key, params_key, reset_key = jax.random.split(key, 3)
        env_state, observation, memory = self._begin(world, reset_key)
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

    def _restart(self, state, world):
        key, reset_key = jax.random.split(state.key)
        env_state, observation, memory = self._begin(world, reset_key)
        return state.replace(env_state=env_state, observation=observation, memory=memory, key=key)

    def _begin(self, world, key):
        """Returns the environments of this device at the start of episodes, and the policy's memory."""
        num_envs, ids = self.config.num_envs // self.mesh.size, self._groups()
        keys = reset_keys(group_keys(key, ids), num_envs)
        part = jnp.repeat(jnp.arange(len(ids)), num_envs // len(ids))
        env_state, observation = self.env.reset_many(world, keys, part, len(ids))
        return env_state, observation, self.network.initial_memory(num_envs)

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


def _parts(world):
    """Returns how what the environments share lies on the devices."""
    return world._replace(bank=SPREAD, dynamics=WHOLE)
