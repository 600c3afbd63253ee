"""The tyre: rows of elastic-plastic bristles on an elastic carcass.

A brush model (Pacejka, Tire and Vehicle Dynamics, 3rd ed., ch. 3) solved in time rather than in closed
form. The contact patch of half length a has `ROWS` rows under a parabolic pressure. A bristle enters
undeformed at the leading edge, travels to the trailing edge with the tread, is stretched by the sliding
velocity, and its stress is returned onto the friction circle where it exceeds it, which gives combined
slip without a formula for it. Transport is upwind and implicit. The friction falls with sliding speed from
static to sliding (Stribeck) and with load. The carcass is a massless spring and damper between rim and
patch; it makes the relaxation length. Nothing is divided by a velocity, so standstill, locked wheels and
sliding backwards are regular.
"""

import math

import numba
import numpy as np

ROWS = 8

TYRE = np.dtype(
    [
        ("carcass_x", np.float64),  # deflection (m)
        ("carcass_y", np.float64),
        ("patch_x", np.float64),  # what the bristles carry (N)
        ("patch_y", np.float64),
        ("force_x", np.float64),  # on the wheel, in its ground frame (N)
        ("force_y", np.float64),
        ("moment_z", np.float64),  # aligning (N m)
        ("load", np.float64),  # (N)
        ("friction", np.float64),  # multiplier of the road under it
        ("slip_ratio", np.float64),
        ("slip_angle", np.float64),  # (rad)
        ("torque_limit", np.float64),  # share of the brake torque that the anti-lock brakes allow
    ]
)
"""State and last output of one tyre."""


@numba.njit
def tyre_forces(tyre, bristles, slide_x, slide_y, roll, turn, load, friction, p, dt):
    """Advances one tyre by one substep and sets its forces.

    Args:
      tyre: record of type `TYRE`.
      bristles: [2, ROWS] deflections (m), first row leading when rolling forward.
      slide_x: velocity of the patch over the road along the wheel (m/s). slide_y: across it, to the left.
      roll: velocity at which the tread runs through the patch (m/s), positive forward.
      turn: yaw rate of the wheel's plane (rad/s).
      load: vertical force (N).
      friction: multiplier of the road.
      p: tyre parameters.
      dt: (s).
    """
    excess = load / p.nominal_load - 1.0
    half = max(0.01, p.patch_half_length * (1.0 + excess) ** p.patch_exponent)
    spacing = 2.0 * half / ROWS
    kx, ky = p.tread_stiffness_x, p.tread_stiffness_y
    # Carcass, implicit in its own force and in that of the bristles it stretches.
    rate_x = (tyre.patch_x - p.carcass_stiffness_x * tyre.carcass_x) / (
        p.carcass_damping + (p.carcass_stiffness_x + 2.0 * half * kx) * dt
    )
    rate_y = (tyre.patch_y - p.carcass_stiffness_y * tyre.carcass_y) / (
        p.carcass_damping + (p.carcass_stiffness_y + 2.0 * half * ky) * dt
    )
    tyre.carcass_x += rate_x * dt
    tyre.carcass_y += rate_y * dt
    vx, vy = slide_x - rate_x, slide_y - rate_y
    stribeck = math.exp(-math.sqrt(vx * vx + vy * vy) / p.stribeck_speed)
    grip = friction * min(1.25, max(0.6, 1.0 - p.load_sensitivity * excess))
    grip *= p.sliding_friction + (p.static_friction - p.sliding_friction) * stribeck
    transport = abs(roll) * dt / spacing
    share = 1.0 / (1.0 + transport)
    sum_x, sum_y, moment = 0.0, 0.0, 0.0
    ahead_x, ahead_y = 0.0, 0.0
    for j in range(ROWS):
        i = j if roll >= 0.0 else ROWS - 1 - j
        x = half - (i + 0.5) * spacing
        limit = grip * 0.75 * load / half * (1.0 - (x / half) ** 2)
        zx = (bristles[0, i] + vx * dt + transport * ahead_x) * share
        zy = (bristles[1, i] + (vy + turn * x) * dt + transport * ahead_y) * share
        fx, fy = kx * zx, ky * zy
        stress = math.sqrt(fx * fx + fy * fy)
        if stress > limit:
            back = limit / stress
            zx, zy, fx, fy = zx * back, zy * back, fx * back, fy * back
        bristles[0, i], bristles[1, i] = zx, zy
        ahead_x, ahead_y = zx, zy
        sum_x += fx * spacing
        sum_y += fy * spacing
        moment += fy * x * spacing
    tyre.patch_x, tyre.patch_y = sum_x, sum_y
    tyre.force_x, tyre.force_y, tyre.moment_z = -sum_x, -sum_y, -moment


@numba.njit
def lift_tyre(tyre, bristles):
    """Clears a tyre that has left the road."""
    tyre.carcass_x, tyre.carcass_y, tyre.patch_x, tyre.patch_y = 0.0, 0.0, 0.0, 0.0
    tyre.force_x, tyre.force_y, tyre.moment_z = 0.0, 0.0, 0.0
    for i in range(ROWS):
        bristles[0, i], bristles[1, i] = 0.0, 0.0
