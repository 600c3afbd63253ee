"""A run that is killed at random moments, while it saves too, ends as if nothing had happened."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
from tiny_run import last_state, write_dynamics

from s3jax.curves import read_rows

INTERVAL, UPDATES, KILLS = 2, 22, 8


def test_a_run_killed_again_and_again_ends_in_the_same_bits(tmp_path):
    driver = Path(__file__).with_name("kill_often.py")
    dynamics = write_dynamics(tmp_path / "single_track.npz")
    arguments = [driver, dynamics, tmp_path, UPDATES, KILLS, 0]
    result = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    kills = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(kills) == KILLS
    for kill in kills:
        # A save takes as long as an interval here, so that two can be under way: one writes, one waits.
        assert kill["row"] - kill["complete"] <= 2 * INTERVAL
    assert any(kill["saving"] for kill in kills)
    (step, whole), (other_step, broken) = (last_state(tmp_path / name) for name in ("whole", "broken"))
    assert step == other_step == UPDATES
    assert jax.tree.structure(whole) == jax.tree.structure(broken)
    jax.tree.map(np.testing.assert_array_equal, whole, broken)
    curves = [read_rows(tmp_path / name / "metrics.csv") for name in ("whole", "broken")]
    assert [row["update"] for row in curves[1]] == list(range(1, UPDATES + 1))
    for row in (*curves[0], *curves[1]):
        del row["steps_per_second"]
    assert curves[0] == curves[1]
    assert not any((tmp_path / "broken" / "checkpoints" / "old").iterdir())
