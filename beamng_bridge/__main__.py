"""`python -m beamng_bridge`: everything that talks to BeamNG.tech, and a stand-in for it."""

import argparse
import sys
from pathlib import Path

from beamng_bridge import commands
from beamng_bridge.lockstep import DRIVERS
from s3jax.errors import UserError

_ABOUT = """Drive and record BeamNG.tech.

Start the game first, and leave it in its main menu (for `record`: drive off):
  BeamNG.tech.x64.exe -nosteam -tcom -tport 25252
Without a licence, run `python -m beamng_bridge emulate` in another window; it stands in for the game.

The first time: doctor, surfaces --calibrate, drive --condition dry, then eval."""


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for an error, 130 when interrupted."""
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    # Settings may stand between options, which argparse would refuse for a list of positionals.
    if rest and not (hasattr(args, "config") and all("=" in word and word[0] != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.overrides = rest
    try:
        return args.run(args) or 0
    except UserError as error:
        print(f"beamng_bridge {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"beamng_bridge {args.command}: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m beamng_bridge",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name, run, help, about=""):
        sub = names.add_parser(
            name,
            help=help,
            description=f"{help[0].upper()}{help[1:]}. {about}",
            epilog="KEY=VALUE changes a setting, such as session.port=25253 or session.model=etk800.",
            usage=f"python -m beamng_bridge {name} [options] [KEY=VALUE ...]",
        )
        sub.set_defaults(run=run)
        sub.add_argument("--config", type=Path, help="YAML file of settings; without it, the defaults")
        return sub

    real_time = "let the game run by the clock instead of pausing it for each step; a watchdog brakes"

    sub = command("doctor", commands.doctor, "check the game, its sensors and the sign of every control")
    sub.add_argument("--dump", type=Path, help="file for the shapes of the game's answers")

    sub = command(
        "record",
        commands.record,
        "record you or a driver as a .rec file",
        "With `--driver human`, you drive the running game and nothing in it is paused or changed; Ctrl-C "
        "ends it. All others load a level and drive it in lock-step.",
    )
    sub.add_argument("--out", type=Path, required=True, help="the recording, a .rec file")
    sub.add_argument("--driver", choices=("human", *DRIVERS), default="human", help="default human")
    sub.add_argument("--bundle", type=Path, help="policy of `s3jax export`, for --driver policy")
    sub.add_argument("--condition", default="dry", help="of the road, not for humans (default dry)")
    sub.add_argument("--seconds", type=float, help="simulated (default 3600 for humans, else 120)")
    sub.add_argument(
        "--friction", type=float, help="of the road a human drives on; without it, the calibrated one, or 1"
    )
    sub.add_argument("--seed", type=int, default=0, help="of scripted, random and limit (default 0)")

    sub = command("convert", commands.convert, "make .rec files of a human's journal, also after a crash")
    sub.add_argument("journal", type=Path, help="the .jsonl file that `record` wrote")
    sub.add_argument("--out", type=Path, help="the recording (default: beside the journal, .rec)")
    sub.add_argument("--friction", type=float, default=1.0, help="of the road (default 1)")

    sub = command("drive", commands.drive, "drive one lap, with a policy")
    sub.add_argument("--bundle", type=Path, required=True, help="policy of `s3jax export`")
    sub.add_argument("--driver", choices=("policy", "baseline"), default="policy")
    sub.add_argument("--condition", default="dry", help="dry, icy, wet, gravel, snow or ice (default dry)")
    sub.add_argument("--real-time", action="store_true", help=real_time)
    sub.add_argument("--out", type=Path, help="result (default runs/beamng_laps/DATE)")

    sub = command(
        "eval",
        commands.evaluate,
        "drive the standard evaluation: policy and baseline, dry and icy",
        "`s3jax report RUN` shows it beside the laps of the embedded car, if RUN holds some. Finished laps "
        "are kept: the same command goes on after an error.",
    )
    sub.add_argument("--bundle", type=Path, required=True, help="policy of `s3jax export`")
    sub.add_argument("--conditions", help="such as dry,icy,snow (default: drive.conditions)")
    sub.add_argument("--repeats", type=int, help="laps of each kind, each from another place (default 1)")
    sub.add_argument("--real-time", action="store_true", help=real_time)
    sub.add_argument(
        "--out", type=Path, default=Path("runs/beamng"), metavar="RUN", help="default runs/beamng"
    )

    sub = command(
        "replay",
        commands.replay,
        "play a recording back and say how far it strays",
        "The recorded controls are played in lock-step, without corrections, from the recorded start.",
    )
    sub.add_argument("recording", type=Path, help="a .rec file")
    sub.add_argument("--seconds", type=float, default=float("inf"), help="to play at most")
    sub.add_argument("--poses", action="store_true", help="put the car on each recorded pose, to look at")
    sub.add_argument("--speed", type=float, default=1.0, help="of --poses, times real time (default 1)")

    sub = command("surfaces", commands.surfaces, "list, measure or put back the game's ground models")
    sub.add_argument("--reset", action="store_true", help="undo every change, also of a bridge that crashed")
    sub.add_argument(
        "--calibrate",
        type=Path,
        metavar="FILE",
        help="measure them by braking, for calibration=FILE (takes some minutes and 250 m of free road)",
    )

    sub = command("align", commands.align, "say where Putnam Park lies in a level, from three or more points")
    sub.add_argument("--points", type=Path, required=True, help="CSV: track_x,track_y,level_x,level_y (m)")

    sub = names.add_parser("emulate", help="stand in for the game on this machine")
    sub.set_defaults(run=commands.emulate)
    sub.add_argument("--port", type=int, default=25252, help="default 25252")
    sub.add_argument("--fps", type=float, help="frames per second; without it, as fast as it can")
    sub.add_argument("--vehicle", default="sedan", help="of the embedded source (default sedan)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
