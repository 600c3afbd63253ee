"""How fast the embedded car runs: `s3jax bench source`."""

import os
import time

import numpy as np

from s3jax.source.batch import CarBatch
from s3jax.source.car import EmbeddedCar

DT = 0.05


def bench_source(vehicle: str = "sedan", steps: int = 2000, batch: int = 64) -> dict:
    """Measures control steps of 50 ms at the default substep, driven by random controls.

    Args:
      vehicle: its name.
      steps: of the single car; the batch takes as many in all.
      batch: number of cars on all cores.

    Returns:
      `steps_per_second_cpu` and `steps_per_second` of one car, by CPU and by wall time; `median_ms` and
      `p99_ms` of a step; `batch_steps_per_second` of the batch by wall time; `real_time_factor`; `cores`;
      and `table`, all that as text.
    """
    rng = np.random.default_rng(0)
    controls = np.repeat(rng.uniform(-1, 1, (steps // 20 + 1, 2)) * [0.2, 0.6], 20, axis=0)
    car = EmbeddedCar(vehicle)
    car.reset(speed=15.0)
    car.step(controls[0], DT)  # compiles
    laps = np.empty(steps)
    clock, processor = time.perf_counter(), time.process_time()
    for k in range(steps):
        begin = time.perf_counter()
        reading = car.step(controls[k], DT)
        if reading.state.vx < 2.0:
            car.reset(speed=15.0)
        laps[k] = time.perf_counter() - begin
    wall, processor = time.perf_counter() - clock, time.process_time() - processor
    cars = CarBatch(batch, vehicle)
    cars.reset(np.arange(batch), np.zeros((batch, 3)), rng.uniform(10, 30, batch))
    rounds = max(1, steps // batch)
    clock = time.perf_counter()
    for k in range(rounds):
        cars.step(np.broadcast_to(controls[k], (batch, 2)), DT)
    batch_wall = time.perf_counter() - clock
    cars.close()
    result = {
        "steps_per_second_cpu": steps / processor,
        "steps_per_second": steps / wall,
        "median_ms": float(np.median(laps) * 1e3),
        "p99_ms": float(np.percentile(laps, 99) * 1e3),
        "batch_steps_per_second": rounds * batch / batch_wall,
        "real_time_factor": steps * DT / wall,
        "cores": os.cpu_count(),
    }
    result["table"] = (
        f"one {vehicle}, 50 ms control steps of {car.substep * 1e3:g} ms substeps:\n"
        f"{result['steps_per_second_cpu']:10.0f} steps per second of CPU time\n"
        f"{result['steps_per_second']:10.0f} steps per second, {result['real_time_factor']:.0f} x real time\n"
        f"{result['median_ms']:10.2f} ms median, {result['p99_ms']:.2f} ms 99th percentile\n"
        f"{batch} of them on {result['cores']} cores:\n"
        f"{result['batch_steps_per_second']:10.0f} steps per second"
    )
    return result
