"""The tracking task's configuration."""

from typing import Literal

from pydantic import Field, model_validator

from s3jax.config import Config
from s3jax.spatial.observation import ObservationSpec
from s3jax.waymax.config import WaymaxConfig

Range = tuple[float, float]


class StartConfig(Config):
    """How a car is placed at the start of an episode. Deviations are uniform in [-value, value]."""

    along: float = Field(
        0.7, ge=0.0, le=1.0, description="start anywhere in this leading share of the scenario"
    )
    cross_track: float = Field(0.5, ge=0.0, description="m")
    heading: float = Field(0.08, ge=0.0, description="rad")
    speed: float = Field(2.0, ge=0.0, description="m/s")


class RandomisationConfig(Config):
    """What differs from the distilled car within an episode, each uniform in its range.

    Without the delay a policy learns gains that the distilled car just bears and the source does not: at
    45 m/s it weaves. The last two scale a model's physical constants (`s3jax.env.perturbation`) and are
    refused with a model that has none.
    """

    steer_gain: Range = (0.85, 1.15)
    steer_bias: Range = (-0.01, 0.01)
    pedal_gain: Range = (0.9, 1.1)
    friction_gain: Range = (0.8, 1.1)
    delay: Range = Field((0.0, 1.0), description="of the control, in control steps, at most 1")
    lag: Range = Field((0.0, 0.0), description="time constant of a first-order lag of the control (s)")
    mass: Range = Field((1.0, 1.0), description="of the car / that of the distilled one")
    stiffness: Range = Field((1.0, 1.0), description="cornering stiffness / that of the distilled tyres")

    def model_post_init(self, _):
        """Checks the ranges.

        Raises:
          ValueError: with the remedy.
        """
        for name, (low, high) in self:
            if low > high:
                raise ValueError(f"{name} = ({low}, {high}): the lower bound comes first")
        for name in ("steer_gain", "pedal_gain", "friction_gain", "mass", "stiffness"):
            if getattr(self, name)[0] <= 0:
                raise ValueError(f"{name}: a factor has to be above 0")
        if self.lag[0] < 0 or self.delay[0] < 0 or self.delay[1] > 1:
            raise ValueError("lag has to be at least 0 and delay within [0, 1]")


class NoiseConfig(Config):
    """Standard deviations of what the sensors add to the car's state, drawn anew at every step.

    All of an observation but the true controls is made of the sensed state, so its parts agree.
    """

    position: float = Field(0.0, ge=0.0, description="of x and of y (m)")
    heading: float = Field(0.0, ge=0.0, description="rad")
    velocity: float = Field(0.0, ge=0.0, description="of vx and of vy (m/s)")
    yaw_rate: float = Field(0.0, ge=0.0, description="rad/s")
    steer_angle: float = Field(0.0, ge=0.0, description="rad")

    @property
    def scales(self) -> tuple[float, ...]:
        """Standard deviations in the order of the fields of `VehicleState`."""
        return (
            self.position, self.position, self.heading, self.velocity, self.velocity, self.yaw_rate,
            self.steer_angle,
        )  # fmt: skip


class RewardConfig(Config):
    """Weights of the reward: 1 for each step survived, less these costs."""

    cross_track: float = Field(2.0, ge=0.0, description="per m")
    heading: float = Field(0.5, ge=0.0, description="per rad")
    speed: float = Field(0.25, ge=0.0, description="per m/s")
    steer_rate: float = Field(0.1, ge=0.0, description="per (1/s)^2")
    pedal_rate: float = Field(0.01, ge=0.0, description="per (1/s)^2")
    collision: float = Field(1.0, ge=0.0, description="once, to each car that hits or is hit")


class TerminationConfig(Config):
    """Bounds that end an episode."""

    cross_track: float = Field(3.5, gt=0.0, description="m")
    heading: float = Field(1.2, gt=0.0, description="rad")
    disagreement: float = Field(1.0, gt=0.0, description="in units of `s3jax.dynamics.ensemble.SCALES`")
    steps: int = Field(240, gt=0, description="control steps after which an episode is truncated")


class TrafficConfig(Config):
    """How cars that share a world meet; only used with several."""

    length: Range = Field((4.2, 5.2), description="of a car's box (m), uniform")
    width: Range = Field((1.8, 2.1), description="of a car's box (m), uniform")

    neighbours: int = Field(4, gt=0, description="nearest cars that a car sees")
    sight: float = Field(50.0, gt=0.0, description="cars farther away are not seen (m)")
    candidates: int = Field(8, gt=0, description="places among which an entering car takes the clearest")
    clearance: float = Field(3.0, ge=0.0, description="least gap to any car then and 1 s later (m)")


class EnvConfig(Config):
    """The tracking task. `env: waymax` in a file, or `env=waymax`, is short for its `kind`."""

    kind: Literal["tracking", "waymax"] = Field("tracking", description="waymax: inside Waymax itself")
    observation: ObservationSpec = ObservationSpec()
    surface_dropout: float = Field(
        0.0, ge=0.0, le=1.0, description="share of episodes whose policy is not told the surface"
    )
    oracle: Literal["none", "critic", "policy"] = Field(
        "none", description="who sees the true friction, state and deviations: nobody, the critic, or both"
    )
    noise: NoiseConfig = NoiseConfig()
    control_rate: Range = Field((3.0, 4.0), description="change of steer and pedal at full action (1/s)")
    axles: Range = Field((1.29, -1.41), description="front and rear axle ahead of the centre of gravity (m)")
    cars: int = Field(1, ge=1, description="controlled cars per world")
    traffic: TrafficConfig = TrafficConfig()
    start: StartConfig = StartConfig()
    randomisation: RandomisationConfig = RandomisationConfig()
    reward: RewardConfig = RewardConfig()
    termination: TerminationConfig = TerminationConfig()
    waymax: WaymaxConfig = Field(WaymaxConfig(), description="what kind waymax adds")

    @model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, values):
        return {"kind": values} if isinstance(values, str) else values
