"""What the commands of `python -m beamng_bridge` do; each takes its parsed arguments."""

import csv
import json
import time
from pathlib import Path

from beamng_bridge.config import BridgeConfig, open_car, session_mounting
from beamng_bridge.session import Session, SessionError, connect
from s3jax.archive import FileError, atomic_path
from s3jax.config import ConfigError
from s3jax.progress import bar

FOLDER = "beamng"
"""Part of a run's folder that holds the laps driven in BeamNG."""


def _config(args, *more: str) -> BridgeConfig:
    return BridgeConfig.load(args.config, [*args.overrides, *more])


def doctor(args):
    """Examines the game; 1 if something is wrong."""
    from beamng_bridge.doctor import examine, report

    checks = examine(_config(args), args.dump)
    print(report(checks))
    return 0 if all(check.good for check in checks) else 1


def drive(args):
    """Drives one lap."""
    out = args.out or Path("runs/beamng_laps") / time.strftime("%Y-%m-%dT%H-%M-%S")
    _laps(args, out, f"drive.conditions=[{args.condition}]", f"drive.drivers=[{args.driver}]")


def evaluate(args):
    """Drives the standard evaluation."""
    more = [f"drive.conditions=[{args.conditions}]"] if args.conditions else []
    more += [f"drive.repeats={args.repeats}"] if args.repeats is not None else []
    _laps(args, args.out, *more)


def _laps(args, out, *more):
    from beamng_bridge.realtime import described, timing_summary
    from s3jax.evaluation.closed_loop import Log
    from s3jax.evaluation.drive import Source, drive_laps

    config, folder = _config(args, *more), out / FOLDER
    name = f"BeamNG.tech in {'real time' if args.real_time else 'lock-step'}"
    with open_car(config, args.real_time) as (_, car), bar("drive", "s") as progress:
        probe = (lambda: car.timing._asdict()) if args.real_time else dict
        result = drive_laps(
            config.drive, args.bundle, folder, progress, Source(name, car, car.max_angle, probe)
        )
    config.save(folder / "bridge.yaml")
    print(result["table"])
    if args.real_time:
        logs = [*sorted(folder.glob("*_*.npz")), *sorted((folder / "repeats").glob("*.npz"))]
        timing = {log.stem: timing_summary(Log.load(log).columns) for log in logs}
        with atomic_path(folder / "timing.json") as temporary:
            temporary.write_text(json.dumps(timing, indent=2), encoding="utf-8")
        print("\n".join(f"{lap}: {described(values)}" for lap, values in timing.items()))
    print(f"\nfor pictures: s3jax report {out}")


def record(args):
    """Records a human or a driver."""
    config = _config(args)
    if args.driver == "human":
        return _record_human(args, config)
    if (args.driver == "policy") != (args.bundle is not None):
        raise ConfigError("--bundle goes with --driver policy, and only with it")
    from beamng_bridge.lockstep import record_driver

    with open_car(config) as (_, car), bar("record", "s") as progress:
        paths = record_driver(
            car,
            config,
            args.driver,
            args.out,
            args.seconds or 120.0,
            args.condition,
            args.bundle,
            args.seed,
            progress,
        )
    print(f"{len(paths)} recordings, from {paths[0]} to {paths[-1]}")


def _record_human(args, config):
    from beamng_bridge import journal
    from beamng_bridge.record import convert, record_human

    friction = _road_friction(args, config)
    written = args.out.with_suffix(journal.SUFFIX)
    try:
        with Session(config.session, attach=True) as session, bar("record", "s") as progress:
            done = record_human(session, config, written, args.seconds or 3600.0, progress)
    except SessionError as error:
        if written.exists():
            raise SessionError(
                f"{error}. What came before is in {written}: `convert` makes recordings of it"
            ) from None
        raise
    paths = convert(written, args.out, friction=friction)
    print(
        f"{', '.join(map(str, paths))}: {done['polls_per_second']:.0f} polls per second, "
        f"{done['real_time_factor']:.2f} times real time"
    )
    if done["real_time_factor"] < 0.98:
        print("the game ran slower than real time; lower its graphics settings and record again")


def _road_friction(args, config) -> float:
    """Returns what the calibration says of the road that a human drives on, or what the user says."""
    if args.friction is not None:
        return args.friction
    measured = config.measured()
    return measured.models.get(measured.road, 1.0) if measured else 1.0


def convert(args):
    """Makes recordings of a journal."""
    from beamng_bridge.record import convert

    if args.config is not None:
        raise ConfigError("the journal holds its own settings; change some with KEY=VALUE, without --config")
    paths = convert(args.journal, args.out or args.journal.with_suffix(".rec"), args.overrides, args.friction)
    print("\n".join(map(str, paths)))


def replay(args):
    """Plays a recording back."""
    from beamng_bridge.replay import replay_controls, replay_poses

    with open_car(_config(args)) as (_, car), bar("replay", "s") as progress:
        if args.poses:
            found = replay_poses(car, args.recording, args.speed, progress)
        else:
            found = replay_controls(car, args.recording, args.seconds, progress)
    for horizon, position in found["at"].items():
        print(f"after {horizon:4.1f} s: {position:.2f} m from the recording")
    print(f"at most {max(found['position']):.2f} m, at the end {found['position'][-1]:.2f} m")


def surfaces(args):
    """Lists, measures or restores the ground models."""
    from beamng_bridge.calibration import calibrate
    from beamng_bridge.surfaces import ground_models, reload_ground_models

    config, measured = _config(args), None
    if args.calibrate and not config.road:
        raise ConfigError("road: name the ground model of the road to calibrate")
    with connect(config.session, tries=1) as session:
        if args.reset:
            reload_ground_models(session)
        models = ground_models(session)
        if args.calibrate:
            with bar("calibrate", "test") as progress:
                measured = calibrate(
                    session,
                    config.road.upper(),
                    config.alignment,
                    session_mounting(session, config),
                    progress,
                )
            measured.save(args.calibrate)
    for name, model in sorted(models.items()):
        worth = f"  friction {measured.models[name]:.3f}" if measured and name in measured.models else ""
        print(f"{name:<32} static {model['static']:.2f}  sliding {model['sliding']:.2f}{worth}")
    if measured:
        print(f"{args.calibrate}: use it with calibration={args.calibrate}")


def align(args):
    """Prints the alignment of a track with a level."""
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
    except ConfigError:
        raise
    except ValueError as error:
        raise FileError(f"{args.points}: {error}") from None
    print(yaml.safe_dump({"alignment": alignment.dump()}, sort_keys=False), end="")


def emulate(args):
    """Stands in for the game."""
    try:
        from beamng_bridge.emulator import Emulator, Game

        emulator = Emulator(Game(args.vehicle), port=args.port, fps=args.fps)
    except ImportError as error:
        raise SessionError(f"{error}; the emulator needs: pip install 's3jax[beamng]'") from None
    except OSError as error:
        raise SessionError(f"port {args.port}: {error.strerror}; choose another with --port") from None
    with emulator:
        print(f"emulating BeamNG.tech on 127.0.0.1:{emulator.port}; Ctrl-C ends it", flush=True)
        emulator.join()
