"""The report of a run through the stages: pictures, tables and one self-contained HTML page. No JAX."""

import importlib.metadata
import json
import platform
from pathlib import Path

from s3jax import __version__, demo
from s3jax.archive import FileError, atomic_path
from s3jax.evaluation.closed_loop import FINISHED, Log
from s3jax.evaluation.drive import DriveConfig, course
from s3jax.evaluation.table import HEAD, markdown, rows
from s3jax.progress import Progress, silent
from s3jax.viz import page
from s3jax.viz.animation import lap_gif
from s3jax.viz.curves import open_loop_errors, read_evaluation, surface_errors, training_curves
from s3jax.viz.laps import lap_maps, lap_series

EMBEDDED = "embedded car"
PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "mujoco-core", "numba", "matplotlib")
PARTS = ("drive", "dynamics/evaluation.json", "train/metrics.csv")
"""What a folder has to hold at least one of."""


def write_report(directory: str | Path, progress: Progress = silent) -> Path:
    """Writes `report.html`, and beside it the folder `figures` with its pictures and tables.

    The same inputs on the same machine give the same bytes.

    Args:
      directory: of a run. What is there of `drive`, `dynamics`, `train` and `demo.json` is reported.
      progress: called with pictures done and in all.

    Returns:
      The path of the page.

    Raises:
      FileError: if the folder holds nothing to report on, or a file cannot be used.
    """
    directory = Path(directory)
    drive, evaluation, metrics = (directory / part for part in PARTS)
    logs = read_logs(drive)
    if not (logs or evaluation.exists() or metrics.exists()):
        raise FileError(
            f"{directory}: nothing to report on; run `s3jax demo`, or `s3jax drive` with --out {drive}"
        )
    demonstration = _read_json(directory / "demo.json", ("settings", "seconds"))
    results = _read_json(drive / "results.json", ("simulator",))
    conditions = {condition for condition, _ in logs}
    draw = _Pictures(
        directory / "figures",
        2 * len(conditions) + bool(logs) + 2 * evaluation.exists() + metrics.exists(),
        progress,
    )

    blocks = [*_smoke_note(demonstration)]
    if logs:
        blocks += _laps(drive, logs, draw)
    if evaluation.exists():
        blocks += _distillation(evaluation, draw)
    if metrics.exists():
        blocks += _training(metrics, draw)
    blocks += [page.heading("How it was made"), *_provenance(directory, demonstration)]
    blocks += [page.heading("Limits"), page.bullets(limits(results["simulator"] if results else None, logs))]
    abstract = _abstract(logs, evaluation.exists(), metrics.exists(), demonstration, results)
    text = page.page("Sim2Sim2Sim: distil, train, drive", abstract, *blocks)
    _write(directory / "report.html", text)
    return directory / "report.html"


def read_logs(directory: str | Path) -> dict[tuple[str, str], Log]:
    """Returns (condition, driver) -> Log of the laps in a folder that `drive_laps` wrote.

    Raises:
      FileError: if a lap cannot be read.
    """
    keys = [tuple(path.stem.split("_", 1)) for path in sorted(Path(directory).glob("[!.]*_?*.npz"))]
    keys.sort(key=lambda key: (key[0], key[1] != "policy"))
    return {key: Log.load(Path(directory) / "{}_{}.npz".format(*key)) for key in keys}


def drives_of(logs: dict[tuple[str, str], Log]) -> list[dict]:
    """Returns what the table of drives wants to know of each lap: condition, driver, end and metrics."""
    return [
        {"condition": condition, "driver": driver, "end": log.end, "metrics": log.metrics()}
        for (condition, driver), log in logs.items()
    ]


def verdict(drives: list[dict]) -> str:
    """Returns the outcome in a sentence or two, from the numbers."""
    laps = {(drive["condition"], drive["driver"]): drive for drive in drives}
    parts = []
    for road in dict.fromkeys(condition for condition, _ in laps):
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


def limits(simulator: str | None, logs: dict) -> list[str]:
    """Returns what the numbers do not show."""
    found = []
    if simulator in (None, EMBEDDED):
        found.append(
            "The source simulator is our own multi-body car on a flat road. It has not been compared with a "
            "measured car, and it is not BeamNG."
        )
    if logs:
        found += [
            "One lap per road and driver, from a flying start on the centre line. The simulation is "
            "deterministic: a lap repeated is the same lap. Nothing here is an average over seeds.",
            "Both drivers follow the same reference, whose speed profile knows where the ice is. The policy "
            "sees its speeds ahead and feels the road through its own motion; the baseline is told the "
            "friction under its wheels.",
            "Metrics cover the part that was driven: compare a lap that ended early by its completion first.",
        ]
    found.append("All numbers are from one run on one machine.")
    return found


class _Pictures:
    """Makes pictures in a folder and counts them."""

    def __init__(self, folder: Path, total: int, progress: Progress):
        self.folder, self._total, self._progress, self._done = folder, total, progress, 0

    def __call__(self, function, name: str, *arguments, caption: str) -> str:
        """Returns the HTML of the picture that a function of a path and arguments draws."""
        path = function(self.folder / name, *arguments)
        self._done += 1
        self._progress(self._done, self._total, name)
        return page.picture(path, caption)


