"""The parts of an observation: what the policy sees, then what only the critic does."""

import jax.numpy as jnp

from s3jax.env.config import EnvConfig
from s3jax.env.perturbation import Perturbation

Parts = dict[str, tuple[int, str]]

NEIGHBOUR_FIELDS = ("x", "y", "cos yaw", "sin yaw", "vx", "vy", "length", "width", "present")
"""What a car sees of another, in its own body frame: place (m), heading, velocity relative to its own (m/s),
size (m). All 0 where there is none."""

_BODY = ("vx", "vy", "yaw_rate", "steer_angle")


def policy_parts(config: EnvConfig) -> Parts:
    """Returns name -> (size, meaning) of each part that the policy sees, in order."""
    parts = config.observation.parts()
    if config.cars > 1:
        size = len(NEIGHBOUR_FIELDS) * config.traffic.neighbours
        parts |= {
            "own_size": (2, "length and width (m)"),
            "neighbours": (size, "nearest first, in the body frame: " + ", ".join(NEIGHBOUR_FIELDS)),
        }
    return parts | (_oracle_parts(config) if config.oracle == "policy" else {})


def critic_parts(config: EnvConfig) -> Parts:
    """Returns name -> (size, meaning) of each part that follows and that only the critic sees."""
    return _oracle_parts(config) if config.oracle == "critic" else {}


def size(parts: Parts) -> int:
    """Returns the number of entries of the parts."""
    return sum(count for count, _ in parts.values())


def _oracle_parts(config) -> Parts:
    preview = config.observation.preview
    return {
        "oracle_friction": (
            2 + preview,
            "true friction under the front and rear axle and at the points ahead",
        ),
        "oracle_error": (3, "cross-track (m), heading (rad) and speed (m/s) error without noise"),
        "oracle_body": (4, ", ".join(_BODY) + " without noise (m/s, rad/s, rad)"),
        "oracle_control": (2, "steer and pedal behind the delay and the lag"),
        "oracle_deviations": (len(Perturbation._fields), ", ".join(Perturbation._fields)),
    }


def oracle(friction, ahead, error, state):
    """Builds the oracle part.

    Args:
      friction: [2] under the axles. ahead: [preview] at the preview points.
      error: the true tracking error.
      state: the `EnvState`.
    """
    return jnp.concatenate(
        [
            friction,
            ahead,
            jnp.stack(error),
            jnp.stack([getattr(state.vehicle, name) for name in _BODY]),
            state.held,
            jnp.stack(state.perturbation),
        ]
    )
