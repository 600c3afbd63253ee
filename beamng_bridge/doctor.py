"""Does this installation do what the bridge takes for granted? Run it before the first lap.

It drives the car a few metres on the spot where the level puts it, and checks the sign of everything.
"""

import json
import platform
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beamng_bridge import frames
from beamng_bridge.config import BridgeConfig, make_car
from beamng_bridge.frames import Alignment
from beamng_bridge.session import BEAMNGPY, GAME, Session, SessionError, connect
from beamng_bridge.surfaces import ground_models
from s3jax.archive import atomic_path

DT = 0.05


class Check(NamedTuple):
    """One finding: what was looked at, whether it is as it should be, and what was found."""

    name: str
    good: bool
    found: str


def examine(config: BridgeConfig, dump: Path | None = None) -> list[Check]:
    """Examines the game and returns what was found, up to the first thing that makes the rest pointless.

    Args:
      config: of the bridge.
      dump: file for the shapes of the game's answers as JSON, or None.
    """
    checks = [Check("Python", True, platform.python_version())]
    try:
        with connect(config.session, tries=1) as session:
            checks.append(Check("connection", True, f"beamngpy {BEAMNGPY}, for BeamNG.tech {GAME}"))
            checks.append(
                Check("licence", True, "BeamNG.tech" if session.licensed else "none, and none needed")
            )
            for look in (_sensors, _offset, _road, _latency, _signs, _response):
                checks += look(session, config)
            if dump is not None:
                state, electrics = session.poll()
                text = json.dumps({"state": _shape(state), "electrics": _shape(electrics)}, indent=2)
                with atomic_path(dump) as temporary:
                    temporary.write_text(text, encoding="utf-8")
    except SessionError as error:
        checks.append(Check("session", False, str(error)))
    return checks


def report(checks: list[Check]) -> str:
    """Returns the checks as text, a line each."""
    return "\n".join(f"{'ok  ' if check.good else 'BAD '} {check.name}: {check.found}" for check in checks)


def _sensors(session: Session, config: BridgeConfig) -> list[Check]:
    state, electrics = session.poll()
    wanted = {"steering", "steering_input", "throttle_input", "brake_input", "throttle", "brake", "rpm"}
    missing = sorted({"time", "pos", "dir", "vel"} - set(state)) + sorted(wanted - set(electrics))
    return [Check("sensors", not missing, f"missing {', '.join(missing)}" if missing else "all there")]


def _offset(session: Session, config: BridgeConfig) -> list[Check]:
    state, _ = session.poll()
    found = frames.measured_mounting(state, session.centre_of_gravity(), config.mounting)
    near = abs(found.forward) < 1.5 and abs(found.left) < 0.3
    return [
        Check("centre of gravity", near, f"{found.forward:.2f} m ahead, {found.left:.2f} m left of the node")
    ]


def _road(session: Session, config: BridgeConfig) -> list[Check]:
    models = ground_models(session)
    there = config.road is None or config.road.upper() in models
    return [Check("ground models", there, f"{len(models)}; the road is taken to be {config.road}")]


def _latency(session: Session, config: BridgeConfig) -> list[Check]:
    took = []
    for _ in range(40):
        clock = time.perf_counter()
        session.send({"steering": 0.0, "throttle": 0.0, "brake": 1.0})
        session.step(DT)
        session.poll()
        took.append(time.perf_counter() - clock)
    middle, high = np.percentile(took, [50, 95])
    text = (
        f"{1e3 * middle:.1f} ms median, {1e3 * high:.1f} ms p95 per step: {DT / middle:.2f} times real time"
    )
    return [Check("lock-step", True, text)]


def _signs(session: Session, config: BridgeConfig) -> list[Check]:
    car = make_car(
        session, config.model_copy(update={"alignment": Alignment(z=config.alignment.z), "road": None})
    )
    checks = []
    start = car.reset((0.0, 0.0, 0.0), 0.0).state
    for _ in range(60):
        gone = car.step([0.0, 0.5], DT).state
    checks.append(Check("throttle", gone.vx > 1.0, f"{gone.vx:.1f} m/s after 3 s of half throttle"))
    ahead = gone.x - start.x
    checks.append(
        Check("heading", ahead > 1.0, f"went {ahead:.1f} m ahead, {gone.y - start.y:.1f} m to the left")
    )
    for name, steer in (("left", 0.3), ("right", -0.3)):
        for _ in range(20):
            reading = car.step([steer, 0.2], DT).state
        good = all(value * steer > 0 for value in (reading.yaw_rate, reading.steer_angle))
        wheels = np.degrees(reading.steer_angle)
        found = f"yaw rate {reading.yaw_rate:+.2f} rad/s, wheels {wheels:+.1f} deg (+ left)"
        checks.append(Check(f"steering {name}", good, found))
    before = reading.vx
    for _ in range(20):
        reading = car.step([0.0, -0.6], DT).state
    slower = before - reading.vx
    checks.append(
        Check("brake", slower > 1.0 or reading.vx < 0.5, f"{slower:.1f} m/s slower after 1 s of braking")
    )
    return checks


def _response(session: Session, config: BridgeConfig) -> list[Check]:
    session.send({"steering": 0.0, "throttle": 0.0, "brake": 1.0})
    session.step(1.0)
    session.send({"steering": 0.5})
    steps = 0
    while steps < 40 and abs(session.poll()[1]["steering_input"] - 0.5) > 0.01:
        session.step(DT)
        steps += 1
    session.send({"steering": 0.0})
    text = f"the game holds half a turn of steering {1e3 * steps * DT:.0f} ms after it was sent"
    if config.session.direct_input:
        return [Check("direct input", steps <= 1, text)]
    return [Check("gamepad input", True, text + ": such inputs are filtered")]


def _shape(value):
    if isinstance(value, dict):
        return {str(name): _shape(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_shape(value[0])] if value else []
    return type(value).__name__
