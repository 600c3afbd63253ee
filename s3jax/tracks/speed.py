"""Speed along a path: as fast as grip, power and brakes allow."""

import numpy as np
from pydantic import Field

from s3jax.config import Config
from s3jax.spatial.friction import FrictionMap, friction_at
from s3jax.tracks.track import Track, point_at_arc


class SpeedLimits(Config):
    """What a car can do on friction 1, and how much of it a reference uses.

    Attributes:
      lateral: largest lateral acceleration (m/s^2).
      brake: largest deceleration (m/s^2).
      drive: largest acceleration (m/s^2).
      power: drive power per mass (W/kg).
      usage: share of all these that is used.
      slippery_drive: further share of the drive limit that is used as friction goes to zero.
      max_speed: (m/s). min_speed: (m/s), kept even where the limits ask for less.
      margin: distance by which low friction is respected ahead and behind (m).
    """

    lateral: float = Field(8.6, gt=0)
    brake: float = Field(8.0, gt=0)
    drive: float = Field(4.0, gt=0)
    power: float = Field(80.0, gt=0)
    usage: float = Field(0.85, gt=0, le=1.2)
    slippery_drive: float = Field(0.5, gt=0, le=1)
    max_speed: float = Field(45.0, gt=0)
    min_speed: float = Field(2.0, gt=0)
    margin: float = Field(5.0, ge=0)


DEFAULT_LIMITS = SpeedLimits()


def speed_profile(curvature, ds, friction=1.0, limits: SpeedLimits = DEFAULT_LIMITS, closed: bool = True):
    """Returns the fastest speed profile inside the friction circle; a forward and a backward pass.

    At each sample v^2 |curvature| <= lateral * friction * usage; what the circle leaves beside the lateral
    acceleration limits braking and driving. The grip of a stretch is the lower one of its two ends, so
    the car brakes before a patch and accelerates only behind it. (Kapania, Subosits and Gerdes, A sequential
    two-step algorithm for fast generation of vehicle racing trajectories, 2016, second step.)

    Args:
      curvature: [..., N] (1/m).
      ds: distance from each sample to the next (m).
      friction: multiplier, broadcast to [..., N].
      limits: of the car.
      closed: whether the last sample is followed by the first.

    Returns:
      [..., N] speed (m/s).
    """
    curvature = np.abs(np.asarray(curvature, float))
    friction = np.broadcast_to(np.asarray(friction, float), curvature.shape)
    grip = friction * limits.usage
    limit = np.minimum(limits.max_speed**2, limits.lateral * grip / np.maximum(curvature, 1e-6))
    limit = np.maximum(limit, limits.min_speed**2)
    count = curvature.shape[-1]
    # Samples first, so that each is one contiguous row of the batch.
    square, curvature, grip = (np.moveaxis(array, -1, 0).copy() for array in (limit, curvature, grip))
    gentle = np.moveaxis(
        limits.slippery_drive + (1 - limits.slippery_drive) * np.minimum(friction, 1.0), -1, 0
    )

    def left_over(i, here, weakest):
        lateral = here * curvature[i] / (limits.lateral * weakest)
        return np.sqrt(np.maximum(1.0 - np.minimum(lateral, 1.0) ** 2, 0.0))

    def pass_over(order, reach):
        for i, j in order:
            weakest = np.minimum(grip[i], grip[j])
            square[j] = np.minimum(square[j], square[i] + 2 * ds * reach(i, j, weakest))

    def braking(i, j, weakest):
        return limits.brake * weakest * left_over(i, square[i], weakest)

    def driving(i, j, weakest):
        force = np.minimum(limits.drive, limits.power / np.sqrt(square[i])) * limits.usage
        circle = limits.brake * weakest * left_over(i, square[i], weakest)
        return np.minimum(force, circle) * np.minimum(gentle[i], gentle[j])

    forward = [(i, i + 1) for i in range(count - 1)]
    backward = [(i + 1, i) for i in reversed(range(count - 1))]
    if closed:  # twice round, so that the start has seen the end
        forward = [*forward, (count - 1, 0), *forward]
        backward = [*backward, (0, count - 1), *backward]
    pass_over(backward, braking)
    pass_over(forward, driving)
    pass_over(backward, braking)
    return np.moveaxis(np.sqrt(square), 0, -1)


def track_friction(track: Track, friction: FrictionMap, margin: float = 5.0, half_width: float = 1.0):
    """Returns the lowest friction [N] that a car meets at each sample of the centre line.

    Args:
      track: the track.
      friction: the road's.
      margin: distance ahead and behind that counts (m).
      half_width: of the car (m).
    """
    lateral = np.array([-half_width, 0.0, half_width])[:, None]
    at = point_at_arc(track, track.s[None, :], lateral)
    lowest = friction_at(friction, at.x, at.y).min(axis=0)
    reach = int(np.ceil(margin / track.spacing))
    mode = "wrap" if track.closed else "edge"
    padded = np.pad(lowest, reach, mode=mode)
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).min(axis=-1)


def lap_speed(track: Track, friction: FrictionMap, limits: SpeedLimits = DEFAULT_LIMITS):
    """Returns the speed profile [N] (m/s) of a track under a friction map."""
    lowest = track_friction(track, friction, limits.margin)
    return speed_profile(track.curvature, track.spacing, lowest, limits, track.closed)
