"""The command line: errors in one line, help for everything, and a demo that goes on where it was."""

import json
import os
import signal
import subprocess
import sys

import pytest

from s3jax import demo
from s3jax.cli import main
from s3jax.config import ConfigError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--dynamics", "absent.npz"], "absent.npz: no such file"),
        (["train", "--config", "absent.yaml"], "absent.yaml: no such file"),
        (["train", "ppo.num_env=8"], "unknown key ppo.num_env; did you mean ppo.num_envs?"),
        (["train", "ppo.num_envs=100"], "must be a multiple of"),
        (["collect", "sed=1"], "did you mean seed?"),
        (["distil", "--recordings", "absent"], "absent"),
        (["evaluate", "absent"], "no checkpoints there; train first"),
        (["export", "absent"], "no checkpoints there; train first"),
        (["drive", "absent.npz"], "absent.npz: no such file"),
        (["report", "absent"], "absent"),
        (["scenarios", "show", "absent.tfrecord"], "absent.tfrecord"),
        (["scenarios", "compare", "absent.tfrecord", "absent"], "absent.tfrecord"),
        (["recordings", "info", "absent.rec"], "absent.rec"),
        (["bench", "dynamics", "absent.npz"], "absent.npz: no such file"),
    ],
)
def test_errors_are_one_line_that_names_the_thing(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    output = capsys.readouterr().err.strip()
    assert message in output
    assert "\n" not in output and "Traceback" not in output


@pytest.mark.parametrize(
    "command", [[], ["demo"], ["train"], ["scenarios", "show"], ["recordings", "import-csv"]]
)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    assert "usage: s3jax" in capsys.readouterr().out


def test_overrides_may_stand_between_options_and_anything_else_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (
        ["drive", "x.npz", "--out", "y", "max_time=3"],
        ["drive", "x.npz", "max_time=3", "--out", "y"],
    ):
        assert main(words) == 1
        assert "x.npz: no such file" in capsys.readouterr().err
    for words in (["train", "fast"], ["train", "--fast=1"], ["export", "run", "seed=1"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "unrecognized arguments" in capsys.readouterr().err


@pytest.fixture
def short_demo(monkeypatch):
    """A demo of two stages that take no time: printing the version, and one that can be made to fail."""
    commands = [["--version"], ["--version"]]
    monkeypatch.setattr(
        demo,
        "stages",
        lambda *_: [demo.Stage("one", 1, commands[0]), demo.Stage("two", 1, commands[1])],
    )
    return commands


def test_finished_stages_are_not_run_again(short_demo, tmp_path, capfd):
    short_demo[1] = ["no-such-command"]
    with pytest.raises(demo.StageError, match="stage two failed"):
        demo.run_demo(tmp_path)
    assert set(json.loads((tmp_path / "demo.json").read_text())["seconds"]) == {"one"}
    short_demo[1] = ["--version"]
    demo.run_demo(tmp_path)
    output = capfd.readouterr().out
    assert "[1/2] one: done before" in output
    assert "report.html" in output
    with pytest.raises(ConfigError, match="another seed"):
        demo.run_demo(tmp_path, seed=1)


def test_ctrl_c_reaches_the_stage_and_the_demo_ends(tmp_path):
    """Interrupts a real demo in its first stage; nothing is lost and nothing is said in tracebacks."""
    command = [sys.executable, "-u", "-m", "s3jax", "demo", "--smoke", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert "[1/6] collect" in process.stdout.readline()
    while not list(tmp_path.glob("recordings/*.rec")):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "the same command goes on" in errors
