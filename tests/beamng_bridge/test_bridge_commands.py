"""Recording, alignment, doctor and the command line, with the real client and the emulated game."""

import json
import subprocess
import sys
import threading
import time
from pathlib import PureWindowsPath

import numpy as np
import pytest

from beamng_bridge import lockstep, record
from beamng_bridge.__main__ import main
from beamng_bridge.calibration import Calibration, calibrate
from beamng_bridge.config import BridgeConfig, open_car, session_mounting
from beamng_bridge.doctor import examine
from beamng_bridge.emulator.game import GROUND_MODELS
from beamng_bridge.frames import fitted_alignment
from beamng_bridge.journal import JournalWriter, read_journal
from beamng_bridge.record import convert, numbered, record_human
from beamng_bridge.replay import replay_controls
from beamng_bridge.session import Session, SessionConfig, SessionError, connect
from beamng_bridge.simulator import BeamNGCar
from beamng_bridge.surfaces import ground_models
from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.source.recording import read_recording
from s3jax.spatial.friction import friction_map


@pytest.fixture
def config(emulator):
    return BridgeConfig(session=SessionConfig(port=emulator.port))


def test_a_human_is_recorded_without_being_paused(emulator, config, tmp_path):
    emulator.loaded = True  # a scenario that the human started
    emulator.game.place(3.0, -2.0, 0.5)
    emulator.game.input_event("throttle", 0.6, direct=True)
    emulator.game.input_event("steering", -0.2, direct=True)
    with Session(config.session, attach=True) as session:
        record_human(session, config, tmp_path / "lap.jsonl", seconds=2.0)
    assert not emulator.paused and emulator.game.inputs["throttle"] == 0.6
    assert convert(tmp_path / "lap.jsonl", tmp_path / "lap.rec") == [tmp_path / "lap.rec"]
    recording = read_recording(tmp_path / "lap.rec")
    assert recording.header["complete"] and recording.header["rows"] > 30
    c = recording.columns
    np.testing.assert_allclose(np.diff(c["t"]), 0.05, atol=1e-9)
    np.testing.assert_allclose(c["steer"], 0.2, atol=1e-9)  # the game's -0.2 is ours to the left
    np.testing.assert_allclose(c["pedal"], 0.6, atol=1e-9)
    assert c["vx"][-1] > c["vx"][0] and c["yaw_rate"][-1] > 0
    # Speed is the change of place, also for the centre of gravity, which the game does not send.
    moved = np.hypot(np.diff(c["x"]), np.diff(c["y"])) / 0.05
    np.testing.assert_allclose(moved[5:], np.hypot(c["vx"], c["vy"])[6:], atol=0.25)


def test_a_game_that_vanishes_leaves_what_was_recorded(emulator, config, tmp_path):
    emulator.loaded = True
    journal = tmp_path / "lap.jsonl"
    with Session(config.session, attach=True) as session:
        threading.Timer(2.5, emulator._hang_up).start()
        with pytest.raises(SessionError, match="connection was lost"):
            record_human(session, config, journal, seconds=60.0)
    assert read_journal(journal).ended.startswith("SessionError")
    convert(journal, tmp_path / "lap.rec")
    assert read_recording(tmp_path / "lap.rec").header["rows"] > 20
    with Session(config.session, attach=True) as session, pytest.raises(FileError, match="exists already"):
        record_human(session, config, journal, seconds=1.0)


def test_a_paused_game_ends_a_recording(emulator, config, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "PATIENCE", 0.3)
    emulator.loaded = emulator.paused = True
    with (
        Session(config.session, attach=True) as session,
        pytest.raises(SessionError, match="is it paused"),
    ):
        record_human(session, config, tmp_path / "lap.jsonl", seconds=60.0)


def straight(begin, count, x=0.0, rng=None):
    """What the sensors say of a car that goes along +y at 10 m/s, sampled at odd times."""
    at = begin
    for _ in range(count):
        state = {
            "time": at,
            "pos": [x, 10 * (at - begin), 0.2],
            "dir": [0.0, 1.0, 0.0],
            "vel": [0.0, 10.0, 0.0],
        }
        electrics = {"steering": 0.0, "steering_input": 0.1, "throttle_input": 0.2, "brake_input": 0.0}
        yield state, electrics
        at += 0.017 if rng is None else rng.uniform(0.002, 0.09)


