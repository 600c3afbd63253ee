"""What the books say a car does. Each check names its formula or source; tolerances are those of the issue.

[G] Gillespie, Fundamentals of Vehicle Dynamics, 1992. [M] Milliken, Race Car Vehicle Dynamics, 1995.
"""

import math

import numpy as np
import pytest

from s3jax.source.car import EmbeddedCar
from s3jax.source.tyre import ROWS, TYRE, tyre_forces
from s3jax.source.vehicle import pack
from s3jax.spatial.friction import friction_map

G = 9.81
KPH = 1 / 3.6


class Hold:
    """PI control of speed."""

    def __init__(self, speed, gain=0.25, integral=0.08):
        self.speed, self.gain, self.integral, self.sum = speed, gain, integral, 0.0

    def __call__(self, speed, dt):
        error = self.speed - speed
        self.sum = min(max(self.sum + self.integral * error * dt, -0.2), 1.0)
        pedal = self.gain * error + self.sum
        return min(max(pedal if pedal > 0 else 0.3 * pedal, -1.0), 1.0)


@pytest.fixture(scope="module")
def cars():
    return {name: EmbeddedCar(name) for name in ("sedan", "hatchback", "van")}


@pytest.fixture(scope="module")
def sedan(cars):
    return cars["sedan"]


def settle(car, speed, friction=1.0, seconds=2.0):
    """Straight on at a steady speed; returns the speed control and the reading."""
    car.set_friction(friction_map(friction))
    hold = Hold(speed)
    reading = car.reset((0.0, 0.0, 0.0), speed)
    for _ in range(round(seconds / 0.02)):
        reading = car.step([0.0, hold(reading.state.vx, 0.02)], 0.02)
    return hold, reading


def stop(car, friction, speed=100 * KPH, pedal=-1.0):
    """Stops from a speed; returns the distance, scaled to that speed, and whether the fronts locked."""
    car.set_friction(friction_map(friction))
    reading = car.reset((0.0, 0.0, 0.0), speed)
    for _ in range(4):
        reading = car.step([0.0, 0.05], 0.05)
    first, locked = reading, False
    while reading.state.vx > 0.05 and reading.time < 60:
        reading = car.step([0.0, pedal], 0.01)
        locked |= reading.state.vx > 5 and reading.wheel_speed[:2].max() < 1.0
    return (reading.state.x - first.state.x) * (speed / first.state.vx) ** 2, locked


def ramp_steer(car, speed, friction=1.0, rate=0.0105, limit=0.21):
    """Slow ramp of the steering (rad at the road wheels, compliance included) at a constant speed.

    Returns rows of delta, yaw rate, speed, lateral acceleration, sideslip, roll, loads [4], slip angles [4].
    """
    hold, reading = settle(car, speed, friction)
    steering, rows, delta = car.vehicle.steering.max_angle, [], 0.0
    while delta < limit:
        delta += 0.02 * rate
        reading = car.step([delta / steering, hold(reading.state.vx, 0.02)], 0.02)
        s = reading.state
        slide = math.atan2(s.vy, s.vx)
        row = [delta, s.yaw_rate, s.vx, s.yaw_rate * s.vx, slide, reading.roll]
        rows.append([*row, *reading.load, *reading.slip_angle])
        if abs(slide) > 0.5 or s.vx < 5:
            break
    return np.array(rows)


def understeer_gradient(car, rows):
    """K in delta = L / R + K ay, ISO 4138 [G, ch. 6], in degrees per g at the road wheels, below 0.4 g."""
    lateral = rows[:, 3]
    part = (lateral > 1.0) & (lateral < 4.0) & (np.arange(len(rows)) < np.argmax(lateral))
    extra = rows[part, 0] - car.vehicle.body.wheelbase * rows[part, 1] / rows[part, 2]
    return math.degrees(np.polyfit(lateral[part], extra, 1)[0]) * G


def largest_lateral(rows):
    """Largest steady lateral acceleration (g): a half-second mean."""
    return np.convolve(rows[:, 3], np.ones(25) / 25, "valid").max() / G


