"""Overlap and off-road tests on boxes, as the public driving benchmarks define them."""

import numpy as np

_CORNERS = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) / 2


def corners(boxes: np.ndarray) -> np.ndarray:
    """Returns the corners [..., 4, 2] of boxes [..., 5]: x, y (m), yaw (rad), length, width (m)."""
    x, y, yaw, length, width = np.moveaxis(boxes, -1, 0)[..., None]
    along, across = _CORNERS[:, 0] * length, _CORNERS[:, 1] * width
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.stack([x + cos * along - sin * across, y + sin * along + cos * across], axis=-1)


def overlap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns whether boxes [..., 5] overlap boxes [..., 5] (broadcast); touching does not count.

    Two rectangles are apart exactly if an axis of one of them separates them (separating axis theorem).
    """
    one, other = np.broadcast_arrays(one, other)
    first, second = corners(one), corners(other)
    apart = np.zeros(one.shape[:-1], bool)
    for yaw in (one[..., 2], other[..., 2]):
        for angle in (yaw, yaw + np.pi / 2):
            axis = np.stack([np.cos(angle), np.sin(angle)], axis=-1)[..., None]
            a, b = (first @ axis)[..., 0], (second @ axis)[..., 0]
            apart |= (a.max(axis=-1) <= b.min(axis=-1)) | (b.max(axis=-1) <= a.min(axis=-1))
    return ~apart


def off_road(boxes: np.ndarray, edges: np.ndarray, reach: float = 30.0) -> np.ndarray:
    """Returns whether a corner of a box lies beyond the nearest road edge.

    Args:
      boxes: [..., 5].
      edges: [E, 4] segments x0, y0, x1, y1 (m) with the road on their left.
      reach: a corner farther than this from every edge (m) counts as on the road.

    Returns:
      [...] bool.
    """
    if len(edges) == 0:
        return np.zeros(boxes.shape[:-1], bool)
    points = corners(boxes).reshape(-1, 1, 2)
    start, step = edges[:, :2], edges[:, 2:] - edges[:, :2]
    length = np.maximum(np.hypot(*step.T), 1e-9)
    gap = points - start
    along = np.clip((gap * step).sum(axis=-1) / length**2, 0.0, 1.0)
    nearest = np.hypot(*np.moveaxis(gap - along[..., None] * step, -1, 0))
    side = (step[:, 0] * gap[..., 1] - step[:, 1] * gap[..., 0]) / length
    # At a corner of the edge line two segments are equally near; the one seen more squarely knows the side.
    best = np.lexsort((-np.abs(side), np.round(nearest, 6)), axis=-1)[:, 0]
    rows = np.arange(len(best))
    outside = (side[rows, best] < 0) & (nearest[rows, best] < reach)
    return outside.reshape(*boxes.shape[:-1], 4).any(axis=-1)
