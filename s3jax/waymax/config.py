"""What training inside Waymax adds to the tracking task; needs no Waymax."""

from typing import Literal

from pydantic import Field

from s3jax.config import Config


class CostsConfig(Config):
    """Weights of Waymax's metrics of the ego car as costs, each time Waymax steps; 0 leaves a metric out."""

    overlap: float = Field(1.0, ge=0.0, description="for touching another road user")
    offroad: float = Field(1.0, ge=0.0, description="for a corner of the car beyond a road edge")
    log_divergence: float = Field(0.0, ge=0.0, description="per m from where the log is at that time")
    kinematic_infeasibility: float = Field(0.0, ge=0.0, description="for a motion no car can make")


class WaymaxConfig(Config):
    """The simulator's part of the task."""

    objects: int = Field(32, ge=1, le=128, description="road users kept, those that come nearest to the log")
    points: int = Field(2048, ge=1, description="road edge points kept, those nearest to the log's path")
    costs: CostsConfig = CostsConfig()
    terminate: tuple[Literal["overlap", "offroad", "kinematic_infeasibility"], ...] = Field(
        ("overlap", "offroad"), description="metrics that end an episode"
    )

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that have to be computed."""
        return tuple(
            name for name, weight in self.costs.dump().items() if weight > 0 or name in self.terminate
        )
