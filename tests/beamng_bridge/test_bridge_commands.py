"""Recording, alignment, doctor and the command line, with the real client and the emulated game."""

import json
import threading
import time

import numpy as np
import pytest

from beamng_bridge import record
from beamng_bridge.__main__ import main
from beamng_bridge.config import BridgeConfig
from beamng_bridge.doctor import examine
from beamng_bridge.frames import fitted_alignment
from beamng_bridge.record import Resampler, record_human
from beamng_bridge.session import Session, SessionConfig, SessionError
from s3jax.source.recording import read_recording


def test_samples_at_odd_times_become_even_rows():
    sampler, rows, now = Resampler(0.05), [], 7.0
    rng = np.random.default_rng(0)
    while now < 9.0:
        rows += sampler.add(now, [3.0 * now, 1.0])
        now += rng.uniform(0.002, 0.09)
    times = np.array([row[0] for row in rows])
    np.testing.assert_allclose(times, 0.05 * np.arange(1, len(rows) + 1))
    for k, column in ((1, -0.05), (2, 0.0), (3, 0.05)):
        np.testing.assert_allclose([row[k][0] for row in rows], 3.0 * (7.0 + times + column), atol=1e-9)
    for jump in (-0.01, 0.3):
        with pytest.raises(SessionError, match="the game was reset or stalled"):
            sampler.add(now + jump + (0.0 if jump > 0 else -1.0), [0.0, 1.0])


def test_a_human_is_recorded_without_being_paused(emulator, tmp_path):
    emulator.loaded = True  # a scenario that the human started
    emulator.game.place(3.0, -2.0, 0.5)
    emulator.game.input_event("throttle", 0.6, direct=True)
    emulator.game.input_event("steering", -0.2, direct=True)
    config = BridgeConfig(session=SessionConfig(port=emulator.port))
    with Session(config.session, attach=True) as session:
        done = record_human(session, config, tmp_path / "lap.rec", seconds=2.0)
    assert not emulator.paused and emulator.game.inputs["throttle"] == 0.6
    recording = read_recording(tmp_path / "lap.rec")
    assert recording.header["complete"] and recording.header["rows"] == done["rows"] > 30
    c = recording.columns
    np.testing.assert_allclose(np.diff(c["t"]), 0.05, atol=1e-9)
    np.testing.assert_allclose(c["steer"], 0.2, atol=1e-9)  # the game's -0.2 is ours to the left
    np.testing.assert_allclose(c["pedal"], 0.6, atol=1e-9)
    assert c["vx"][-1] > c["vx"][0] and c["yaw_rate"][-1] > 0
    # Speed is the change of place, also for the centre of gravity, which the game does not send.
    moved = np.hypot(np.diff(c["x"]), np.diff(c["y"])) / 0.05
    np.testing.assert_allclose(moved[5:], np.hypot(c["vx"], c["vy"])[6:], atol=0.25)


def test_a_game_that_vanishes_leaves_what_was_recorded(emulator, tmp_path):
    emulator.loaded = True
    config = BridgeConfig(session=SessionConfig(port=emulator.port, timeout=0.2))
    path = tmp_path / "lap.rec"
    with Session(config.session, attach=True) as session:
        threading.Timer(2.5, emulator._hang_up).start()
        with pytest.raises(SessionError, match="connection was lost"):
            record_human(session, config, path, seconds=60.0)
    recording = read_recording(path)
    assert not recording.header["complete"] and recording.header["rows"] > 20


def test_a_paused_game_ends_a_recording(emulator, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "PATIENCE", 0.3)
    emulator.loaded = emulator.paused = True
    config = BridgeConfig(session=SessionConfig(port=emulator.port))
    with (
        Session(config.session, attach=True) as session,
        pytest.raises(SessionError, match="is it paused"),
    ):
        record_human(session, config, tmp_path / "lap.rec", seconds=60.0)


def test_alignment_from_control_points():
    rng = np.random.default_rng(1)
    track = rng.uniform(-400, 400, (6, 2))
    cos, sin = np.cos(2.1), np.sin(2.1)
    level = track @ np.array([[cos, sin], [-sin, cos]]) + [30.0, -70.0]
    found = fitted_alignment(track, level + rng.normal(0.0, 0.05, level.shape))
    assert (found.x, found.y, found.yaw) == pytest.approx((30.0, -70.0, 2.1), abs=0.2)
    for wrong in (1.01 * level, level * [1, -1]):  # scaled, mirrored
        with pytest.raises(ValueError, match="m off after alignment"):
            fitted_alignment(track, wrong)
    with pytest.raises(ValueError, match="at least 3 points"):
        fitted_alignment(track[:2], level[:2])


def test_the_doctor_finds_a_healthy_game_and_a_wrong_sign(emulator, tmp_path, monkeypatch):
    config = BridgeConfig(session=SessionConfig(port=emulator.port))
    checks = examine(config, tmp_path / "shapes.json")
    assert all(check.good for check in checks), checks
    assert {"steering left", "steering right", "brake", "direct input"} <= {check.name for check in checks}
    assert json.loads((tmp_path / "shapes.json").read_text())["state"]["pos"] == ["float"]

    event = emulator.game.input_event
    monkeypatch.setattr(  # a game whose steering is + left
        emulator.game,
        "input_event",
        lambda name, value, direct: event(name, -value if name == "steering" else value, direct),
    )
    bad = {check.name for check in examine(config) if not check.good}
    assert {"steering left", "steering right"} <= bad and "throttle" not in bad


def test_commands_end_with_one_line_and_a_status(emulator, hand_made_bundle, tmp_path, capsys):
    port = f"session.port={emulator.port}"
    assert main(["surfaces", "--reset", port]) == 0
    assert "ASPHALT_WET" in capsys.readouterr().out
    out = tmp_path / "laps"
    short = ["drive.conditions=[icy]", "drive.max_time=5"]
    assert main(["drive", "--bundle", str(hand_made_bundle), "--out", str(out), port, *short]) == 0
    results = json.loads((out / "drive" / "results.json").read_text())
    assert results["simulator"] == "BeamNG.tech" and {d["end"] for d in results["drives"]} == {"timed out"}
    points = tmp_path / "points.csv"
    points.write_text("track_x,track_y,level_x,level_y\n0,0,5,5\n10,0,5,15\n0,10,-5,5\n")
    capsys.readouterr()
    assert main(["align", "--points", str(points)]) == 0
    assert "yaw: 1.57" in capsys.readouterr().out
    points.write_text("a,b\n1,2\n")
    for command in (
        ["align", "--points", str(points)],
        ["align", "--points", str(tmp_path / "none.csv")],
        ["surfaces", "session.port=1"],
        ["drive", "--bundle", str(points), port],
        ["doctor", "sesion.port=1"],
    ):
        assert main(command) == 1
        assert capsys.readouterr().err.count("\n") == 1, command


def test_the_emulator_runs_at_the_frame_rate_asked_for(beamngpy):
    from beamng_bridge.emulator import Emulator, Game

    with Emulator(Game(), fps=200.0) as emulator, Session(SessionConfig(port=emulator.port)) as session:
        began = time.monotonic()
        session.step(0.5)  # 50 frames of 10 ms
        assert time.monotonic() - began > 0.2
        assert session.poll()[0]["time"] == pytest.approx(0.5)
