"""A driving scenario: what control training needs of a scene, in NumPy."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from s3jax.spatial.friction import FrictionMap, friction_map
from s3jax.spatial.reference import Reference


def _none(*shape, dtype=np.float32):
    return partial(np.zeros, (0, *shape), dtype)


@dataclass(frozen=True, eq=False)
class Scenario:
    """A reference to track, the surface under it and what stands around it.

    Positions are in metres relative to the ego car's first position; the axes are those of the log.
    Everything but the reference and the friction may be empty.

    Attributes:
      id: name of the scene.
      source: where it came from: a file and record, or `procedural:<family>`.
      dt: interval of the reference's samples (s).
      reference: the ego car's log, or a generated one, every `dt`.
      origin: [2] float64 position of the ego car's first pose in the log's frame (m).
      friction: the road's friction.
      ego_size: [2] length and width of the ego car (m).
      edges: [E, 4] road edge segments x0, y0, x1, y1 (m); the road is on their left.
      lanes: [L, 4] lane centre segments x0, y0, x1, y1 (m), in driving direction.
      box_dt: interval of the boxes and lights (s).
      boxes: [A, T, 4] other road users' x, y (m), yaw (rad), speed (m/s), every `box_dt`; NaN where absent.
      box_sizes: [A, 2] length and width (m).
      box_types: [A] 1 vehicle, 2 pedestrian, 3 cyclist, other numbers as in the Waymo Open Motion Dataset.
      lights: [K, 2] stop point of traffic lights (m).
      light_states: [K, T] 0 unknown, 1/4/7 stop, 2/5/8 caution, 3/6 go, -1 absent.
      features: raw numbers that tags are made of, by name (`s3jax.scenarios.tags`).
    """

    id: str
    source: str
    dt: float
    reference: Reference
    origin: np.ndarray = field(default_factory=lambda: np.zeros(2))
    friction: FrictionMap = field(default_factory=friction_map)
    ego_size: np.ndarray = field(default_factory=lambda: np.array([4.8, 2.0], np.float32))
    edges: np.ndarray = field(default_factory=_none(4))
    lanes: np.ndarray = field(default_factory=_none(4))
    box_dt: float = 0.1
    boxes: np.ndarray = field(default_factory=_none(0, 4))
    box_sizes: np.ndarray = field(default_factory=_none(2))
    box_types: np.ndarray = field(default_factory=_none(dtype=np.int8))
    lights: np.ndarray = field(default_factory=_none(2))
    light_states: np.ndarray = field(default_factory=_none(0, dtype=np.int8))
    features: dict[str, float] = field(default_factory=dict)

    @property
    def duration(self) -> float:
        """Seconds of the reference that count."""
        return (int(self.reference.length) - 1) * self.dt
