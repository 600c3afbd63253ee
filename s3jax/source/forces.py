"""One substep of everything that MuJoCo does not know: tyres on the road, driveline, brakes, drag.

The routine reads positions and velocities, does its own forward kinematics (MuJoCo's derived quantities lag
one substep behind), and fills the applied forces.
"""

import math

import numba

from s3jax.source import mjcf
from s3jax.source.driveline import anti_lock, control_traction, drive_torque, move_actuators, wheel_angle
from s3jax.source.tyre import lift_tyre, tyre_forces

AIR_DENSITY = 1.2
_SLIDE, _STEER, _SPIN = mjcf.SLIDE_VELOCITY, mjcf.STEER_VELOCITY, mjcf.SPIN_VELOCITY


@numba.njit
def friction_under(x, y, base, boxes, polygons, values):
    """Returns the friction at a point; the scalar equal of `s3jax.spatial.friction.friction_at`.

    Args:
      x: (m). y: (m).
      base: multiplier outside every patch.
      boxes: [P, 4] bounds x0, y0, x1, y1 of each patch (m).
      polygons: [P, K, 2] corners (m).
      values: [P] multipliers; of overlapping patches the later counts.
    """
    for patch in range(len(values) - 1, -1, -1):
        box = boxes[patch]
        if not (box[0] <= x <= box[2] and box[1] <= y <= box[3]):
            continue
        inside = False
        corners = polygons[patch]
        count = corners.shape[0]
        for i in range(count):
            x0, y0 = corners[i, 0], corners[i, 1]
            x1, y1 = corners[(i + 1) % count, 0], corners[(i + 1) % count, 1]
            if (y0 > y) != (y1 > y) and x < x0 + (y - y0) * (x1 - x0) / (y1 - y0):
                inside = not inside
        if inside:
            return values[patch]
    return base


