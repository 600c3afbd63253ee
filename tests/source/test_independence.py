"""The car is not a single track with Magic Formula tyres, so distilling one from it is not circular.

The best such model is fitted to three-second rollouts of the car, with every advantage: it is told the true
speed, the true angle of the road wheels and the true longitudinal acceleration at all times, and only has to
find the lateral motion. In gentle driving it does; at the limit it cannot.
"""

import math

import numba
import numpy as np
import pytest
from scipy.optimize import least_squares

from s3jax.source.car import EmbeddedCar
from s3jax.source.drivers import LimitDriver, Manoeuvre
from s3jax.spatial.friction import friction_map

DT = 0.05
ROWS = 61  # three seconds
G = 9.81

#            B front, rear  C     C     D    D    E    E   shifts    inertia  bias  height  axle
START = np.array([12.0, 12.0, 1.3, 1.3, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.6, 0.2, 1.29])
LOW = np.array([4.0, 4.0, 1.0, 1.0, 0.6, 0.6, -3.0, -3.0, -0.02, -0.02, 0.5, 0.4, 0.0, 1.0])
HIGH = np.array([40.0, 40.0, 2.2, 2.2, 1.5, 1.5, 1.0, 1.0, 0.02, 0.02, 2.0, 0.9, 0.4, 1.6])


@numba.njit(cache=True)
def rollout(p, windows, out):
    """Integrates the single track over windows [W, T, 8] of x, y, yaw, vx, vy, yaw rate, steer angle, ax.

    Fills the predicted x, y, yaw [W, T, 3]. Magic Formula and friction ellipse: Pacejka, ch. 1 and 4.
    """
    front, wheelbase, h = p[13], 2.7, 0.01
    rear = wheelbase - front
    for w in range(windows.shape[0]):
        x, y, yaw, _, vy, rate, _, _ = windows[w, 0]
        out[w, 0] = x, y, yaw
        for k in range(windows.shape[1] - 1):
            a, b = windows[w, k], windows[w, k + 1]
            ax = b[7]  # mean over the step
            share = 0.0 if ax > 0 else p[11]
            load_f = G * (rear - p[12] * wheelbase * ax / G) / wheelbase
            load_r = G - load_f
            for i in range(5):
                t = (i + 0.5) / 5
                vx, delta = a[3] + t * (b[3] - a[3]), a[6] + t * (b[6] - a[6])
                alpha_f = delta - math.atan((vy + front * rate) / vx) + p[8]
                alpha_r = -math.atan((vy - rear * rate) / vx) + p[9]
                sf, sr = p[0] * alpha_f, p[1] * alpha_r
                mf = math.sin(p[2] * math.atan(sf - p[6] * (sf - math.atan(sf))))
                mr = math.sin(p[3] * math.atan(sr - p[7] * (sr - math.atan(sr))))
                left_f = max(1 - (share * ax / (p[4] * load_f)) ** 2, 0.02)
                left_r = max(1 - ((1 - share) * ax / (p[5] * load_r)) ** 2, 0.02)
                ff = p[4] * load_f * mf * math.sqrt(left_f) * math.cos(delta)
                fr = p[5] * load_r * mr * math.sqrt(left_r)
                vy += h * (ff + fr - vx * rate)
                rate += h * (front * ff - rear * fr) / (p[10] * front * rear)
                yaw += h * rate
                x += h * (vx * math.cos(yaw) - vy * math.sin(yaw))
                y += h * (vx * math.sin(yaw) + vy * math.cos(yaw))
            out[w, k + 1] = x, y, yaw


def errors(p, windows):
    """Distance (m) and heading error (rad) of the prediction, each [W, T]."""
    out = np.empty((*windows.shape[:2], 3))
    rollout(p, windows, out)
    gap = np.hypot(out[..., 0] - windows[..., 0], out[..., 1] - windows[..., 1])
    return gap, out[..., 2] - windows[..., 2]


