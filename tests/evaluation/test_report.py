"""The report: its numbers come from the logs, its page needs nothing else, and parts may be missing."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.evaluation.closed_loop import FINISHED, SPUN, Log
from s3jax.evaluation.drive import DriveConfig, course
from s3jax.evaluation.report import drives_of, limits, read_logs, verdict, write_report
from s3jax.evaluation.table import markdown
from s3jax.tracks.reference import lap_reference
from s3jax.tracks.speed import lap_speed

DT = 0.05


def kinematic_lap(condition: str, offset: float, end: str = FINISHED, share: float = 1.0) -> Log:
    """A lap, or its first part, that keeps a distance (m) to the left of the reference, at its speed."""
    config = DriveConfig()
    track, roads = course(config)
    reference = lap_reference(track, lap_speed(track, roads[condition], config.speed_limits()), DT)
    rows = reference.samples[1 : round(share * reference.length)]
    x, y, yaw, speed, curvature = rows.T
    columns = dict.fromkeys(("vy", "ax", "ay", "heading", "speed", "pedal"), np.zeros(len(rows)))
    columns |= {
        "time": DT * np.arange(1, len(rows) + 1),
        "x": x - offset * np.sin(yaw),
        "y": y + offset * np.cos(yaw),
        "yaw": yaw,
        "vx": speed,
        "yaw_rate": speed * curvature,
        "steer_angle": 2.7 * curvature,
        "steer": 0.1 * np.sin(0.05 * np.arange(len(rows))),
        "steer_reached": np.zeros(len(rows)),
        "pedal_reached": np.zeros(len(rows)),
        "friction": np.ones(len(rows)),
        "cursor": np.arange(1.0, len(rows) + 1),
        "reference_speed": speed,
        "cross_track": np.full(len(rows), offset),
    }
    return Log(columns, end, share, DT)


@pytest.fixture(scope="module")
def laps():
    return {
        ("dry", "policy"): kinematic_lap("dry", 0.25),
        ("dry", "baseline"): kinematic_lap("dry", -0.5),
        ("icy", "policy"): kinematic_lap("icy", 0.125),
        ("icy", "baseline"): kinematic_lap("icy", 1.0, SPUN, 0.5),
    }


def write_drives(folder, laps):
    for (condition, driver), log in laps.items():
        log.save(folder / "drive" / f"{condition}_{driver}.npz")
    DriveConfig().save(folder / "drive" / "config.yaml")


def write_training(folder):
    (folder / "train").mkdir()
    (folder / "train" / "metrics.csv").write_text("update,env_steps,env/reward\n1,1000,0.1\n2,2000,0.2\n")


def write_distillation(folder):
    (folder / "dynamics").mkdir()
    row = {"all": {"position": 1.2345, "yaw": 0.1, "speed": 0.3}}
    models = {"ddm": {"open_loop": {"1": row, "2": row}, "envelope": 0.987}}
    (folder / "dynamics" / "evaluation.json").write_text(json.dumps(models))


@pytest.fixture(scope="module")
def whole(laps, tmp_path_factory):
    """A folder with every part, reported."""
    folder = tmp_path_factory.mktemp("whole")
    write_drives(folder, laps)
    write_training(folder)
    write_distillation(folder)
    settings = {"seed": 7, "smoke": False, "files": [], "version": "0"}
    (folder / "demo.json").write_text(json.dumps({"settings": settings, "seconds": {"collect": 42.0}}))
    write_report(folder)
    return folder


def prose(folder):
    return re.sub(r'"data:[^"]*"', '""', (folder / "report.html").read_text(encoding="utf-8"))


def test_the_numbers_of_the_table_come_from_the_logs(whole, laps):
    shown = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr>.*?</tr>", prose(whole))]
    rows = {tuple(row[:2]): row[2:] for row in shown if row and row[0] in ("dry", "icy")}
    assert list(rows) == list(laps)
    for key, log in laps.items():
        steer_rate = math.sqrt(np.mean((np.diff(log.columns["steer"]) / DT) ** 2))
        assert rows[key] == [
            log.end,
            f"{100 * log.completion:.1f}",
            f"{log.columns['time'][-1]:.1f}",
            f"{abs(log.columns['cross_track'][0]):.3f}",
            f"{abs(log.columns['cross_track'][0]):.2f}",
            "0.00",
            "0.00",
            f"{steer_rate:.3f}",
            "0.00",
            "0.000",
            "0.00",
        ]
    table = (whole / "figures" / "table.md").read_text()
    assert table == markdown(drives_of(laps)) + "\n"
    assert json.loads((whole / "figures" / "table.json").read_text()) == drives_of(laps)
    assert list(read_logs(whole / "drive")) == list(laps)


def test_the_page_stands_alone_and_has_every_part(whole):
    text = (whole / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert len(sources) == 8 and all(source.startswith("data:image/") for source in sources)
    assert not re.search(r"https?:|@import|url\(|<script|<link", prose(whole))
    for part in ("Laps", "Distillation", "Training", "How it was made", "Limits"):
        assert f"<h2>{part}</h2>" in text
    for fact in ("<td>1.23</td>", "<td>98.7</td>", "seed 7", "42 s", "s3jax collect", "it is not BeamNG"):
        assert fact in text, fact
    assert "prefers-color-scheme" in text and "overflow-x: auto" in text and "width=device-width" in text


def test_the_same_inputs_give_the_same_bytes(whole):
    before = (whole / "report.html").read_bytes()
    seen = []
    write_report(whole, lambda done, total, note="": seen.append((done, total)))
    assert (whole / "report.html").read_bytes() == before
    assert seen == [(i, 8) for i in range(1, 9)]


@pytest.mark.parametrize(
    ("write", "heading", "pictures"),
    [(write_training, "Training", 1), (write_distillation, "Distillation", 2)],
)
def test_missing_parts_are_left_out(tmp_path, write, heading, pictures):
    write(tmp_path)
    write_report(tmp_path)
    text = prose(tmp_path)
    headings = [name for name in ("Laps", "Distillation", "Training") if f"<h2>{name}</h2>" in text]
    assert headings == [heading]
    assert text.count("<img") == pictures


def test_one_lap_is_enough(tmp_path, laps):
    write_drives(tmp_path, {("dry", "baseline"): laps["dry", "baseline"]})
    write_report(tmp_path)
    text = prose(tmp_path)
    assert text.count("<img") == 3
    assert "the baseline drove Putnam Park, one lap each: dry." in text


def test_what_cannot_be_reported_is_refused_in_one_line(tmp_path, laps):
    with pytest.raises(FileError, match=r"nothing to report on; run `s3jax demo`") as caught:
        write_report(tmp_path)
    assert "\n" not in str(caught.value)
    log = laps["dry", "policy"]
    log.save(tmp_path / "drive" / "dry_policy.npz")
    with pytest.raises(FileError, match=r"drive/config\.yaml: no such file"):
        write_report(tmp_path)
    write_drives(tmp_path, {("muddy", "policy"): log})
    with pytest.raises(FileError, match=r"muddy_policy\.npz: no such road; known are dry, icy"):
        write_report(tmp_path)
    (tmp_path / "drive" / "muddy_policy.npz").write_bytes(b"no lap")
    with pytest.raises(FileError, match=r"muddy_policy\.npz: not an s3jax drive_log"):
        write_report(tmp_path)
    (tmp_path / "drive" / "muddy_policy.npz").unlink()
    for damaged in ("", "[]", "{}"):
        (tmp_path / "demo.json").write_text(damaged)
        with pytest.raises(FileError, match=r"demo\.json: "):
            write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_the_verdict_does_not_hide_a_failure():
    metrics = {"completion": 0.4, "cross_track_rms": 1.0}
    drives = [
        {"condition": "icy", "driver": "policy", "end": "spun", "metrics": metrics},
        {"condition": "icy", "driver": "baseline", "end": "finished", "metrics": metrics},
    ]
    assert "policy spun after 40 %" in verdict(drives) and "both finish" not in verdict(drives)


def test_laps_in_another_simulator_are_not_called_ours(laps):
    assert any("not BeamNG" in limit for limit in limits("embedded car", laps))
    assert not any("not BeamNG" in limit for limit in limits("BeamNG.tech", laps))


def test_reporting_loads_neither_jax_nor_matplotlib_before_it_draws():
    code = """
import sys
import s3jax.evaluation.report, s3jax.viz.animation, s3jax.viz.curves, s3jax.viz.laps, s3jax.viz.page
heavy = [name for name in ("jax", "flax", "tensorflow", "matplotlib", "mujoco") if name in sys.modules]
sys.exit(f"imported {heavy}" if heavy else 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
