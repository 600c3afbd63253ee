"""Trains a run without trouble, and one that is killed again and again; a program of its own for the tests.

`python kill_often.py DYNAMICS FOLDER UPDATES KILLS SEED` leaves the runs in FOLDER/whole and FOLDER/broken,
and prints what each kill met as JSON. Runs are forked from this process, which has imported all but started
nothing, so that one costs little more than its work.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tiny_run import config

from s3jax.archive import FileError
from s3jax.curves import read_rows
from s3jax.ppo.train import train


def main(dynamics, folder, updates, kills, seed):
    folder, chance = Path(folder), random.Random(int(seed))
    run = config(f"ppo.updates={updates}")
    _wait(_start(run, dynamics, folder / "whole"))
    for _ in range(int(kills)):
        child = _start(run, dynamics, folder / "broken")
        rows = _last_row(folder / "broken") + chance.randrange(1, 4)
        while _last_row(folder / "broken") < min(rows, int(updates)):
            if os.waitpid(child, os.WNOHANG)[0]:
                raise SystemExit("a run ended before it was killed")
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.2))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        steps = os.listdir(folder / "broken" / "checkpoints")
        complete = max((int(step) for step in steps if step.isdigit()), default=0)
        saving = any("tmp" in step for step in steps)
        print(json.dumps({"row": _last_row(folder / "broken"), "complete": complete, "saving": saving}))
    _wait(_start(run, dynamics, folder / "broken"))


def _start(run, dynamics, directory):
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        train(run, dynamics, directory)
        status = 0
    finally:
        os._exit(status)


def _wait(child):
    if os.waitpid(child, 0)[1]:
        raise SystemExit("a run failed")


def _last_row(directory):
    try:
        return int(read_rows(directory / "metrics.csv")[-1]["update"])
    except (FileError, IndexError):
        return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
