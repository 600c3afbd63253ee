"""Geometry of procedural worlds: paths, and maps of straight roads, junctions and roundabouts.

Traffic keeps right. A road edge has the road on its left, as in the Waymo Open Motion Dataset: the right-hand
curb runs with the traffic, the left-hand one against it, the curb of an island clockwise.
"""

from typing import NamedTuple

import numpy as np

from s3jax.scenarios.raw import CROSSWALK, STOP_SIGN, MapFeatures, stack_map

FREEWAY, STREET = 1, 2
BROKEN_WHITE, DOUBLE_YELLOW = 6, 12
BOUNDARY, MEDIAN = 15, 16

LANE_WIDTH = 3.6
SPACING = 0.5
"""Metres between the points of a path."""


def heading(path: np.ndarray) -> np.ndarray:
    """Returns the unwrapped heading [n] (rad) along a path [n, 2]."""
    way = np.empty_like(path, float)
    way[1:-1] = path[2:] - path[:-2]
    way[0], way[-1] = path[1] - path[0], path[-1] - path[-2]
    yaw = np.arctan2(way[:, 1], way[:, 0])
    # Most paths never cross the cut, and unwrapping is slow.
    return yaw if np.ptp(yaw) < np.pi else np.unwrap(yaw)


def resample(path: np.ndarray, spacing: float = SPACING) -> np.ndarray:
    """Returns the path [n, 2] at points `spacing` (m) apart, both ends kept."""
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    count = max(round(travelled[-1] / spacing), 1)
    at = np.linspace(0.0, travelled[-1], count + 1)
    return np.stack([np.interp(at, travelled, axis) for axis in path.T], axis=1)


def smooth(path: np.ndarray, reach: float = 2.0) -> np.ndarray:
    """Averages a path of `SPACING` over `reach` (m) to each side, so that its curvature has no jumps."""
    half = round(reach / SPACING)
    ends = [2 * path[:1] - path[half:0:-1], path, 2 * path[-1:] - path[-2 : -half - 2 : -1]]
    padded = np.concatenate(ends)
    kernel = np.full(2 * half + 1, 1 / (2 * half + 1))
    return resample(np.stack([np.convolve(axis, kernel, "valid") for axis in padded.T], axis=1))


def chain(sections, start=(0.0, 0.0), yaw: float = 0.0) -> np.ndarray:
    """Returns the path of sections (length m, curvature at its start, at its end); each is a clothoid."""
    curvature = np.concatenate(
        [np.linspace(a, b, round(length / SPACING), endpoint=False) for length, a, b in sections]
    )
    turned = yaw + np.concatenate([[0.0], np.cumsum(curvature[:-1] * SPACING)]) + curvature * SPACING / 2
    steps = SPACING * np.stack([np.cos(turned), np.sin(turned)], axis=1)
    return np.asarray(start) + np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])


def offset(path: np.ndarray, left) -> np.ndarray:
    """Shifts a path to the left by `left` (m), a number or one per point."""
    yaw = heading(path)
    return path + np.reshape(left, (-1, 1)) * np.stack([-np.sin(yaw), np.cos(yaw)], axis=1)


