import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.distil import dataset


def test_split_has_no_leak_and_does_not_depend_on_order(episodes):
    split = dataset.split_episodes(episodes, 0.2, 0.2, seed=1)
    names = [{e.name for e in part} for part in split]
    assert sum(map(len, names)) == len(episodes) == len(set.union(*names))
    assert all(names)
    again = dataset.split_episodes(episodes[::-1], 0.2, 0.2, seed=1)
    assert [{e.name for e in part} for part in again] == names
    other = dataset.split_episodes(episodes, 0.2, 0.2, seed=2)
    assert [{e.name for e in part} for part in other] != names


def test_reserved_tracks_are_for_the_test_alone(episodes):
    episodes = [e._replace(track="esses" if i < 3 else "putnam") for i, e in enumerate(episodes)]
    split = dataset.split_episodes(episodes, 0.2, 0.2, reserved=("esses",))
    without = dataset.split_episodes(episodes[3:], 0.2, 0.2)
    assert [e.name for e in split.train] == [e.name for e in without.train]
    assert {e.name for e in split.test} == {e.name for e in without.test + episodes[:3]}
    assert dataset.tracks_of(split) == ["putnam"]


def test_too_few_episodes_are_refused(episodes):
    with pytest.raises(FileError, match="too few"):
        dataset.split_episodes(episodes[:1], 0.2, 0.2)


def test_windows_never_cross_episodes(episodes):
    rows, index = dataset.join(episodes)
    starts = dataset.window_starts(index, 31)
    assert len(starts) == sum(len(e.controls) - 30 for e in episodes)
    for start in starts[::37]:
        assert len(set(index[start : start + 31])) == 1
    windows = dataset.balanced_windows(rows, index, 10, 20)
    np.testing.assert_array_equal(windows.starts, starts)
    assert float(windows.cumulative[-1]) == pytest.approx(1.0, abs=1e-4)


def test_windows_hold_the_recorded_rows(episodes):
    rows, index = dataset.join(episodes)
    starts = dataset.window_starts(index, 5)[[3, 250]]
    taken = dataset.take(rows, starts, 5)
    second = episodes[index[starts[1]]]
    k = starts[1] - index[: starts[1]].searchsorted(index[starts[1]])
    np.testing.assert_allclose(taken.states.vx[1], second.states.vx[k : k + 5], rtol=1e-6)
    np.testing.assert_allclose(taken.controls[1], second.controls[k : k + 5], rtol=1e-6)
    np.testing.assert_allclose(taken.frictions[1], second.frictions[k : k + 5], rtol=1e-6)


def test_rare_surfaces_are_drawn_more_often_than_they_occur(episodes):
    rows, index = dataset.join([e for e in episodes if e.frictions.min() > 0.6] * 4 + episodes[3:4])
    windows = dataset.balanced_windows(rows, index, 10, 20)
    probability = np.diff(np.asarray(windows.cumulative), prepend=0.0)
    rare = np.asarray(rows.frictions).min(1)[np.asarray(windows.starts) + 10] < 0.2
    assert probability[rare].sum() > 1.2 * rare.mean()


def test_surfaces():
    for value, name in ((1.0, "asphalt"), (0.7, "wet"), (0.6, "gravel"), (0.3, "snow"), (0.1, "ice")):
        assert dataset.surface_of(np.full((3, 2), value)) == name
    assert dataset.surface_of(np.array([[1.0, 1.0], [0.1, 1.0]])) == "transition"


def test_an_empty_directory_is_refused(tmp_path):
    with pytest.raises(FileError, match="no recordings"):
        dataset.load_episodes(tmp_path, 0.05)
