import sys

import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.source.collect import CollectConfig, MixConfig, collect, episodes_of
from s3jax.source.recording import read_recording

MIX = [
    {"driver": "preview", "track": "skid_pad", "surface": "snow", "episodes": 2, "noise": [0, 0.1]},
    {"driver": "manoeuvres", "surface": "patchwork", "episodes": 1},
    {"driver": "random", "surface": "ice", "episodes": 1, "start_speed": [-5, -2]},
    {"driver": "limit", "episodes": 1},
]


def config(**values):
    return CollectConfig.parse({"mix": [entry | {"duration": 6.0} for entry in MIX]} | values)


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.rec"))}


def test_collects_resumes_and_repeats_to_the_bit(tmp_path):
    summary = collect(config(workers=2), tmp_path / "a")
    first = contents(tmp_path / "a")
    assert len(first) == summary["episodes"] == 5
    assert summary["simulated_minutes"] == pytest.approx(0.5)
    assert summary["coverage"].minutes.sum() == pytest.approx(0.5)
    # Interrupted: one file is missing, one is cut short.
    names = list(first)
    (tmp_path / "a" / names[0]).unlink()
    (tmp_path / "a" / names[1]).write_bytes(first[names[1]][:5000])
    calls = []
    collect(config(workers=1), tmp_path / "a", lambda done, total, note="": calls.append((done, total)))
    assert contents(tmp_path / "a") == first
    assert calls == [(3, 5), (4, 5), (5, 5)]
    header = read_recording(tmp_path / "a" / names[0]).header
    assert header["complete"] and header["surface"] == "snow" and header["vehicle"]["name"] == "sedan"


def test_other_settings_in_the_same_directory_are_refused(tmp_path):
    small = {"mix": [MIX[3] | {"duration": 0.5}]}
    collect(CollectConfig.parse(small), tmp_path)
    with pytest.raises(ConfigError, match="holds recordings with another seed"):
        collect(CollectConfig.parse(small | {"seed": 1}), tmp_path)
    collect(CollectConfig.parse(small | {"workers": 1}), tmp_path)


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({"driver": "preview", "track": "plane"}, "needs a track"),
        ({"driver": "random", "track": "putnam"}, "track plane"),
        ({"driver": "preview", "track": "nowhere"}, "unknown track"),
        ({"driver": "preview", "track": "skid_pad", "surface": "ice_patches"}, "not on skid_pad"),
        ({"driver": "preview", "track": "putnam", "surface": "lava"}, "unknown surface"),
        ({"driver": "random", "speed": [9, 3]}, "not above"),
        ({"driver": "ghost"}, "driver"),
        ({"driver": "policy", "track": "putnam"}, "needs policy, a bundle"),
        ({"driver": "random", "policy": "a.npz"}, "no other driver takes one"),
        ({"driver": "policy", "track": "putnam", "policy": "none.npz"}, "none.npz: no such file"),
    ],
)
def test_a_mix_that_cannot_be_driven_is_refused(tmp_path, entry, word):
    with pytest.raises(ConfigError, match=word) as caught:
        collect(CollectConfig.parse({"mix": [entry]}), tmp_path)
    assert "\n" not in str(caught.value)


def test_the_default_mix_is_half_an_hour_on_every_surface():
    mix = CollectConfig().mix
    assert sum(entry.episodes * entry.duration for entry in mix) >= 1800
    surfaces = {entry.surface for entry in mix if entry.episodes}
    assert {"asphalt", "wet", "snow", "ice", "ice_patches", "patchwork"} <= surfaces
    assert {entry.track for entry in mix} >= {"putnam", "skid_pad"}
    names = [episode.name for episode in episodes_of(CollectConfig())]
    assert len(set(names)) == len(names)
    assert isinstance(mix[0], MixConfig)


def test_coverage_counts_what_was_driven(tmp_path):
    from s3jax.source.coverage import FRICTIONS, USES, CoverageConfig, coverage_of

    collect(config(), tmp_path)
    recordings = [read_recording(path) for path in sorted(tmp_path.glob("*.rec"))]
    coverage = coverage_of(recordings[:2], CoverageConfig(target={"snow/mild": 5.0}))
    assert coverage.minutes.shape == (len(FRICTIONS), len(USES), 5)
    assert np.nonzero(coverage.minutes.sum((1, 2)))[0].tolist() == [list(FRICTIONS).index("snow")]
    assert 4.7 < coverage.missing["snow/mild"] <= 5.0
    assert "short of the target snow/mild" in coverage.table()


def test_a_policy_collects_a_second_round(tmp_path):
    from beamng_bridge.bundle import PolicySpec, save_bundle
    from s3jax.spatial.observation import ObservationSpec

    # A policy that leaves the controls alone.
    observation = ObservationSpec()
    spec = PolicySpec(observation, (1.0, 1.0), 0.05, "silu", 10.0)
    size = observation.size
    weights = {"actor": {"dense_0": {"kernel": np.zeros((size, 2)), "bias": np.zeros(2)}}}
    probes = (np.zeros((8, size)), np.zeros((8, 2)))
    save_bundle(tmp_path / "policy.npz", spec, weights, np.zeros(size), np.ones(size), probes, {})
    entry = {"driver": "policy", "policy": str(tmp_path / "policy.npz"), "track": "kart", "duration": 2.0}
    collect(CollectConfig.parse({"mix": [entry]}), tmp_path / "a")
    recording = read_recording(next((tmp_path / "a").glob("*.rec")))
    assert recording.header["driver"] == "policy" and recording.header["rows"] == 40
    np.testing.assert_array_equal(recording.columns["steer"], 0.0)


def test_reading_recordings_needs_no_simulator():
    import subprocess

    code = (
        "import sys, s3jax.source.recording, s3jax.tracks, s3jax.source.coverage;"
        "print([m for m in ('mujoco', 'numba', 'jax', 'matplotlib', 'tensorflow') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
