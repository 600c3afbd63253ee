"""Our bicycle as a Waymax `DynamicsModel`, for Waymax's own environments, actors and scripts."""

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from s3jax.scenarios.checks import implied_control
from s3jax.scenarios.waymax import load_waymax
from s3jax.spatial.frames import to_body, wrap_angle
from s3jax.waymax.bicycle import Pose, advance

waymax = load_waymax()

_SLOW = 1e-3  # m; over a shorter way than this, no curvature can be told


class BicycleModel(waymax.dynamics.DynamicsModel):
    """Kinematic bicycle with actions [acceleration (m/s^2), curvature (1/m)], clipped to their bounds.

    Waymax gives a dynamics model nothing but the present pose and velocity, which is all that this one needs;
    a distilled model, which remembers, is driven with `s3jax.waymax.env.hand_over`.

    Attributes:
      dt: length of a step (s).
      max_accel: bound of the acceleration (m/s^2).
      max_curvature: bound of the curvature (1/m).
      like_waymax: equal `InvertibleBicycleModel`, faults included (`s3jax.waymax.bicycle`).
    """

    def __init__(
        self,
        dt: float = 0.1,
        max_accel: float = 6.0,
        max_curvature: float = 0.3,
        like_waymax: bool = False,
    ):
        super().__init__()
        self.dt, self.like_waymax = dt, like_waymax
        self._bounds = np.array([max_accel, max_curvature], np.float32)

    def action_spec(self) -> specs.BoundedArray:
        """Returns shape and bounds of an action."""
        return specs.BoundedArray((2,), np.float32, -self._bounds, self._bounds)

    def compute_update(self, action, trajectory):
        """Returns the poses [..., objects, 1] that actions [..., objects, 2] lead to from these."""
        control = jnp.clip(action.data, -self._bounds, self._bounds)
        pose = Pose(*(trajectory[name] for name in Pose._fields))
        moved = advance(pose, control[..., :1], control[..., 1:], self.dt, self.like_waymax)
        return waymax.datatypes.TrajectoryUpdate(**moved._asdict(), valid=trajectory.valid & action.valid)

    def inverse(self, trajectory, metadata, timestep):
        """Returns the actions [..., objects, 2] that lead from a step to the next; see `implied_control`.

        Unless `like_waymax`, they are the inverse of `compute_update`: headings, not velocities, tell the
        curvature.
        """
        pair = jax.tree.map(
            lambda values: jax.lax.dynamic_slice_in_dim(values, timestep, 2, axis=-1), trajectory
        )
        if self.like_waymax:
            control = implied_control(pair.yaw, pair.vel_x, pair.vel_y, self.dt)
        else:
            speed, _ = to_body(pair.vel_x, pair.vel_y, pair.yaw)
            distance = 0.5 * self.dt * (speed[..., :1] + speed[..., 1:])
            moves = jnp.abs(distance) > _SLOW
            turn = wrap_angle(pair.yaw[..., 1:] - pair.yaw[..., :1])
            curvature = jnp.where(moves, turn / jnp.where(moves, distance, 1.0), 0.0)
            control = (speed[..., 1:] - speed[..., :1]) / self.dt, curvature
        valid = pair.valid[..., :1] & pair.valid[..., 1:]
        data = jnp.clip(jnp.concatenate(control, axis=-1), -self._bounds, self._bounds)
        return waymax.datatypes.Action(data=jnp.where(valid, data, 0.0), valid=valid)
