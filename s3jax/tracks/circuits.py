"""The circuits that come along, and Putnam Park's ice patches."""

from importlib import resources

import numpy as np
import yaml

from s3jax.spatial.friction import FrictionMap, friction_map
from s3jax.tracks.segments import track_from_segments
from s3jax.tracks.track import Track, TrackError, strip

# Putnam Park Road Course, the classic ten turns, clockwise from the front straight: length (m) and curvature
# (1/m, + left) of each segment, fitted by us to public surveys of its boundaries.
_PUTNAM = (
    (521.91, 0), (111.83, -0.01092), (55.47, 0), (119.56, -0.01387), (78.53, 0), (98.54, -0.00853),
    (11.57, 0), (180.19, 0.00911), (205.40, 0), (79.11, -0.01496), (87.44, 0), (48.28, -0.01350), (86.74, 0),
    (68.61, -0.02885), (214.05, 0), (198.48, 0.01574), (195.65, 0), (188.64, -0.01223), (36.47, 0),
    (79.44, -0.01520), (168.34, 0),
)  # fmt: skip
_PUTNAM_WIDTH = 9.0


def putnam_park(lap_length: float | None = None) -> Track:
    """Returns Putnam Park.

    Args:
      lap_length: (m); None is that of the table, 2,834 m. Published values run from 2,765 to 2,865 m.
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
    """Returns a circuit by name.

    Raises:
      TrackError: for an unknown name.
    """
    if name not in CIRCUITS:
        raise TrackError(f"unknown track {name!r}; known: {', '.join(CIRCUITS)}")
    return CIRCUITS[name]()


CIRCUITS = {"putnam": putnam_park, "skid_pad": skid_pad}
"""Name -> function that builds the circuit."""
