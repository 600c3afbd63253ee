"""The circuits that come along, and Putnam Park's ice patches."""

from importlib import resources

import numpy as np
import yaml

from s3jax.spatial.friction import FrictionMap, friction_map
from s3jax.tracks.csv_file import read_track
from s3jax.tracks.segments import track_from_segments
from s3jax.tracks.track import Track, TrackError, strip

# Putnam Park Road Course, the classic ten turns, clockwise from the front straight: length (m) and curvature
# (1/m, + left) of each segment, fitted by us, with the clothoids, to public surveys of its boundaries.
_PUTNAM = (
    (522.83, 0), (112.31, -0.01088), (55.20, 0), (119.23, -0.01391), (78.73, 0), (98.01, -0.00860),
    (11.56, 0), (180.32, 0.00914), (205.92, 0), (77.74, -0.01520), (88.13, 0), (48.06, -0.01361), (89.25, 0),
    (66.27, -0.02997), (215.90, 0), (200.70, 0.01563), (196.00, 0), (188.91, -0.01224), (39.20, 0),
    (76.16, -0.01590), (169.60, 0),
)  # fmt: skip
_PUTNAM_WIDTH = 9.0

# Three circuits of our own, for evaluation on roads that no driver was tuned on.
_KART = (
    (131, 0), (22, -0.07143), (29, 0), (18, -0.08333), (48, 0), (32, 0.08333), (30, 0), (34, -0.10000),
    (40, 0), (25, 0.06250), (24, 0), (30, -0.05556), (54, 0), (19, -0.07143), (63, 0), (22, -0.05556),
)  # fmt: skip
_SPEEDWAY = (
    (751, 0), (272, -0.00465), (201, 0), (220, -0.00606), (152, 0), (219, 0.00429), (121, 0), (326, -0.00510),
    (466, 0), (240, -0.00704), (148, 0), (205, 0.00329), (249, 0), (345, -0.00565),
)  # fmt: skip
_ESSES = (
    (176, 0), (84, 0.01724), (68, -0.01515), (95, 0.02083), (67, -0.01515), (94, 0.01818), (85, 0),
    (81, 0.01136), (63, 0), (92, -0.01220), (137, 0.01149), (56, -0.01031), (146, 0.01667), (160, 0),
)  # fmt: skip


def putnam_park(lap_length: float | None = None) -> Track:
    """Returns Putnam Park.

    Args:
      lap_length: (m); None is that of the table, 2,840 m. Published values run from 2,765 to 2,865 m.
    """
    return track_from_segments("putnam", _PUTNAM, _PUTNAM_WIDTH, length=lap_length)


def skid_pad(radius: float = 60.0, width: float = 30.0, left: bool = True) -> Track:
    """Returns a circle, driven to the left or to the right."""
    count = max(32, round(2 * np.pi * radius))
    angle = np.arange(count) * 2 * np.pi / count
    turn = 1.0 if left else -1.0
    half = np.full(count, 0.5 * width)
    return Track(
        name="skid_pad",
        x=radius * np.sin(angle),
        y=turn * radius * (1 - np.cos(angle)),
        yaw=turn * angle,
        curvature=np.full(count, turn / radius),
        width_left=half,
        width_right=half.copy(),
        spacing=2 * np.pi * radius / count,
        closed=True,
    )


def kart() -> Track:
    """Returns a tight circuit of 0.6 km: hairpins of 10 to 18 m radius, 7 m wide, clockwise."""
    return track_from_segments("kart", _KART, 7.0, ramp=8.0)


def speedway() -> Track:
    """Returns a fast circuit of 3.9 km: long straights, sweeps of 140 to 300 m radius, 13 m wide."""
    return track_from_segments("speedway", _SPEEDWAY, 13.0, ramp=40.0)


def esses() -> Track:
    """Returns a flowing circuit of 1.4 km: one bend into the next, 48 to 97 m radius, anticlockwise."""
    return track_from_segments("esses", _ESSES, 10.0, ramp=15.0)


def ice_patches(track: Track, file: str = "putnam_ice.yaml") -> FrictionMap:
    """Returns the friction of Putnam Park with its seven ice patches.

    Args:
      track: Putnam Park at any lap length; the positions scale with it.
      file: name of the package data that fixes them.

    Raises:
      TrackError: for another track.
    """
    data = yaml.safe_load((resources.files("s3jax.tracks") / file).read_text(encoding="utf-8"))
    if track.name != data["track"]:
        raise TrackError(f"{file}: its patches lie on {data['track']}, not on {track.name}")
    scale = track.length / data["lap_length"]
    edges = {"both": {}, "left": {"right": 0.0}, "right": {"left": 0.0}}
    patches = []
    for patch in data["patches"]:
        start = patch["start"] * scale
        outline = strip(track, start, start + patch["length"], **edges[patch["side"]])
        patches.append((outline, patch["friction"]))
    return friction_map(data["base"], patches)


def load_track(name: str) -> Track:
    """Returns a circuit by name, or the track in a `.csv` file.

    Raises:
      TrackError: for an unknown name or a file that cannot be used.
    """
    if str(name).endswith(".csv"):
        return read_track(name)
    if name not in CIRCUITS:
        raise TrackError(f"unknown track {name!r}; known: {', '.join(CIRCUITS)}, or a .csv file")
    return CIRCUITS[name]()


CIRCUITS = {
    "putnam": putnam_park,
    "skid_pad": skid_pad,
    "kart": kart,
    "speedway": speedway,
    "esses": esses,
}
"""Name -> function that builds the circuit."""
