"""Pictures of scenarios and of sets of scenarios."""

import dataclasses

import numpy as np
from PIL import Image

from s3jax.scenarios.draw import draw
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.stats import plot, tabulate
from s3jax.scenarios.tags import table
from s3jax.spatial.friction import friction_map
from s3jax.spatial.reference import make_reference

EGO, PEDESTRIAN, ICE = (243, 156, 18), (192, 57, 43), (191, 233, 251)


def count(path, colour):
    with Image.open(path) as image:
        picture = np.asarray(image.convert("RGB"), int)
    return int((np.abs(picture - colour).max(axis=-1) < 12).sum())


def test_a_picture_shows_the_car_patches_and_road_users(tmp_path):
    along = 0.5 * np.arange(100)
    bare = Scenario("bare", "test", 0.05, make_reference(along, 0 * along, 0 * along, 10.0, 0.05))
    boxes = np.full((1, 91, 4), np.nan, np.float32)
    boxes[0, :50] = [5, 5, 0, 0]
    full = dataclasses.replace(
        bare,
        friction=friction_map(1.0, [([[20, -5], [40, -5], [40, 5], [20, 5]], "ice")]),
        boxes=boxes,
        box_sizes=np.array([[4.0, 2.0]]),
        box_types=np.array([2], np.int8),
        lights=np.array([[10.0, 3.0]]),
        light_states=np.full((1, 91), 4, np.int8),
    )
    draw(bare, tmp_path / "bare.png")
    draw(full, tmp_path / "full.png")
    draw(full, tmp_path / "later.png", step=60)
    pixels = {
        name: [count(tmp_path / f"{name}.png", colour) for colour in (EGO, PEDESTRIAN, ICE)]
        for name in ("bare", "full", "later")
    }
    assert all(ego > 200 for ego, _, _ in pixels.values())
    assert pixels["bare"][1:] == [0, 0]
    assert pixels["full"][1] > 200 and pixels["full"][2] > 2000
    assert pixels["later"][1] < pixels["full"][1] / 2  # the pedestrian has left


def test_statistics_count_tags_and_draw_them(tmp_path):
    numbers = table(generate(ProceduralConfig(count=40), seed=0))
    text = tabulate(numbers)
    moving = int((numbers["path_length"] >= 10).sum())
    assert text.startswith("40 scenarios")
    assert f"{'moving':<18}{moving:>7}{moving / 40:>9.1%}" in text
    plot(numbers, tmp_path / "stats.png")
    assert count(tmp_path / "stats.png", (85, 168, 104)) > 1000  # the bars
