"""Laps as an animated GIF: the circuit from above, and each car close up with the road turned its way."""

import functools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from s3jax.archive import atomic_path
from s3jax.spatial.frames import to_body
from s3jax.spatial.friction import FrictionMap
from s3jax.tracks.track import Track, point_at_arc
from s3jax.viz.laps import patch_labels, track_edges
from s3jax.viz.style import FAINT, GRASS, ICE, ICE_EDGE, INK, ROAD, colours

WIDTH, MAP_HEIGHT, CAMERA_HEIGHT, BAR = 720, 400, 150, 26
COLOURS = 40
SPEEDUP = 8  # times real time, at 10 frames per second
MOST_FRAMES = 200  # keeps a GIF below 3 MB
SCALE = 2  # drawn larger and reduced, for smooth edges
METRES_AHEAD, METRES_BEHIND = 42.0, 30.0  # what a camera shows
CAR_LENGTH, CAR_WIDTH = 4.6, 1.8


class _Painter(NamedTuple):
    """Draws points in metres onto an image: `origin` (pixel of 0, 0) and `zoom` (pixels per metre)."""

    draw: ImageDraw.ImageDraw
    origin: tuple[float, float]
    zoom: float

    def pixels(self, points):
        x = self.origin[0] + self.zoom * points[:, 0]
        y = self.origin[1] - self.zoom * points[:, 1]
        return [tuple(pixel) for pixel in np.stack([x, y], axis=1).tolist()]

    def polygon(self, points, fill, outline=None, width=1):
        self.draw.polygon(self.pixels(points), fill=fill, outline=outline, width=width)

    def line(self, points, fill, width):
        if len(points) > 1:
            self.draw.line(self.pixels(points), fill=fill, width=width, joint="curve")


