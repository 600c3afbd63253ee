"""Everything that can go wrong with the game, at random moments: no hang, no guess, the car left safe."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from beamng_bridge.emulator.faults import KINDS, Fault
from beamng_bridge.frames import Alignment
from beamng_bridge.session import Session, SessionConfig, SessionError, connect
from beamng_bridge.simulator import BeamNGCar

MOMENTS = int(os.environ.get("S3JAX_FAULT_MOMENTS", 4))
TIMEOUT = 0.2
LIMIT = TIMEOUT + 5.0  # generous: a hang would be without end


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_random_moments(kind, emulator, mounting):
    moments = np.random.default_rng(KINDS.index(kind)).integers(0, 60, MOMENTS)
    for moment in moments:
        emulator.heal()
        session = Session(SessionConfig(port=emulator.port, timeout=TIMEOUT))
        car = BeamNGCar(session, Alignment(), mounting)
        car.reset((0.0, 0.0, 0.0), 10.0)
        emulator.inject(Fault(kind, int(moment), seconds=3 * TIMEOUT))
        readings, began = 0, time.monotonic()
        with pytest.raises(SessionError) as caught:
            for _ in range(40):
                began = time.monotonic()
                car.step([0.1, 0.2], 0.05)
                readings += 1
        assert time.monotonic() - began < LIMIT
        assert abs(readings - moment // 3) <= 1  # three messages a step: what came before was not lost
        assert emulator.paused or not emulator.loaded
        message = str(caught.value)
        assert "\n" not in message and any(hint in message for hint in ("start again", "restart", "stale"))
        with pytest.raises(SessionError, match="the session ended before"):
            car.step([0.0, 0.0], 0.05)
        car.close()
        if kind in ("delay", "lag"):
            time.sleep(2 * TIMEOUT)


def test_a_broken_session_is_replaced_by_a_new_one(emulator, mounting):
    session = Session(SessionConfig(port=emulator.port, timeout=TIMEOUT))
    emulator.inject(Fault("restart", 0))
    with pytest.raises(SessionError):
        session.poll()
    emulator.heal()
    again = connect(SessionConfig(port=emulator.port, timeout=TIMEOUT))
    car = BeamNGCar(again, Alignment(), mounting)
    assert car.reset((0.0, 0.0, 0.0), 5.0).state.vx == pytest.approx(5.0, abs=0.1)
    car.close()


def test_a_closed_session_leaves_the_car_braking_and_the_game_paused(emulator, mounting):
    with Session(SessionConfig(port=emulator.port)) as session:
        car = BeamNGCar(session, Alignment(), mounting)
        car.reset((0.0, 0.0, 0.0), 10.0)
        car.step([0.0, 1.0], 0.05)
        assert emulator.game.inputs["throttle"] == 1.0
    assert emulator.game.inputs["throttle"] == 0.0 and emulator.game.inputs["brake"] == 1.0
    assert emulator.paused and emulator.loaded


def test_no_game_is_said_plainly_and_tried_again_with_growing_pauses(beamngpy):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pauses = []
    with pytest.raises(SessionError, match=rf"no BeamNG.tech answers on 127\.0\.0\.1:{port} .*Start it with"):
        connect(SessionConfig(port=port), tries=4, sleep=pauses.append)
    assert pauses == [1.0, 2.0, 4.0]


def test_another_protocol_is_refused(beamngpy, monkeypatch):
    monkeypatch.setattr("beamng_bridge.emulator.server.PROTOCOL", "v1.26")
    from beamng_bridge.emulator import Emulator, Game

    with (
        Emulator(Game()) as emulator,
        pytest.raises(SessionError, match="Mismatching BeamNGpy protocol versions"),
    ):
        Session(SessionConfig(port=emulator.port))


def test_a_step_that_is_no_multiple_of_a_frame_is_refused(emulator):
    config = SessionConfig(port=emulator.port, steps_per_second=30)
    with Session(config) as session, pytest.raises(SessionError, match="choose steps_per_second"):
        session.step(0.05)


def test_inputs_of_a_gamepad_lag_and_direct_ones_do_not(emulator):
    for direct, expected in ((True, -1.0), (False, -0.1)):
        with Session(SessionConfig(port=emulator.port, direct_input=direct)) as session:
            session.send({"steering": 0.0})
            session.step(2.0)
            session.send({"steering": -1.0})
            session.step(0.05)
            assert session.poll()[1]["steering_input"] == pytest.approx(expected)


def test_importing_the_bridge_imports_neither_jax_nor_beamngpy(beamngpy):
    modules = ["session", "simulator", "surfaces", "frames", "bundle", "emulator"]
    code = "; ".join(f"import beamng_bridge.{name}" for name in modules) + (
        "; import sys; heavy = {'jax', 'flax', 'tensorflow', 'beamngpy'} & set(sys.modules)"
        "; sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
