"""Banks for training: fixed shapes, reproducible, no leakage, shared between processes."""

import itertools

import numpy as np
import pytest
from test_load_scenarios import small_features

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.scenarios.build import build
from s3jax.scenarios.example import encode_example
from s3jax.scenarios.stream import ScenarioConfig, ScenarioSet, ScenarioStream
from s3jax.scenarios.tfrecord import write_records

DT = 0.05


def record(speed):
    """A scene that goes at `speed`, and is named for it."""
    return encode_example(small_features(speed=speed) | {"scenario/id": [b"v%05.1f" % speed]})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of 40 scenes at 1 to 40 m/s."""
    folder = tmp_path_factory.mktemp("stream")
    write_records(folder / "a", [record(float(speed)) for speed in range(1, 41)])
    build(folder / "a", folder / "store", workers=1)
    return folder / "store"


def settings(files, count=0, **values):
    files = [str(file) for file in np.atleast_1d(files)]
    return ScenarioConfig.parse({"files": files, "procedural": {"count": count}} | values)


def open_stream(config, seed, *args, **options):
    return ScenarioStream(ScenarioSet(config, seed, DT), config, seed, *args, **options)


def speeds(bank):
    """The speeds (m/s) of the scenes in a bank, which tell them apart."""
    return np.round(bank.samples.reshape(len(bank.size), -1, 5)[:, 0, 3]).astype(int).tolist()


def test_banks_visit_every_scenario_have_one_shape_and_repeat_with_seed_and_number(store):
    config = settings(store, bank=9, held_out=0.1, resample_every=20)
    stream = open_stream(config, 3)
    assert (stream.scenarios, stream.count) == (36, 9)
    banks = [stream.bank(number) for number in range(8)]
    visits = list(itertools.chain(*map(speeds, banks)))
    held = speeds(stream.held_out)
    assert len(held) == 4 and sorted(visits[:36]) == sorted(visits[36:])
    assert sorted(visits[:36] + held) == list(range(1, 41)) and visits[:36] != visits[36:]
    assert len({tuple(field.shape for field in bank) for bank in banks}) == 1
    # A run that goes on asks for a later bank first.
    again = open_stream(config, 3)
    for number in (5, 6, 2):
        for one, two in zip(again.bank(number), banks[number], strict=True):
            np.testing.assert_array_equal(one, two)
    assert [stream.interval(update) for update in (0, 19, 20, 59, 60)] == [0, 0, 1, 2, 3]
    assert speeds(open_stream(config, 4).bank(0)) != visits[:9]


def test_what_fits_is_one_bank(store):
    for bank in (0, 36, 99):
        stream = open_stream(settings(store, bank=bank), 0)
        assert stream.count == 36 and stream.interval(10**6) == 0
        assert sorted(speeds(stream.bank(0)) + speeds(stream.held_out)) == list(range(1, 41))


def test_counts_are_rounded_up_to_a_multiple(store):
    stream = open_stream(settings(store), 0, multiple=8)
    assert stream.count == 40 and len(set(speeds(stream.bank(0)))) == 36
    assert len(stream.held_out.size) == 8 and len(set(speeds(stream.held_out))) == 4
    assert open_stream(settings(store, bank=9), 0, multiple=4).count == 12


@pytest.mark.parametrize("bank", [0, 12])
def test_the_shares_of_processes_make_up_the_bank_of_one(store, bank):
    config = settings(store, bank=bank)
    whole = open_stream(config, 0, 6)
    shares = [open_stream(config, 0, 6, process, 3) for process in range(3)]
    assert {share.count for share in shares} == {whole.count}
    for draw in (lambda stream: stream.held_out, *(lambda stream, n=n: stream.bank(n) for n in range(3))):
        parts = [speeds(draw(share)) for share in shares]
        assert len({len(part) for part in parts}) == 1
        assert list(itertools.chain(*parts)) == speeds(draw(whole))
    with pytest.raises(ValueError, match="not a multiple of 2 processes"):
        open_stream(config, 0, 3, 0, 2)


def test_each_part_is_split_and_no_id_is_on_both_sides(store, tmp_path):
    # The raw file holds some scenes of the store again, and one of its own.
    write_records(tmp_path / "b", [record(float(speed)) for speed in (3, 4, 5, 50, 51, 52, 53)])
    both = ScenarioSet(settings([store, tmp_path / "b"], count=30), 0, DT)
    assert len(both) == 77
    train, held_out = both.split(0.25, seed=1)
    assert sorted([*train, *held_out]) == list(range(77))
    assert not set(both.ids[train]) & set(both.ids[held_out])
    for part, count in enumerate([8, 1, 10]):  # of 30, 4 own and 40 scenes
        first = [both.ids[i] for i in held_out if both.part[i] == part]
        assert len(first) >= count
    # Which scenes are held out does not hang on the order of the files, nor on those that are added.
    alone = ScenarioSet(settings(store), 0, DT)
    chosen = set(alone.ids[alone.split(0.25, seed=1)[1]])
    assert len(chosen - set(both.ids[held_out]) - {b"v003.0", b"v004.0", b"v005.0"}) <= 1


def test_filters_and_errors(store, tmp_path):
    slow = ScenarioSet(settings(store, only=["high_speed"], exclude=["hard_brake_rel"]), 0, DT)
    assert min(speeds(slow.bank())) == 16
    with pytest.raises(ConfigError, match="no scenario of 40 is left with only = u_turn; there are: mov"):
        ScenarioSet(settings(store, only=["u_turn"]), 0, DT)
    with pytest.raises(ConfigError, match="only = high_speed and exclude = moving, inconsistent;"):
        ScenarioSet(settings(store, only=["high_speed"], exclude=["moving", "inconsistent"]), 0, DT)
    with pytest.raises(ConfigError, match="did you mean u_turn, "):
        ScenarioSet(settings(store, only=["uturn"]), 0, DT)
    with pytest.raises(ConfigError, match=r"procedural\.count is 0 and scenarios\.files is empty"):
        ScenarioSet(settings([]), 0, DT)
    with pytest.raises(ConfigError, match="1 scenarios cannot be split"):
        open_stream(settings([], count=1), 0)
    with pytest.raises(FileError, match=r"built with dt = 0\.05 s, 0\.1 s is needed"):
        ScenarioSet(settings(store), 0, 0.1)
    write_records(tmp_path / "empty", [])
    with pytest.raises(FileError, match="empty file"):
        ScenarioSet(settings(tmp_path / "empty"), 0, DT)
