"""Pictures show what they are given."""

import json
import math

import numpy as np
import pytest
from PIL import Image

from s3jax.archive import FileError
from s3jax.evaluation.closed_loop import Log
from s3jax.spatial.friction import friction_map
from s3jax.tracks import skid_pad, strip
from s3jax.tracks.track import project
from s3jax.viz import page
from s3jax.viz.animation import lap_gif
from s3jax.viz.curves import open_loop_errors, surface_errors, training_curves
from s3jax.viz.laps import lap_distance, lap_maps, lap_series, patch_labels, patch_spans

TRACK = skid_pad(radius=60.0, width=10.0)
ROAD = friction_map(1.0, [(strip(TRACK, 100.0, 130.0), "ice")])


def circle(offset=0.5, steps=400, end="finished"):
    """A lap of the skid pad at a constant distance from its centre line."""
    angle = np.linspace(0.0, 2 * np.pi, steps + 1)[1:]
    radius = 60.0 - offset
    columns = {
        name: np.zeros(steps) for name in ("vy", "yaw_rate", "ax", "ay", "steer", "pedal", "heading", "speed")
    }
    columns |= {
        "time": 0.05 * np.arange(1, steps + 1),
        "x": radius * np.sin(angle),
        "y": 60.0 - radius * np.cos(angle),
        "yaw": angle,
        "vx": np.full(steps, 18.8),
        "steer_angle": np.full(steps, 0.05),
        "friction": np.ones(steps),
        "cursor": np.arange(steps, dtype=float),
        "reference_speed": np.full(steps, 18.8),
        "cross_track": np.full(steps, offset),
    }  # fmt: skip
    return Log(columns, end, 1.0, 0.05)


def colours_in(path):
    return np.unique(np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3), axis=0)


def test_a_lap_is_measured_along_the_track_without_jumping_back():
    s = lap_distance(TRACK, circle())
    assert np.all(np.diff(s) > 0)
    assert s[-1] == pytest.approx(TRACK.length, abs=1.0)
    (span,) = patch_spans(TRACK, ROAD)
    assert span == pytest.approx((100.0, 130.0), abs=0.5)


def test_maps_and_series_show_the_patch_and_every_driver(tmp_path):
    laps = {"policy": circle(0.5), "baseline": circle(-0.5, end="spun")}
    path = lap_series(tmp_path / "series.png", TRACK, ROAD, laps)
    found = colours_in(path).tolist()
    assert [0xD1, 0x49, 0x5B] in found and [0x2B, 0x6C, 0xB0] in found
    roads = {"icy": ROAD, "dry": friction_map(1.0)}
    maps = lap_maps(tmp_path / "maps.png", TRACK, roads, {("icy", name): log for name, log in laps.items()})
    assert [0x8F, 0xD3, 0xF4] in colours_in(maps).tolist()
    with Image.open(path) as series, Image.open(maps) as map_image:
        assert series.size == (1196, 988)
        assert map_image.size == (1196, 403)


def test_a_patch_is_numbered_beside_the_road():
    ((x, y),) = patch_labels(TRACK, ROAD, aside=7.0)
    assert project(TRACK, x, y) == pytest.approx((115.0, 12.0), abs=0.5)  # middle of the patch, 5 + 7 m left


@pytest.mark.parametrize(("seconds", "speedup", "frames"), [(20, 8, 26), (400, 21, 192)])
def test_the_gif_lasts_as_long_as_the_slowest_lap(tmp_path, seconds, speedup, frames):
    laps = {"policy": circle(steps=20 * seconds), "baseline": circle(steps=200)}
    path = lap_gif(tmp_path / "lap.gif", TRACK, ROAD, laps, "skid pad")
    assert frames == math.ceil(seconds / (0.1 * speedup)) + 1  # the start as well
    with Image.open(path) as image:
        assert image.n_frames == frames
        assert image.size == (720, 778)
        first = np.asarray(image.convert("RGB")).copy()
        image.seek(10)
        assert np.any(first != np.asarray(image.convert("RGB")))
    assert path.stat().st_size < 3e6
    assert list(tmp_path.iterdir()) == [path]


def test_curves_of_training_and_distillation(tmp_path):
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("update,env_steps,env/reward,held_out/cross_track_rms\n1,1000,0.1,\n2,2000,0.2,0.5\n")
    with Image.open(training_curves(tmp_path / "training.png", metrics)) as image:
        assert image.size == (1196, 598)
    error = {"position": 1.0, "yaw": 0.1, "speed": 0.3}
    evaluation = tmp_path / "evaluation.json"
    surfaces = {"all": error, "ice": error}
    evaluation.write_text(json.dumps({
        "ddm": {"open_loop": {"1": surfaces, "2": surfaces}},
        "bicycle": {"open_loop": {"1": {"all": error, "snow": error}}},
    }))  # fmt: skip
    for draw in (open_loop_errors, surface_errors):
        found = colours_in(draw(tmp_path / "errors.png", evaluation)).tolist()
        assert [0x0B, 0x6E, 0x4F] in found and [0xE6, 0x9F, 0x00] in found
    for damaged in ("", "update\n1\n", "env_steps,env/reward\n1\n"):
        metrics.write_text(damaged)
        with pytest.raises(FileError, match="not the metrics of a training run"):
            training_curves(tmp_path / "training.png", metrics)
    for damaged in ("", "[]", "{}", '{"ddm": {}}', '{"ddm": {"open_loop": {"1": {"ice": {}}}}}'):
        evaluation.write_text(damaged)
        for draw in (open_loop_errors, surface_errors):
            with pytest.raises(FileError, match="not the evaluation of a distillation"):
                draw(tmp_path / "open.png", evaluation)


def test_text_on_a_page_is_escaped():
    text = page.page(
        "<b>", "a & b", page.heading("<i>"), page.table(["<u>"], [["<s>"]]), page.folded("<p>", "<q>")
    )
    for tag in ("<b>", "<i>", "<u>", "<s>", "<q>"):
        assert tag not in text
    assert "a &amp; b" in text
