"""Pictures of scenarios."""

import numpy as np
from PIL import Image

from s3jax.scenarios.draw import draw
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.scenario import Scenario


def test_a_picture_shows_reference_patches_boxes_and_lights(tmp_path):
    (task,) = generate(ProceduralConfig(count=1, patches=(0.0, 0.0, 1.0)), seed=1)
    boxes = np.full((1, 91, 4), np.nan, np.float32)
    boxes[0, :50] = [5, 5, 0, 0]
    full = Scenario(
        **{
            **vars(task),
            "boxes": boxes,
            "box_sizes": np.array([[4.0, 2.0]]),
            "box_types": np.array([2], np.int8),
        },
    )
    for scenario, name in ((task, "task.png"), (full, "full.png")):
        draw(scenario, tmp_path / name)
    task_picture, full_picture = (
        np.asarray(Image.open(tmp_path / n).convert("RGB"), int) for n in ("task.png", "full.png")
    )

    def pixels(picture, colour):
        return (np.abs(picture - colour).max(axis=-1) < 12).sum()

    assert pixels(task_picture, (243, 156, 18)) > 50  # the ego car
    assert pixels(task_picture, (192, 57, 43)) == 0  # nobody else
    assert pixels(full_picture, (192, 57, 43)) > 50  # the pedestrian
