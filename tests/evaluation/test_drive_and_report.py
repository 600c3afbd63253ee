"""The stages `drive` and `report`: real laps in the embedded car, without JAX, resumed and reported."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.evaluation.closed_loop import Log
from s3jax.evaluation.drive import DriveConfig, PatchConfig, drive_laps, make_course, reference
from s3jax.source.car import EmbeddedCar
from s3jax.source.drivers import PreviewDriver
from s3jax.source.recording import COLUMNS, RecordingWriter, read_recording
from s3jax.tracks import lap_reference, project, skid_pad

DRIVE = """
import sys
from s3jax.cli import main
status = main(["drive", sys.argv[1], "--out", sys.argv[2]])
status = status or main(["report", sys.argv[3]])
heavy = [name for name in ("jax", "flax", "tensorflow", "beamngpy") if name in sys.modules]
sys.exit(status or (f"imported {heavy}" if heavy else 0))
"""


@pytest.fixture(scope="module")
def run(hand_made_bundle, tmp_path_factory):
    """A run folder with laps and a report, made in one process that must not load JAX."""
    folder = tmp_path_factory.mktemp("run")
    subprocess.run(
        [sys.executable, "-c", DRIVE, hand_made_bundle, folder / "drive", folder], check=True, timeout=300
    )
    return folder


def test_all_laps_finish_and_the_table_has_them(run):
    results = json.loads((run / "drive" / "results.json").read_text())
    assert [(d["condition"], d["driver"], d["end"]) for d in results["drives"]] == [
        (condition, driver, "finished") for condition in ("dry", "icy") for driver in ("policy", "baseline")
    ]
    assert all(d["metrics"]["cross_track_rms"] < 0.6 for d in results["drives"])
    dry, icy = (results["drives"][i]["metrics"]["time"] for i in (0, 2))
    assert icy > dry + 10  # the reference slows down for the ice
    assert results["table"].count("\n") == 5


def test_a_lap_is_the_same_lap_again_and_finished_ones_are_kept(run, hand_made_bundle, tmp_path):
    before = json.loads((run / "drive" / "results.json").read_text())
    kept = (run / "drive" / "dry_policy.npz").stat().st_mtime_ns
    (run / "drive" / "icy_policy.npz").unlink()
    again = drive_laps(DriveConfig(), hand_made_bundle, run / "drive")
    assert again == before
    assert (run / "drive" / "dry_policy.npz").stat().st_mtime_ns == kept
    with pytest.raises(ConfigError, match="another configuration or policy"):
        drive_laps(DriveConfig(max_time=9.0), hand_made_bundle, run / "drive")
    with pytest.raises(ConfigError, match=r"unknown 'muddy'.*dry, icy, wet"):
        drive_laps(DriveConfig(conditions=("muddy",)), hand_made_bundle, tmp_path / "other")


def test_the_page_is_self_contained_and_says_what_the_table_says(run):
    text = (run / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert len(sources) == 5 and all(source.startswith("data:image/") for source in sources)
    prose = re.sub(r'"data:[^"]*"', "", text)
    assert not re.search(r"https?:|@import|url\(|<script|<link", prose)
    shown = re.findall(r"<td>([-0-9.]+)</td>", text)
    metrics = json.loads((run / "figures" / "table.json").read_text())[2]["metrics"]
    assert f"{metrics['cross_track_rms']:.3f}" in shown and f"{metrics['time']:.1f}" in shown
    assert "has not been compared with a measured car" in text
    for condition in ("dry", "icy"):
        assert (run / "figures" / f"laps_{condition}.gif").stat().st_size < 3e6


def test_a_refused_drive_leaves_the_folder_free(tmp_path, hand_made_bundle):
    with pytest.raises(ValueError, match="unknown vehicle 'boat'"):
        drive_laps(DriveConfig(vehicle="boat"), hand_made_bundle, tmp_path / "drive")
    assert not (tmp_path / "drive").exists()


@pytest.mark.parametrize("vehicle", ["hatchback", "van"])
def test_every_vehicle_is_driven_at_its_own_limits(vehicle, hand_made_bundle, tmp_path):
    config = DriveConfig(vehicle=vehicle, drivers=("baseline",), conditions=("dry",))
    (lap,) = drive_laps(config, hand_made_bundle, tmp_path / vehicle)["drives"]
    assert lap["end"] == "finished" and lap["metrics"]["cross_track_rms"] < 0.4
    assert config.speed_limits().power < DriveConfig().speed_limits().power
    # What the actuators reach lags behind, and is smoother than, what was commanded.
    assert 0 < lap["metrics"]["reached_pedal_rate_rms"] < lap["metrics"]["pedal_rate_rms"]
    assert 0 < lap["metrics"]["steer_gap_rms"] < 0.05


def test_settings_change_what_they_name_and_leave_the_vehicle_the_rest():
    own, changed = (
        DriveConfig(vehicle="van").speed_limits(),
        DriveConfig(vehicle="van", limits={"margin": 12.0}),
    )
    assert changed.speed_limits() == own.model_copy(update={"margin": 12.0})
    assert DriveConfig(baseline={"grip": 0.8}).preview().grip == 0.8
    for wrong in ({"limits": {"marign": 1.0}}, {"baseline": {"grip": -1.0}}, {"pace": "recorded"}):
        with pytest.raises(ConfigError, match=r"marign.*margin|grip|recorded lap"):
            DriveConfig.parse(wrong)


def test_laps_are_repeated_from_other_places_and_summarised(hand_made_bundle, tmp_path):
    config = DriveConfig(
        track="skid_pad", drivers=("baseline",), conditions=("dry", "wet"), repeats=2, limits={"usage": 0.6}
    )
    results = drive_laps(config, hand_made_bundle, tmp_path)
    assert [(d["condition"], d["repeat"]) for d in results["drives"]] == [
        ("dry", 1), ("dry", 2), ("wet", 1), ("wet", 2)
    ]  # fmt: skip
    first, second = (Log.load(tmp_path / name) for name in ("dry_baseline.npz", "repeats/dry_baseline_2.npz"))
    assert np.hypot(first.columns["x"][0] - second.columns["x"][0], first.columns["y"][0] - 0.0) > 1.0
    mean = np.mean([d["metrics"]["time"] for d in results["drives"][:2]])
    assert f"| dry | baseline | 2 of 2 finished | 100.0 ± 0.0 | {mean:.1f} ±" in results["table"]


def test_speeds_for_a_patch_are_reached_earlier_if_asked():
    patch = PatchConfig(start=200.0, length=30.0, friction="snow")
    place = {}
    for approach in (0.0, 20.0):
        config = DriveConfig(track="skid_pad", patches=(patch,), approach=approach)
        made = make_course(config)
        line = reference(config, made, "icy", 0, 0.05)
        s, _ = project(made.track, line.samples[: line.length, 0], line.samples[: line.length, 1])
        place[approach] = s[line.samples[: line.length, 3] < line.samples[:, 3].min() + 0.3].min()
    assert place[0.0] - place[20.0] == pytest.approx(20.0, abs=2.0)


def test_a_recorded_lap_becomes_a_track_with_its_own_pace(tmp_path):
    """A driver's lap of the skid pad, a quarter more and less steady than it should be."""
    track = skid_pad()
    car, dt = EmbeddedCar(), 0.05
    line = lap_reference(track, np.full(len(track.x), 14.0), dt, laps=1.4)
    driver = PreviewDriver(line, dt, DriveConfig().preview())
    reading = car.reset((float(track.x[0]), float(track.y[0]), float(track.yaw[0])), 12.0)
    driver.reset(reading)
    path = tmp_path / "lap.rec"
    with RecordingWriter(path, dt, {"driver": "human"}) as writer:
        while not driver.finished:
            control = driver.control(reading)
            writer.append(reading, control)
            reading = car.step(control, dt)
    config = DriveConfig(track=str(path), pace="recorded", road_width=30.0)
    made = make_course(config)
    assert made.track.closed and made.track.length == pytest.approx(track.length, rel=0.01)
    _, off = project(track, made.track.x, made.track.y)
    assert np.abs(off).max() < 0.8
    assert made.recorded == pytest.approx(14.0, abs=0.5)
    own = reference(config, made, "dry", 0, dt)
    assert own.length * dt == pytest.approx(track.length / 14.0, rel=0.03)
    assert reference(config, made, "ice", 0, dt).length > 1.5 * own.length  # slower than the driver, on ice
    with pytest.raises(FileError, match="no whole lap"):
        c = read_recording(path)
        short = tmp_path / "short.rec"
        with RecordingWriter(short, dt, {}) as writer:
            writer._rows = [[c.columns[name][k] for name in COLUMNS] for k in range(100)]
        make_course(config.model_copy(update={"track": str(short)}))
