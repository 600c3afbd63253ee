"""Speed along many paths at once: the fastest within the limits of speed, grip and comfort."""

import numpy as np


def fastest_speed(
    limit, bend, grip, step: float, *, lateral, brake, accel, start, power=np.inf
) -> np.ndarray:
    """Returns the fastest speed profile of each path: a pass backwards for braking, one forwards for
    acceleration.

    Grip is a friction circle: what a bend takes is not there for braking or acceleration.

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
    # Nodes first: every step of the passes then works on contiguous rows.
    limit, bend, grip = (np.ascontiguousarray(values.T) for values in (limit, bend, grip))
    square = np.minimum(limit**2, np.minimum(grip, lateral) / np.maximum(bend, 1e-9))
    for node in range(len(square) - 2, -1, -1):
        rest = np.minimum(_left(grip[node + 1], bend[node + 1], square[node + 1]), brake)
        square[node] = np.minimum(square[node], square[node + 1] + 2 * step * rest)
    square[0] = np.minimum(square[0], start**2)
    for node in range(1, len(square)):
        before = square[node - 1]
        engine = np.minimum(accel, power / np.sqrt(np.maximum(before, 1.0)))
        rest = np.minimum(_left(grip[node - 1], bend[node - 1], before), engine)
        square[node] = np.minimum(square[node], before + 2 * step * rest)
    return np.sqrt(square).T


def _left(grip, bend, square):
    """What the friction circle leaves for braking or acceleration (m/s^2)."""
    return np.sqrt(np.maximum(grip**2 - (bend * square) ** 2, 0.0))
