"""From a policy's action to a control."""

from s3jax.spatial.arrays import namespace


def apply_action(previous, action, rate, dt):
    """Moves a control at a bounded rate.

    A policy commands rates, not positions, so that its controls are continuous in time whatever it outputs
    and its exploration is correlated from step to step.

    Args:
      previous: [2] steer, pedal in [-1, 1].
      action: [2] in [-1, 1].
      rate: [2] change per second at full action.
      dt: control step (s).

    Returns:
      [2] the next control, in [-1, 1].
    """
    xp = namespace(previous, action)
    return xp.clip(previous + xp.clip(action, -1.0, 1.0) * xp.asarray(rate) * dt, -1.0, 1.0)
