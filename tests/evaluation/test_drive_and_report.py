"""The stages `drive` and `report`: real laps in the embedded car, without JAX, resumed and reported."""

import json
import re
import subprocess
import sys

import pytest

from s3jax.config import ConfigError
from s3jax.evaluation.drive import DriveConfig, drive_laps

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
    with pytest.raises(ConfigError, match="unknown 'muddy'"):
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