@pytest.fixture(scope="module")
def ramps(cars):
    return {(name, kph): ramp_steer(car, kph * KPH) for name, car in cars.items() for kph in (80, 120)}


@pytest.mark.parametrize(("name", "span"), [("sedan", (6, 8)), ("hatchback", (7.5, 10)), ("van", (11, 17))])
def test_acceleration_from_rest(cars, name, span):
    # Power to weight: 150 kW / 1500 kg takes 7 to 8 s to 100 km/h, 100 / 1250 about 9, 125 / 2450 about 14.
    car = cars[name]
    car.set_friction(friction_map(1.0))
    reading = car.reset()
    while reading.state.vx < 100 * KPH:
        reading = car.step([0.0, 1.0], 0.01)
        assert reading.time < 30
    assert span[0] < reading.time < span[1]


def test_coast_down(sedan):
    # m dv/dt = -(crr m g + rho cdA v^2 / 2) and the engine's drag: never less than the sum of the first two
    # [G, ch. 4], and in top gear at most half as much again plus 0.5 m/s^2.
    _, reading = settle(sedan, 30.0)
    body, start, clock = sedan.vehicle.body, reading.state.vx, reading.time
    while reading.time - clock < 5.0:
        reading = sedan.step([0.0, 0.0], 0.05)
    mean = 0.5 * (start + reading.state.vx)
    resistance = 0.011 * G + 0.5 * 1.2 * body.drag_area * mean**2 / body.mass
    slowing = (start - reading.state.vx) / 5.0
    assert resistance < slowing < 1.5 * resistance + 0.5


@pytest.mark.parametrize("friction", [1.0, 0.3, 0.1])
def test_locked_braking_distance(sedan, friction):
    # v^2 / (2 mu g) with mu the sliding friction of the tyre; drag and the lag of the brakes are allowed for.
    distance, locked = stop(sedan, friction)
    tyre, body, speed = sedan.vehicle.tyre, sedan.vehicle.body, 100 * KPH
    sliding = tyre.sliding_friction * friction
    drag = 0.5 * 1.2 * body.drag_area / body.mass
    # Exact solution of v dv/dx = -(mu g + c v^2).
    expected = math.log(1 + drag * speed**2 / (sliding * G)) / (2 * drag)
    assert locked
    assert distance == pytest.approx(expected + speed * sedan.vehicle.brakes.lag, rel=0.06)


@pytest.mark.parametrize("name", ["sedan", "hatchback", "van"])
@pytest.mark.parametrize("friction", [1.0, 0.3])
def test_anti_lock_brakes_stop_shorter_and_steer(cars, name, friction):
    car = EmbeddedCar(name, abs=True)
    with_abs, locked = stop(car, friction)
    without, _ = stop(cars[name], friction)
    assert not locked
    assert with_abs < 0.95 * without
    # A braking car that still turns [G, ch. 3]: half steer at full pedal.
    turned = []
    for each in (car, cars[name]):
        each.set_friction(friction_map(friction))
        each.reset((0.0, 0.0, 0.0), 25.0)
        for _ in range(30):
            reading = each.step([0.2, -1.0], 0.05)
        turned.append(reading.state.y)
    assert turned[0] > 2 * abs(turned[1]) + 0.2


def test_traction_control_keeps_the_car_straight_on_snow():
    speeds, slides = [], []
    for on in (True, False):
        car = EmbeddedCar("sedan", traction_control=on)
        car.set_friction(friction_map("snow"))
        car.reset((0.0, 0.0, 0.0), 3.0)
        worst = 0.0
        for i in range(120):
            reading = car.step([0.05 * math.sin(0.3 * i), 1.0], 0.05)
            worst = max(worst, abs(math.atan2(reading.state.vy, max(reading.state.vx, 1.0))))
        speeds.append(reading.state.vx)
        slides.append(worst)
    assert slides[0] < 0.15 < slides[1]
    assert speeds[0] > speeds[1]


