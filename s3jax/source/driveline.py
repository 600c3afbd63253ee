"""Engine, torque converter, automatic gearbox, and the lags of throttle, brake and steering."""

import math

import numba
import numpy as np

ACTUATORS = np.dtype(
    [
        ("substeps", np.int64),  # taken since reset
        ("rack", np.float64),  # mean road-wheel angle asked of the column (rad)
        ("throttle", np.float64),
        ("brake", np.float64),
        ("traction", np.float64),  # share of the throttle that the traction control allows
        ("engine_speed", np.float64),  # (rad/s)
        ("gear", np.int64),  # 0 is first
        ("shift_clock", np.float64),  # > 0 while shifting, then falling (s)
        ("drive_work", np.float64),  # done by the driveline on the wheels since reset (J)
        ("steer_work", np.float64),  # done by the steering on the knuckles since reset (J)
        ("mean_ax", np.float64),  # accelerations summed over the control step (m/s^2)
        ("mean_ay", np.float64),
    ]
)
"""Everything a car carries beside its multi-body state and its tyres."""

_DWELL = 0.6  # s in a gear before the next shift
_LOCK_GAIN = 6.0  # N m s of the lock-up clutch


@numba.njit
def engine_torque(speed, p):
    """Returns the full-load torque (N m): a ramp from idle, a plateau, constant power, and the limiter."""
    torque = p.max_torque
    knee = 2.0 * p.idle_speed
    if speed < knee:
        torque *= 0.55 + 0.45 * max(0.0, speed - p.idle_speed) / (knee - p.idle_speed)
    torque = min(torque, p.max_power / max(speed, 1.0))
    if speed > p.limit_speed:
        torque = max(0.0, torque * (1.0 - (speed - p.limit_speed) / 20.0))
    return torque


@numba.njit
def choose_gear(a, output_speed, p, gears):
    """Shifts by a map over throttle and turbine speed, with hysteresis and a dwell time.

    The turbine speed is that which the car's own motion implies, not that of the driven wheels: spinning
    or locked wheels then cause no hunting.
    """
    if a.shift_clock > -_DWELL:
        return
    ratio = p.ratios[a.gear]
    turbine = output_speed * ratio * p.final_ratio
    up = p.limit_speed * (0.35 + 0.60 * a.throttle)
    down = p.limit_speed * (0.17 + 0.34 * a.throttle * a.throttle)
    if turbine > up and a.gear < gears - 1:
        a.gear += 1
        a.shift_clock = p.shift_time
    elif a.gear > 0 and turbine < down and turbine * p.ratios[a.gear - 1] / ratio < 0.92 * up:
        a.gear -= 1
        a.shift_clock = p.shift_time


@numba.njit
def drive_torque(a, wheel_speed, road_speed, p, gears, dt):
    """Advances engine, converter and gearbox by one substep.

    Args:
      a: record of type `ACTUATORS`.
      wheel_speed: mean spin of the driven wheels (rad/s). road_speed: what it would be without slip.
      p: driveline parameters.
      gears: number of gears.
      dt: (s).

    Returns:
      The torque on both driven wheels together (N m).
    """
    a.shift_clock -= dt
    choose_gear(a, road_speed, p, gears)
    shifting = a.shift_clock > 0.0
    ratio = p.ratios[a.gear] * p.final_ratio
    turbine = wheel_speed * ratio
    speed = a.engine_speed
    full = engine_torque(speed, p)
    drag = p.friction_torque + p.friction_slope * speed
    torque = a.throttle * a.traction * (full + drag) - drag
    if shifting:
        torque = min(torque, 0.35 * full)
    # Idle governor.
    torque += min(max(2.0 * (p.idle_speed - speed), 0.0), 60.0)
    # Converter: capacity and torque ratio over the speed ratio, in drive and in overrun.
    forward = max(turbine, 0.0)
    if speed > forward:
        slip = forward / max(speed, 1.0)
        pump = p.converter_capacity * (1.0 - slip**6) * speed * speed
        output = pump * (1.0 + (p.converter_ratio - 1.0) * max(0.0, 1.0 - slip / 0.88))
    else:
        slip = speed / max(forward, 1.0)
        pump = -0.42 * p.converter_capacity * (1.0 - slip**4) * forward * forward
        output = pump
    # Lock-up clutch from second gear on.
    if a.gear >= 1 and not shifting and forward > 1.43 * p.idle_speed:
        lock = min(max(_LOCK_GAIN * (speed - turbine), -0.8 * p.max_torque), 1.25 * p.max_torque)
        lock /= 1.0 + dt * _LOCK_GAIN / p.engine_inertia
        pump += lock
        output += lock
    a.engine_speed = max(speed + dt * (torque - pump) / p.engine_inertia, 0.6 * p.idle_speed)
    output *= ratio
    return output * p.efficiency if output > 0.0 else output / p.efficiency


@numba.njit
def control_traction(a, slip, p, dt):
    """Traction control: takes the throttle back while a driven wheel slips by more than a tenth."""
    if slip > 0.10:
        a.traction = max(0.0, a.traction - 8.0 * dt)
    elif slip < 0.06:
        a.traction = min(1.0, a.traction + 1.5 * dt)


@numba.njit
def move_actuators(a, steer, pedal, p, dt):
    """Moves rack, throttle and brake towards a control by one substep.

    Args:
      a: record of type `ACTUATORS`.
      steer: in [-1, 1]. pedal: in [-1, 1].
      p: vehicle parameters.
      dt: (s).
    """
    rate = (steer * p.steering.max_angle - a.rack) / p.steering.lag
    a.rack += dt * min(max(rate, -p.steering.max_rate), p.steering.max_rate)
    throttle, brake = max(pedal, 0.0), max(-pedal, 0.0)
    lag = p.driveline.lag if throttle > a.throttle else 0.4 * p.driveline.lag
    a.throttle += dt / lag * (throttle - a.throttle)
    a.brake += dt / p.brakes.lag * (brake - a.brake)


@numba.njit
def wheel_angle(rack, left, p):
    """Returns the angle (rad) of the left or right front wheel: part parallel, part Ackermann."""
    tangent = math.tan(rack)
    half = 0.5 * p.body.track_front / p.body.wheelbase
    turned = math.atan(tangent / (1.0 - half * tangent if left else 1.0 + half * tangent))
    return rack + p.steering.ackermann * (turned - rack)


@numba.njit
def anti_lock(tyre, slip, speed, dt):
    """Anti-lock brakes: releases while a wheel's brake slip exceeds 0.16, builds up below 0.09."""
    if speed < 2.0:
        tyre.torque_limit = 1.0
    elif slip > 0.16:
        tyre.torque_limit = max(0.0, tyre.torque_limit - 12.0 * dt)
    elif slip < 0.09:
        tyre.torque_limit = min(1.0, tyre.torque_limit + 5.0 * dt)
