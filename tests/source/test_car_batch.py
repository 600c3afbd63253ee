import numpy as np
import pytest

from s3jax.source.base import SourceError
from s3jax.source.batch import CarBatch
from s3jax.source.car import EmbeddedCar
from s3jax.spatial.friction import friction_map

DT = 0.05
COUNT = 84
STEPS = 200


def patchwork(rng):
    patches = []
    for _ in range(25):
        centre, half = rng.uniform(-100, 100, 2), rng.uniform(2, 20, 2)
        corners = centre + half * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
        patches.append((corners, rng.choice([0.05, 0.1, 0.3, 1.0, 1.2])))
    return friction_map(rng.choice([0.1, 0.3, 0.7, 1.0]), patches)


@pytest.mark.parametrize(
    ("vehicle", "aids"), [("sedan", False), ("hatchback", True), ("van", False)], ids=lambda value: str(value)
)
def test_survives_random_bang_bang_controls_without_creating_energy(vehicle, aids):
    # 3 x 84 cars x 200 steps: 50,400 control steps.
    rng = np.random.default_rng(len(vehicle))
    batch = CarBatch(COUNT, vehicle, abs=aids, traction_control=aids)
    batch.set_friction(patchwork(rng))
    poses = np.concatenate([rng.uniform(-80, 80, (COUNT, 2)), rng.uniform(-3, 3, (COUNT, 1))], axis=1)
    batch.reset(np.arange(COUNT), poses, rng.uniform(-10, 55, COUNT))
    start = [batch.energy(n) for n in range(COUNT)]
    moved_backward = 0
    for k in range(STEPS):
        if k % 6 == 0:
            steer = rng.choice([-1, 1], COUNT) * rng.uniform(0, 1, COUNT) ** 0.5
            pedal = rng.choice([-1, 0, 1], COUNT, p=[0.3, 0.2, 0.5]) * rng.uniform(0, 1, COUNT)
        reading = batch.step(np.stack([steer, pedal], axis=1), DT)
        state = reading.state
        for field in (*state, reading.ax, reading.ay, reading.load):
            assert np.isfinite(field).all()
        # The envelope of a car: no faster than it can be, no harder than tyres and stops allow.
        assert np.hypot(state.vx, state.vy).max() < 70 and np.abs(state.yaw_rate).max() < 10
        assert np.hypot(reading.ax, reading.ay).max() < 2.2 * 9.81
        moved_backward += int((state.vx < -1).sum())
        if k % 20 == 19:
            for n in range(COUNT):
                energy, work = batch.energy(n)
                gained = energy - start[n][0] - work
                assert gained < 300 + 0.002 * abs(start[n][0] + abs(work)), (n, k)
    assert moved_backward > 100
    batch.close()


def test_each_car_is_the_single_car_to_the_bit():
    rng = np.random.default_rng(1)
    controls = rng.uniform(-1, 1, (30, 7, 2))
    poses, speeds = rng.uniform(-3, 3, (7, 3)), rng.uniform(0, 30, 7)
    batch = CarBatch(7, threads=2)
    batch.set_friction(friction_map("wet"))
    batch.reset(np.arange(7), poses, speeds)
    for row in controls:
        together = batch.step(row, DT)
    car = EmbeddedCar()
    car.set_friction(friction_map("wet"))
    for n in (0, 3, 6):
        car.reset(poses[n], speeds[n])
        for row in controls:
            alone = car.step(row[n], DT)
        assert np.array_equal([f[n] for f in together.state], alone.state)
        assert together.ax[n] == alone.ax and together.time[n] == alone.time
    before = [field.copy() for field in together.state]
    batch.reset([2], [[0, 0, 0]], [5.0])
    after = batch.reading().state
    assert after.vx[2] == 5.0 and np.array_equal(np.delete(before[3], 2), np.delete(after.vx, 2))


def test_refuses_what_does_not_fit():
    batch = CarBatch(3)
    with pytest.raises(SourceError, match="shape"):
        batch.step(np.zeros(2), DT)
    controls = np.zeros((3, 2))
    controls[2, 1] = np.nan
    with pytest.raises(SourceError, match="pedal"):
        batch.step(controls, DT)
    with pytest.raises(SourceError, match="at least 1"):
        CarBatch(0)
