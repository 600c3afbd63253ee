import jax
import numpy as np
import pytest

from s3jax.archive import FileError, load_archive, save_archive
from s3jax.config import ConfigError
from s3jax.dynamics.base import Guard, guard_logits, guard_values
from s3jax.dynamics.store import check_compatible, flatten, load_dynamics, make_dynamics, save_dynamics


def saved(tmp_path, **fields):
    model = make_dynamics({"kind": "ddm", "hidden": 4, "dense": 3, **fields})
    params = model.init(jax.random.key(3))
    save_dynamics(tmp_path / "m.npz", model, params, {"note": "made here"})
    return model, params, tmp_path / "m.npz"


def test_round_trip(tmp_path):
    model, params, path = saved(tmp_path)
    again, loaded, header = load_dynamics(path)
    assert again == model and hash(again) == hash(model)
    assert jax.tree.structure(loaded) == jax.tree.structure(params)
    for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(a, b)
    assert header["provenance"] == {"note": "made here"}
    assert header["dt"] == 0.05


def test_another_dt_or_definition_is_refused_naming_both(tmp_path):
    *_, path = saved(tmp_path)
    header = load_dynamics(path)[2]
    check_compatible(header, 0.05, path)
    with pytest.raises(FileError, match=r"m.npz: was made for dt 0.05, but here dt is 0.1"):
        check_compatible(header, 0.1, path)
    with pytest.raises(FileError, match="state_definition other, but here state_definition is cog"):
        check_compatible({**header, "state_definition": "other"}, 0.05, path)


def test_parameters_that_do_not_fit_are_refused(tmp_path):
    *_, path = saved(tmp_path)
    header, arrays = load_archive(path, "dynamics", 1)
    facts = {name: value for name, value in header.items() if name not in ("kind", "version")}
    save_archive(path, "dynamics", 1, facts, {**arrays, "dense/bias": np.zeros(5)})
    with pytest.raises(FileError, match=r"dense/bias has shape \(5,\), its model needs \(3,\)"):
        load_dynamics(path)
    save_archive(path, "dynamics", 1, facts, {**arrays, "dense/bias": np.full(3, np.nan)})
    with pytest.raises(FileError, match="dense/bias is not finite"):
        load_dynamics(path)
    facts["config"]["kind"] = "dmd"
    save_archive(path, "dynamics", 1, facts, arrays)
    with pytest.raises(FileError, match="unknown kind 'dmd'; did you mean ddm"):
        load_dynamics(path)


def test_unknown_kinds_and_keys_name_the_nearest():
    with pytest.raises(ConfigError, match="did you mean bicycle"):
        make_dynamics({"kind": "bicicle"})
    with pytest.raises(ConfigError, match="unknown key hiden; did you mean hidden"):
        make_dynamics({"kind": "ddm", "hiden": 3})


def test_flatten_names_leaves_by_path():
    assert set(flatten({"a": {"b": np.zeros(1)}, "c": np.zeros(2)})) == {"a/b", "c"}


@pytest.mark.parametrize("log", [False, True])
def test_guards_start_at_their_initial_value_and_never_leave_their_range(log):
    guards = {"g": Guard(0.5, 4.0, 1.5, log)}
    assert float(guard_values(guards, guard_logits(guards))["g"]) == pytest.approx(1.5, rel=1e-5)
    for logit in (-1e3, 1e3):
        assert 0.5 <= float(guard_values(guards, {"g": np.float32(logit)})["g"]) <= 4.0