def _abstract(logs, distilled, trained, demonstration, results) -> str:
    simulator = results["simulator"] if results else "source simulator"
    parts = []
    if distilled:
        parts.append("Dynamics models were distilled from recordings of a simulated car.")
    if trained:
        parts.append("A tracking policy was trained with PPO inside a distilled model.")
    if logs:
        length = f" ({results['lap_length']:.0f} m)" if results and "lap_length" in results else ""
        drivers = " and ".join(dict.fromkeys(f"the {driver}" for _, driver in logs))
        roads = " and ".join(dict.fromkeys(condition for condition, _ in logs))
        parts.append(f"In the {simulator}, {drivers} drove Putnam Park{length}, one lap each: {roads}.")
        parts.append(verdict(drives_of(logs)))
    if demonstration:
        seconds, seed = sum(demonstration["seconds"].values()), demonstration["settings"]["seed"]
        parts.append(f"All stages before this report took {seconds / 60:.1f} minutes, with seed {seed}.")
    return " ".join(part for part in parts if part)


def _smoke_note(demonstration) -> list[str]:
    smoke = demonstration is not None and demonstration["settings"]["smoke"]
    text = "A smoke run: it shows only that every stage works. Its numbers mean nothing."
    return [page.paragraph(text, note=True)] if smoke else []


def _laps(folder: Path, logs, draw) -> list[str]:
    drives = drives_of(logs)
    _write(draw.folder / "table.md", markdown(drives) + "\n")
    _write(draw.folder / "table.json", json.dumps(drives, indent=2))
    if not (folder / "config.yaml").exists():
        raise FileError(f"{folder}/config.yaml: no such file; `s3jax drive` writes it beside its laps")
    track, roads = course(DriveConfig.load(folder / "config.yaml"))
    by_road = {}
    for (condition, driver), log in logs.items():
        if condition not in roads:
            raise FileError(f"{folder}/{condition}_{driver}.npz: no such road; known are {', '.join(roads)}")
        by_road.setdefault(condition, {})[driver] = log
    blocks = [
        page.heading("Laps"),
        page.table(HEAD, rows(drives), text=3),
        page.paragraph(
            "Errors are against the reference at the nearest point: cross-track is the distance to it, speed "
            "the difference to its speed there. Rates are the RMS change of the control, in [-1, 1], per "
            "second: less is smoother."
        ),
        draw(
            lap_maps,
            "maps.png",
            track,
            roads,
            logs,
            caption="Where each lap strays from the reference. The road is drawn wider than it is.",
        ),
    ]
    for condition, laps in reversed(by_road.items()):
        names = " and ".join(laps)
        blocks.append(
            draw(
                lap_gif,
                f"laps_{condition}.gif",
                track,
                roads[condition],
                laps,
                f"Putnam Park, {condition}",
                caption=f"{names[:1].upper()}{names[1:]} on the {condition} road, sped up as the clock says. "
                "Below the map, each car close up and to scale, the direction of the reference to the right.",
            )
        )
    for condition, laps in by_road.items():
        shaded = (
            "; ice patches are shaded, with their numbers on the map."
            if len(roads[condition].values)
            else "."
        )
        blocks.append(
            draw(
                lap_series,
                f"series_{condition}.png",
                track,
                roads[condition],
                laps,
                caption=f"The {condition} lap along the track{shaded}",
            )
        )
    return blocks


def _distillation(path: Path, draw) -> list[str]:
    models = read_evaluation(path)
    horizons = list(dict.fromkeys(horizon for model in models.values() for horizon in model["open_loop"]))

    def cells(model):
        for horizon in horizons:
            row = model["open_loop"].get(horizon)
            yield f"{row['all']['position']:.2f}" if row else "–"
        stays = model.get("envelope")
        yield "–" if stays is None else f"{100 * stays:.1f}"

    head = ["model", *(f"position at {horizon} s (m)" for horizon in horizons), "10 s in envelope (%)"]
    return [
        page.heading("Distillation"),
        page.table(head, [[name, *cells(model)] for name, model in models.items()]),
        draw(
            open_loop_errors,
            "open_loop.png",
            path,
            caption="Mean error of the distilled models on episodes that they were not fitted to, following "
            "recorded controls without correction.",
        ),
        draw(
            surface_errors,
            "surfaces.png",
            path,
            caption="The position error by surface; a transition is a stretch in which friction changes. "
            "Then by road: one that the models were fitted on, and one that they never saw.",
        ),
    ]


def _training(path: Path, draw) -> list[str]:
    return [
        page.heading("Training"),
        draw(
            training_curves,
            "training.png",
            path,
            caption="Training inside the distilled model: while exploring, and without noise on scenarios "
            "kept aside.",
        ),
    ]


def _provenance(directory: Path, demonstration) -> list[str]:
    blocks = []
    if demonstration is not None:
        settings, seconds = demonstration["settings"], demonstration["seconds"]
        planned = demo.stages(directory, settings["seed"], settings["smoke"], tuple(settings["files"]))
        body = [
            [stage.name, "s3jax " + " ".join(stage.arguments), f"{seconds[stage.name]:.0f} s"]
            for stage in planned
            if stage.name in seconds and stage.name != "report"
        ]
        blocks.append(page.table(["stage", "command", "took"], body, text=2, command=1))
        blocks.append(page.paragraph(f"Seed {settings['seed']} for every stage."))
    versions = [f"s3jax {__version__}", f"Python {platform.python_version()}"]
    versions += [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    blocks.append(page.paragraph(f"{', '.join(versions)}; {platform.system()} on {platform.machine()}."))
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


def _read_json(path: Path, keys: tuple[str, ...]) -> dict | None:
    """Returns a mapping with these keys, or None if there is no such file."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: not readable ({error})") from None
    if not isinstance(content, dict) or not all(key in content for key in keys):
        raise FileError(f"{path}: expected a JSON object with {', '.join(keys)}")
    return content


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
