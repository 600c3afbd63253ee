"""What a policy sees: one definition for the training environment and the driving process."""

import dataclasses
import hashlib
import json

from s3jax.spatial.arrays import namespace
from s3jax.spatial.frames import to_body
from s3jax.spatial.reference import Reference, point_at, tracking_error
from s3jax.spatial.state import VehicleState

HISTORY_FIELDS = ("vx", "vy", "yaw_rate", "steer_angle", "steer", "pedal")
"""Columns of a history row: the body state at an instant and the control that led to it."""


@dataclasses.dataclass(frozen=True)
class ObservationSpec:
    """Layout of the observation vector (SI units, not normalised).

    Attributes:
      preview: number of reference points ahead.
      preview_stride: reference samples between them.
      history: number of past control steps, the present one included.
      surface: whether there is a part for the nominal friction under the car.
    """

    preview: int = 10
    preview_stride: int = 4
    history: int = 4
    surface: bool = False

    def __post_init__(self):
        for name in ("preview", "preview_stride", "history"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"observation {name} must be a whole number >= 1, got {value!r}")
        if not isinstance(self.surface, bool):
            raise ValueError(f"observation surface must be true or false, got {self.surface!r}")

    def parts(self) -> dict[str, tuple[int, str]]:
        """Returns name -> (size, meaning) of each part, in order."""
        surface = {"surface": (2, "nominal friction under the car, 0 where unknown; 1 where known, else 0")}
        return {
            "error": (3, "cross-track (m, + left), heading (rad) and speed (m/s) error"),
            "reference": (2, "speed (m/s) and curvature (1/m) of the reference beside the car"),
            "preview": (
                4 * self.preview,
                "for each point ahead: x, y in the body frame (m), speed (m/s), curvature (1/m)",
            ),
            **(surface if self.surface else {}),
            "history": (
                len(HISTORY_FIELDS) * self.history,
                "oldest first: " + ", ".join(HISTORY_FIELDS) + " (m/s, rad/s, rad, [-1, 1])",
            ),
        }

    @property
    def size(self) -> int:
        """Length of the observation vector."""
        return sum(size for size, _ in self.parts().values())

    def to_dict(self) -> dict:
        """Returns the fields as a dictionary of JSON types."""
        return dataclasses.asdict(self)

    def digest(self) -> str:
        """Returns a SHA-256 that changes with the layout or the meaning of any part."""
        layout = {"preview": self.preview, "preview_stride": self.preview_stride, "history": self.history}
        text = json.dumps([layout, self.parts()], sort_keys=True)  # of the surface, the parts tell
        return hashlib.sha256(text.encode()).hexdigest()


def initial_history(spec: ObservationSpec, state: VehicleState):
    """Returns the history [H, 6] of a car that has been in this state with neutral controls."""
    xp = namespace(state.vx)
    zero = xp.zeros_like(xp.asarray(state.vx))
    row = xp.stack([state.vx, state.vy, state.yaw_rate, state.steer_angle, zero, zero])
    return xp.broadcast_to(row, (spec.history, len(HISTORY_FIELDS)))


def update_history(history, state: VehicleState, control):
    """Appends a state and the control [2] that led to it to a history [H, 6], dropping the oldest row."""
    xp = namespace(state.vx, control, history)
    body = xp.stack([state.vx, state.vy, state.yaw_rate, state.steer_angle])
    row = xp.concatenate([body, xp.asarray(control)])
    return xp.concatenate([history[1:], row[None]])


def observe(spec: ObservationSpec, reference: Reference, cursor, state: VehicleState, history, friction=0.0):
    """Builds the observation.

    Args:
      spec: the layout.
      reference: the reference trajectory.
      cursor: [] the car's place on it.
      state: the car, each field [].
      history: [H, 6] from `initial_history` and `update_history`.
      friction: [] nominal friction under the car; 0 or NaN where unknown. Only used with `spec.surface`.

    Returns:
      [spec.size] observation.
    """
    xp = namespace(state.x, history, reference.samples)
    here = point_at(reference, cursor)
    error = tracking_error(here, state)
    ahead = point_at(reference, cursor + spec.preview_stride * xp.arange(1, spec.preview + 1))
    x, y = to_body(ahead.x - state.x, ahead.y - state.y, state.yaw)
    preview = xp.stack([x, y, ahead.speed, ahead.curvature], axis=-1)
    surface = []
    if spec.surface:
        friction = xp.asarray(friction)
        known = friction > 0.0  # NaN is not
        surface = [xp.stack([xp.where(known, friction, 0.0), xp.where(known, 1.0, 0.0)])]
    return xp.concatenate(
        [
            xp.stack([error.cross_track, error.heading, error.speed, here.speed, here.curvature]),
            xp.reshape(preview, (-1,)),
            *surface,
            xp.reshape(history, (-1,)),
        ]
    )
