"""Driving by the wall clock: what happens when the policy, the bridge or the network stops.

Bounds are on simulated time, by which the emulated car moves, so that a busy machine cannot fail them.
"""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from beamng_bridge import watchdog
from beamng_bridge.emulator.faults import Fault
from beamng_bridge.emulator.server import SLOWEST_FRAME
from beamng_bridge.frames import Alignment
from beamng_bridge.realtime import RealTimeCar, RealTimeConfig, Timing, timing_summary
from beamng_bridge.session import Session, SessionConfig, SessionError

LEASE = RealTimeConfig().lease
PATIENT = RealTimeConfig(patience=60.0)


def wait_for(condition):
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def silence_before_braking(events):
    """Simulated seconds from the last throttle that a driver gave to the brakes after it."""
    events = list(events)
    last = max(i for i, (_, name, value) in enumerate(events) if name == "throttle" and value > 0)
    braked = next(t for t, name, value in events[last:] if name == "brake" and value == 1.0)
    return braked - events[last][0]


@pytest.fixture
def car(emulator, mounting):
    session = Session(SessionConfig(port=emulator.port, timeout=5.0))
    car = RealTimeCar(session, Alignment(), mounting, real_time=PATIENT)
    car.reset((0.0, 0.0, 0.0), 10.0)
    yield car
    emulator.heal()
    car.close()


def test_the_car_is_driven_by_the_wall_clock(emulator, car):
    began, rows = time.monotonic(), []
    for _ in range(30):
        rows.append((car.step([0.1, 0.3], 0.05), car.timing))
    assert time.monotonic() - began > 29 * 0.05  # it does not run ahead of the clock
    assert not emulator.paused
    readings, timings = zip(*rows, strict=True)
    state = readings[-1].state
    assert state.vx > 10.0 and state.steer_angle > 0.05
    assert state.yaw_rate == pytest.approx(emulator.game._reading.state.yaw_rate, abs=0.02)
    columns = {name: np.array([getattr(t, name) for t in timings]) for name in Timing._fields}
    columns["time"] = np.array([reading.time for reading in readings])
    found = timing_summary(columns)
    assert 0 < found["latency_p50"] <= found["latency_p95"] <= found["latency_max"]
    assert 0.5 < found["real_time_factor"] < 1.5
    car.reset((0.0, 0.0, 0.0), 0.0)
    assert emulator.paused and emulator.game.inputs["throttle"] == 0.0


def test_a_policy_that_hangs_is_braked_and_goes_on_with_a_fresh_reading(emulator, car):
    for _ in range(6):
        car.step([0.0, 0.5], 0.05)
    brake = emulator.game.inputs
    wait_for(lambda: brake["brake"] == 1.0 and brake["throttle"] == 0.0)
    assert silence_before_braking(emulator.game.events) <= LEASE + 2 * SLOWEST_FRAME
    wait_for(lambda: emulator.game._reading.state.vx < 9.0)
    before = len(emulator.game.events)
    slow = car.step([0.0, 1.0], 0.05)  # too old: it is not sent, and what comes back is a new reading
    assert slow.vx < 9.5 if hasattr(slow, "vx") else slow.state.vx < 9.5
    assert not any(
        name == "throttle" and value == 1.0 for _, name, value in list(emulator.game.events)[before:]
    )
    car.step([0.0, 0.4], 0.05)
    car.step([0.0, 0.4], 0.05)
    assert brake["throttle"] == pytest.approx(0.4) and brake["brake"] == 0.0
    assert car.timing.bridge_brakes >= 1


def test_a_drive_without_commands_ends_with_the_game_paused(emulator, mounting):
    session = Session(SessionConfig(port=emulator.port))
    car = RealTimeCar(session, Alignment(), mounting, real_time=RealTimeConfig(patience=0.4))
    car.reset((0.0, 0.0, 0.0), 10.0)
    car.step([0.0, 0.5], 0.05)
    wait_for(lambda: emulator.paused)
    with pytest.raises(SessionError, match=r"no fresh command came for .* does the policy hang"):
        car.step([0.0, 0.5], 0.05)
    assert emulator.game.inputs["brake"] == 1.0
    car.reset((0.0, 0.0, 0.0), 5.0)  # the session itself is sound
    assert car.step([0.0, 0.0], 0.05).state.vx == pytest.approx(5.0, abs=0.3)
    car.close()


