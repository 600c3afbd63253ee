"""The `s3jax` command. Each sub-command imports only what it needs; `drive` and `report` never load JAX."""

import argparse
import contextlib
import sys
from pathlib import Path

from s3jax import __version__
from s3jax.cli_tools import add_configuration, add_tools
from s3jax.compilation_cache import use_compilation_cache
from s3jax.errors import UserError
from s3jax.progress import bar, silent


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for an error of the user's, 130 when interrupted."""
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    # Overrides may stand between options, which argparse would refuse for a list of positionals.
    if rest and not (hasattr(args, "overrides") and all("=" in word and word[0] != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.overrides = rest
    use_compilation_cache()
    try:
        args.run(args)
    except UserError as error:
        print(f"s3jax {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"s3jax {args.command}: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="s3jax", description="Distil a vehicle simulator, train in it, drive the simulator."
    )
    parser.add_argument("--version", action="version", version=f"s3jax {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    womd = "WOMD file or quoted pattern to train on as well; may be given again"

    def command(name, run, help, out=None, configured=True):
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        if out:
            sub.add_argument("--out", type=Path, default=Path(out), help=f"result (default {out})")
        if configured:
            add_configuration(sub)
        return sub

    sub = command("demo", _demo, "all stages, from recording to report", "runs/demo", False)
    sub.add_argument("--seed", type=int, default=0, help="of every stage (default 0)")
    sub.add_argument("--scenarios", action="append", default=[], metavar="FILE", help=womd)
    sub.add_argument("--smoke", action="store_true", help="a minute-long run that only shows that all works")

    command("collect", _collect, "drive the source simulator and record it", "runs/recordings")

    sub = command("distil", _distil, "fit a dynamics model to recordings", "runs/dynamics")
    sub.add_argument("--recordings", type=Path, default=Path("runs/recordings"))

    sub = command("train", _train, "train a policy inside a distilled model", "runs/train")
    sub.add_argument(
        "--dynamics", type=Path, help="a distilled model; without it, the one s3jax brings along"
    )
    sub.add_argument("--scenarios", action="append", default=[], metavar="FILE", help=womd)
    sub.add_argument("--profile", action="store_true", help="write a profile of a few updates to OUT/profile")
    several = sub.add_argument_group(
        "a run of several processes", "found by itself in SLURM, Open MPI and TPU slices"
    )
    several.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0 (S3JAX_COORDINATOR)")
    several.add_argument("--processes", type=int, metavar="N", help="how many there are (S3JAX_PROCESSES)")
    several.add_argument("--process", type=int, metavar="I", help="which this is, from 0 (S3JAX_PROCESS)")

    sub = command(
        "evaluate", _evaluate, "drive held-out scenarios inside the distilled model", configured=False
    )
    sub.add_argument("run_folder", type=Path, metavar="RUN", help="folder of `s3jax train`")

    sub = command("export", _export, "write a trained policy as a NumPy bundle", configured=False)
    sub.add_argument("run_folder", type=Path, metavar="RUN", help="folder of `s3jax train`")
    sub.add_argument("--out", type=Path, help="bundle (default RUN/policy.npz)")
    sub.add_argument("--checkpoint", choices=("best", "latest"), default="best")

    sub = command(
        "drive", _drive, "drive the source simulator with a bundle and with the baseline", "runs/drive"
    )
    sub.add_argument("bundle", type=Path, help="policy bundle of `s3jax export`")

    sub = command("report", _report, "pictures, tables and an HTML page of a run's laps", configured=False)
    sub.add_argument("run_folder", type=Path, metavar="RUN", help="folder that holds `drive`")

    add_tools(commands)
    command("doctor", _doctor, "say what is installed and which devices JAX sees", configured=False)
    return parser


def _demo(args):
    from s3jax.demo import run_demo

    run_demo(args.out, args.seed, args.smoke, tuple(args.scenarios))


def _collect(args):
    from s3jax.source.collect import CollectConfig, collect

    config = CollectConfig.load(args.config, args.overrides)
    with bar("collect", "episode") as progress:
        summary = collect(config, args.out, progress)
    print(f"{summary['simulated_minutes']:.1f} simulated minutes in {args.out}")


def _distil(args):
    from s3jax.distil import DistilConfig, distil

    config = DistilConfig.load(args.config, args.overrides)
    with bar("distil", "step") as progress:
        summary = distil(config, args.recordings, args.out, progress)
    print(summary["table"])


def _train(args):
    from s3jax.ppo.devices import start_processes

    first = start_processes(args.coordinator, args.processes, args.process) == 0
    from s3jax.dynamics.store import PRETRAINED
    from s3jax.ppo.train import TrainConfig, train

    files = [f"scenarios.files={args.scenarios}"] if args.scenarios else []
    config = TrainConfig.load(args.config, [*args.overrides, *files])
    with bar("train", "update") if first else contextlib.nullcontext(silent) as progress:
        summary = train(config, args.dynamics or PRETRAINED, args.out, progress, args.profile)
    if first:
        _print_training(args, summary)
    if not summary["finished"]:
        raise KeyboardInterrupt


def _print_training(args, summary):
    state, error = "finished" if summary["finished"] else "stopped", summary["held_out"]["cross_track_rms"]
    print(
        f"{state} after {summary['updates']} updates, {summary['env_steps']:,} steps; "
        f"held-out cross-track RMS {error:.3f} m"
    )
    print(
        f"compiled in {summary['compile_seconds']:.1f} s, ran {summary['train_seconds']:.1f} s at "
        f"{summary['steps_per_second']:,.0f} steps per second; curves in {args.out / 'curves.png'}, or "
        f"tensorboard --logdir {args.out}"
    )
    if args.profile:
        print(_profile_hint(args.out / "profile", summary["profiled"]))


def _profile_hint(directory, written):
    if not written:
        return "no profile: too few updates were left"
    path = max(directory.rglob("perfetto_trace.json.gz"), key=lambda path: path.stat().st_mtime)
    return f"profile: open {path} at https://ui.perfetto.dev, or pip install xprof and run xprof {directory}"


def _evaluate(args):
    from s3jax.ppo.train import evaluate_run

    for name, value in evaluate_run(args.run_folder).items():
        print(f"{name:>20} {value:.4f}")


def _export(args):
    from s3jax.export import export_run

    path = args.out or args.run_folder / "policy.npz"
    update = export_run(args.run_folder, path, args.checkpoint)
    print(f"{path}: policy after update {update}")


def _drive(args):
    from s3jax.evaluation.drive import DriveConfig, drive_laps

    config = DriveConfig.load(args.config, args.overrides)
    with bar("drive", "s") as progress:
        result = drive_laps(config, args.bundle, args.out, progress)
    print(result["table"])


def _report(args):
    from s3jax.evaluation.report import write_report

    with bar("report", "picture") as progress:
        path = write_report(args.run_folder, progress)
    print(path)


def _doctor(args):
    from s3jax.doctor import report

    print(report())
