"""Race tracks: centre lines with widths, speed profiles and references along them. No JAX."""

from s3jax.tracks.circuits import CIRCUITS, ice_patches, load_track, putnam_park, skid_pad
from s3jax.tracks.csv_file import read_track
from s3jax.tracks.reference import lap_reference
from s3jax.tracks.segments import track_from_segments
from s3jax.tracks.speed import SpeedLimits, lap_speed, speed_profile, track_friction
from s3jax.tracks.track import Track, TrackError, TrackPoint, point_at_arc, project, strip

__all__ = [
    "CIRCUITS",
    "SpeedLimits",
    "Track",
    "TrackError",
    "TrackPoint",
    "ice_patches",
    "lap_reference",
    "lap_speed",
    "load_track",
    "point_at_arc",
    "project",
    "putnam_park",
    "read_track",
    "skid_pad",
    "speed_profile",
    "strip",
    "track_friction",
    "track_from_segments",
]