def test_samples_at_odd_times_become_even_rows_and_jumps_begin_new_recordings(tmp_path):
    rng = np.random.default_rng(0)
    with JournalWriter(tmp_path / "j.jsonl", {"config": BridgeConfig().dump()}) as journal:
        for samples in (
            straight(7.0, 80, rng=rng),
            straight(90.0, 80),  # later
            straight(91.4, 200, x=300.0),  # elsewhere, as after a reset by the human
            straight(200.0, 5),  # too short
        ):
            for sample in samples:
                journal.append(*sample)
    paths = convert(tmp_path / "j.jsonl", tmp_path / "j.rec", ["mounting.max_angle=0.5"], friction=0.7)
    assert [path.name for path in paths] == ["j.rec", "j-2.rec", "j-3.rec"]
    for path, x in zip(paths, (0.0, 0.0, 300.0), strict=True):
        recording = read_recording(path)
        c = recording.columns
        np.testing.assert_allclose(np.diff(c["t"]), 0.05, atol=1e-9)
        np.testing.assert_allclose(np.diff(c["y"]), 0.5, atol=1e-6)
        np.testing.assert_allclose(c["x"], x, atol=1e-9)
        assert set(c["friction_fl"]) == {0.7} and set(c["steer"].round(9)) == {-0.1}
        assert recording.header["complete"] and recording.header["mounting"]["max_angle"] == 0.5


