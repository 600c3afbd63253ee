"""`python -m beamng_bridge`: everything that talks to BeamNG.tech, and a stand-in for it."""

import argparse
import csv
import sys
from pathlib import Path

from beamng_bridge.session import SessionError
from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.progress import bar


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for an error, 130 when interrupted."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args) or 0
    except (ConfigError, FileError, SessionError) as error:
        print(f"beamng_bridge {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"beamng_bridge {args.command}: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m beamng_bridge",
        description="Drive and record BeamNG.tech. Start the game first: BeamNG.tech.x64.exe -nosteam -tcom "
        "-tport 25252. Without a licence, `emulate` in another window stands in for it.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name, run, help):
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        sub.add_argument("--config", type=Path, help="YAML file of the bridge; without it, the defaults")
        sub.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="such as session.port=25253")
        return sub

    sub = command("doctor", _doctor, "check the game, its sensors and the sign of every control (15 s)")
    sub.add_argument("--dump", type=Path, help="file for the shapes of the game's answers")

    sub = command("drive", _drive, "drive Putnam Park, dry and icy, with a policy and with the baseline")
    sub.add_argument("--bundle", type=Path, required=True, help="policy of `s3jax export`")
    sub.add_argument("--out", type=Path, default=Path("runs/beamng"), help="result (default runs/beamng)")

    sub = command("record", _record, "record while you drive in the running game; Ctrl-C ends it")
    sub.add_argument("--out", type=Path, required=True, help="the recording, a .rec file")
    sub.add_argument("--seconds", type=float, default=3600.0, help="of simulated time (default 3600)")
    sub.add_argument("--friction", type=float, default=1.0, help="of the road, 1 is dry (default 1)")

    sub = command("surfaces", _surfaces, "list the game's ground models, or put them back")
    sub.add_argument("--reset", action="store_true", help="undo every change, also of a bridge that crashed")

    sub = command("align", _align, "say where Putnam Park lies in a level, from at least three points")
    sub.add_argument("--points", type=Path, required=True, help="CSV: track_x,track_y,level_x,level_y (m)")

    sub = commands.add_parser("emulate", help="stand in for the game on this machine")
    sub.set_defaults(run=_emulate)
    sub.add_argument("--port", type=int, default=25252)
    sub.add_argument("--fps", type=float, help="frames per second; without it, as fast as it can")
    sub.add_argument("--vehicle", default="sedan", help="of the embedded source (default sedan)")
    return parser


def _config(args):
    from beamng_bridge.config import BridgeConfig

    return BridgeConfig.load(args.config, args.overrides)


def _doctor(args):
    from beamng_bridge.doctor import examine, report

    checks = examine(_config(args), args.dump)
    print(report(checks))
    return 0 if all(check.good for check in checks) else 1


def _drive(args):
    from beamng_bridge.config import open_car
    from s3jax.evaluation.drive import drive_laps

    config = _config(args)
    with open_car(config) as (_, car), bar("drive", "s") as progress:
        result = drive_laps(config.drive, args.bundle, args.out / "drive", progress, car, "BeamNG.tech")
    config.save(args.out / "bridge.yaml")
    print(f"{result['table']}\n\nfor pictures: s3jax report {args.out}")


def _record(args):
    from beamng_bridge.record import record_human
    from beamng_bridge.session import Session

    config = _config(args)
    with Session(config.session, attach=True) as session, bar("record", "s") as progress:
        done = record_human(
            session, config, args.out, args.seconds, friction=args.friction, progress=progress
        )
    print(
        f"{args.out}: {done['rows']} rows, {done['polls_per_second']:.0f} polls per second, "
        f"{done['real_time_factor']:.2f} times real time"
    )
    if done["real_time_factor"] < 0.98:
        print("the game ran slower than real time; lower its graphics settings and record again")


def _surfaces(args):
    from beamng_bridge.session import connect
    from beamng_bridge.surfaces import ground_models, reload_ground_models

    with connect(_config(args).session, tries=1) as session:
        if args.reset:
            reload_ground_models(session)
        for name, model in sorted(ground_models(session).items()):
            print(f"{name:<32} static {model['static']:.2f}  sliding {model['sliding']:.2f}")


def _align(args):
    import yaml

    from beamng_bridge.frames import fitted_alignment

    try:
        with open(args.points, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        track, level = (
            [[float(row[f"{side}_{axis}"]) for axis in "xy"] for row in rows] for side in ("track", "level")
        )
        alignment = fitted_alignment(track, level, z=_config(args).alignment.z)
    except (OSError, KeyError, TypeError) as error:
        raise FileError(
            f"{args.points}: expected columns track_x,track_y,level_x,level_y ({error})"
        ) from None
    except ValueError as error:
        raise FileError(f"{args.points}: {error}") from None
    print(yaml.safe_dump({"alignment": alignment.dump()}, sort_keys=False), end="")


def _emulate(args):
    from beamng_bridge.emulator import Emulator, Game

    with Emulator(Game(args.vehicle), port=args.port, fps=args.fps) as emulator:
        print(f"emulating BeamNG.tech on 127.0.0.1:{emulator.port}; Ctrl-C ends it", flush=True)
        emulator.join()


if __name__ == "__main__":
    sys.exit(main())
