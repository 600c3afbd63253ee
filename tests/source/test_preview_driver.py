import numpy as np
import pytest

from s3jax.source.car import EmbeddedCar
from s3jax.source.drivers import PreviewConfig, PreviewDriver, speed_limits
from s3jax.spatial.friction import friction_map
from s3jax.spatial.reference import point_at, tracking_error
from s3jax.tracks import ice_patches, lap_reference, lap_speed, load_track

DT = 0.05


def lap(vehicle, track, surface, usage, seen=None):
    """Drives a lap; returns cross-track errors (m), sideslips (rad), time as a share of the reference's.

    The reference's speed is made for the surface, or for the one that is `seen` instead.
    """
    car, track = EmbeddedCar(vehicle), load_track(track)
    friction = ice_patches(track) if surface == "ice_patches" else friction_map(surface)
    known = friction if seen is None else friction_map(seen)
    reference = lap_reference(track, lap_speed(track, known, speed_limits(car.vehicle, usage)), DT)
    car.set_friction(friction)
    driver = PreviewDriver(reference, DT, PreviewConfig.of(car.vehicle))
    reading = car.reset(tuple(reference.samples[0, :3]), float(reference.samples[0, 3]))
    driver.reset(reading)
    errors, slide = [], []
    while not driver.finished and reading.time < 2 * reference.length * DT:
        control = driver.control(reading)
        error = tracking_error(point_at(reference, driver.cursor), reading.state)
        errors.append(float(error.cross_track))
        slide.append(np.arctan2(reading.state.vy, max(reading.state.vx, 3.0)))
        reading = car.step(control, DT)
    assert driver.finished or seen
    return np.array(errors), np.array(slide), len(errors) / reference.length


def test_a_reference_that_ignores_the_ice_leads_off_the_road():
    # It is the reference that brakes before a patch; without that no driver could.
    errors, _, _ = lap("sedan", "putnam", "ice_patches", 0.85, seen="asphalt")
    assert np.abs(errors).max() > 3.0


@pytest.mark.parametrize("surface", ["asphalt", "wet", "gravel", "snow", "ice", "ice_patches"])
def test_laps_putnam_park_on_every_surface(surface):
    errors, slide, share = lap("sedan", "putnam", surface, 0.7)
    assert np.abs(errors).max() < 1.0 and np.sqrt(np.mean(np.square(errors))) < 0.3
    assert np.abs(slide).max() < 0.35 and share < 1.08


@pytest.mark.parametrize("surface", ["asphalt", "ice_patches"])
@pytest.mark.parametrize("vehicle", ["sedan", "hatchback", "van"])
def test_laps_putnam_park_fast_with_every_vehicle(vehicle, surface):
    errors, slide, share = lap(vehicle, "putnam", surface, 0.85)
    # The track is 9 m and a car 1.8 m wide.
    assert np.abs(errors).max() < 2.5 and np.sqrt(np.mean(np.square(errors))) < 0.5
    assert np.abs(slide).max() < 0.35 and share < 1.05


@pytest.mark.parametrize("track", ["kart", "speedway", "esses"])
def test_laps_circuits_it_was_not_tuned_on(track):
    errors, slide, share = lap("sedan", track, "asphalt", 0.8)
    assert np.abs(errors).max() < 1.5 and np.abs(slide).max() < 0.35 and share < 1.08


def print_table():
    """Prints what the README of `s3jax.source` quotes."""
    laps = [("sedan", "putnam", surface, 0.85) for surface in ("asphalt", "ice_patches")]
    laps += [
        ("sedan", "putnam", surface, 0.7) for surface in ("asphalt", "wet", "snow", "ice", "ice_patches")
    ]
    laps += [(vehicle, "putnam", "ice_patches", 0.85) for vehicle in ("hatchback", "van")]
    laps += [("sedan", track, "asphalt", 0.8) for track in ("kart", "speedway", "esses")]
    for case in laps:
        errors, slide, share = lap(*case)
        rms, worst = np.sqrt(np.mean(errors**2)), np.abs(errors).max()
        beta = np.degrees(np.abs(slide).max())
        print(
            f"{' '.join(map(str, case)):34} lap {len(errors) * DT:6.1f} s ({share:.3f} of the reference's), "
            f"cross-track RMS {rms:.3f} max {worst:.2f} m, sideslip up to {beta:.1f} deg"
        )


if __name__ == "__main__":
    print_table()
