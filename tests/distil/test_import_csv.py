import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.distil import dataset
from s3jax.distil.import_csv import REQUIRED, CsvMapping, import_csv
from s3jax.source.recording import read_recording

COLUMNS = {name: {"column": name} for name in ("time", *REQUIRED)}
COLUMNS["vy"] = {"column": "right", "scale": -1.0}
COLUMNS["brake"] = {"column": "kPa", "scale": 0.001}
COLUMNS["steer"] = {"column": "steer_angle", "scale": 2.0, "ahead": 1}


def mapping(**fields):
    return CsvMapping.parse({"columns": COLUMNS, "dt": 0.05, "minimum": 1.0, **fields})


def log(path, rows=60, gap=None, **changes):
    names = ["# time", "x", "y", "yaw", "vx", "right", "yaw_rate", "steer_angle", "throttle", "kPa"]
    lines = [",".join(names)]
    for k in range(rows):
        t = 0.05 * k + (10.0 if gap and k >= gap else 0.0)
        row = {"x": 2 * t, "y": 0, "yaw": 4.0, "vx": 2, "right": 0.5, "yaw_rate": 0, "steer_angle": k / 200}
        row |= {"throttle": 0.25, "kPa": 500.0} | changes
        lines.append(",".join([str(t), *(str(row[name]) for name in names[1:])]))
    path.write_text("\n".join(lines))
    return path


def test_columns_are_scaled_signed_and_shifted(tmp_path):
    (path,) = import_csv(log(tmp_path / "log.csv"), mapping(), tmp_path / "out")
    recording = read_recording(path)
    columns = recording.columns
    assert recording.header["complete"] and recording.header["rows"] == 59
    np.testing.assert_allclose(columns["vy"], -0.5)
    np.testing.assert_allclose(columns["pedal"], 0.25 - 0.5)
    np.testing.assert_allclose(columns["steer"], 2.0 * np.arange(1, 60) / 200)
    np.testing.assert_allclose(columns["yaw"], 4.0 - 2 * np.pi)
    (episode,) = dataset.load_episodes(tmp_path / "out", 0.05)
    assert episode.states.vx.shape == (59,)


def test_a_gap_in_time_begins_a_new_recording(tmp_path):
    paths = import_csv(log(tmp_path / "log.csv", gap=25), mapping(), tmp_path)
    assert [read_recording(path).header["rows"] for path in paths] == [25, 34]


@pytest.mark.parametrize(
    ("changes", "fields", "message"),
    [
        ({"vx": "fast"}, {}, "line 2: no number in column 5"),
        ({"throttle": 25}, {}, r"throttle is 25 to 25, expected shares in \[0, 1\]"),
        ({}, {"dt": 0.04}, "is dt right. the median interval is 0.05 s"),
        ({}, {"columns": COLUMNS | {"x": {"column": "east"}}}, "no column 'east' for x; there are time, x"),
    ],
)
def test_logs_that_do_not_fit_are_refused(tmp_path, changes, fields, message):
    with pytest.raises(FileError, match=message):
        import_csv(log(tmp_path / "log.csv", **changes), mapping(**fields), tmp_path)
    assert not list(tmp_path.glob("*.rec"))


def test_a_mapping_must_be_complete():
    columns = {name: entry for name, entry in COLUMNS.items() if name != "yaw"}
    with pytest.raises(ConfigError, match="missing yaw; unknown z"):
        CsvMapping.parse({"columns": columns | {"z": {"column": "z"}}, "dt": 0.05})


def test_the_real_log(tmp_path, request):
    path = request.config.rootpath.parent / "shared" / "data" / "iac" / "Putnam_run4_2.csv"
    if not path.exists():
        pytest.skip("no real log here")
    config = CsvMapping.load(request.config.rootpath / "configs" / "import" / "iac.yaml")
    (written,) = import_csv(path, config, tmp_path)
    columns = read_recording(written).columns
    assert len(columns["x"]) == 11899
    # The course is driven clockwise, and the car moves the way it points.
    fast = columns["vx"][:-1] > 5
    assert columns["yaw_rate"][:-1][fast].mean() < 0
    ahead = np.cos(columns["yaw"])[:-1] * np.diff(columns["x"]) + np.sin(columns["yaw"])[:-1] * np.diff(
        columns["y"]
    )
    assert np.corrcoef(ahead[fast], columns["vx"][:-1][fast])[0, 1] > 0.98
