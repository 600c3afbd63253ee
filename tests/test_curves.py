"""Curves: complete at any moment, never a row twice, in CSV, TensorBoard and Weights & Biases alike."""

import os
import sys

import pytest
from tensorboardX.proto import event_pb2

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.curves import Curves, read_rows
from s3jax.scenarios.tfrecord import read_records
from s3jax.viz.training import LivePicture
from s3jax.weights_and_biases import start_run


def row(update, **more):
    return {"update": update, "env_steps": 100 * update, "env/reward": update / 8} | more


def curves(folder, until, **more):
    return Curves(folder / "metrics.csv", until, folder / "tensorboard", step="env_steps", **more)


def tensorboard_shows(folder):
    """Returns step -> reward as TensorBoard does, which drops later steps at the start of a session."""
    shown = {}
    for path in sorted((folder / "tensorboard").iterdir(), key=os.path.getmtime):
        for record in read_records(path):
            event = event_pb2.Event.FromString(record.data)
            if event.HasField("session_log"):
                shown = {step: value for step, value in shown.items() if step < event.step}
            for value in event.summary.value:
                if value.tag == "env/reward":
                    assert event.step not in shown
                    shown[event.step] = value.simple_value
    return shown


def test_a_run_that_goes_on_has_every_row_once(tmp_path):
    with curves(tmp_path, until=0) as first:
        for update in (1, 2, 3):
            first.append(row(update))
        assert tensorboard_shows(tmp_path) == {100: 0.125, 200: 0.25, 300: 0.375}  # before it is closed
    with curves(tmp_path, until=2) as second:  # the last checkpoint was that of update 2
        second.append(row(3, **{"held_out/completed": 0.5}))
        second.append(row(4))
        assert second.last("held_out/") == {"completed": 0.5}
    assert read_rows(tmp_path / "metrics.csv") == [
        row(1),
        row(2),
        row(3, **{"held_out/completed": 0.5}),
        row(4),
    ]
    assert tensorboard_shows(tmp_path) == {100: 0.125, 200: 0.25, 300: 0.375, 400: 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("update,env_steps\n1,100\n2,2oo\n", "line 3: env_steps is '2oo', not a number"),
        ("update,env_steps\n1,100\n2\n", "line 3: not as many fields"),
        ("update,env_steps\n1,100,7\n", "line 2: not as many fields"),
        ("update,env_steps\n2,200\n1,100\n", "line 3: its update is missing or not after"),
        ("env_steps\n200\n", "line 2: its update is missing"),
        ('update,env_steps\n1,"100\n', "not a readable file of curves"),
        ("update\n1\n\xff", "line 3: update is"),
        ("update\n\0\n", "update is"),
    ],
)
def test_a_damaged_file_is_refused_with_the_line_and_kept(tmp_path, text, message):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=message):
        curves(tmp_path, until=1)
    assert path.read_text() == text


def test_a_live_picture_is_drawn_at_the_end_and_when_its_time_has_come(tmp_path):
    with curves(tmp_path, until=0) as some:
        some.append(row(1, **{"loss/kl": 0.1}))
        some.append(row(2, **{"loss/kl": 0.2}))
    picture = LivePicture(tmp_path / "curves.png", tmp_path / "metrics.csv", interval=1e6)
    picture.update()
    assert not (tmp_path / "curves.png").exists()
    picture.update(last=True)
    first = (tmp_path / "curves.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    with curves(tmp_path, until=2) as some:
        some.append(row(3, **{"loss/kl": 0.1}))
    LivePicture(tmp_path / "curves.png", tmp_path / "metrics.csv", interval=0.0).update()
    assert (tmp_path / "curves.png").read_bytes() != first


def test_weights_and_biases_gets_the_same_rows(tmp_path):
    class Run:
        logged, finished = (), False

        def log(self, row, step):
            self.logged += ((step, row),)

        def finish(self):
            self.finished = True

    run = Run()
    with curves(tmp_path, until=0, run=run) as some:
        some.append(row(1))
    assert run.logged == ((100, row(1)),)
    assert run.finished


def test_weights_and_biases_is_asked_for_by_name_when_it_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 's3jax\[wandb\]', or leave the key out"):
        start_run("cars", tmp_path, {})


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    identifiers = []
    for until in (0, 1):
        run = start_run("cars", tmp_path, {"seed": 0})
        identifiers.append(run.id)
        with curves(tmp_path, until=until, run=run) as some:
            some.append(row(until + 1))
    assert identifiers[0] == identifiers[1]
    assert len(list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))) == 2
