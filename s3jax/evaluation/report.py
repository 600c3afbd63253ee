"""The report of a run through all stages: pictures, tables and one self-contained HTML page. No JAX."""

import importlib.metadata
import json
import platform
from pathlib import Path

from s3jax import __version__, demo
from s3jax.archive import FileError, atomic_path
from s3jax.evaluation.closed_loop import FINISHED, Log
from s3jax.evaluation.drive import EMBEDDED, DriveConfig, course
from s3jax.evaluation.table import HEAD, rows
from s3jax.progress import Progress, silent
from s3jax.viz import page
from s3jax.viz.animation import lap_gif
from s3jax.viz.laps import lap_maps, lap_series
from s3jax.viz.training import open_loop_errors, training_curves

PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "mujoco-core", "numba", "matplotlib")

EMBEDDED_LIMIT = (
    "The source simulator is our own multi-body car on a flat road. It has not been compared with a "
    "measured car, and it is not BeamNG."
)
GAME_LIMIT = (
    "These laps were driven through the BeamNG bridge, whose results do not tell the game from its emulator. "
    "Ice patches switch the whole road at once, and the friction shown is what was asked for."
)
LIMITS = (
    "One lap per road and driver, from a flying start on the centre line. The simulation is deterministic: "
    "a lap repeated is the same lap. Nothing here is an average over seeds.",
    "Both drivers follow the same reference, whose speed profile knows where the ice is. The policy sees "
    "its speeds ahead and feels the road through its own motion; the baseline is told the friction under "
    "its wheels.",
    "Metrics cover the part that was driven: compare a lap that ended early by its completion first.",
)


def write_report(directory: str | Path, progress: Progress = silent) -> Path:
    """Writes `report.html`, and beside it the folder `report` with its pictures and tables.

    Args:
      directory: of a run. Its folder `drive` is needed; `dynamics`, `train` and `demo.json` are used if
        they are there.
      progress: called with pictures done and in all.

    Returns:
      The path of the page.

    Raises:
      FileError: if there are no drives to report on, or a file cannot be used.
    """
    directory = Path(directory)
    results, logs = read_drives(directory / "drive")
    figures = directory / "report"
    stages = _read_json(directory / "demo.json") if (directory / "demo.json").exists() else None
    config = DriveConfig.load(directory / "drive" / "config.yaml")
    track, roads = course(config)
    conditions = list(dict.fromkeys(condition for condition, _ in logs))
    blocks = [
        *_smoke_note(stages),
        page.heading("Laps"),
        page.table(HEAD, rows(results["drives"]), text=3),
        page.paragraph(
            "Errors are against the reference at the nearest point: cross-track is the distance to it, speed "
            "the difference to its speed there. Rates are the RMS change of the control, in [-1, 1], per "
            "second: less is smoother."
        ),
    ]
    total, done = 2 * len(conditions) + 3, 0

    def drawn(path, caption):
        nonlocal done
        done += 1
        progress(done, total, path.name)
        blocks.append(page.picture(path, caption))

    for condition in reversed(conditions):
        laps = {driver: log for (road, driver), log in logs.items() if road == condition}
        drawn(
            lap_gif(
                figures / f"laps_{condition}.gif", track, roads[condition], laps, f"Putnam Park, {condition}"
            ),
            f"{_named(laps)} on the {condition} road at ten times real time. Below the map, each car close "
            "up and to scale, the direction of the reference to the right.",
        )
    drawn(
        lap_maps(figures / "maps.png", track, roads, logs),
        "Where each lap strays from the reference. The road is drawn wider than it is.",
    )
    for condition in conditions:
        laps = {driver: log for (road, driver), log in logs.items() if road == condition}
        drawn(
            lap_series(figures / f"series_{condition}.png", track, roads[condition], laps),
            f"The {condition} lap along the track"
            + ("; ice patches are shaded." if len(roads[condition].values) else "."),
        )
    if (evaluation := directory / "dynamics" / "evaluation.json").exists():
        blocks += [page.heading("Distillation"), _distillation(evaluation)]
        drawn(
            open_loop_errors(figures / "open_loop.png", evaluation),
            "Mean error of the distilled models on episodes that they were not fitted to, following recorded "
            "controls without correction.",
        )
    if (metrics := directory / "train" / "metrics.csv").exists():
        blocks.append(page.heading("Training"))
        drawn(
            training_curves(figures / "training.png", metrics),
            "Reward and tracking errors inside the distilled model during training.",
        )
    blocks += [page.heading("How it was made"), *_provenance(directory, stages, results)]
    first = EMBEDDED_LIMIT if results["simulator"] == EMBEDDED else GAME_LIMIT
    blocks += [page.heading("Limits"), page.bullets([first, *LIMITS])]
    _write(figures / "table.md", results["table"] + "\n")
    _write(figures / "table.json", json.dumps(results["drives"], indent=2))
    _write(
        directory / "report.html", page.page("Putnam Park, dry and icy", verdict(results["drives"]), *blocks)
    )
    return directory / "report.html"


