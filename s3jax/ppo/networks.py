"""Actor and critic."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp


class MLP(nn.Module):
    """Dense layers with SiLU between them.

    Attributes:
      hidden: widths of the hidden layers.
      size: width of the output.
      output_scale: scale of the output layer's initial weights.
    """

    hidden: Sequence[int]
    size: int
    output_scale: float = 1.0

    @nn.compact
    def __call__(self, x):
        """Maps [..., D] to [..., size]."""
        for i, width in enumerate(self.hidden):
            x = nn.silu(nn.Dense(width, kernel_init=nn.initializers.orthogonal(2**0.5), name=f"dense_{i}")(x))
        init = nn.initializers.orthogonal(self.output_scale)
        return nn.Dense(self.size, kernel_init=init, name=f"dense_{len(self.hidden)}")(x)


class GRU(nn.Module):
    """A gated recurrent unit (Cho et al. 2014, arXiv 1406.1078) over time, its reset gate behind the product.

    Gates are in the order reset, update, candidate.

    Attributes:
      size: width of the memory, H.
    """

    size: int

    @nn.compact
    def __call__(self, x, memory, start):
        """Takes in a sequence.

        Args:
          x: [T, ..., D].
          memory: [..., H] before the first input.
          start: [T, ...] bool, where the memory is cleared before the input.

        Returns:
          [T, ..., H] memory after each input.
        """
        size, orthogonal = self.size, nn.initializers.orthogonal()
        gates = nn.Dense(3 * size, name="input")(x)
        kernel = self.param(
            "kernel",
            lambda key: jnp.concatenate([orthogonal(k, (size, size)) for k in jax.random.split(key, 3)], 1),
        )
        bias = self.param("bias", nn.initializers.zeros, (size,))

        def step(memory, inputs):
            gates, start = inputs
            memory = jnp.where(start[..., None], 0.0, memory)
            own = memory @ kernel
            reset, update = jnp.split(nn.sigmoid(gates[..., : 2 * size] + own[..., : 2 * size]), 2, -1)
            candidate = jnp.tanh(gates[..., 2 * size :] + reset * (own[..., 2 * size :] + bias))
            memory = (1 - update) * candidate + update * memory
            return memory, memory

        return jax.lax.scan(step, memory, (gates, start))[1]


class ActorCritic(nn.Module):
    """Separate actor and critic on normalised observations.

    The critic sees the whole observation, the actor its leading `policy_size` entries and, with a GRU, what
    it remembers of them. The critic reads that memory too, but does not shape it.

    Attributes:
      actor_hidden: widths of the actor's hidden layers.
      critic_hidden: widths of the critic's hidden layers.
      policy_size: entries of the observation that the actor sees.
      action_size: number of controls.
      memory_size: units of the GRU; 0 for none, and then every `memory` is None.
      initial_log_std: the policy's initial log standard deviation before the tanh.
    """

    actor_hidden: Sequence[int]
    critic_hidden: Sequence[int]
    policy_size: int
    action_size: int = 2
    memory_size: int = 0
    initial_log_std: float = -1.0

    def setup(self):
        if self.memory_size:
            self.gru = GRU(self.memory_size)
        self.actor = MLP(self.actor_hidden, self.action_size, output_scale=0.01)
        self.critic = MLP(self.critic_hidden, 1)
        init = nn.initializers.constant(self.initial_log_std)
        self.log_std = self.param("log_std", init, (self.action_size,))

    def initial_memory(self, *shape):
        """Returns the memory [*shape, H] at the start of an episode, or None."""
        return jnp.zeros((*shape, self.memory_size)) if self.memory_size else None

    def __call__(self, observation, memory):
        """Maps observations [..., D] and memory to mean, log std [..., A], value [...] and new memory."""
        features, after = self._remember(observation[None], memory, None)
        mean, log_std = self._act(features[0])
        after = None if after is None else after[0]
        return mean, log_std, self._judge(observation, after), after

    def unroll(self, observation, memory, start):
        """Maps a sequence [T, ..., D] and the memory before it to mean, log std [T, ..., A], value [T, ...].

        `start` [T, ...] says where an episode begins, other than at the first step.
        """
        features, after = self._remember(observation, memory, start)
        return *self._act(features), self._judge(observation, after)

    def value(self, observation, memory):
        """Returns the value [...] of observations [..., D] that follow `memory`."""
        after = self._remember(observation[None], memory, None)[1]
        return self._judge(observation, None if after is None else after[0])

    def _remember(self, observation, memory, start):
        """Returns what the actor acts on, and the memory, after each step."""
        seen = observation[..., : self.policy_size]
        if not self.memory_size:
            return seen, None
        start = jnp.zeros(seen.shape[:-1], bool) if start is None else start
        after = self.gru(seen, memory, start)
        return jnp.concatenate([seen, after], -1), after

    def _act(self, features):
        mean = self.actor(features)
        return mean, jnp.broadcast_to(self.log_std, mean.shape)

    def _judge(self, observation, memory):
        if memory is not None:
            observation = jnp.concatenate([observation, jax.lax.stop_gradient(memory)], -1)
        return self.critic(observation)[..., 0]
