import numpy as np
import pytest

from s3jax.source.car import EmbeddedCar
from s3jax.source.drivers import PreviewConfig, PreviewDriver
from s3jax.spatial.friction import friction_map
from s3jax.spatial.reference import point_at, tracking_error
from s3jax.tracks import ice_patches, lap_reference, lap_speed, putnam_park

DT = 0.05


@pytest.mark.parametrize("surface", ["asphalt", "ice_patches"])
def test_laps_putnam_park_inside_the_track_without_a_spin(surface):
    track = putnam_park()
    friction = ice_patches(track) if surface == "ice_patches" else friction_map(surface)
    reference = lap_reference(track, lap_speed(track, friction), DT)
    car = EmbeddedCar()
    car.set_friction(friction)
    driver = PreviewDriver(reference, DT, PreviewConfig.of(car.vehicle))
    reading = car.reset(tuple(reference.samples[0, :3]), float(reference.samples[0, 3]))
    driver.reset(reading)
    errors, slide = [], []
    while not driver.finished and reading.time < 1.1 * reference.length * DT:
        control = driver.control(reading)
        error = tracking_error(point_at(reference, driver.cursor), reading.state)
        errors.append(float(error.cross_track))
        slide.append(np.arctan2(reading.state.vy, max(reading.state.vx, 3.0)))
        reading = car.step(control, DT)
    assert driver.finished
    assert np.abs(errors).max() < 1.5 and np.sqrt(np.mean(np.square(errors))) < 0.5
    assert np.abs(slide).max() < 0.35
    assert len(errors) * DT < 1.05 * reference.length * DT
