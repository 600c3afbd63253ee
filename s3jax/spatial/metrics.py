"""How well a reference was tracked: the same numbers in training and in the source simulator."""

from s3jax.spatial.arrays import namespace


def tracking_metrics(cross_track, heading, speed, control, mask, dt) -> dict:
    """Summarises driven steps.

    Args:
      cross_track: [..., T] cross-track error (m).
      heading: [..., T] heading error (rad).
      speed: [..., T] speed error (m/s).
      control: [..., T, 2] steer and pedal in [-1, 1].
      mask: [..., T] which steps count; those that do are the first ones.
      dt: control step (s).

    Returns:
      Name -> [...]: `cross_track_rms`, `cross_track_max` (m), `heading_rms` (rad), `speed_rms` (m/s), and
      as the measure of smoothness `steer_rate_rms`, `pedal_rate_rms` (1/s): RMS change of a control per
      second.
    """
    xp = namespace(cross_track, control)
    steps = xp.maximum(xp.sum(mask, axis=-1), 1)
    changes = mask[..., 1:]
    rate = (control[..., 1:, :] - control[..., :-1, :]) / dt

    def rms(values, where, count):
        return xp.sqrt(xp.sum(xp.where(where, values * values, 0.0), axis=-1) / count)

    moves = xp.maximum(xp.sum(changes, axis=-1), 1)
    return {
        "cross_track_rms": rms(cross_track, mask, steps),
        "cross_track_max": xp.max(xp.where(mask, xp.abs(cross_track), 0.0), axis=-1),
        "heading_rms": rms(heading, mask, steps),
        "speed_rms": rms(speed, mask, steps),
        "steer_rate_rms": rms(rate[..., 0], changes, moves),
        "pedal_rate_rms": rms(rate[..., 1], changes, moves),
    }
