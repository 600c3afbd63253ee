"""Beside Waymax: a training update in either environment, and reading records, in one run on one machine.

Usage, where the real Waymax is installed (main README), with at least one tf.Example record, read in both:

    python experiments/waymax/run.py results.json FILE...

Files that end in .json are only trained on. `results.json` beside this file is of one public record and nine
GPUDrive scenes.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

REPEATS = 3
COPIES = 64

COLD = {
    "s3jax": """
import jax, jax.numpy as jnp
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.load import load_scenarios
jax.block_until_ready(jax.tree.map(jnp.asarray, make_bank(load_scenarios({path!r}, limit=1))))
""",
    "waymax": """
import jax
from waymax import config, dataloader
settings = config.DatasetConfig(path={path!r}, max_num_rg_points={points}, repeat=1)
jax.block_until_ready(next(dataloader.simulator_state_generator(settings)))
""",
}

STEADY = {
    "s3jax": """
from s3jax.scenarios.example import parse_example
from s3jax.scenarios.tfrecord import read_records
from s3jax.scenarios.waymax import state_layout
states = (state_layout(parse_example(record.data)) for record in read_records({path!r}))
""",
    "waymax": """
from waymax import config, dataloader
settings = config.DatasetConfig(path={path!r}, max_num_rg_points={points}, repeat=1)
states = dataloader.simulator_state_generator(settings)
""",
}

COUNT = """
import time
next(states)
wall, cpu = time.perf_counter(), time.process_time()
count = sum(1 for _ in states)
print((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)
"""

TRAIN = """
import json, tempfile
from s3jax.dynamics.store import PRETRAINED
from s3jax.ppo.train import TrainConfig, train
config = TrainConfig.load(None, {overrides!r})
summary = train(config, PRETRAINED, tempfile.mkdtemp())
print(json.dumps(summary))
"""

SIZES = [
    "scenarios.held_out=0.2", "scenarios.procedural.count=0", "ppo.num_envs=256", "ppo.rollout=32",
    "ppo.updates=20", "log_every=20", "evaluate_every=20",
]  # fmt: skip


def run(code: str, one_core: bool = False) -> tuple[str, float]:
    """Runs Python code in a fresh process; returns its last line and its wall time (s)."""
    command = [sys.executable, "-c", code]
    cores = (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})) if one_core else None
    clock = time.perf_counter()
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=cores, env=os.environ | QUIET
    )
    return (result.stdout.strip().splitlines() or [""])[-1], time.perf_counter() - clock


QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "S3JAX_COMPILATION_CACHE": ""}


def measure(files: list[str]) -> dict:
    """Returns all measurements; times in seconds."""
    from s3jax.scenarios.example import parse_example
    from s3jax.scenarios.tfrecord import read_records, write_records

    examples = [file for file in files if not file.endswith(".json")]
    if not examples:
        sys.exit(f"{', '.join(files) or 'no file'}: name a file of tf.Example records as well")
    record = next(iter(read_records(examples[0])))
    points = len(parse_example(record.data)["roadgraph_samples/type"])
    found = {"cold": {}, "steady": {}, "train": {}}
    with tempfile.TemporaryDirectory() as folder:
        many = str(Path(folder) / "many.tfrecord")
        write_records(many, [record.data] * COPIES)
        names = {"path": many, "points": points}
        for name, code in COLD.items():
            times = [run(code.format(**names))[1] for _ in range(REPEATS)]
            found["cold"][name] = statistics.median(times)
        for name, code in STEADY.items():
            lines = [run(code.format(**names) + COUNT, one_core=True)[0] for _ in range(REPEATS)]
            wall, cpu = zip(*(map(float, line.split()) for line in lines), strict=True)
            found["steady"][name] = {"wall": statistics.median(wall), "cpu": statistics.median(cpu)}
    for name, kind in (("native", "tracking"), ("waymax", "waymax")):
        overrides = [f"env={kind}", f"scenarios.files={files}", *SIZES]
        summary = json.loads(run(TRAIN.format(overrides=overrides))[0])
        keys = ("compile_seconds", "steps_per_second", "env_steps")
        found["train"][name] = {key: summary[key] for key in keys}
    return found


def main() -> None:
    """Measures and writes the results."""
    from s3jax.scenarios.waymax import WaymaxError, load_waymax

    out, *files = sys.argv[1:]
    try:
        load_waymax()
    except WaymaxError as error:
        sys.exit(str(error))
    packages = ("jax", "tensorflow_cpu", "numpy")
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }
    results = {"machine": machine, "records": len(files), **measure(files)}
    Path(out).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