def read_drives(directory: str | Path) -> tuple[dict, dict]:
    """Returns what `drive_laps` wrote: `results.json`, and (condition, driver) -> Log.

    Raises:
      FileError: if the folder holds no such results.
    """
    results = _read_json(Path(directory) / "results.json")
    try:
        keys = [(drive["condition"], drive["driver"]) for drive in results["drives"]]
    except (KeyError, TypeError):
        raise FileError(f"{directory}/results.json: not the results of `s3jax drive`") from None
    return results, {key: Log.load(Path(directory) / "{}_{}.npz".format(*key)) for key in keys}


def verdict(drives: list[dict]) -> str:
    """Returns the outcome in a sentence or two, from the numbers."""
    laps = {(drive["condition"], drive["driver"]): drive for drive in drives}
    roads = list(dict.fromkeys(condition for condition, _ in laps))
    parts = []
    for road in roads:
        policy, baseline = laps.get((road, "policy")), laps.get((road, "baseline"))
        if not policy or not baseline:
            continue
        ended = [
            f"{name} {drive['end']} after {100 * drive['metrics']['completion']:.0f} %"
            for name, drive in (("policy", policy), ("baseline", baseline))
            if drive["end"] != FINISHED
        ]
        errors = [drive["metrics"]["cross_track_rms"] for drive in (policy, baseline)]
        parts.append(
            f"On the {road} road the policy's cross-track RMS is {errors[0]:.2f} m and the baseline's "
            f"{errors[1]:.2f} m" + (f" ({'; '.join(ended)})" if ended else "; both finish the lap") + "."
        )
    return " ".join(parts)


def _named(laps) -> str:
    names = " and ".join(laps)
    return names[:1].upper() + names[1:]


def _smoke_note(stages) -> list[str]:
    smoke = stages is not None and stages["settings"]["smoke"]
    text = "A smoke run: it shows only that every stage works. Its numbers mean nothing."
    return [page.paragraph(text, note=True)] if smoke else []


def _distillation(path: Path) -> str:
    models = _read_json(path)
    try:
        horizons = list(next(iter(models.values()))["open_loop"])
        head = ["model", *(f"position at {horizon} s (m)" for horizon in horizons), "10 s in envelope (%)"]
        body = [
            [name]
            + [f"{result['open_loop'][horizon]['all']['position']:.2f}" for horizon in horizons]
            + ["–" if result["envelope"] is None else f"{100 * result['envelope']:.1f}"]
            for name, result in models.items()
        ]
    except (KeyError, TypeError, AttributeError, StopIteration):
        raise FileError(f"{path}: not the evaluation of a distillation") from None
    return page.table(head, body)


def _provenance(directory: Path, stages, results) -> list[str]:
    blocks = []
    if stages is not None:
        settings, seconds = stages["settings"], stages["seconds"]
        planned = demo.stages(directory, settings["seed"], settings["smoke"], tuple(settings["files"]))
        body = [
            [stage.name, "s3jax " + " ".join(stage.arguments), f"{seconds[stage.name]:.0f} s"]
            for stage in planned
            if stage.name in seconds
        ]
        blocks.append(page.table(["stage", "command", "took"], body, text=2, command=1))
        blocks.append(page.paragraph(f"Seed {settings['seed']} for every stage."))
    versions = [f"s3jax {__version__}", f"Python {platform.python_version()}"]
    versions += [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    blocks.append(page.paragraph(f"{', '.join(versions)}; {platform.system()} on {platform.machine()}."))
    blocks.append(
        page.paragraph(f"Driven in the {results['simulator']}; a lap of {results['lap_length']:.1f} m.")
    )
    for name, file in (
        ("collect", "recordings/collect.yaml"),
        ("distil", "dynamics/config.yaml"),
        ("train", "train/config.yaml"),
        ("drive", "drive/config.yaml"),
    ):
        if (directory / file).exists():
            blocks.append(page.folded(f"Settings of {name}", (directory / file).read_text(encoding="utf-8")))
    return blocks


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; run `s3jax drive` first") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: not readable ({error})") from None


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
