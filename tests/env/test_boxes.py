"""Overlap and nearest neighbours against independent definitions."""

import jax.numpy as jnp
import numpy as np

from s3jax.env import boxes
from s3jax.scenarios import checks

RNG = np.random.default_rng(0)


def scene(worlds=30, cars=7, spread=8.0):
    x, y = RNG.uniform(-spread, spread, (2, worlds, cars))
    yaw = RNG.uniform(-np.pi, np.pi, (worlds, cars))
    length, width = RNG.uniform(2.0, 6.0, (worlds, cars)), RNG.uniform(0.5, 2.5, (worlds, cars))
    return x, y, yaw, length, width


def test_overlap_agrees_with_the_corners_of_the_boxes():
    columns = scene()
    found = np.asarray(boxes.overlap(*map(jnp.asarray, columns)))
    rows = np.stack(columns, axis=-1)
    expected = checks.overlap(rows[:, :, None], rows[:, None])
    assert 0.05 < expected.mean() < 0.6
    np.testing.assert_array_equal(found, expected)


def test_what_is_not_finite_overlaps_nothing():
    columns = [jnp.asarray(column[0]) for column in scene(1, 3, 0.1)]
    assert boxes.overlap(*columns).all()
    columns[0] = columns[0].at[1].set(jnp.nan)
    found = np.asarray(boxes.overlap(*columns))
    assert not found[1].any() and not found[:, 1].any() and found[0, 2]


def test_places_are_in_the_body_frame():
    x, y, yaw = jnp.array([1.0, 1.0]), jnp.array([2.0, 5.0]), jnp.array([np.pi / 2, 0.0])
    ahead, left = boxes.relative(x, y, yaw)
    np.testing.assert_allclose([ahead[0, 1], left[0, 1]], [3.0, 0.0], atol=1e-6)
    np.testing.assert_allclose([ahead[1, 0], left[1, 0]], [0.0, -3.0], atol=1e-6)


def test_nearest_sorts_and_leaves_out_what_is_not_seen():
    distance = RNG.uniform(1.0, 9.0, (20, 6, 6))
    distance[RNG.random(distance.shape) < 0.4] = np.inf
    distance[:, 0, 1] = distance[:, 0, 2]  # ties
    number, found = map(np.asarray, boxes.nearest(jnp.asarray(distance, jnp.float32), 4))
    for rows, numbers, there in zip(
        distance.reshape(-1, 6), number.reshape(-1, 4), found.reshape(-1, 4), strict=True
    ):
        order = [i for i in np.argsort(rows, kind="stable") if np.isfinite(rows[i])][:4]
        assert list(numbers[there]) == order
        assert there.sum() == len(order) and there[: len(order)].all()
