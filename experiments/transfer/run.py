"""Does the model that predicts best train the policy that drives best?

For each distilled model: train the same policy inside it, export it, and drive one dry and one icy lap of
Putnam Park in the source. Prints a table and writes `results.json`.

    python experiments/transfer/run.py --recordings runs/demo/recordings --out runs/transfer
"""

import argparse
import json
from pathlib import Path

from s3jax.archive import atomic_path
from s3jax.distil import DistilConfig, distil
from s3jax.evaluation.drive import DriveConfig, drive_laps
from s3jax.export import export_run
from s3jax.ppo.train import TrainConfig, train
from s3jax.progress import bar

CONFIGS = Path(__file__).parents[2] / "configs"
MODELS = ("bicycle", "single_track", "ddm")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/transfer"))
    args = parser.parse_args()

    models = [{"kind": kind} for kind in MODELS]
    with bar("distil", "step") as progress:
        config = DistilConfig.parse({"models": models})
        evaluation = distil(config, args.recordings, args.out / "dynamics", progress)["evaluation"]
    results = []
    for name in MODELS:
        run = args.out / name
        with bar(f"train in {name}", "update") as progress:
            config = TrainConfig.load(CONFIGS / "train" / "quick.yaml")
            inside = train(config, args.out / "dynamics" / f"{name}.npz", run, progress)["held_out"]
        export_run(run, run / "policy.npz")
        drives = drive_laps(DriveConfig(), run / "policy.npz", run / "drive")["drives"]
        laps = {drive["condition"]: drive for drive in drives if drive["driver"] == "policy"}
        predicted = {horizon: evaluation[name]["open_loop"][horizon]["all"] for horizon in ("1", "2", "5")}
        results.append({"model": name, "open_loop": predicted, "inside": inside, "laps": laps})
    with atomic_path(args.out / "results.json") as temporary:
        temporary.write_text(json.dumps(results, indent=2))
    print(table(results))


def table(results: list[dict]) -> str:
    """Returns the results as a Markdown table."""
    lines = [
        "| model | position error after 2 s (m) | cross-track RMS inside (m) | dry lap (m) | icy lap (m) |",
        "|---|---|---|---|---|",
    ]
    for row in results:
        error, inside = row["open_loop"]["2"]["position"], row["inside"]["cross_track_rms"]
        cells = " | ".join(_lap(row["laps"][condition]) for condition in ("dry", "icy"))
        lines.append(f"| {row['model']} | {error:.2f} | {inside:.3f} | {cells} |")
    return "\n".join(lines)


def _lap(drive: dict) -> str:
    if drive["end"] == "finished":
        return f"{drive['metrics']['cross_track_rms']:.3f}"
    return f"{drive['end']} after {100 * drive['metrics']['completion']:.0f} %"


if __name__ == "__main__":
    main()