def fit(windows):
    def residual(p):
        gap, heading = errors(p, windows)
        return np.concatenate([gap[:, 10::10].ravel(), 5.0 * heading[:, 10::10].ravel()])

    found = least_squares(
        residual, START, bounds=(LOW, HIGH), x_scale=HIGH - LOW, loss="soft_l1", max_nfev=30
    )
    return found.x


def drive(make, seeds, seconds=60.0):
    """Drives the sedan on asphalt and returns three-second windows in which it keeps rolling forward."""
    car = EmbeddedCar()
    car.set_friction(friction_map(1.0))
    windows = []
    for seed in seeds:
        driver = make(car.vehicle, 1.0, np.random.default_rng(seed), DT)
        reading = car.reset((0.0, 0.0, 0.0), 20.0)
        driver.reset(reading)
        rows = []
        for _ in range(round(seconds / DT)):
            rows.append([*reading.state, reading.ax])
            reading = car.step(driver.control(reading), DT)
        rows = np.array(rows)
        rows[:, 2] = np.unwrap(rows[:, 2])
        for start in range(0, len(rows) - ROWS, ROWS // 2):
            window = rows[start : start + ROWS]
            slide = np.abs(np.arctan2(window[:, 4], window[:, 3])).max()
            used = np.hypot(window[:, 3] * window[:, 5], window[:, 7]).max() / G
            if window[:, 3].min() > 5.0 and slide < 0.6:
                windows.append((used, window))
    return windows


def gentle(vehicle, friction, rng, dt):
    names = ("step", "ramp", "sine", "double_lane_change", "coast")
    return Manoeuvre(vehicle, friction, rng, dt, speed=(10, 30), strength=(0.1, 0.35), names=names)


def stacked(windows, low, high):
    return np.stack([window for used, window in windows if low <= used < high])


def fitted_at_the_limit():
    """Returns the windows to fit, the windows held out, and the best parameters."""
    train, held_out = (stacked(drive(LimitDriver, seeds), 0.75, 9.0) for seeds in (range(8), range(10, 14)))
    return train, held_out, fit(train)


def fitted_gently():
    """Likewise, for gentle driving."""
    train, held_out = (stacked(drive(gentle, seeds), 0.0, 0.5) for seeds in (range(1), range(10, 12)))
    return train, held_out, fit(train)


@pytest.fixture(scope="module")
def at_the_limit():
    return fitted_at_the_limit()


def test_a_single_track_follows_gentle_driving():
    _, held_out, best = fitted_gently()
    gap, _ = errors(best, held_out)
    assert len(held_out) > 30
    assert gap[:, -1].mean() < 0.5


def test_a_single_track_cannot_be_the_car_at_the_limit(at_the_limit):
    train, held_out, best = at_the_limit
    gap, _ = errors(best, held_out)
    assert len(train) > 60 and len(held_out) > 40
    assert gap[:, -1].mean() > 0.5
    # And not for a few outliers, nor for want of data: the typical window too, and those it was fitted to.
    assert np.median(gap[:, -1]) > 0.25
    assert errors(best, train)[0][:, -1].mean() > 0.4


def test_the_fit_is_the_best_there_is_nearby(at_the_limit):
    train, _, best = at_the_limit
    score = np.mean(errors(best, train)[0][:, -1])
    assert score < 0.5 * np.mean(errors(START, train)[0][:, -1])
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = np.clip(best + 0.05 * (HIGH - LOW) * rng.standard_normal(len(best)), LOW, HIGH)
        assert np.mean(errors(other, train)[0][:, -1]) > 0.9 * score


def print_table():
    """Prints what the README of `s3jax.source` quotes."""
    for name, (train, held_out, best) in (("gentle", fitted_gently()), ("limit", fitted_at_the_limit())):
        for part, windows in (("fitted", train), ("held out", held_out)):
            gap = errors(best, windows)[0][:, -1]
            spread = f"median {np.median(gap):.3f} m, 95 % {np.percentile(gap, 95):.2f} m"
            print(f"{name:7} {part:9} {len(windows):4} windows, 3 s: mean {gap.mean():.3f} m, {spread}")


if __name__ == "__main__":
    print_table()
