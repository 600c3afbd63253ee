"""How well a reference was tracked: the same numbers in training and in the source simulator."""

from s3jax.spatial.arrays import namespace


def tracking_metrics(cross_track, heading, speed, control, mask, dt, pooled: bool = False) -> dict:
    """Summarises driven steps.

    Args:
      cross_track: [..., T] cross-track error (m).
      heading: [..., T] heading error (rad).
      speed: [..., T] speed error (m/s).
      control: [..., T, 2] steer and pedal in [-1, 1].
      mask: [..., T] which steps count; those that do are the first ones.
      dt: control step (s).
      pooled: summarise the steps of all drives together, each step counting the same.

    Returns:
      Name -> [...], or [] if pooled: `cross_track_rms`, `cross_track_max` (m), `heading_rms` (rad),
      `speed_rms` (m/s), and as the measure of smoothness `steer_rate_rms`, `pedal_rate_rms` (1/s): RMS
      change of a control per second.
    """
    xp = namespace(cross_track, control)
    axis = None if pooled else -1
    steps = xp.maximum(xp.sum(mask, axis=axis), 1)
    changes = mask[..., 1:]
    rate = (control[..., 1:, :] - control[..., :-1, :]) / dt

    def rms(values, where, count):
        return xp.sqrt(xp.sum(xp.where(where, values * values, 0.0), axis=axis) / count)

    moves = xp.maximum(xp.sum(changes, axis=axis), 1)
    return {
        "cross_track_rms": rms(cross_track, mask, steps),
        "cross_track_max": xp.max(xp.where(mask, xp.abs(cross_track), 0.0), axis=axis),
        "heading_rms": rms(heading, mask, steps),
        "speed_rms": rms(speed, mask, steps),
        "steer_rate_rms": rms(rate[..., 0], changes, moves),
        "pedal_rate_rms": rms(rate[..., 1], changes, moves),
    }
