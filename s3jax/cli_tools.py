"""The commands of `s3jax` that look at things: recordings, scenarios, models, the environment, speed."""

from pathlib import Path

from s3jax.config import ConfigError
from s3jax.progress import bar


def add_tools(commands) -> None:
    """Adds the commands to the sub-parsers of `s3jax`."""
    actions = _group(commands, "recordings", "look at recordings, or make some from foreign logs")
    sub = _action(actions, "info", _recordings_info, "describe a recording, or all of a folder")
    sub.add_argument("path", type=Path)
    sub = _action(actions, "plot", _recordings_plot, "draw a recording")
    sub.add_argument("path", type=Path)
    sub.add_argument("--out", type=Path, help="picture (default beside the recording, .png)")
    sub = _action(actions, "import-csv", _recordings_import, "write a CSV log as recordings")
    sub.add_argument("path", type=Path)
    sub.add_argument("--mapping", type=Path, required=True, help="YAML, such as configs/import/iac.yaml")
    sub.add_argument("--out", type=Path, default=Path("runs/imported"))

    actions = _group(commands, "scenarios", "look at scenario files, convert or generate them")
    sub = _action(actions, "show", _scenarios_show, "draw the scenes of files")
    _add_files(sub, Path("runs/scenes"))
    sub.add_argument("--limit", type=int, default=10, help="most scenes to draw (default 10)")
    sub = _action(actions, "stats", _scenarios_stats, "tabulate and draw tags and distributions")
    _add_files(sub, Path("runs/scenarios.png"))
    sub = _action(actions, "compare", _scenarios_compare, "how alike the driving in two sets is")
    sub.add_argument("first", metavar="REFERENCE", help="file, quoted pattern, name@shards or store")
    sub.add_argument("second", metavar="OTHER", help="the set that is held against it")
    sub.add_argument("--out", type=Path, default=Path("runs/compare.png"))
    sub = _action(actions, "build", _scenarios_build, "convert files to a store, once")
    _add_files(sub, Path("runs/scenarios"))
    sub.add_argument("--strict", action="store_true", help="stop at the first bad record")
    sub = _action(actions, "generate", _scenarios_generate, "generate a store of procedural worlds")
    sub.add_argument("--count", type=int, default=1000)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--out", type=Path, default=Path("runs/worlds"))
    add_configuration(sub)

    for name, run, help in (
        ("evaluate-dynamics", _evaluate_dynamics, "compare models on recordings that none was fitted to"),
        ("inspect-dynamics", _inspect_dynamics, "draw predictions, tyre curves and beliefs of models"),
    ):
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        sub.add_argument("models", nargs="+", type=Path, metavar="MODEL")
        sub.add_argument("--recordings", type=Path, default=Path("runs/recordings"))
        sub.add_argument("--out", type=Path, default=Path("runs/inspection"))

    actions = _group(commands, "env", "the tracking environment")
    sub = _action(actions, "describe", _env_describe, "print the observation, part by part")
    add_configuration(sub)

    actions = _group(commands, "bench", "measure speed and stability on this machine")
    sub = _action(actions, "source", _bench_source, "control steps per second of the embedded car")
    sub.add_argument("--vehicle", default="sedan")
    for name, run, help in (
        ("dynamics", _bench_dynamics, "steps per second of models alone"),
        ("stability", _bench_stability, "random driving on jumping friction, 10,000 cars for 60 s"),
    ):
        sub = _action(actions, name, run, help)
        sub.add_argument("models", nargs="+", type=Path, metavar="MODEL")


def add_configuration(sub) -> None:
    """Adds `--config`, and lets the command take KEY=VALUE overrides, which `s3jax.cli.main` collects."""
    sub.add_argument("--config", type=Path, help="YAML file; without it, the defaults")
    sub.epilog = "KEY=VALUE arguments override the configuration, such as ppo.num_envs=2048"
    sub.set_defaults(overrides=[])


def _group(commands, name, help):
    sub = commands.add_parser(name, help=help, description=help)
    return sub.add_subparsers(dest="action", required=True, metavar="ACTION")


def _action(actions, name, run, help):
    sub = actions.add_parser(name, help=help, description=help)
    sub.set_defaults(run=run)
    return sub


