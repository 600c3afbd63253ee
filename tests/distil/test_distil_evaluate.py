import json

import jax
import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.distil import evaluate
from s3jax.dynamics.store import make_dynamics


def test_errors_are_those_of_a_direct_computation(episodes):
    model = make_dynamics({"kind": "single_track"})
    params = model.init(jax.random.key(0))
    result = evaluate.evaluate(model, params, episodes)
    # The recorded car differs, so the error is real, grows with the horizon and every start is counted once.
    means = [result["open_loop"][h]["all"]["position"] for h in ("0.5", "1", "2", "5")]
    assert 0 < means[0] < means[1] < means[2] < means[3]
    for row in result["open_loop"].values():
        surfaces = sum(entry["starts"] for name, entry in row.items() if name != "all")
        assert surfaces == row["all"]["starts"]
    assert "transition" in result["open_loop"]["5"]
    assert set(result["one_step"]) == {"vx", "vy", "yaw_rate", "steer_angle"}


def test_friction_told_wrong_is_worse_than_given(episodes):
    model = make_dynamics({"kind": "single_track"})
    params = model.init(jax.random.key(0))
    given, wrong = (
        evaluate.evaluate(model, params, episodes, friction)["open_loop"]["2"]["all"]["position"]
        for friction in ("given", "wrong")
    )
    assert wrong > 1.2 * given


def test_new_drives_and_new_tracks_are_told_apart(tmp_path, episodes):
    model = make_dynamics({"kind": "bicycle"})
    params = model.init(jax.random.key(0))
    episodes = [e._replace(track="esses" if i < 4 else "putnam") for i, e in enumerate(episodes)]
    apart = evaluate.evaluate(model, params, episodes, tracks=["putnam"])
    row, alone = apart["open_loop"]["2"], evaluate.evaluate(model, params, episodes[:4])
    assert row["new track"] == pytest.approx(alone["open_loop"]["2"]["all"])
    assert row["new drive"]["starts"] + row["new track"]["starts"] == row["all"]["starts"]
    assert "new drive" not in alone["open_loop"]["2"]
    evaluate.write({"bicycle": apart}, tmp_path)
    assert "new track, 5 s" in (tmp_path / "evaluation.md").read_text()


def test_tables_and_json(tmp_path, episodes):
    results = {}
    for kind in ("bicycle", "single_track"):
        model = make_dynamics({"kind": kind})
        results[kind] = evaluate.evaluate(model, model.init(jax.random.key(0)), episodes)
    evaluate.write(results, tmp_path)
    assert json.loads((tmp_path / "evaluation.json").read_text()).keys() == results.keys()
    text = (tmp_path / "evaluation.md").read_text()
    assert "| bicycle |" in text and "| single_track |" in text
    position = results["bicycle"]["open_loop"]["2"]["all"]["position"]
    assert np.isfinite(position) and f"{position:.2f}" in text


def test_episodes_that_are_too_short_are_refused(episodes):
    model = make_dynamics({"kind": "bicycle"})
    short = [
        e._replace(
            controls=e.controls[:40],
            frictions=e.frictions[:40],
            states=type(e.states)(*(f[:40] for f in e.states)),
        )
        for e in episodes
    ]
    with pytest.raises(FileError, match="long"):
        evaluate.evaluate(model, model.init(jax.random.key(0)), short)