def test_a_journal_cut_anywhere_is_recovered(tmp_path):
    path = tmp_path / "j.jsonl"
    with JournalWriter(path, {"config": BridgeConfig().dump()}) as journal:
        for sample in straight(0.0, 200):
            journal.append(*sample)
    data, whole = path.read_bytes(), len(read_journal(path).samples)
    assert whole == 200
    for cut in np.random.default_rng(1).integers(data.index(b"\n") + 1, len(data) - 30, 20):
        path.write_bytes(data[:cut])
        found = read_journal(path)
        assert found.ended is None and len(found.samples) == data[:cut].count(b"\n") - 1
    path.write_bytes(data[: len(data) * 3 // 4] + b"\0" * 50 + data[-40:])  # as a power cut leaves it
    assert len(read_journal(path).samples) == data[: len(data) * 3 // 4].count(b"\n") - 1
    assert not read_recording(convert(path, tmp_path / "j.rec")[0]).header["complete"]
    for wrong in (b"", b"{}", b"[1]\n", data[: data.index(b"\n") + 1]):
        path.write_bytes(wrong)
        with pytest.raises(FileError, match=r"not a journal|less than a second"):
            convert(path, tmp_path / "k.rec")


KILLED = """
import sys
from beamng_bridge.__main__ import main
main(["record", "--out", sys.argv[2], "session.port=" + sys.argv[1]])
"""


def test_a_killed_recorder_loses_nothing_it_had_polled(emulator, tmp_path, capsys):
    emulator.loaded = True
    emulator.game.input_event("throttle", 0.5, direct=True)
    out, journal = tmp_path / "lap.rec", tmp_path / "lap.jsonl"
    victim = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(emulator.port), out], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60.0
        while not journal.exists() or len(read_journal(journal).samples) < 90:
            assert time.monotonic() < deadline, "nothing was recorded"
            time.sleep(0.1)
    finally:
        victim.kill()
        victim.wait()
    assert main(["convert", str(journal)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert read_recording(out).header["rows"] > 20 and not read_recording(out).header["complete"]


def test_drivers_are_recorded_in_lock_step_and_replayed(emulator, config, hand_made_bundle, tmp_path, capsys):
    port = f"session.port={emulator.port}"
    common = ["mounting.max_angle=0.6", port]
    for kind, more in (
        ("scripted", ["--seconds", "12"]),
        ("policy", ["--seconds", "6", "--bundle", str(hand_made_bundle), "--condition", "icy"]),
        ("baseline", ["--seconds", "3"]),
    ):
        path = tmp_path / f"{kind}.rec"
        assert main(["record", "--driver", kind, "--out", str(path), *more, *common]) == 0
        recording = read_recording(path)
        assert recording.header["complete"] and recording.header["driver"] == kind
        assert np.ptp(recording.columns["steer"]) > 0
    assert read_recording(tmp_path / "policy.rec").header["rows"] == 120
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "policy.rec"), *common]) == 0
    text = capsys.readouterr().out
    assert "after  5.0 s: 0.0" in text  # the same car, the same start: centimetres
    assert main(["replay", "--poses", "--speed", "50", str(tmp_path / "baseline.rec"), *common]) == 0
    assert "at most 0.00 m" in capsys.readouterr().out
    # Another road: it strays.
    emulator.game.grip = lambda static, sliding: 0.3 * static
    with connect(config.session) as session:
        mounting = session_mounting(session, config)
        car = BeamNGCar(session, config.alignment, mounting.model_copy(update={"max_angle": 0.6}))
        emulator.game.set_ground_model("ASPHALT", 1.0, 0.68)
        found = replay_controls(car, tmp_path / "scripted.rec")
        assert found["at"][5.0] > 1.0 and found["time"][-1] == pytest.approx(len(found["position"]) * 0.05)


def test_roaming_drivers_are_put_back_before_they_leave_the_level(emulator, config, tmp_path, monkeypatch):
    monkeypatch.setattr(lockstep, "ROOM", 40.0)
    with open_car(config) as (_, car):
        paths = lockstep.record_driver(car, config, "random", tmp_path / "roam.rec", 15.0, "wet", seed=3)
    assert len(paths) > 1 and paths[1].name == "roam-2.rec"
    rows = [read_recording(path).columns for path in paths]
    assert max(np.hypot(c["x"], c["y"]).max() for c in rows) < 42.0
    assert sum(len(c["t"]) for c in rows) == pytest.approx(15.0 / 0.05, abs=len(paths))
    assert set(rows[0]["friction_rl"]) == {0.7}


def test_braking_tests_find_the_friction_that_coefficients_are_worth(emulator, config, tmp_path):
    """The emulated game's friction is no multiple of its coefficients; the bridge does not know how it is."""
    law = emulator.game.grip = lambda static, sliding: static**1.5
    emulator.game.set_ground_model("ASPHALT", 1.0, 0.68)
    file = tmp_path / "calibration.yaml"
    assert main(["surfaces", "--calibrate", str(file), f"session.port={emulator.port}"]) == 0
    found = Calibration.load(file)
    for name, (static, sliding) in GROUND_MODELS.items():
        assert found.models[name] == pytest.approx(law(static, sliding), rel=0.04), name
    config = config.model_copy(update={"calibration": file})
    with open_car(config) as (_, car):
        for wanted in (0.1, 0.3, 0.6, 1.0):
            car.set_friction(friction_map(wanted))
            car.reset((0.0, 0.0, 0.0), 5.0)
            models = ground_models(car._session)
            real = law(models["ASPHALT"]["static"], None)
            assert real == pytest.approx(wanted, rel=0.06)
    assert ground_models_of(emulator)["ASPHALT"] == (1.0, 0.68)
    with pytest.raises(ConfigError, match="measured on ASPHALT, but the road is ICE"):
        config.model_copy(update={"road": "ICE"}).measured()


def ground_models_of(emulator):
    with connect(SessionConfig(port=emulator.port)) as session:
        return {name: (m["static"], m["sliding"]) for name, m in ground_models(session).items()}


def test_a_road_of_another_model_cannot_be_calibrated(emulator, config):
    with connect(config.session) as session, pytest.raises(SessionError, match="not made of GRAVEL"):
        calibrate(session, "GRAVEL", config.alignment, session_mounting(session, config))


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
    out, short = tmp_path / "laps", "drive.max_time=5"
    bundle = ["--bundle", str(hand_made_bundle)]
    assert main(["eval", *bundle, "--conditions", "icy,snow", "--out", str(out), port, short]) == 0
    results = json.loads((out / "beamng" / "results.json").read_text())
    assert results["simulator"] == "BeamNG.tech in lock-step"
    laps = [(lap["condition"], lap["driver"], lap["end"]) for lap in results["drives"]]
    assert laps == [(c, d, "timed out") for c in ("icy", "snow") for d in ("policy", "baseline")]
    assert "| snow | baseline | timed out |" in capsys.readouterr().out
    out = tmp_path / "lap"
    assert main(["drive", *bundle, "--real-time", "drive.max_time=1", "--out", str(out), port]) == 0
    assert json.loads((out / "beamng" / "timing.json").read_text())["dry_policy"]["real_time_factor"] > 0
    assert "dry_policy: latency" in capsys.readouterr().out
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
        ["eval", "--bundle", str(hand_made_bundle), "--conditions", "muddy", "--out", str(tmp_path), port],
        ["record", "--driver", "policy", "--out", "x.rec", port],
        ["convert", str(points)],
        ["replay", str(points), port],
        ["surfaces", "--calibrate", "c.yaml", "road=null", port],
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


def test_names_and_settings_fit_windows(monkeypatch):
    written = []
    monkeypatch.setattr("beamng_bridge.commands._laps", lambda args, out, *more: written.append(out))
    assert main(["drive", "--bundle", r"C:\Users\me\policy.npz"]) == 0
    names = [*written[0].parts, numbered("laps/lap.rec", 12).name]
    assert not any(set(name) & set('<>:"|?*') for name in names)
    assert PureWindowsPath(r"C:\laps\lap.rec").with_suffix(".jsonl").name == "lap.jsonl"
    config = BridgeConfig.load(None, [r"calibration=C:\data\putnam.yaml", r"drive.track=C:\laps\lap.rec"])
    assert str(config.calibration) == r"C:\data\putnam.yaml" and config.drive.track == r"C:\laps\lap.rec"
