"""The main job in one go: every stage as its own `s3jax` command, each in its own process."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from s3jax import __version__
from s3jax.archive import atomic_path
from s3jax.config import ConfigError
from s3jax.errors import UserError

SMOKE = {
    "collect": ("scale=0.25",),
    "distil": ("steps=40",),
    "train": ("ppo.updates=10", "ppo.num_envs=512", "evaluate_every=10", "scenarios.procedural.count=200"),
    "drive": ("max_time=30",),
}
"""Overrides of each stage that show in about a minute that the path works; the results mean nothing."""


class Stage(NamedTuple):
    """One stage of the demo.

    Attributes:
      name: of the stage.
      seconds: how long it took on two cores, as a first estimate.
      arguments: of the `s3jax` command.
    """

    name: str
    seconds: int
    arguments: list[str]


class StageError(UserError):
    """A stage failed; it has said why."""


def stages(directory: Path, seed: int, smoke: bool, files: tuple[str, ...]) -> list[Stage]:
    """Returns the stages of a demo in a folder."""
    recordings, dynamics, run = directory / "recordings", directory / "dynamics", directory / "train"
    policy, laps = directory / "policy.npz", directory / "drive"
    more = SMOKE if smoke else dict.fromkeys(SMOKE, ())
    seeded = f"seed={seed}"
    scenarios = ["--scenarios", *files] if files else []

    def stage(name, seconds, *arguments):
        return Stage(name, seconds, [name, *map(str, arguments)])

    return [
        stage("collect", 25, "--out", recordings, seeded, *more["collect"]),
        stage("distil", 100, "--recordings", recordings, "--out", dynamics, seeded, *more["distil"]),
        stage(
            "train", 180, "--dynamics", dynamics / "ddm.npz", "--out", run, seeded, *more["train"], *scenarios
        ),
        stage("export", 10, run, "--out", policy),
        stage("drive", 20, policy, "--out", laps, *more["drive"]),
        stage("report", 30, directory),
    ]


def run_demo(directory: Path, seed: int = 0, smoke: bool = False, files: tuple[str, ...] = ()) -> None:
    """Runs the stages that are not done yet in this folder, and says where the report is.

    Args:
      directory: holds all results; `demo.json` records which stages are done and how long they took.
      seed: of every stage.
      smoke: run the sizes of `SMOKE`.
      files: WOMD files to train on as well.

    Raises:
      ConfigError: if the folder holds a demo with other settings.
      StageError: if a stage fails.
      KeyboardInterrupt: if a stage is interrupted.
    """
    settings = {"seed": seed, "smoke": smoke, "files": list(files), "version": __version__}
    record = directory / "demo.json"
    done = _read(record, settings)
    todo = stages(directory, seed, smoke, files)
    for number, stage in enumerate(todo, 1):
        title = f"[{number}/{len(todo)}] {stage.name}"
        if stage.name in done:
            print(f"{title}: done before, in {done[stage.name]:.0f} s", flush=True)
            continue
        estimate = "" if smoke else f" (about {stage.seconds} s on two cores)"
        print(f"{title}{estimate}: s3jax {shlex.join(stage.arguments)}", flush=True)
        clock = time.perf_counter()
        _run(stage)
        done[stage.name] = time.perf_counter() - clock
        with atomic_path(record) as temporary:
            temporary.write_text(json.dumps({"settings": settings, "seconds": done}, indent=2))
    print(f"demo: {sum(done.values()):.0f} s in all; open {(directory / 'report.html').resolve()}")


def _run(stage: Stage) -> None:
    process = subprocess.Popen([sys.executable, "-m", "s3jax", *stage.arguments])
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # the terminal sent the signal to the stage as well, which saves and ends
        raise
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise StageError(f"stage {stage.name} failed (exit status {code}); the same command tries it again")


def _read(record: Path, settings: dict) -> dict:
    if not record.exists():
        return {}
    before = json.loads(record.read_text())
    if before["settings"] != settings:
        changed = [name for name in settings if before["settings"].get(name) != settings[name]]
        raise ConfigError(
            f"{record.parent}: holds a demo with another {', '.join(changed)}; choose another --out"
        )
    return before["seconds"]