def connect(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Returns a path from the end of one to the start of another, close to an arc; cubic Hermite."""
    p, q = before[-1], after[0]
    a, b = heading(before)[-1], heading(after)[0]
    turn = abs((b - a + np.pi) % (2 * np.pi) - np.pi)
    chord = np.hypot(*(q - p))
    # Tangents of an arc of this turn and chord; for a straight joint, of the chord itself.
    size = chord if turn < 0.05 else 4 * np.tan(turn / 4) * chord / (2 * np.sin(turn / 2))
    u, v = size * np.array([np.cos(a), np.sin(a)]), size * np.array([np.cos(b), np.sin(b)])
    t = np.linspace(0, 1, max(int(2 * chord / SPACING), 3))[:, None]
    curve = (2 * t**3 - 3 * t**2 + 1) * p + (t**3 - 2 * t**2 + t) * u + (3 * t**2 - 2 * t**3) * q
    return resample(curve + (t**3 - t**2) * v)


def join(*paths) -> np.ndarray:
    """Joins paths that meet end to start."""
    return np.concatenate([paths[0], *(path[1:] for path in paths[1:])])


class Lane(NamedTuple):
    """A lane: its number in the map and its centre line [n, 2] in driving direction."""

    id: int
    path: np.ndarray


class Arm(NamedTuple):
    """A road that meets others: lanes towards the middle and away, from the road's middle outwards."""

    angle: float
    inbound: list[Lane]
    outbound: list[Lane]


class RoadMap:
    """A map in the making."""

    def __init__(self):
        self._points, self._types = [], []

    def add(self, path, kind: int) -> int:
        """Adds a feature of a type in `s3jax.scenarios.raw` numbering; returns its id."""
        self._points.append(np.asarray(path, float))
        self._types.append(kind)
        return len(self._types)

    def lane(self, path, kind: int = STREET) -> Lane:
        """Adds a lane."""
        return Lane(self.add(path, kind), path)

    def stop_sign(self, place) -> None:
        """Adds a stop sign at [2]."""
        self.add(np.reshape(place, (1, 2)), STOP_SIGN)

    def features(self) -> MapFeatures:
        """Returns the map; height is 0."""
        points = [np.pad(path, ((0, 0), (0, 1))) for path in self._points]
        return stack_map(points, self._types, list(range(1, len(points) + 1)))

    def two_way(
        self, centre, lanes: int, shoulder: float, kind: int = STREET
    ) -> tuple[list[Lane], list[Lane]]:
        """Adds a road along its middle; returns the lanes along and against it, from the middle outwards."""
        forward, backward = [], []
        for i in range(lanes):
            forward.append(self.lane(offset(centre, -(i + 0.5) * LANE_WIDTH), kind))
            backward.append(self.lane(offset(centre, (i + 0.5) * LANE_WIDTH)[::-1], kind))
            for side in (-1, 1) if i else ():
                self.add(offset(centre, side * i * LANE_WIDTH), BROKEN_WHITE)
        self.add(centre, DOUBLE_YELLOW)
        width = lanes * LANE_WIDTH + shoulder
        self.add(offset(centre, -width), BOUNDARY)
        self.add(offset(centre, width)[::-1], BOUNDARY)
        return forward, backward

    def one_way(self, left_edge, lanes: int, shoulder: float, narrow=0.0) -> list[Lane]:
        """Adds a carriageway from its left border; returns its lanes from left to right.

        Args:
          left_edge: [n, 2] left border of the leftmost lane.
          lanes: number of lanes.
          shoulder: from the outer lanes to the edges (m).
          narrow: how far the right edge comes in (m), a number or one per point.
        """
        made = [self.lane(offset(left_edge, -(i + 0.5) * LANE_WIDTH), FREEWAY) for i in range(lanes)]
        for i in range(1, lanes):
            self.add(offset(left_edge, -i * LANE_WIDTH), BROKEN_WHITE)
        self.add(offset(left_edge, shoulder)[::-1], MEDIAN)
        self.add(offset(left_edge, -(lanes * LANE_WIDTH + shoulder) + np.asarray(narrow)), BOUNDARY)
        return made

    def junction(self, angles, lanes: int, radius: float, length: float, shoulder: float) -> list[Arm]:
        """Adds arms at angles (rad, ascending) from `radius` on over `length`, and the curbs between them."""
        arms, curbs = self._arms(angles, lanes, radius, length, shoulder)
        for (into, _), (_, out) in zip(curbs, curbs[1:] + curbs[:1], strict=True):
            self.add(join(into, connect(into, out), out), BOUNDARY)
        return arms

    def roundabout(
        self, angles, island: float, length: float, shoulder: float
    ) -> tuple[list[Arm], np.ndarray]:
        """Adds a roundabout of one lane around an island of radius `island`.

        Returns:
          The arms and the middle of the circulating lane, counter-clockwise from angle 0 and closed.
        """
        middle, outer = island + shoulder + LANE_WIDTH / 2, island + 2 * shoulder + LANE_WIDTH
        arms, curbs = self._arms(angles, 1, outer + 14.0, length, shoulder)
        for i, (into, _) in enumerate(curbs):
            out = curbs[(i + 1) % len(curbs)][1]
            first, last = (
                angles[i] + 0.55,
                angles[i] + (angles[(i + 1) % len(angles)] - angles[i]) % (2 * np.pi) - 0.55,
            )
            arc = circle(outer, first, last)
            self.add(join(into, connect(into, arc), arc, connect(arc, out), out), BOUNDARY)
        self.add(circle(island, 0.0, 2 * np.pi)[::-1], MEDIAN)
        ring = circle(middle, 0.0, 2 * np.pi)
        self.lane(ring)
        return arms, ring

    def _arms(self, angles, lanes, radius, length, shoulder):
        arms, curbs = [], []
        for angle in angles:
            out = np.array([np.cos(angle), np.sin(angle)])
            centre = resample(np.stack([out * radius, out * (radius + length)]))
            inbound = [self.lane(offset(centre, (i + 0.5) * LANE_WIDTH)[::-1]) for i in range(lanes)]
            outbound = [self.lane(offset(centre, -(i + 0.5) * LANE_WIDTH)) for i in range(lanes)]
            self.add(centre, DOUBLE_YELLOW)
            width = lanes * LANE_WIDTH + shoulder
            corners = [
                offset(centre[near], side * width)[0] for near, side in ((slice(4, 6), 1), (slice(4, 6), -1))
            ]
            corners += [
                offset(centre[far], side * width)[0]
                for far, side in ((slice(10, 12), -1), (slice(10, 12), 1))
            ]
            self.add(np.array([*corners, corners[0]]), CROSSWALK)
            arms.append(Arm(float(angle), inbound, outbound))
            curbs.append((offset(centre, width)[::-1], offset(centre, -width)))
        return arms, curbs


def circle(radius: float, first: float, last: float) -> np.ndarray:
    """Returns an arc around the origin between two angles (rad), counter-clockwise."""
    angle = np.linspace(first, last, max(int(abs(last - first) * radius / SPACING), 3))
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
