"""The multi-body model of a car in MuJoCo's format: chassis, four hubs, two knuckles, four wheels.

The chassis frame's origin is the centre of gravity projected to the road: at rest it lies on the road
plane, and its pose and velocity are the car's. Positions (qpos) and velocities (qvel) come in the order
free joint, then per wheel FL, FR, RL, RR: slide, steering (front only), spin.
"""

from s3jax.source.vehicle import Layout, Vehicle

SLIDE_VELOCITY = (6, 9, 12, 14)
"""Index into qvel of each wheel's suspension; its position is one further in qpos, for the quaternion."""
STEER_VELOCITY = (7, 10, -1, -1)
"""Index into qvel of each wheel's steering, -1 if it has none."""
SPIN_VELOCITY = (8, 11, 13, 15)
"""Index into qvel of each wheel's spin."""
WHEEL_BODIES = ("wheel_fl", "wheel_fr", "wheel_rl", "wheel_rr")


def mjcf(vehicle: Vehicle, timestep: float) -> str:
    """Returns the model as XML; gravity is on, contacts and constraints are off.

    MuJoCo must not reset a car that diverges: that would be a silent wrong answer.

    Args:
      vehicle: the parameters.
      timestep: of the integration (s).
    """
    body, suspension, steering = vehicle.body, vehicle.suspension, vehicle.steering
    layout = Layout(vehicle)
    corners = []
    for wheel in WHEEL_BODIES:
        name, front, left = wheel[-2:], wheel[-2] == "f", wheel[-1] == "l"
        axle = 0 if front else 1
        track = body.track_front if front else body.track_rear
        spring = suspension.spring_front if front else suspension.spring_rear
        damper = suspension.damper_front if front else suspension.damper_rear
        spin = (
            f'<body name="{wheel}"><joint type="hinge" axis="0 1 0" damping="0.02"/>'
            f'<inertial pos="0 0 0" mass="{body.wheel_mass}" diaginertia="{body.wheel_diameter_inertia} '
            f'{body.wheel_spin_inertia} {body.wheel_diameter_inertia}"/></body>'
        )
        if front:
            # The knuckle turns with the wheel and carries half of the hub's mass.
            carrier = (
                f'<inertial pos="0 0 0" mass="{0.5 * body.hub_mass}" diaginertia="0.15 0.15 0.15"/>'
                f'<body><joint name="steer_{name}" type="hinge" axis="0 0 1" damping="5"/>'
                f'<inertial pos="0 0 0" mass="{0.5 * body.hub_mass}" diaginertia="0.15 0.15 0.2"/>'
                f"{spin}</body>"
            )
        else:
            carrier = f'<inertial pos="0 0 0" mass="{body.hub_mass}" diaginertia="0.3 0.3 0.3"/>{spin}'
        x = layout.front if front else -layout.rear
        y = 0.5 * track if left else -0.5 * track
        corners.append(
            f'<body pos="{x} {y} {layout.hub_height[axle]}"><joint name="slide_{name}" type="slide" '
            f'axis="0 0 1" stiffness="{spring}" springref="{-layout.sprung_load[axle] / spring}" '
            f'damping="{damper}"/>{carrier}</body>'
        )
    return f"""<mujoco model="{vehicle.name}">
<compiler angle="radian" autolimits="true"/>
<option timestep="{timestep}" gravity="0 0 -9.81" integrator="implicitfast">
  <flag contact="disable" constraint="disable" autoreset="disable"/>
</option>
<worldbody><body name="chassis"><freejoint/>
  <inertial pos="{layout.sprung_x} 0 {layout.sprung_height}" mass="{layout.sprung_mass}"
    diaginertia="{body.roll_inertia} {body.pitch_inertia} {body.yaw_inertia}"/>
  {"".join(corners)}
</body></worldbody>
<tendon>
  <fixed stiffness="{suspension.roll_bar_front}" springlength="0">
    <joint joint="slide_fl" coef="1"/><joint joint="slide_fr" coef="-1"/></fixed>
  <fixed stiffness="{suspension.roll_bar_rear}" springlength="0">
    <joint joint="slide_rl" coef="1"/><joint joint="slide_rr" coef="-1"/></fixed>
</tendon>
<actuator>
  <position joint="steer_fl" kp="{steering.stiffness}" kv="{steering.damping}"/>
  <position joint="steer_fr" kp="{steering.stiffness}" kv="{steering.damping}"/>
</actuator></mujoco>"""
