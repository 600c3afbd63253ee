"""Driving the running game by the wall clock: no lock-step, and brakes when commands stop.

Three things can stop commands, and each has its guard:

* The policy hangs. One thread, the *loop*, owns the session and ticks every control step whatever the policy
  does. Without a fresh command for `lease` seconds it brakes; after `patience` it pauses the game and ends.
* The bridge is killed, stopped or frozen, or its network is cut. Then only the game can act: the watchdog in
  the vehicle (see `watchdog`) brakes after the same lease.
* Answers come late. A command that was computed from a reading older than the lease is not sent; if there are
  no others, both guards brake.
"""

import contextlib
import queue
import threading
import time
from typing import NamedTuple

import numpy as np
from pydantic import Field

from beamng_bridge.frames import game_inputs
from beamng_bridge.session import SessionError
from beamng_bridge.simulator import BeamNGCar
from beamng_bridge.watchdog import Watchdog
from s3jax.config import Config
from s3jax.source.base import VehicleReading

STILL = 5
"""Polls in a row without simulated time after which the game counts as paused by someone else."""


class RealTimeConfig(Config):
    """Real-time driving."""

    lease: float = Field(0.2, gt=0, description="s without a fresh command after which the car brakes")
    patience: float = Field(2.0, gt=0, description="s without a fresh command after which the drive ends")


DEFAULTS = RealTimeConfig()


class Timing(NamedTuple):
    """Of one control step.

    Attributes:
      latency: from asking for the sensors until the game had the command that follows from them (s).
      thinking: of which the driver took (s).
      interval: wall time since the command before (s).
      late: 1 if the command missed its control step, else 0.
      bridge_brakes: how often the bridge has braked for want of commands, so far.
      game_brakes: how often the watchdog in the game has, so far.
    """

    latency: float = np.nan
    thinking: float = np.nan
    interval: float = np.nan
    late: float = 0.0
    bridge_brakes: float = 0.0
    game_brakes: float = 0.0


