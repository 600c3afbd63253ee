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
    """Returns the fastest speed profile of a car inside the friction circle.

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
    # Samples first, so that each is one contiguous row of the batch.
    square, curvature, grip = (np.moveaxis(array, -1, 0).copy() for array in (limit, curvature, grip))
    gentle = np.moveaxis(
        limits.slippery_drive + (1 - limits.slippery_drive) * np.minimum(friction, 1.0), -1, 0
    )

    def left_over(i, weakest):
        lateral = square[i] * curvature[i] / (limits.lateral * weakest)
        return limits.brake * weakest * np.sqrt(np.maximum(1.0 - np.minimum(lateral, 1.0) ** 2, 0.0))

    def braking(i, j):
        return left_over(i, np.minimum(grip[i], grip[j]))

    def driving(i, j):
        force = np.minimum(limits.drive, limits.power / np.sqrt(square[i])) * limits.usage
        circle = left_over(i, np.minimum(grip[i], grip[j]))
        return np.minimum(force, circle) * np.minimum(gentle[i], gentle[j])

    _pass_over(square, ds, braking, driving, closed)
    return np.moveaxis(np.sqrt(square), 0, -1)


def fastest_speed(
    limit, bend, grip, step: float, *, lateral, brake, accel, start, power=np.inf
) -> np.ndarray:
    """Returns the fastest speed profile of each of many open paths within speed limits, grip and comfort.

    Unlike `speed_profile`, every path has its own limits and the grip is an acceleration, the same in all
    directions.

    Args:
      limit: [S, N] speed limit at each node (m/s); 0 makes a stop.
      bend: [S, N] absolute curvature (1/m).
      grip: [S, N] largest acceleration in any direction (m/s^2).
      step: distance between nodes (m).
      lateral: [S] largest lateral acceleration (m/s^2). brake, accel: [S] largest along the path (m/s^2).
      start: [S] largest speed at the first node (m/s).
      power: per mass (W/kg): what limits acceleration at speed.

    Returns:
      [S, N] speed (m/s).
    """
    # Nodes first, so that each is one contiguous row of the batch.
    limit, bend, grip = (np.ascontiguousarray(values.T) for values in (limit, bend, grip))
    square = np.minimum(limit**2, np.minimum(grip, lateral) / np.maximum(bend, 1e-9))
    square[0] = np.minimum(square[0], start**2)

    def left_over(i):
        return np.sqrt(np.maximum(grip[i] ** 2 - (bend[i] * square[i]) ** 2, 0.0))

    def braking(i, j):
        return np.minimum(left_over(i), brake)

    def driving(i, j):
        return np.minimum(left_over(i), np.minimum(accel, power / np.sqrt(np.maximum(square[i], 1.0))))

    _pass_over(square, step, braking, driving, closed=False)
    return np.sqrt(square).T


def _pass_over(square, ds, braking, driving, closed) -> None:
    """Lowers squared speeds [N, ...] in place until braking and driving suffice to follow them.

    Once backwards and once forwards is enough: the second pass lowers no sample below the one before it, so
    nothing has to brake that did not before.

    Args:
      square: (m^2/s^2), at or below every limit of its own sample.
      ds: distance from each sample to the next (m).
      braking: `braking(i, j)` is the deceleration (m/s^2) by which a car that comes from j has the speed of i
        at i. driving: `driving(i, j)` is the acceleration from the speed at i towards j.
      closed: whether the last sample is followed by the first.
    """
    forward = [(i, i + 1) for i in range(len(square) - 1)]
    backward = [(j, i) for i, j in reversed(forward)]
    if closed:  # twice round, so that the start has seen the end
        forward = [*forward, (len(square) - 1, 0), *forward]
        backward = [*backward, (0, len(square) - 1), *backward]
    for order, reach in ((backward, braking), (forward, driving)):
        for i, j in order:
            square[j] = np.minimum(square[j], square[i] + 2 * ds * reach(i, j))


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