VICTIM = """
import sys
from beamng_bridge.session import Session, SessionConfig
from beamng_bridge.realtime import RealTimeCar
car = RealTimeCar(Session(SessionConfig(port=int(sys.argv[1]))))
car.reset((0.0, 0.0, 0.0), 10.0)
while True:
    car.step([0.0, 0.8], 0.05)
"""


def test_a_killed_bridge_leaves_a_car_that_brakes(emulator):
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(emulator.port)])
    try:
        wait_for(lambda: emulator.game.inputs["throttle"] == pytest.approx(0.8))
        time.sleep(0.3)
    finally:
        victim.kill()
        victim.wait()
    wait_for(lambda: emulator.game.inputs["brake"] == 1.0)
    assert silence_before_braking(emulator.game.events) <= LEASE + SLOWEST_FRAME + 1e-6
    assert not emulator.paused  # nobody was left to pause it: the watchdog in the game did it alone
    wait_for(lambda: emulator.game._reading.state.vx < 0.5)


def test_a_cut_network_leaves_a_car_that_brakes(emulator, mounting):
    session = Session(SessionConfig(port=emulator.port, timeout=1.5))
    car = RealTimeCar(session, Alignment(), mounting)
    car.reset((0.0, 0.0, 0.0), 10.0)
    for _ in range(4):
        car.step([0.0, 0.5], 0.05)
    emulator.inject(Fault("drop", 0))
    with pytest.raises(SessionError, match="connection was lost"):
        while True:
            car.step([0.0, 0.5], 0.05)
    wait_for(lambda: emulator.game.inputs["brake"] == 1.0)
    assert silence_before_braking(emulator.game.events) <= LEASE + SLOWEST_FRAME + 1e-6
    car.close()


def test_answers_that_come_late_are_not_driven_on(emulator, car):
    """Every answer is 0.3 s late: more than the lease, less than the time-out."""
    for _ in range(4):
        car.step([0.0, 0.5], 0.05)
    before = list(emulator.game.events)
    emulator.inject(Fault("lag", 0, seconds=0.3))
    for _ in range(5):
        car.step([0.0, 0.5], 0.05)
    after = list(emulator.game.events)[len(before) :]
    assert emulator.game.inputs["throttle"] == 0.0 and emulator.game.inputs["brake"] == 1.0
    assert sum(name == "throttle" and value > 0 for _, name, value in after) <= 1


def test_a_game_that_does_not_call_the_watchdog_is_not_driven_in_real_time(emulator, mounting, monkeypatch):
    session = Session(SessionConfig(port=emulator.port))
    car = RealTimeCar(session, Alignment(), mounting)
    session.vehicle_lua("input.updateGFX = nil function onGraphicsStep(dt) end")
    monkeypatch.setattr(watchdog.Watchdog.prove, "__defaults__", (0.2,))
    with pytest.raises(SessionError, match=r"did not brake .* Drive in lock-step"):
        car.reset((0.0, 0.0, 0.0), 10.0)
    assert emulator.paused
    car.close()


def test_a_game_that_is_paused_by_someone_else_ends_the_drive(emulator, car):
    car.step([0.0, 0.5], 0.05)
    emulator.paused = True
    with pytest.raises(SessionError, match="stands still although it should run"):
        for _ in range(10):
            car.step([0.0, 0.5], 0.05)


def test_the_watchdog_lets_go_after_a_while_and_ends_with_the_loop(emulator, car, monkeypatch):
    monkeypatch.setattr(watchdog, "RELEASE", 0.6)
    car.step([0.0, 0.5], 0.05)
    car._session.send = lambda inputs: None  # only the game acts
    wait_for(lambda: emulator.game.inputs["parkingbrake"] == 1.0)
    assert emulator.game.inputs["brake"] == 0.0
    loops = [thread for thread in threading.enumerate() if thread.name == "real-time loop"]
    car._end()
    assert not any(thread.is_alive() for thread in loops)
