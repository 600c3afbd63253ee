import numpy as np
import pytest

from s3jax.tracks import CIRCUITS, TrackError, load_track, project, putnam_park, read_track


def write(path, x, y, right=4.0, left=5.0, header="# x_m,y_m,w_tr_right_m,w_tr_left_m"):
    columns = np.stack(np.broadcast_arrays(x, y, right, left), axis=1)
    rows = [",".join(f"{value:.4f}" for value in row) for row in columns]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def circle(count=60, radius=50.0, span=1.0):
    angle = np.linspace(0, 2 * np.pi * span, count, endpoint=False)
    return radius * np.cos(angle), radius * np.sin(angle)


@pytest.mark.parametrize("stride", [1, 5, 10])
def test_a_circuit_survives_the_trip(tmp_path, stride):
    track = putnam_park()
    read = read_track(write(tmp_path / "park.csv", track.x[::stride], track.y[::stride]))
    assert read.closed and read.name == "park" and read.length == pytest.approx(track.length, rel=1e-3)
    _, lateral = project(track, read.x, read.y)
    assert np.abs(lateral).max() < 0.3
    s, _ = project(track, read.x, read.y)
    expected = np.interp(s, track.s, track.curvature)
    assert np.sqrt(np.mean((read.curvature - expected) ** 2)) < 0.002
    np.testing.assert_allclose([read.width_right.mean(), read.width_left.mean()], [4, 5], atol=1e-6)


def test_noise_of_a_survey_is_smoothed(tmp_path):
    track, rng = putnam_park(), np.random.default_rng(0)
    noisy = [a + rng.normal(0, 0.05, len(a)) for a in (track.x, track.y)]
    read = read_track(write(tmp_path / "noisy.csv", *noisy), smoothing=4.0)
    s, lateral = project(track, read.x, read.y)
    assert np.abs(lateral).max() < 0.3
    assert np.abs(read.curvature - np.interp(s, track.s, track.curvature)).max() < 0.012


def test_loops_are_closed_and_open_lines_stay_open(tmp_path):
    x, y = circle()
    for closed_x, closed_y in ((x, y), (np.append(x, x[0]), np.append(y, y[0]))):
        track = read_track(write(tmp_path / "a.csv", closed_x, closed_y))
        assert track.closed and track.length == pytest.approx(2 * np.pi * 50, rel=2e-3)
        np.testing.assert_allclose(track.curvature, 1 / 50, rtol=0.05)
    half = read_track(write(tmp_path / "b.csv", *circle(span=0.5)))
    assert not half.closed and half.length == pytest.approx(np.pi * 50 * 59 / 60, rel=2e-3)
    # A gap of 20 m in a loop of 314 m is closed when asked.
    gap = read_track(write(tmp_path / "c.csv", *circle(count=60, span=0.936)), closed=True)
    assert gap.closed and gap.length == pytest.approx(2 * np.pi * 50, rel=0.02)


@pytest.mark.parametrize(
    ("x", "y", "options", "reason"),
    [
        (*circle(count=5), {}, "too few"),
        (np.arange(20) * 60.0, np.zeros(20), {}, "points 1 and 2 are 60.0 m apart"),
        (np.sin(np.arange(63) / 10) * 90, np.sin(np.arange(63) / 5) * 40, {}, "crosses itself, after point"),
        (*circle(count=8), {}, "45 degrees at point"),
        (*circle(span=0.5), {"closed": True}, "too far to close"),
        (*circle(radius=4.0, count=60), {}, "wider than the radius of 3"),
    ],
)
def test_refuses_what_is_no_track(tmp_path, x, y, options, reason):
    path = write(tmp_path / "bad.csv", x, y)
    with pytest.raises(TrackError, match=reason) as caught:
        read_track(path, **options)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x,y,right,left\n1,2,3,4\n", "line 1 is not numbers"),
        ("1,2,3\n", "line 1: expected four"),
        ("1,2,3,nan\n", "line 1: expected four"),
        ("1,2,3,-4\n", "line 1: a width"),
        ("", "0 different points"),
    ],
)
def test_refuses_malformed_files(tmp_path, text, reason):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(TrackError, match=reason):
        read_track(path)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01" * 50)
    with pytest.raises(TrackError, match="not a readable text file"):
        read_track(tmp_path / "binary.csv")
    with pytest.raises(TrackError, match="no such file"):
        load_track(str(tmp_path / "none.csv"))


@pytest.mark.parametrize("name", sorted(CIRCUITS))
def test_circuits_close_and_keep_clear_of_themselves(name):
    track = load_track(name)
    dx, dy = track.x[0] - track.x[-1], track.y[0] - track.y[-1]
    assert np.hypot(dx, dy) == pytest.approx(track.spacing, rel=0.01)
    assert np.abs(track.curvature).max() * track.width_left.max() < 0.8
    # Places far apart along the line are further apart than the road is wide.
    k = np.arange(0, len(track.x), 4)
    gap = np.hypot(track.x[k, None] - track.x[k], track.y[k, None] - track.y[k])
    along = np.abs(track.s[k, None] - track.s[k])
    along = np.minimum(along, track.length - along)
    assert gap[along > 6 * track.width_left.max()].min() > 2 * track.width_left.max()


def test_circuits_differ_in_character():
    numbers = {}
    for name in ("putnam", "kart", "speedway", "esses"):
        track = load_track(name)
        numbers[name] = (
            track.length,
            1 / np.abs(track.curvature).max(),
            (np.abs(track.curvature) > 2e-3).mean(),
        )
    assert numbers["kart"][0] < 700 and numbers["kart"][1] < 12
    assert numbers["speedway"][0] > 3500 and numbers["speedway"][1] > 120
    assert numbers["esses"][2] > 0.6 > numbers["putnam"][2]
