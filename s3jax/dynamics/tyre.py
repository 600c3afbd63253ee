"""Tyre lateral force: Pacejka's magic formula inside a friction circle."""

import jax.numpy as jnp

from s3jax.dynamics.actuators import soft_abs

LOW_SPEED = 0.5
"""Forward speed (m/s) below which the slip angle is softened, so that a standing wheel has one."""

CIRCLE = 0.97
"""Largest share of the friction circle that drive or brakes may take; the rest stays for steering."""


def magic_formula(slip, stiffness, shape, curvature):
    """Returns the normalised force sin(C atan(Bx - E (Bx - atan Bx))), in [-1, 1].

    Args:
      slip: [...] slip angle (rad).
      stiffness: B, [...] (1/rad).
      shape: C, [...].
      curvature: E, [...] below 1.

    Source: H. B. Pacejka, Tire and Vehicle Dynamics, 3rd ed., 2012, eq. 4.49.
    """
    x = stiffness * slip
    return jnp.sin(shape * jnp.arctan(x - curvature * (x - jnp.arctan(x))))


def lateral_secant(u, w, load, peak, used, stiffness, shape, curvature):
    """Returns K >= 0 such that the lateral force is -K w.

    As a secant rather than a tangent it is positive and bounded at any slip, also past the peak and at
    standstill, which makes a semi-implicit step with it stable at any step size.

    Args:
      u: velocity of the wheel along its plane (m/s).
      w: velocity of the wheel across its plane (m/s).
      load: vertical force (N), or per unit of mass (m/s^2).
      peak: friction coefficient at the peak.
      used: longitudinal force / (peak load), at most `CIRCLE` in size.
      stiffness: cornering stiffness / load (1/rad); B of the magic formula is stiffness / (C peak).
      shape: C.
      curvature: E.
    """
    across = soft_abs(w, 1e-3)
    slip = jnp.arctan(across / soft_abs(u, LOW_SPEED))
    force = magic_formula(slip, stiffness / (shape * peak), shape, curvature)
    return peak * load * jnp.sqrt(1.0 - used * used) * force / across
