"""Road friction: a base value and polygonal patches.

Friction is a dimensionless multiplier of the tyre's peak grip: 1.0 is dry asphalt.
"""

from typing import Any, NamedTuple

import numpy as np

from s3jax.spatial.arrays import namespace

SURFACES = {"asphalt": 1.0, "wet": 0.7, "gravel": 0.6, "snow": 0.3, "ice": 0.1}
"""Friction multiplier of each named surface."""


class FrictionMap(NamedTuple):
    """Friction of a flat road.

    Attributes:
      base: [] multiplier outside every patch.
      polygons: [P, K, 2] patch corners x, y (m); a polygon with fewer than K corners repeats its last.
      values: [P] multiplier inside each patch. Where patches overlap, the later one counts.
    """

    base: Any
    polygons: Any
    values: Any


def friction_map(base=1.0, patches=()) -> FrictionMap:
    """Builds a NumPy friction map.

    Args:
      base: a multiplier or a name in `SURFACES`.
      patches: pairs of polygon ([K, 2] corners in m, K may differ) and multiplier or surface name.

    Raises:
      ValueError: for an unknown surface, a multiplier outside [0.01, 2] or a malformed polygon.
    """
    polygons = [np.asarray(polygon, float) for polygon, _ in patches]
    for i, polygon in enumerate(polygons):
        if polygon.ndim != 2 or polygon.shape[0] < 3 or polygon.shape[1] != 2:
            raise ValueError(f"friction patch {i}: expected [K >= 3, 2] corners, got shape {polygon.shape}")
        if not np.isfinite(polygon).all():
            raise ValueError(f"friction patch {i}: a corner is not finite")
    corners = max((len(polygon) for polygon in polygons), default=3)
    padded = [np.concatenate([p, np.repeat(p[-1:], corners - len(p), axis=0)]) for p in polygons]
    return FrictionMap(
        base=np.float64(friction_value(base)),
        polygons=np.stack(padded) if padded else np.zeros((0, corners, 2)),
        values=np.array([friction_value(value) for _, value in patches], float),
    )


def friction_value(surface) -> float:
    """Returns the multiplier for a surface name or a number.

    Raises:
      ValueError: for an unknown name or a number outside [0.01, 2].
    """
    if isinstance(surface, str):
        if surface not in SURFACES:
            raise ValueError(f"unknown surface {surface!r}; known: {', '.join(SURFACES)}")
        return SURFACES[surface]
    value = float(surface)
    if not 0.01 <= value <= 2.0:
        raise ValueError(f"friction {surface!r} is outside [0.01, 2]")
    return value


def friction_at(friction: FrictionMap, x, y):
    """Returns the multiplier at points.

    Args:
      friction: the map.
      x: [...] position (m).
      y: [...] position (m).

    Returns:
      [...] multiplier at each point.
    """
    xp = namespace(x, y, friction.polygons)
    x, y = xp.asarray(x), xp.asarray(y)
    if friction.polygons.shape[0] == 0:
        return xp.broadcast_to(xp.asarray(friction.base), x.shape)
    x0, y0 = friction.polygons[..., 0], friction.polygons[..., 1]
    x1, y1 = xp.roll(x0, -1, axis=-1), xp.roll(y0, -1, axis=-1)
    px, py = x[..., None, None], y[..., None, None]
    # Even-odd rule: count the edges that a ray towards +x crosses. A horizontal or repeated edge never does.
    rise = y1 - y0
    crosses = ((y0 > py) != (y1 > py)) & (px < x0 + (py - y0) * (x1 - x0) / xp.where(rise == 0, 1.0, rise))
    inside = xp.sum(crosses, axis=-1) % 2 == 1
    order = xp.arange(1, friction.values.shape[0] + 1)
    last = xp.max(xp.where(inside, order, 0), axis=-1)
    table = xp.concatenate([xp.reshape(xp.asarray(friction.base), (1,)), friction.values])
    return xp.take(table, last)
