from pathlib import Path

import numpy as np
import pytest

from s3jax.tracks import point_at_arc, project, putnam_park

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "putnam"
CHICANE = (2185.0, 2340.0)
"""Arc lengths between which the surveys follow the Times Square chicane, and we the classic course."""


def boundaries():
    inner, outer = (
        np.loadtxt(FOLDER / f"putnam_{side}_bound.csv", delimiter=",") for side in ("inner", "outer")
    )
    inner, outer = inner[::4, :2], outer[:, :2]
    nearest = [np.argmin(((outer - point) ** 2).sum(axis=1)) for point in inner]
    return 0.5 * (inner + outer[nearest])


def berkeley():
    return np.loadtxt(FOLDER / "berkeley_3_putnam_center.txt")[::2, :2]


def align(points, track):
    """Rigid alignment by iterated closest points; returns arc lengths and offsets of all points."""
    line = np.stack([track.x, track.y], axis=1)
    best = None
    for angle in np.arange(0, 2 * np.pi, np.pi / 6):
        cos, sin = np.cos(angle), np.sin(angle)
        rotation = np.array([[cos, -sin], [sin, cos]])
        shift = line.mean(axis=0) - rotation @ points.mean(axis=0)
        rotation, shift, lateral = iterate(points[::10], track, rotation, shift, 12)
        score = np.minimum(np.abs(lateral), 50).mean()
        if best is None or score < best[0]:
            best = score, rotation, shift
    rotation, shift, _ = iterate(points, track, *best[1:], 25, reach=3.0)
    return project(track, *(points @ rotation.T + shift).T)


def iterate(points, track, rotation, shift, count, reach=np.inf):
    for _ in range(count):
        s, lateral = project(track, *(points @ rotation.T + shift).T)
        keep = (np.abs(lateral) < reach) & ~inside(s)
        foot = point_at_arc(track, s[keep])
        target = np.stack([foot.x, foot.y], axis=1)
        a, b = points[keep].mean(axis=0), target.mean(axis=0)
        u, _, v = np.linalg.svd((points[keep] - a).T @ (target - b))
        rotation = v.T @ np.diag([1, np.sign(np.linalg.det(v.T @ u.T))]) @ u.T
        shift = b - rotation @ a
    return rotation, shift, lateral


def inside(s):
    return (s > CHICANE[0]) & (s < CHICANE[1])


@pytest.mark.skipif(not FOLDER.exists(), reason="no surveys of Putnam Park at ../shared/data/putnam")
@pytest.mark.parametrize("survey", [boundaries, berkeley])
def test_centre_line_lies_within_a_metre_of_the_surveys(survey):
    s, lateral = align(survey(), putnam_park())
    classic = ~inside(s)
    assert classic.mean() > 0.9
    assert np.abs(lateral[classic]).max() < 1.0
    assert np.sqrt(np.mean(lateral[classic] ** 2)) < 0.3
    # Everything is covered: no stretch of the track is without a point of the survey.
    assert np.diff(np.sort(s[classic])).max() < CHICANE[1] - CHICANE[0] + 10