class RealTimeCar(BeamNGCar):
    """A `BeamNGCar` that is stepped by the wall clock.

    `reset` places the car in lock-step and leaves the game paused; the first `step` lets it run. `step` hands
    the control to the loop and waits for the next reading, at the next tick of dt.

    Args:
      real_time: settings. The other arguments are those of `BeamNGCar`.
    """

    def __init__(self, *args, real_time: RealTimeConfig = DEFAULTS, **kwargs):
        super().__init__(*args, **kwargs)
        self._config = real_time
        self._watchdog = Watchdog(self._session, real_time.lease)
        self._proven, self._loop = False, None
        self.timing = Timing()

    def reset(self, pose=(0.0, 0.0, 0.0), speed: float = 0.0) -> VehicleReading:
        """Stops the car where it is, if it drives, and places it like `BeamNGCar.reset`.

        Raises:
          SessionError: also if the watchdog in the game does not work.
        """
        self._end()
        if not self._proven:
            super().reset(pose, 0.0)
            self._watchdog.prove()
            self._proven = True
        return super().reset(pose, speed)

    def step(self, control, dt: float) -> VehicleReading:
        """Hands over control [steer, pedal] and returns the reading of the next tick.

        Raises:
          SessionError: if the game does not answer, or commands came so late that the drive was ended.
        """
        inputs = game_inputs(control)  # refuses what is not finite
        if self._loop is None:
            self._commands, self._readings, self._failure = queue.SimpleQueue(), queue.SimpleQueue(), None
            self._loop = threading.Thread(target=self._run, args=(dt,), name="real-time loop", daemon=True)
            self._loop.start()
        self._commands.put(inputs)
        while True:
            try:
                reading, self.timing = self._readings.get(timeout=0.1)
                return reading
            except queue.Empty:
                if not self._loop.is_alive() and self._readings.empty():
                    raise self._failure from None

    def close(self) -> None:
        """Brakes, pauses the game, restores the road's surface and closes the session."""
        self._end()
        super().close()

    def _end(self):
        if self._loop is not None:
            self._commands.put(None)
            self._loop.join()
            self._loop = None

    # What follows runs in the loop's thread.

    def _run(self, dt):
        try:
            self._drive(dt)
        except Exception as error:  # whatever it is, `step` raises it
            self._failure = error
        try:
            self._session.send({"throttle": 0.0, "brake": 1.0})
            self._session.halt()
            self._watchdog.disarm()
        except SessionError as error:  # then the watchdog in the game brakes
            self._failure = self._failure or error

    def _drive(self, dt):
        inputs = self._commands.get()
        self._watchdog.arm()
        self._watchdog.command(inputs)
        self._session.run()
        self._sent = tick = time.monotonic()
        self._braking, self._brakes, timing = False, 0, Timing()
        while True:
            tick = max(tick + dt, time.monotonic())  # after a slow exchange the beat starts anew
            time.sleep(max(tick - time.monotonic(), 0.0))
            asked = time.monotonic()
            reading = self._look()
            had = time.monotonic()
            self._readings.put((reading, timing._replace(bridge_brakes=self._brakes)))
            inputs, thought = self._next_command(), time.monotonic()
            if inputs is None:
                return
            timing = Timing(game_brakes=timing.game_brakes)
            if thought - asked <= self._config.lease:
                self.switch_surface()
                trips = self._watchdog.command(inputs)
                now = time.monotonic()
                late = float(thought > tick + dt)
                timing = Timing(now - asked, thought - had, now - self._sent, late, game_brakes=trips)
                self._sent, self._braking = now, False

    def _look(self):
        """Returns a reading of a later time than before."""
        for _ in range(STILL):
            state, electrics = self._session.poll()
            if float(state["time"]) > self._times[-1]:
                return self.reading(state, electrics)
        raise SessionError("the game stands still although it should run: did someone pause it? Start again")

    def _next_command(self):
        """Waits for the driver's next command and returns it; brakes in the meantime if need be."""
        while True:
            silence = time.monotonic() - self._sent
            if silence > self._config.patience:
                raise SessionError(
                    f"no fresh command came for {silence:.1f} s, so the car was braked and the game paused: "
                    "does the policy hang, or does the game answer too slowly? Start again"
                )
            if silence > self._config.lease and not self._braking:
                self._session.send({"throttle": 0.0, "brake": 1.0})
                self._braking, self._brakes = True, self._brakes + 1
            bound = self._config.patience if self._braking else self._config.lease
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=max(self._sent + bound - time.monotonic(), 1e-3))


def timing_summary(columns: dict) -> dict:
    """Returns what the columns `Timing` of a drive come to.

    Args:
      columns: name -> [T], of a drive's log.

    Returns:
      `latency_p50`, `latency_p95`, `latency_max`, `thinking_p95`, `interval_p95` (s); `late`, the share of
      commands that missed their control step; `discarded`, how many were too old to be sent;
      `bridge_brakes`, `game_brakes`; and `real_time_factor`, simulated time over wall time.
    """
    sent = np.isfinite(columns["latency"])
    found = {
        "latency_p50": np.percentile(columns["latency"][sent], 50),
        "latency_p95": np.percentile(columns["latency"][sent], 95),
        "latency_max": columns["latency"][sent].max(),
        "thinking_p95": np.percentile(columns["thinking"][sent], 95),
        "interval_p95": np.percentile(columns["interval"][sent], 95),
        "late": columns["late"][sent].mean(),
        "discarded": (~sent[1:]).sum(),  # the first row has no command before it
        "bridge_brakes": columns["bridge_brakes"][-1],
        "game_brakes": columns["game_brakes"][-1],
        "real_time_factor": np.ptp(columns["time"]) / max(np.nansum(columns["interval"][1:]), 1e-9),
    }
    return {name: float(value) for name, value in found.items()}


def described(summary: dict) -> str:
    """Returns a `timing_summary` as a sentence."""
    low, high, most = (1e3 * summary[f"latency_{name}"] for name in ("p50", "p95", "max"))
    return (
        f"latency {low:.0f} ms median, {high:.0f} ms p95, {most:.0f} ms at most; "
        f"{100 * summary['late']:.1f} % of commands late, {summary['discarded']:.0f} discarded; braked for "
        f"want of commands {summary['bridge_brakes']:.0f} times, by the game {summary['game_brakes']:.0f}; "
        f"{summary['real_time_factor']:.2f} times real time"
    )
