"""Sizes and coefficients of PPO."""

from pydantic import Field

from s3jax.config import Config


class PPOConfig(Config):
    """Sizes and coefficients of PPO."""

    num_envs: int = Field(1024, gt=0, description="over all devices")
    rollout: int = Field(32, gt=0, description="control steps per environment and update")
    updates: int = Field(600, gt=0)
    epochs: int = Field(3, gt=0)
    minibatches: int = Field(8, gt=0)
    groups: int = Field(8, gt=0, description="fixed shuffling groups; a multiple of the device count")
    actor_hidden: tuple[int, ...] = (64, 64)
    critic_hidden: tuple[int, ...] = (96, 96)
    memory: int = Field(0, ge=0, description="units of the policy's GRU; 0 for a policy without one")
    initial_log_std: float = -1.0
    learning_rate: float = Field(1e-3, gt=0)
    final_learning_rate: float = Field(5e-5, ge=0, description="reached linearly at the last update")
    discount: float = Field(0.97, gt=0, lt=1)
    trace: float = Field(0.95, ge=0, le=1, description="lambda of GAE")
    clip: float = Field(0.2, gt=0)
    value_clip: float | None = Field(None, gt=0, description="largest counted change of a value; none: any")
    value_weight: float = Field(0.5, ge=0)
    entropy_weight: float = Field(3e-4, ge=0)
    final_entropy_weight: float = Field(3e-4, ge=0, description="reached linearly at the last update")
    max_kl: float | None = Field(None, gt=0, description="ends an update's epochs beyond this; none: never")
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
