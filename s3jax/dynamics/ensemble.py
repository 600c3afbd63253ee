"""Ensemble: several fits of one model. A car is one member; where they disagree, none is to be trusted."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import pydantic

from s3jax.dynamics.base import Dynamics, DynamicsConfig
from s3jax.dynamics.store import dynamics_config
from s3jax.spatial.state import VehicleState

SCALES = (0.5, 0.3, 0.1)
"""Spread of vx, vy (m/s) and yaw rate (rad/s) after one step that each counts as a disagreement of one."""


class EnsembleConfig(DynamicsConfig):
    """Configuration of an ensemble.

    Attributes:
      member: configuration of every member.
      size: number of members.
    """

    kind: Literal["ensemble"] = "ensemble"
    member: pydantic.SerializeAsAny[DynamicsConfig] = pydantic.Field({"kind": "ddm"})
    size: int = pydantic.Field(4, ge=2, le=64)

    @pydantic.field_validator("member", mode="before")
    @classmethod
    def _by_kind(cls, value):
        return dynamics_config(value, "member") if isinstance(value, dict) else value

    @pydantic.model_validator(mode="after")
    def _same_dt(self):
        if self.member.dt != self.dt:
            raise ValueError(f"member: has dt {self.member.dt}, the ensemble {self.dt}")
        return self

    @property
    def name(self) -> str:
        """`ensemble_` and the name of a member."""
        return f"ensemble_{self.member.name}"

    def make(self) -> "Ensemble":
        """Returns the model."""
        return Ensemble(self)


class Carry(NamedTuple):
    """State, the member [] that the car is, the members' carries [size, ...] and their disagreement []."""

    state: VehicleState
    member: jnp.ndarray
    carries: NamedTuple
    spread: jnp.ndarray


class Ensemble(Dynamics):
    """All members see the same motion, that of the member which the car is.

    Every member predicts at every step, which is what the disagreement costs. Parameters are those of a
    member with one more leading axis.
    """

    @property
    def member(self) -> Dynamics:
        """The model of every member."""
        return self.config.member.make()

    def init(self, key):
        """Returns independent fresh members."""
        return jax.vmap(self.member.init)(jax.random.split(key, self.config.size))

    def calibrate(self, params, statistics):
        """Calibrates every member."""
        return jax.vmap(lambda member: self.member.calibrate(member, statistics))(params)

    def cold(self, params, state):
        """Returns the carry of a car that is the first member."""
        carries = jax.vmap(lambda member: self.member.cold(member, state))(params)
        return Carry(state, jnp.zeros((), jnp.int32), carries, jnp.zeros((), jnp.result_type(float)))

    def draw(self, carry, key):
        """Makes the car a random member."""
        return carry._replace(member=jax.random.randint(key, (), 0, self.config.size))

    def step(self, params, carry, control, friction):
        """Advances one control step."""

        def one(member, memory):
            return self.member.step(member, memory._replace(state=carry.state), control, friction)

        carries, states = jax.vmap(one)(params, carry.carries)
        state = jax.tree.map(lambda field: field[carry.member], states)
        body = jnp.stack([states.vx, states.vy, states.yaw_rate], axis=-1)
        spread = jnp.mean(jnp.std(body / jnp.array(SCALES), axis=0))
        return Carry(state, carry.member, carries, spread), state

    def disagreement(self, carry):
        """Returns the mean standard deviation of the members' last predictions, in units of `SCALES`."""
        return carry.spread

    def describe(self, params):
        """Returns the mean of the members' fitted constants."""
        members = [self.member.describe(self.part(params, i)) for i in range(self.config.size)]
        return {name: sum(member[name] for member in members) / len(members) for name in members[0]}

    def part(self, params, i: int):
        """Returns the parameters of member i."""
        return jax.tree.map(lambda leaf: leaf[i], params)
