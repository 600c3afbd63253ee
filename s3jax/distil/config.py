"""Configuration of the distillation stage."""

import pydantic

from s3jax.config import Config
from s3jax.dynamics.base import DynamicsConfig
from s3jax.dynamics.store import dynamics_config


class LossConfig(Config):
    """Errors that count as one.

    Attributes:
      speed: of vx (m/s).
      side: of vy (m/s).
      yaw_rate: (rad/s).
      steer_angle: (rad).
      position: (m).
      one_step: share of all these that counts as one in predictions of one step, during the warm-up.
    """

    speed: float = pydantic.Field(0.5, gt=0)
    side: float = pydantic.Field(0.3, gt=0)
    yaw_rate: float = pydantic.Field(0.1, gt=0)
    steer_angle: float = pydantic.Field(0.03, gt=0)
    position: float = pydantic.Field(0.5, gt=0)
    one_step: float = pydantic.Field(0.1, gt=0)


class DistilConfig(Config):
    """Configuration of a distillation. The same recipe fits every model.

    Attributes:
      models: configurations of the models, each with its `kind`, fitted one after the other. A residual or
        ensemble model starts from its base, which must come before it or be in the output directory.
      loss: scales of the loss.
      seed: of everything random.
      steps: parameter updates of each model.
      batch: windows per update.
      warmup: true steps before a prediction.
      horizons: predicted steps, a curriculum in equal parts of `steps`.
      learning_rate: peak, of the networks.
      constant_rate: peak, of the physical constants.
      weight_decay: of the networks' weights.
      clip: bound on the gradient's norm.
      noise: on the history, in units of the loss scales.
      withheld: share of windows in which friction is withheld.
      cold: share of windows that start without a history.
      validation: fraction of the episodes that select the best parameters.
      test: fraction of the episodes that only the evaluation sees.
      reserved: tracks that only the evaluation sees, all of their episodes.
      evaluate_every: updates between validations, each followed by a checkpoint.
      patience: validations without improvement after which training stops; 0 never stops.
    """

    models: tuple[pydantic.SerializeAsAny[DynamicsConfig], ...] = pydantic.Field(
        ({"kind": "bicycle"}, {"kind": "ddm"}), min_length=1
    )
    loss: LossConfig = LossConfig()
    seed: int = 0
    steps: int = pydantic.Field(1500, ge=1)
    batch: int = pydantic.Field(128, ge=1)
    warmup: int = pydantic.Field(20, ge=1)
    horizons: tuple[int, ...] = pydantic.Field((20,), min_length=1)
    learning_rate: float = pydantic.Field(2e-3, gt=0)
    constant_rate: float = pydantic.Field(2e-2, gt=0)
    weight_decay: float = pydantic.Field(1e-4, ge=0)
    clip: float = pydantic.Field(1.0, gt=0)
    noise: float = pydantic.Field(0.01, ge=0)
    withheld: float = pydantic.Field(0.35, ge=0, le=1)
    cold: float = pydantic.Field(0.25, ge=0, le=1)
    validation: float = pydantic.Field(0.1, gt=0, lt=0.5)
    test: float = pydantic.Field(0.15, gt=0, lt=0.5)
    reserved: tuple[str, ...] = ("esses",)
    evaluate_every: int = pydantic.Field(150, ge=1)
    patience: int = pydantic.Field(0, ge=0)

    @pydantic.field_validator("models", mode="before")
    @classmethod
    def _by_kind(cls, models):
        if not isinstance(models, list | tuple):
            raise ValueError(f"expected a list of models, such as [{{kind: ddm}}], got {models!r}")
        return [dynamics_config(m, f"model {i}") if isinstance(m, dict) else m for i, m in enumerate(models)]

    @pydantic.model_validator(mode="after")
    def _consistent(self):
        if min(self.horizons) < 1:
            raise ValueError(f"horizons: each is at least 1 step, got {list(self.horizons)}")
        if len({model.name for model in self.models}) != len(self.models):
            raise ValueError(f"models: two have the same name in {[model.name for model in self.models]}")
        if len({model.dt for model in self.models}) != 1:
            raise ValueError(f"models: they differ in dt: {[model.dt for model in self.models]}")
        return self

    @property
    def dt(self) -> float:
        """Control step of the models (s)."""
        return self.models[0].dt
