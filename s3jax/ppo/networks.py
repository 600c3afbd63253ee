"""Actor and critic."""

from collections.abc import Sequence

import flax.linen as nn
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


class ActorCritic(nn.Module):
    """Separate actor and critic on normalised observations.

    Attributes:
      actor_hidden: widths of the actor's hidden layers.
      critic_hidden: widths of the critic's hidden layers.
      action_size: number of controls.
      initial_log_std: the policy's initial log standard deviation before the tanh.
    """

    actor_hidden: Sequence[int]
    critic_hidden: Sequence[int]
    action_size: int = 2
    initial_log_std: float = -1.0

    def setup(self):
        self.actor = MLP(self.actor_hidden, self.action_size, output_scale=0.01)
        self.critic = MLP(self.critic_hidden, 1)
        init = nn.initializers.constant(self.initial_log_std)
        self.log_std = self.param("log_std", init, (self.action_size,))

    def __call__(self, observation):
        """Maps observations [..., D] to mean [..., A], log std [..., A] and value [...]."""
        mean, log_std = self.policy(observation)
        return mean, log_std, self.value(observation)

    def policy(self, observation):
        """Maps observations [..., D] to the mean and log std [..., A] of the raw action."""
        mean = self.actor(observation)
        return mean, jnp.broadcast_to(self.log_std, mean.shape)

    def value(self, observation):
        """Maps observations [..., D] to values [...]."""
        return self.critic(observation)[..., 0]