def _add_files(sub, out):
    sub.add_argument("files", nargs="+", metavar="FILE", help="file, quoted pattern, name@shards or store")
    sub.add_argument("--out", type=Path, default=out, help=f"result (default {out})")


def _recordings_info(args):
    from s3jax.source.summary import recordings_info

    print(recordings_info(args.path))


def _recordings_plot(args):
    from s3jax.source.summary import plot_recording

    path = args.out or args.path.with_suffix(".png")
    plot_recording(args.path, path)
    print(path)


def _recordings_import(args):
    from s3jax.distil.import_csv import CsvMapping, import_csv

    for path in import_csv(args.path, CsvMapping.load(args.mapping), args.out):
        print(path)


def _scenarios_show(args):
    from s3jax.scenarios.draw import draw
    from s3jax.scenarios.load import load_scenarios

    args.out.mkdir(parents=True, exist_ok=True)
    for scenario in load_scenarios(args.files, limit=args.limit):
        path = args.out / f"{scenario.id}.png"
        draw(scenario, path)
        print(path)


def _scenarios_stats(args):
    from s3jax.scenarios import stats, tags
    from s3jax.scenarios.load import load_scenarios

    numbers = tags.table(load_scenarios(args.files))
    print(stats.tabulate(numbers))
    stats.plot(numbers, args.out)
    print(args.out)


def _scenarios_compare(args):
    from s3jax.scenarios import compare
    from s3jax.scenarios.load import load_scenarios

    first, second = (compare.samples(load_scenarios(pattern)) for pattern in (args.first, args.second))
    print(compare.tabulate_distances(compare.distances(first, second)))
    compare.plot_channels({args.first: first, args.second: second}, args.out)
    print(args.out)


def _scenarios_build(args):
    from s3jax.scenarios.build import build

    with bar("build", "file") as progress:
        _print_build(build(args.files, args.out, strict=args.strict, progress=progress), args.out)


def _scenarios_generate(args):
    from s3jax.scenarios.build import build_worlds
    from s3jax.scenarios.worlds import WorldConfig

    if args.count < 1:
        raise ConfigError(f"--count {args.count}: expected at least 1")
    config = WorldConfig.load(args.config, args.overrides)
    with bar("generate", "world") as progress:
        _print_build(build_worlds(config, args.count, args.out, args.seed, progress=progress), args.out)


def _print_build(summary, directory):
    for error in summary.errors:
        print(f"skipped {error}")
    print(f"{summary.scenarios} scenarios in {directory}, {len(summary.errors)} records skipped")


def _evaluate_dynamics(args):
    from s3jax.distil.evaluate import evaluate_files, markdown

    print(markdown(evaluate_files(args.models, args.recordings, args.out)))


def _inspect_dynamics(args):
    from s3jax.distil.inspect import inspect_dynamics

    for path in inspect_dynamics(args.models, args.recordings, args.out):
        print(path)


def _env_describe(args):
    from s3jax.env import layout
    from s3jax.ppo.train import TrainConfig

    env = TrainConfig.load(args.config, args.overrides).env
    start = 0
    seen = {"policy and critic": layout.policy_parts(env), "the critic alone": layout.critic_parts(env)}
    for who, parts in seen.items():
        print(f"{layout.size(parts)} numbers for {who}")
        for name, (size, meaning) in parts.items():
            print(f"[{start}, {start + size})  {name}: {meaning}")
            start += size
    print(f"digest of what a driver observes: {env.observation.digest()[:16]}")
    print(f"action: change of steer and pedal, at most {env.control_rate} per second")


def _bench_source(args):
    from s3jax.source.bench import bench_source

    print(bench_source(args.vehicle)["table"])


def _bench_dynamics(args):
    from s3jax.distil.bench import table
    from s3jax.dynamics.store import load_dynamics

    print(table({path.stem: load_dynamics(path)[:2] for path in args.models}))


def _bench_stability(args):
    import json

    from s3jax.distil.stability import stability
    from s3jax.dynamics.store import load_dynamics

    for path in args.models:
        model, params, _ = load_dynamics(path)
        print(path.stem, json.dumps(stability(model, params)))