@pytest.mark.parametrize("name", ["sedan", "hatchback", "van"])
def test_understeer_gradient_is_moderate_and_independent_of_speed(cars, ramps, name):
    slow, fast = (understeer_gradient(cars[name], ramps[name, kph]) for kph in (80, 120))
    assert 0.5 < slow < 3.5 and 0.5 < fast < 3.5
    assert fast == pytest.approx(slow, rel=0.1, abs=0.1)


@pytest.mark.parametrize(
    ("name", "span"), [("sedan", (0.85, 1.0)), ("hatchback", (0.8, 1.0)), ("van", (0.7, 0.9))]
)
def test_lateral_limit(ramps, name, span):
    # Saloons reach 0.8 to 1.0 g, vans less [M, ch. 2].
    for kph in (80, 120):
        assert span[0] < largest_lateral(ramps[name, kph]) < span[1]


def test_lateral_limit_scales_with_friction(sedan, ramps):
    # A little more than in proportion: less load transfer, slower sliding, so more of the static friction.
    snow = largest_lateral(ramp_steer(sedan, 50 * KPH, friction=0.3))
    assert 0.3 < snow / largest_lateral(ramps["sedan", 80]) < 0.38


def test_slip_angle_at_a_lateral_acceleration_is_independent_of_speed(sedan):
    # F_y = C_alpha alpha has no speed in it [G, ch. 6].
    front, rear = [], []
    for speed in (10.0, 20.0, 30.0, 40.0):
        needed = sedan.vehicle.body.wheelbase * 4.0 / speed**2 + 0.01
        rows = ramp_steer(sedan, speed, rate=needed / 12, limit=1.5 * needed)
        k = int(np.argmax(rows[:, 3] > 4.0))
        assert k
        front.append(-np.degrees(rows[k - 12 : k + 13, 10:12].mean()))
        rear.append(-np.degrees(rows[k - 12 : k + 13, 12:14].mean()))
    for angles in (front, rear):
        assert min(angles) > 0.7 and max(angles) < 2.0
        assert np.ptp(angles) / np.mean(angles) < 0.15


def test_roll_gradient(ramps):
    # Saloons roll 4 to 7 degrees per g [G, ch. 6].
    rows = ramps["sedan", 80]
    part = (rows[:, 3] > 1.0) & (rows[:, 3] < 4.0)
    assert 3.5 < math.degrees(np.polyfit(rows[part, 3], rows[part, 5], 1)[0]) * G < 7.0


@pytest.mark.parametrize("kph", [80, 120])
def test_step_steer_response(sedan, kph):
    # ISO 7401: yaw rate reaches 90 % of its steady value in 0.15 to 0.35 s at 0.4 g.
    speed = kph * KPH
    body, steering = sedan.vehicle.body, sedan.vehicle.steering
    delta = body.wheelbase * 0.4 * G / speed**2 + 0.0020 * 0.4 * G
    hold, reading = settle(sedan, speed)
    start, rates = reading.time, []
    while reading.time - start < 4.0:
        reading = sedan.step([delta / steering.max_angle, hold(reading.state.vx, 0.01)], 0.01)
        rates.append((reading.time - start, reading.state.yaw_rate, reading.ay))
    rates = np.array(rates)
    steady = rates[-50:, 1].mean()
    assert rates[-50:, 2].mean() == pytest.approx(0.4 * G, rel=0.15)
    assert 0.15 < rates[np.argmax(rates[:, 1] > 0.9 * steady), 0] < 0.35
    overshoot = rates[:200, 1].max() / steady - 1
    assert 0.0 <= overshoot < 0.15


def test_lifting_off_in_a_turn_tucks_in(sedan):
    # The load moves to the front axle and the rear steps out: the path tightens [M, ch. 5].
    hold, reading = settle(sedan, 100 * KPH)
    delta = 0.0
    for _ in range(600):
        delta = min(max(delta + 0.0002 * (0.8 * G - reading.ay), 0.0), 0.2)
        reading = sedan.step([delta / sedan.vehicle.steering.max_angle, hold(reading.state.vx, 0.02)], 0.02)
    assert reading.ay == pytest.approx(0.8 * G, rel=0.03)
    curvature, after = reading.state.yaw_rate / reading.state.vx, []
    for _ in range(50):
        reading = sedan.step([delta / sedan.vehicle.steering.max_angle, 0.0], 0.02)
        after.append(reading.state.yaw_rate / reading.state.vx)
    assert 1.05 < max(after) / curvature < 1.6


