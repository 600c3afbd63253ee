"""Archive files: round trip, refusal of everything else, atomic writing."""

import numpy as np
import pytest

from s3jax.archive import FileError, atomic_path, load_archive, save_archive


def test_round_trip(tmp_path):
    arrays = {"a/b": np.arange(6.0).reshape(2, 3), "flag": np.array([True])}
    save_archive(tmp_path / "x.npz", "thing", 3, {"dt": 0.05}, arrays)
    header, read = load_archive(tmp_path / "x.npz", "thing", 3)
    assert header == {"kind": "thing", "version": 3, "dt": 0.05}
    assert read.keys() == arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(read[name], arrays[name])


def test_wrong_kind_version_and_damage_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    save_archive(path, "thing", 1, {}, {"a": np.arange(1000.0)})
    with pytest.raises(FileError, match="is a thing file, expected a policy file"):
        load_archive(path, "policy", 1)
    with pytest.raises(FileError, match="schema version 1, this s3jax reads version 2"):
        load_archive(path, "thing", 2)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in rng.integers(0, len(whole) - 1, 20):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileError, match=r"x\.npz"):
            load_archive(path, "thing", 1)
    for position in rng.integers(0, len(whole), 200):  # one flipped bit: refused, or in a byte nobody reads
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            _, arrays = load_archive(path, "thing", 1)
        except FileError:
            continue
        np.testing.assert_array_equal(arrays["a"], np.arange(1000.0))
    np.savez(path, a=np.arange(3))
    with pytest.raises(FileError, match="no header"):
        load_archive(path, "thing", 1)
    np.save(tmp_path / "y.npy", np.arange(3))
    with pytest.raises(FileError, match=r"y\.npy"):
        load_archive(tmp_path / "y.npy", "thing", 1)
    with pytest.raises(FileError, match="no such file"):
        load_archive(tmp_path / "absent.npz", "thing", 1)


def test_pickles_are_never_loaded(tmp_path):
    path = tmp_path / "evil.npz"
    save_archive(path, "thing", 1, {}, {})
    header = np.load(path)["__header__"]
    np.savez(path, __header__=header, bad=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FileError, match="evil"):
        load_archive(path, "thing", 1)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]