@numba.njit
def rotation(qpos, r):
    """Fills the rotation matrix [3, 3] of the chassis."""
    w, x, y, z = qpos[3], qpos[4], qpos[5], qpos[6]
    r[0, 0], r[0, 1], r[0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    r[1, 0], r[1, 1], r[1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    r[2, 0], r[2, 1], r[2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@numba.njit
def apply_forces(qpos, qvel, control, p, a, tyres, bristles, road, dt, servo, xfrc, qfrc, bodies, r):
    """Advances actuators, driveline and tyres by one substep and fills the forces on the multi-body model.

    Args:
      qpos: [17]. qvel: [16].
      control: [2] steer, pedal.
      p: record of type `PARAMETERS`. a: of type `ACTUATORS`. tyres: [4] of type `TYRE`.
      bristles: [4, 2, ROWS].
      road: base, boxes, polygons and values, as `friction_under` takes them.
      dt: (s).
      servo: [2] angles asked of the front wheels (rad), output.
      xfrc: [bodies, 6] force and torque on each body (N, N m), output.
      qfrc: [16] generalised forces, output.
      bodies: [5] index of the four wheels and of the chassis.
      r: [3, 3] scratch.
    """
    rotation(qpos, r)
    move_actuators(a, control[0], control[1], p, dt)
    servo[0] = wheel_angle(a.rack, True, p) + p.suspension.bump_steer * qpos[_SLIDE[0] + 1]
    servo[1] = wheel_angle(a.rack, False, p) - p.suspension.bump_steer * qpos[_SLIDE[1] + 1]
    for k in range(2):
        j = _STEER[k]
        push = p.steering.stiffness * (servo[k] - qpos[j + 1]) - p.steering.damping * qvel[j]
        a.steer_work += push * qvel[j] * dt

    # Driveline to the driven axle.
    forward = r[0, 0] * qvel[0] + r[1, 0] * qvel[1] + r[2, 0] * qvel[2]
    first = 0 if p.driveline.driven > 0.5 else 2
    spin_left, spin_right = qvel[_SPIN[first]], qvel[_SPIN[first + 1]]
    if p.assists.traction_control > 0.5:
        slip = (max(spin_left, spin_right) * p.body.wheel_radius - forward) / max(abs(forward), 2.0)
        control_traction(a, slip, p.driveline, dt)
    total = drive_torque(
        a, 0.5 * (spin_left + spin_right), forward / p.body.wheel_radius, p.driveline, p.gears, dt
    )
    viscous = p.driveline.differential_damping * (spin_left - spin_right)

    # Angular velocity of the chassis in the world.
    wx = r[0, 0] * qvel[3] + r[0, 1] * qvel[4] + r[0, 2] * qvel[5]
    wy = r[1, 0] * qvel[3] + r[1, 1] * qvel[4] + r[1, 2] * qvel[5]
    wz = r[2, 0] * qvel[3] + r[2, 1] * qvel[4] + r[2, 2] * qvel[5]
    for i in range(4):
        front, left = i < 2, i % 2 == 0
        slide, spin = _SLIDE[i], qvel[_SPIN[i]]
        deflection, deflection_rate = qpos[slide + 1], qvel[slide]
        # Wheel centre: offset from the chassis origin, height, velocity.
        bx = p.layout.front if front else -p.layout.rear
        by = 0.5 * (p.body.track_front if front else p.body.track_rear)
        if not left:
            by = -by
        bz = (p.layout.hub_front if front else p.layout.hub_rear) + deflection
        ox = r[0, 0] * bx + r[0, 1] * by + r[0, 2] * bz
        oy = r[1, 0] * bx + r[1, 1] * by + r[1, 2] * bz
        oz = r[2, 0] * bx + r[2, 1] * by + r[2, 2] * bz
        vx = qvel[0] + wy * oz - wz * oy + r[0, 2] * deflection_rate
        vy = qvel[1] + wz * ox - wx * oz + r[1, 2] * deflection_rate
        vz = qvel[2] + wx * oy - wy * ox + r[2, 2] * deflection_rate
        # Axle direction (to the left) and angular velocity of the carrier.
        cx, cy, cz = wx, wy, wz
        ax, ay, az = r[0, 1], r[1, 1], r[2, 1]
        if front:
            angle, rate = qpos[_STEER[i] + 1], qvel[_STEER[i]]
            cx, cy, cz = wx + r[0, 2] * rate, wy + r[1, 2] * rate, wz + r[2, 2] * rate
            sin, cos = math.sin(angle), math.cos(angle)
            ax = cos * r[0, 1] - sin * r[0, 0]
            ay = cos * r[1, 1] - sin * r[1, 0]
            az = cos * r[2, 1] - sin * r[2, 0]
        # Ground frame of the wheel, and its contact point: straight down in the wheel's plane.
        level = math.sqrt(ax * ax + ay * ay)
        fx, fy = ay / level, -ax / level
        distance = (qpos[2] + oz) / level
        px, py, pz = az * ax / level * distance, az * ay / level * distance, -level * distance
        depth = p.body.wheel_radius - distance
        tyre = tyres[i]
        tyre.friction = friction_under(
            qpos[0] + ox + px, qpos[1] + oy + py, road[0], road[1], road[2], road[3]
        )
        contact_x, contact_y = vx + cy * pz - cz * py, vy + cz * px - cx * pz
        along, across = contact_x * fx + contact_y * fy, contact_y * fx - contact_x * fy
        load = 0.0
        if depth > 0.0:
            load = max(0.0, p.tyre.vertical_stiffness * depth - p.tyre.vertical_damping * vz)
        tread = spin * (p.body.wheel_radius - max(depth, 0.0) / 3.0)
        tyre.slip_ratio = (tread - along) / max(abs(along), 0.5)
        tyre.slip_angle = math.atan2(across, max(abs(along), 0.5))
        tyre.load = load
        body = bodies[i]
        on_axle = 0.0
        if load > 1.0:
            tyre_forces(tyre, bristles[i], along - tread, across, tread, cz, load, tyre.friction, p.tyre, dt)
            gx = tyre.force_x * fx - tyre.force_y * fy
            gy = tyre.force_x * fy + tyre.force_y * fx
            rolling = -p.tyre.rolling_resistance * load * p.body.wheel_radius * math.tanh(2.0 * spin)
            tx = py * load - pz * gy
            ty = pz * gx - px * load
            tz = px * gy - py * gx + tyre.moment_z
            xfrc[body, 0], xfrc[body, 1], xfrc[body, 2] = gx, gy, load
            xfrc[body, 3], xfrc[body, 4], xfrc[body, 5] = (
                tx + rolling * ax,
                ty + rolling * ay,
                tz + rolling * az,
            )
            on_axle = tx * ax + ty * ay + tz * az + rolling
        else:
            lift_tyre(tyre, bristles[i])
            for k in range(6):
                xfrc[body, k] = 0.0
        # Drive torque, and brake torque clipped to what stops the wheel: it can lock it, never turn it back.
        driving = 0.0
        if first <= i < first + 2:
            driving = 0.5 * total - viscous if left else 0.5 * total + viscous
        share = p.brakes.front_share if front else 1.0 - p.brakes.front_share
        limit = 0.5 * p.brakes.max_torque * share * a.brake
        if p.assists.abs > 0.5:
            anti_lock(tyre, -tyre.slip_ratio, along, dt)
            limit *= tyre.torque_limit
        stopping = -(spin * p.body.wheel_spin_inertia / dt + on_axle + driving)
        qfrc[_SPIN[i]] = driving + min(max(stopping, -limit), limit)
        a.drive_work += driving * spin * dt
        # Bump stops.
        beyond = abs(deflection) - p.suspension.bump_clearance
        qfrc[slide] = 0.0
        if beyond > 0.0:
            push = -math.copysign(p.suspension.bump_rate * beyond**3, deflection)
            qfrc[slide] = push - p.suspension.bump_damping * deflection_rate * min(1.0, 100.0 * beyond)

    # Air on the chassis; across the flow the area is larger.
    sideways = r[0, 1] * qvel[0] + r[1, 1] * qvel[1] + r[2, 1] * qvel[2]
    drag = -0.5 * AIR_DENSITY * p.body.drag_area * math.sqrt(forward * forward + sideways * sideways)
    chassis = bodies[4]
    xfrc[chassis, 0] = drag * (forward * r[0, 0] + 1.6 * sideways * r[0, 1])
    xfrc[chassis, 1] = drag * (forward * r[1, 0] + 1.6 * sideways * r[1, 1])
    xfrc[chassis, 2] = 0.5 * AIR_DENSITY * p.body.lift_area * forward * forward