@pytest.mark.parametrize("name", ["sedan", "hatchback", "van"])
def test_longitudinal_load_transfer(cars, name):
    # Delta F_z = m a h / L [G, ch. 1].
    car = cars[name]
    _, reading = settle(car, 25.0, seconds=3.0)
    body = car.vehicle.body
    pedal = -5.0 * body.mass * body.wheel_radius / car.vehicle.brakes.max_torque
    for _ in range(30):
        reading = car.step([0.0, pedal], 0.05)
    front = reading.load[:2].sum() - body.mass * G * body.front_share
    expected = body.mass * -reading.ax * body.cg_height / body.wheelbase
    assert reading.ax == pytest.approx(-5.0, abs=0.8)
    assert front == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", ["sedan", "hatchback", "van"])
def test_lateral_load_transfer(cars, ramps, name):
    # Sum over both axles of the load moved from side to side: m ay h / t plus the shift of the rolled mass
    # m g h_roll phi / t [G, ch. 6; roll axis near the road].
    body = cars[name].vehicle.body
    rows = ramps[name, 80]
    row = rows[np.argmax(rows[:, 3] > 4.0)]
    moved = 0.5 * ((row[7] - row[6]) + (row[9] - row[8]))
    track = 0.5 * (body.track_front + body.track_rear)
    expected = body.mass * body.cg_height * (row[3] + G * row[5]) / track
    assert moved == pytest.approx(expected, rel=0.05)


def ice_in_a_turn(car, pedal=None, seconds=5.0, speed=20.0, radius=80.0):
    """A steady left turn onto 25 m of ice; returns rows of sideslip, yaw rate, distance off the circle."""
    hold, reading = settle(car, speed)
    wheelbase, steering = car.vehicle.body.wheelbase, car.vehicle.steering.max_angle
    delta = wheelbase / radius
    for _ in range(400):
        wanted = 1 / radius - reading.state.yaw_rate / max(reading.state.vx, 1.0)
        delta += 0.012 * wanted * wheelbase
        reading = car.step([delta / steering, hold(reading.state.vx, 0.02)], 0.02)
    s = reading.state
    course, turn = s.yaw + math.atan2(s.vy, s.vx), s.vx / s.yaw_rate
    centre = (s.x - turn * math.sin(course), s.y + turn * math.cos(course))
    start = math.atan2(s.y - centre[1], s.x - centre[0])
    angles = start + np.linspace(10.0, 35.0, 15) / turn
    ring = [
        np.stack([centre[0] + r * np.cos(angles), centre[1] + r * np.sin(angles)], axis=1)
        for r in (turn - 7, turn + 7)
    ]
    car.set_friction(friction_map(1.0, [(np.concatenate([ring[0], ring[1][::-1]]), "ice")]))
    rows = []
    for _ in range(round(seconds / 0.02)):
        drive = hold(reading.state.vx, 0.02) if pedal is None else pedal
        reading = car.step([delta / steering, drive], 0.02)
        s = reading.state
        off = math.hypot(s.x - centre[0], s.y - centre[1]) - turn
        rows.append([math.atan2(s.vy, s.vx), s.yaw_rate, off])
    return np.array(rows)


def test_ice_patch_ploughs_then_snaps(sedan):
    rows = ice_in_a_turn(sedan)
    steady = rows[:10, 1].mean()
    lowest = int(np.argmin(rows[:150, 1]))
    assert rows[lowest, 1] < 0.5 * steady  # the front loses its grip: ploughing
    assert rows[lowest:200, 1].max() > 1.3 * steady  # and finds it again: snap
    assert rows[:150, 2].max() > 1.0