def lap_gif(path: str | Path, track: Track, road: FrictionMap, laps: dict, title: str = "") -> Path:
    """Animates one lap of several drivers who start together, `SPEEDUP` times faster, or more if it is long.

    Args:
      path: the GIF, written atomically.
      track: the circuit.
      road: its friction.
      laps: driver -> Log.
      title: shown above.

    Returns:
      The path.
    """
    palette = colours(laps)
    stage, to_map = _background(track, road, len(laps), title)
    left, right = track_edges(track)
    seconds = max(log.columns["time"][-1] for log in laps.values())
    speedup = max(SPEEDUP, math.ceil(seconds / (0.1 * (MOST_FRAMES - 1))))
    times = np.append(np.arange(0.0, seconds, 0.1 * speedup), seconds)
    frames = []
    for time in times:
        frame = stage.copy()
        draw = ImageDraw.Draw(frame)
        for i, (driver, log) in enumerate(laps.items()):
            row = min(max(round(time / log.dt) - 1, 0), len(log.columns["time"]) - 1)
            over = time > log.columns["time"][-1] and log.end
            camera = _camera(left, right, road, log, row, palette[driver])
            top = SCALE * (BAR + MAP_HEIGHT + i * (BAR + CAMERA_HEIGHT))
            frame.paste(camera, (0, top + SCALE * BAR))
            _caption(draw, top, driver, log, row, palette[driver], over)
            x, y = log.columns["x"][row], log.columns["y"][row]
            (px, py), radius = to_map(x, y), SCALE * 6.0
            draw.ellipse(
                [px - radius, py - radius, px + radius, py + radius],
                fill=palette[driver],
                outline="white",
                width=2 * SCALE,
            )
        _text(draw, (WIDTH - 12, 6), f"{time:6.1f} s   ({speedup}x)", 13, INK, "rt")
        frames.append(frame.reduce(SCALE))
    colour_table = frames[len(frames) // 2].quantize(COLOURS, dither=Image.Dither.NONE)
    frames = [frame.quantize(palette=colour_table, dither=Image.Dither.NONE) for frame in frames]
    path = Path(path)
    with atomic_path(path) as temporary:
        frames[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=frames[1:],
            duration=[100] * (len(frames) - 1) + [2500],
            loop=0,
            optimize=False,
        )
    return path


def _background(track, road, cars, title):
    """Returns the still part of the picture, and the function from metres to pixels of its map."""
    height = BAR + MAP_HEIGHT + cars * (BAR + CAMERA_HEIGHT)
    image = Image.new("RGB", (WIDTH * SCALE, height * SCALE), "white")
    left, right = track_edges(track)
    corners = np.concatenate([left, right])
    low, high = corners.min(axis=0), corners.max(axis=0)
    zoom = SCALE * min((WIDTH - 50) / (high - low)[0], (MAP_HEIGHT - 40) / (high - low)[1])
    middle = (low + high) / 2
    origin = (
        SCALE * WIDTH / 2 - zoom * middle[0],
        SCALE * (BAR + MAP_HEIGHT / 2) + zoom * middle[1],
    )
    draw = ImageDraw.Draw(image)
    painter = _Painter(draw, origin, zoom)
    for pixel in painter.pixels((left + right) / 2):  # dots: Pillow's wide lines have gaps in turns
        draw.ellipse([value + side * 5 * SCALE for side in (-1, 1) for value in pixel], fill=ROAD)
    for polygon in road.polygons:
        painter.polygon(polygon, ICE, ICE, 5 * SCALE)
    for number, (x, y) in enumerate(patch_labels(track, road, aside=18.0), 1):
        place = (origin[0] + zoom * x) / SCALE, (origin[1] - zoom * y) / SCALE
        _text(draw, place, str(number), 11, ICE_EDGE, "mm")
    start = point_at_arc(track, np.zeros(2), np.array([-14.0, 14.0]))
    painter.line(np.stack([start.x, start.y], axis=1), INK, 2 * SCALE)
    _text(draw, (12, 6), title, 13, INK, "lt")
    if len(road.values):
        draw.rectangle([12 * SCALE, 34 * SCALE, 26 * SCALE, 44 * SCALE], fill=ICE)
        _text(draw, (32, 39), f"ice patch, friction {float(road.values.min()):g}", 11, FAINT, "lm")
    return image, lambda x, y: (origin[0] + zoom * x, origin[1] - zoom * y)


def _camera(left, right, road, log, row, colour):
    """Returns the surroundings of one car, the reference's direction to the right."""
    image = Image.new("RGB", (WIDTH * SCALE, CAMERA_HEIGHT * SCALE), GRASS)
    zoom = SCALE * WIDTH / (METRES_AHEAD + METRES_BEHIND)
    painter = _Painter(ImageDraw.Draw(image), (zoom * METRES_BEHIND, SCALE * CAMERA_HEIGHT / 2), zoom)
    c = log.columns
    x, y, yaw = c["x"][row], c["y"][row], c["yaw"][row]
    heading = yaw - c["heading"][row]  # that of the reference

    def local(points):
        return np.stack(to_body(points[:, 0] - x, points[:, 1] - y, heading), axis=1)

    reach = 1.3 * max(METRES_AHEAD, METRES_BEHIND)
    for a, b in _stretches(left, right, x, y, reach):
        painter.polygon(local(np.concatenate([left[a:b], right[a:b][::-1]])), ROAD)
    for polygon in road.polygons:
        if np.hypot(polygon[:, 0] - x, polygon[:, 1] - y).min() < reach:
            painter.polygon(local(polygon), ICE, ICE_EDGE, SCALE)
    for a, b in _stretches(left, right, x, y, reach):
        for edge in (left, right):
            painter.line(local(edge[a:b]), "white", 2 * SCALE)
    path = np.stack([c["x"], c["y"]], axis=1)[max(0, row - 400) : row + 1]
    painter.line(local(path), colour, 2 * SCALE)
    turn = yaw - heading
    _box(painter, (0.0, 0.0), turn, CAR_LENGTH, CAR_WIDTH, colour)
    steer = c["steer_angle"][row]
    for ahead, left_of, angle in (
        (1.35, 0.8, steer), (1.35, -0.8, steer), (-1.35, 0.8, 0.0), (-1.35, -0.8, 0.0),
    ):  # fmt: skip
        centre = (
            ahead * math.cos(turn) - left_of * math.sin(turn),
            ahead * math.sin(turn) + left_of * math.cos(turn),
        )
        _box(painter, centre, turn + angle, 0.75, 0.3, INK)
    return image


def _stretches(left, right, x, y, reach):
    """Yields slices of the edges that lie within reach of a place."""
    near = np.hypot((left[:, 0] + right[:, 0]) / 2 - x, (left[:, 1] + right[:, 1]) / 2 - y) < reach
    change = np.flatnonzero(np.diff(np.concatenate([[0], near.astype(int), [0]])))
    return list(zip(change[::2].tolist(), change[1::2].tolist(), strict=True))


def _box(painter, centre, yaw, length, width, fill):
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * [length / 2, width / 2]
    cos, sin = math.cos(yaw), math.sin(yaw)
    turned = corners @ np.array([[cos, sin], [-sin, cos]]) + centre
    painter.polygon(turned, fill)


def _caption(draw, top, driver, log, row, colour, over):
    c = log.columns
    draw.rectangle([0, top, SCALE * WIDTH, top + SCALE * BAR], fill="white")
    y = top / SCALE + BAR / 2
    draw.rectangle([SCALE * 12, SCALE * (y - 5), SCALE * 22, SCALE * (y + 5)], fill=colour)
    _text(draw, (28, y), driver, 13, INK, "lm")
    speed, reference = 3.6 * c["vx"][row], 3.6 * c["reference_speed"][row]
    _text(draw, (150, y), f"{speed:3.0f} km/h (reference {reference:3.0f})", 12, INK, "lm")
    _text(draw, (420, y), f"cross-track {round(c['cross_track'][row], 2) + 0.0:+5.2f} m", 12, INK, "lm")
    slippery = c["friction"][row] < 0.95
    note = over or ("on ice" if slippery else "")
    _text(draw, (WIDTH - 12, y), note, 12, ICE_EDGE if slippery and not over else INK, "rm")


def _text(draw, place, text, size, fill, anchor):
    draw.text((place[0] * SCALE, place[1] * SCALE), text, fill=fill, font=_font(size), anchor=anchor)


@functools.cache
def _font(size):
    from matplotlib import get_data_path  # its DejaVu Sans is there wherever Matplotlib is

    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", size * SCALE)
