"""Polylines: thinning, and distance to a path."""

import numpy as np
from scipy.spatial import KDTree


def simplify(points: np.ndarray, tolerance: float) -> np.ndarray:
    """Thins a polyline so that no dropped point is farther than `tolerance` (m) from what remains.

    Douglas and Peucker, "Algorithms for the reduction of the number of points required to represent a
    digitized line or its caricature", Cartographica 10 (1973).

    Args:
      points: [n, 2] with n >= 2.

    Returns:
      Indices of the points that remain, ascending, with both ends.
    """
    keep = {0, len(points) - 1}
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        inner = points[first + 1 : last]
        gap = _distance_to_segment(inner, points[first], points[last])
        worst = int(gap.argmax())
        if gap[worst] > tolerance:
            middle = first + 1 + worst
            keep.add(middle)
            spans += [(first, middle), (middle, last)]
    return np.array(sorted(keep))


def _distance_to_segment(points, start, end):
    step = end - start
    offset = points - start
    along = np.clip(offset @ step / max(step @ step, 1e-12), 0.0, 1.0)
    return np.hypot(*(offset - along[:, None] * step).T)


def distance_to_path(points: np.ndarray, path: np.ndarray, limit: float) -> np.ndarray:
    """Returns the distance (m) of points [n, 2] to the nearest vertex of a path [m, 2]; inf past `limit`."""
    return KDTree(path).query(points, distance_upper_bound=limit)[0]


def vertices(path: np.ndarray, spacing: float) -> np.ndarray:
    """Returns the vertices of a path [m, 2] thinned to about `spacing` (m), both ends included."""
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    marks = np.arange(0.0, travelled[-1] + spacing, spacing)
    return path[np.minimum(np.searchsorted(travelled, marks), len(path) - 1)]
