"""Deep Dynamics Model: a single track whose coefficients a recurrent network estimates at every step.

The idea is that of J. Chrosniak, J. Ning and M. Behl, "Deep Dynamics: Vehicle Dynamics Modeling with a
Physics-Constrained Neural Network for Autonomous Racing", RA-L 9(6), 2024: a network reads the recent
motion and gives the coefficients of a Pacejka single track through guard ranges. Here the single track has
load transfer, combined slip and a braking law of its own, peak grip is proportional to friction and load,
inertia and lags are constants, and the network is recurrent, so that a step costs one cell.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import pydantic

from s3jax.dynamics import actuators, layers, single_track
from s3jax.dynamics.base import DynamicsConfig, guard_logits, guard_values
from s3jax.dynamics.single_track import GUARDS, SingleTrack, VehicleConfig, advance
from s3jax.spatial.state import VehicleState

ESTIMATED = (*single_track.TYRES, "drive", "power", "brake", "creep", "engine_brake")
"""Coefficients that the network moves; the rest of `single_track.GUARDS` are constants."""


class DdmConfig(DynamicsConfig):
    """Configuration of the Deep Dynamics Model.

    Attributes:
      vehicle: the data sheet.
      substep: upper bound of the integration step (s).
      hidden: size of the recurrent state.
      dense: size of the layer that reads it.
      prior: weight of the penalty that holds the estimates near the constants.
    """

    kind: Literal["ddm"] = "ddm"
    vehicle: VehicleConfig = VehicleConfig()
    substep: float = pydantic.Field(0.0125, gt=0.0, le=0.02)
    hidden: int = pydantic.Field(48, ge=1)
    dense: int = pydantic.Field(64, ge=1)
    prior: float = pydantic.Field(1e-3, ge=0.0)

    def make(self) -> "Ddm":
        """Returns the model."""
        return Ddm(self)


class Carry(NamedTuple):
    """State, the one before it, pedals and the recurrent state [hidden]."""

    state: VehicleState
    before: VehicleState
    pedals: actuators.Pedals
    hidden: jnp.ndarray


class Ddm(SingleTrack):
    """Single track with estimated coefficients."""

    def init(self, key):
        """Returns the single track's constants and a network that leaves them as they are, nearly."""
        keys = jax.random.split(key, 3)
        hidden, dense = self.config.hidden, self.config.dense
        return {
            "constants": guard_logits(GUARDS),
            "scale": layers.scale_init(),
            "gru": layers.gru_init(keys[0], layers.FEATURES, hidden),
            "dense": layers.dense_init(keys[1], hidden, dense),
            "offsets": layers.dense_init(keys[2], dense, len(ESTIMATED), scale=0.1),
        }

    def calibrate(self, params, statistics):
        """Sets the scale of the network's inputs."""
        return {**params, "scale": layers.scale_init(statistics)}

    def cold(self, params, state):
        """Returns the carry with the pedals up and an empty memory."""
        hidden = jnp.zeros(self.config.hidden, jnp.result_type(float))
        return Carry(state, state, actuators.released(), hidden)

    def estimate(self, params, carry, control, friction):
        """Returns the next recurrent state and the logit offsets [len(ESTIMATED)] of the coefficients."""
        seen = layers.features(params["scale"], carry.before, carry.state, control, friction, self.dt)
        hidden = layers.gru(params["gru"], carry.hidden, seen)
        return hidden, self.offsets(params, hidden)

    def offsets(self, params, hidden):
        """Returns the logit offsets [len(ESTIMATED)] that a recurrent state [hidden] means."""
        return layers.dense(params["offsets"], jax.nn.silu(layers.dense(params["dense"], hidden)))

    def coefficients(self, params, offsets) -> dict:
        """Returns the coefficients by name, inside their guard ranges."""
        logits = dict(params["constants"])
        for i, name in enumerate(ESTIMATED):
            logits[name] = logits[name] + offsets[i]
        return guard_values(GUARDS, logits)

    def step(self, params, carry, control, friction):
        """Advances one control step, with coefficients estimated once and held over it."""
        hidden, offsets = self.estimate(params, carry, control, friction)
        values = self.coefficients(params, offsets)
        state, pedals = advance(self.config, values, carry.state, carry.pedals, control, friction)
        return Carry(state, carry.state, pedals, hidden), state

    def penalty(self, params, carry):
        """Returns the prior's penalty: how far the estimates are from the constants."""
        return self.config.prior * jnp.mean(self.offsets(params, carry.hidden) ** 2)

    def describe(self, params):
        """Returns the fitted constants by name."""
        return super().describe(params["constants"])