def test_throttle_on_ice_spins_the_rear_drive_and_ploughs_the_front_drive(cars):
    rear = ice_in_a_turn(cars["sedan"], pedal=0.6)
    front = ice_in_a_turn(cars["hatchback"], pedal=0.6)
    assert np.abs(rear[:, 0]).max() > math.radians(60)
    assert np.abs(front[:, 0]).max() < math.radians(20)
    assert front[:, 2].max() > 1.0


@pytest.mark.parametrize("name", ["sedan", "hatchback", "van"])
def test_stands_on_the_brake_without_creep(cars, name):
    car = cars[name]
    car.set_friction(friction_map(1.0))
    car.reset()
    for _ in range(60):
        first = car.step([0.0, -1.0], 0.05)
    for _ in range(600):
        reading = car.step([0.0, -1.0], 0.05)
    moved = np.array(reading.state[:3]) - np.array(first.state[:3])
    assert np.abs(moved).max() < 1e-5
    assert abs(reading.state.vx) < 1e-6


@pytest.mark.parametrize("name", ["sedan", "hatchback", "van"])
def test_stable_at_high_speed(cars, name):
    # An understeering car is stable at any speed [G, ch. 6]: the disturbance dies out.
    car = cars[name]
    speed = 50.0 if name != "van" else 35.0
    hold, reading = settle(car, speed)
    for i in range(400):
        reading = car.step([0.01 if i < 6 else 0.0, hold(reading.state.vx, 0.05)], 0.05)
    assert abs(reading.state.yaw_rate) < 1e-3 and abs(reading.state.vy) < 1e-2
    assert reading.state.vx == pytest.approx(speed, abs=3.0)


def test_spinning_wheels_cause_no_gear_hunting(sedan):
    sedan.set_friction(friction_map("ice"))
    reading, gears = sedan.reset(), []
    for _ in range(300):
        reading = sedan.step([0.0, 1.0], 0.05)
        gears.append(reading.gear)
    assert reading.slip_ratio[2:].max() > 1.0
    assert np.all(np.diff(gears) >= 0)


def test_relaxation_length_delays_the_side_force(sedan):
    # A tyre builds its side force over a rolled distance of about half a metre, not at once [Pacejka, ch. 5]:
    # after a sudden sideslip the force at 8 m/s lags by about sigma / v.
    record = pack(sedan.vehicle)["tyre"].copy()
    tyre, bristles, dt, speed = np.zeros(1, TYRE), np.zeros((2, ROWS)), 1e-3, 8.0
    forces = []
    for _ in range(400):
        tyre_forces(tyre[0], bristles, 0.0, -0.02 * speed, speed, 0.0, 3700.0, 1.0, record[0], dt)
        forces.append(float(tyre[0]["force_y"]))
    rolled = speed * dt * (1 + np.argmax(np.array(forces) > (1 - math.exp(-1)) * forces[-1]))
    assert 0.25 < rolled < 0.8


def print_table():
    """Prints what the README of `s3jax.source` quotes."""
    for name in ("sedan", "hatchback", "van"):
        car, aided = EmbeddedCar(name), EmbeddedCar(name, abs=True)
        car.set_friction(friction_map(1.0))
        reading = car.reset()
        while reading.state.vx < 100 * KPH:
            reading = car.step([0.0, 1.0], 0.01)
        print(f"{name}: 0-100 km/h {reading.time:.1f} s")
        for friction in (1.0, 0.3, 0.1):
            locked, rolling = stop(car, friction)[0], stop(aided, friction)[0]
            print(f"  100-0 km/h on {friction}: {locked:.1f} m locked, {rolling:.1f} m with anti-lock brakes")
        for kph in (80, 120):
            rows = ramp_steer(car, kph * KPH)
            gradient, limit = understeer_gradient(car, rows), largest_lateral(rows)
            print(f"  {kph} km/h: understeer {gradient:.2f} deg/g, lateral limit {limit:.2f} g")


if __name__ == "__main__":
    print_table()
