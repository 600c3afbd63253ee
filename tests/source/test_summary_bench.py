import pytest

from s3jax.archive import FileError
from s3jax.source.bench import bench_source
from s3jax.source.collect import CollectConfig, collect
from s3jax.source.summary import plot_recording, recordings_info


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    mix = [{"driver": "limit", "duration": 3.0, "surface": surface} for surface in ("snow", "ice")]
    collect(CollectConfig.parse({"mix": mix}), folder)
    return folder


def test_info_of_a_directory_names_minutes_and_coverage(directory):
    text = recordings_info(directory)
    assert "2 recordings, 0.1 minutes" in text
    assert "snow" in text and "short of the target asphalt/mild: 4.00 min" in text


def test_info_of_a_file_says_what_is_in_it_and_what_was_lost(directory, tmp_path):
    path = sorted(directory.glob("*.rec"))[0]
    text = recordings_info(path)
    assert "complete" in text and "60 of 0.05 s" in text and "slip_angle_rr" in text and "mujoco-core" in text
    cut = tmp_path / "cut.rec"
    cut.write_bytes(path.read_bytes()[:-100])
    text = recordings_info(cut)
    assert "cut short" in text and "40 of 0.05 s" in text and "bytes of a broken chunk" in text


def test_plot_draws_a_picture(directory, tmp_path):
    path = sorted(directory.glob("*.rec"))[0]
    plot_recording(path, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    data = path.read_bytes()
    (tmp_path / "empty.rec").write_bytes(data[: data.index(b"ROWS")])
    with pytest.raises(FileError, match="holds no rows"):
        plot_recording(tmp_path / "empty.rec", tmp_path / "b.png")


def test_refuses_what_holds_no_recordings(tmp_path):
    with pytest.raises(FileError, match="no recordings"):
        recordings_info(tmp_path)
    with pytest.raises(FileError, match="no such file"):
        recordings_info(tmp_path / "none.rec")


def test_bench_reports_every_number():
    result = bench_source(steps=100, batch=4)
    assert min(value for key, value in result.items() if key != "table") > 0
    assert "steps per second" in result["table"]
