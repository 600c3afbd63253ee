"""The connection to BeamNG.tech: the only module that imports beamngpy, and only when connecting.

One thread owns a session. After any transport error the session is over: the game may still execute a request
that was given up, so nothing is ever sent again on the same one.
"""

import functools
import importlib.metadata
import logging
import struct
import time
import warnings

from pydantic import Field

from s3jax.config import Config
from s3jax.errors import UserError

BEAMNGPY = "1.36"
"""The version of beamngpy, for BeamNG.tech 0.39."""

GAME = "0.39"


class SessionError(UserError):
    """The game cannot be reached or did not do as it was told; the message says what to do."""


class SessionConfig(Config):
    """How to reach the game and what to load."""

    host: str = "127.0.0.1"
    port: int = Field(25252, gt=0, lt=65536)
    level: str = "tech_ground"
    model: str = "etk800"
    part_config: str | None = Field(None, description="a .pc file, such as vehicles/etk800/854_310d_A.pc")
    steps_per_second: int = Field(100, gt=0, description="frames per simulated second; also caps the frames")
    direct_input: bool = Field(
        True, description="like a wheel, by Lua; otherwise like a gamepad, which the game smooths and limits"
    )
    timeout: float = Field(5.0, gt=0, description="s without an answer after which the session is over")
    load_timeout: float = Field(120.0, gt=0, description="the same while a level loads (s)")


def _lost_errors():
    import msgpack
    from beamngpy.logging import BNGDisconnectedError

    return (BNGDisconnectedError, OSError, msgpack.UnpackException, UnicodeDecodeError, struct.error)


def _guarded(method):
    """Turns whatever beamngpy raises into a `SessionError`, and ends the session if the link is lost."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if self.lost:
            raise SessionError(f"the session ended before ({self.lost}); start it again")
        from beamngpy.logging import BNGError

        try:
            return method(self, *args, **kwargs)
        except SessionError:
            raise
        except BNGError as error:
            raise SessionError(f"BeamNG refused {method.__name__}: {_one_line(error)}") from None
        except _lost_errors() as error:
            self._lose(f"{type(error).__name__}: {_one_line(error)}")
            raise SessionError(
                f"the connection was lost during {method.__name__} ({self.lost}). Check that the game still "
                "runs and answers, then start again; this session is not reused"
            ) from None
        except (KeyError, TypeError, ValueError) as error:
            self._lose(f"{type(error).__name__}: {_one_line(error)}")
            raise SessionError(
                f"the answer to {method.__name__} makes no sense ({self.lost}). Does the game match beamngpy "
                f"{BEAMNGPY} (BeamNG.tech {GAME})? Run `python -m beamng_bridge doctor`"
            ) from None

    return call


class Session:
    """A loaded scenario with one car, paused, stepped by `step`; a context manager.

    Args:
      config: how to reach the game and what to load.
      attach: take the running game and the player's car as they are: nothing is loaded, paused or driven.

    Raises:
      SessionError: if beamngpy is missing or of another version, or the game is not there or refuses.
    """

    def __init__(self, config: SessionConfig, attach: bool = False):
        self.config, self.lost = config, ""
        self._attached = attach
        self._time = None
        beamngpy = _import()
        self._bng = beamngpy.BeamNGpy(
            config.host, config.port, quit_on_close=False, socket_timeout=config.timeout
        )
        self._vehicle = beamngpy.Vehicle("ego", model=config.model, part_config=config.part_config)
        try:
            self._connect()
            if attach:
                self._join(beamngpy)
            else:
                self._load(beamngpy)
        except BaseException:
            self.close()
            raise

    @_guarded
    def _connect(self):
        try:
            self._bng.open(launch=False)
        except OSError as error:
            raise SessionError(self._not_there(error)) from None
        except ValueError as error:
            if type(error).__name__ != "BNGDisconnectedError":
                raise
            raise SessionError(self._not_there(error)) from None

    def _not_there(self, error) -> str:
        c = self.config
        return (
            f"no BeamNG.tech answers on {c.host}:{c.port} ({_one_line(error)}). Start it with "
            f"`BeamNG.tech.x64.exe -nosteam -tcom -tport {c.port}` and try again"
        )

    @_guarded
    def _load(self, beamngpy):
        bng, config = self._bng, self.config
        self._vehicle.sensors.attach("electrics", beamngpy.sensors.Electrics())
        scenario = beamngpy.Scenario(config.level, "s3jax_bridge")
        scenario.add_vehicle(self._vehicle, pos=(0.0, 0.0, 0.2), rot_quat=(0, 0, 0, 1), safe_spawn=False)
        scenario.make(bng)
        bng.control.pause()  # before loading: the order that is proven on the game
        self._wait(bng.connection, config.load_timeout)
        bng.scenario.load(scenario, precompile_shaders=False)
        bng.scenario.start()
        self._wait(bng.connection, config.timeout)
        self._wait(self._vehicle.connection, config.timeout)  # beamngpy gives vehicle sockets no time-out
        bng.settings.set_deterministic(config.steps_per_second)
        bng.control.pause()
        self._vehicle.set_shift_mode("realistic_automatic")

    @_guarded
    def _join(self, beamngpy):
        player = self._bng.vehicles.get_player_vehicle_id()["vid"]
        self._vehicle = self._bng.vehicles.get_current(include_config=False)[player]
        self._vehicle.sensors.attach("electrics", beamngpy.sensors.Electrics())
        self._vehicle.connect(self._bng)
        self._wait(self._bng.connection, self.config.timeout)
        self._wait(self._vehicle.connection, self.config.timeout)

    @staticmethod
    def _wait(connection, seconds):
        """Sets how long a connection waits, and keeps beamngpy from opening another one behind our back."""
        from beamngpy.logging import BNGDisconnectedError

        def refuse():
            raise BNGDisconnectedError(f"no answer within {seconds:g} s, or the game closed the connection")

        connection.timeout = connection.skt.timeout = seconds
        connection.skt.skt.settimeout(seconds)
        connection.skt.reconnect = refuse

    @_guarded
    def send(self, inputs: dict) -> None:
        """Sends `steering`, `throttle`, `brake`, and others that `frames` makes; they latch in the game."""
        values = {name: float(value) for name, value in inputs.items()}
        if self.config.direct_input:
            events = [f"input.event('{name}', {value:.9g}, FILTER_DIRECT)" for name, value in values.items()]
            self.vehicle_lua("\n".join(events))
        else:
            self._vehicle.control(**values)

    @_guarded
    def step(self, seconds: float) -> None:
        """Lets the paused game run for a time, a multiple of its frame."""
        frames = round(seconds * self.config.steps_per_second)
        if frames < 1 or abs(frames / self.config.steps_per_second - seconds) > 1e-9:
            raise SessionError(
                f"{seconds} s is no multiple of a frame; choose steps_per_second as a multiple of "
                f"{1 / seconds:g}"
            )
        self._bng.control.step(frames)

    @_guarded
    def poll(self, advanced: float | None = None) -> tuple[dict, dict]:
        """Returns what the sensors State and Electrics say now.

        Args:
          advanced: simulated seconds that must have passed since the last poll; None to accept any.

        Raises:
          SessionError: also if the time did not advance so, or a value is missing or not finite.
        """
        self._vehicle.sensors.poll()
        state, electrics = dict(self._vehicle.state), dict(self._vehicle.sensors["electrics"])
        now = float(state["time"])
        if advanced is not None and self._time is not None and abs(now - self._time - advanced) > 2e-3:
            self._lose(f"simulated time went from {self._time:.3f} s to {now:.3f} s")
            raise SessionError(
                f"{self.lost}, but {advanced:g} s were stepped: the sensors are stale or the game is not in "
                "lock-step. Is another client or the pause key at work?"
            )
        self._time = now
        for name in ("pos", "dir", "vel"):
            if not all(abs(value) < 1e6 for value in state[name]):  # false for NaN, too
                self._lose(f"sensor State says {name} = {state[name]}")
                raise SessionError(f"{self.lost}: the simulation is broken; restart the scenario")
        return state, electrics

    @_guarded
    def teleport(self, position, rotation, reset: bool = True) -> None:
        """Moves the car; with `reset`, to standstill and undamaged."""
        if not self._bng.vehicles.teleport("ego", position, rotation, reset=reset):
            raise SessionError("BeamNG does not know the vehicle any more; start again")

    @_guarded
    def set_velocity(self, speed: float, seconds: float) -> None:
        """Lets the game push the car to a forward speed (m/s) within a time (s), which must be stepped."""
        self._vehicle.set_velocity(float(speed), float(seconds))

    @_guarded
    def centre_of_gravity(self) -> tuple[float, float, float]:
        """Returns the place of the centre of gravity in the level (m)."""
        return tuple(float(value) for value in self._vehicle.get_center_of_gravity())

    @_guarded
    def lua(self, chunk: str) -> str:
        """Runs Lua in the game engine and returns what it returns, as text."""
        return self._bng.control.queue_lua_command(chunk, response=True)

    @_guarded
    def vehicle_lua(self, chunk: str) -> str:
        """Runs Lua in the vehicle and returns what it returns, as text."""
        return self._vehicle.queue_lua_command(chunk, response=True)  # without, errors would vanish

    @_guarded
    def run(self) -> None:
        """Lets the game run by the wall clock, until `halt`."""
        self._bng.settings.set_nondeterministic()
        self._bng.control.resume()

    @_guarded
    def halt(self) -> None:
        """Pauses the game and goes back to lock-step."""
        self._bng.control.pause()
        self._bng.settings.set_deterministic(self.config.steps_per_second)
        self._time = None

    @property
    def licensed(self) -> bool:
        """Whether the game has a BeamNG.tech licence; nothing in the bridge needs one."""
        return bool(self._bng.tech_enabled())

    def close(self) -> None:
        """Leaves the car braking and the game paused, if it answers, and disconnects; never quits it."""
        if not self.lost and not self._attached and self._vehicle.connection is not None:
            for farewell in (
                lambda: self.send({"steering": 0.0, "throttle": 0.0, "brake": 1.0}),
                lambda: self._bng.control.pause(),
            ):
                try:
                    farewell()
                except Exception as error:
                    self._lose(_one_line(error))
                    break
        self._disconnect()

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why or "unknown"
        self._disconnect()

    def _disconnect(self):
        for link in (self._vehicle.connection, self._bng.connection):
            if link is not None and link.skt is not None:
                link.skt.close()
                link.skt = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def connect(config: SessionConfig, tries: int = 5, sleep=time.sleep) -> Session:
    """Returns a new session, trying again after 1, 2, 4, ... at most 30 seconds.

    Raises:
      SessionError: that of the last try.
    """
    for attempt in range(tries):
        try:
            return Session(config)
        except SessionError:
            if attempt == tries - 1:
                raise
            sleep(min(2.0**attempt, 30.0))
    raise ValueError(f"tries: expected at least 1, got {tries}")


def _import():
    try:
        found = importlib.metadata.version("beamngpy")
    except importlib.metadata.PackageNotFoundError:
        found = "no"
    if found != BEAMNGPY:
        raise SessionError(
            f"beamngpy {BEAMNGPY} is needed for BeamNG.tech {GAME}, found {found} version: "
            f"pip install beamngpy=={BEAMNGPY}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of its own dependencies
        import beamngpy
        import beamngpy.sensors
    logger = logging.getLogger("beamngpy")  # its children log every step, whatever level they are given
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return beamngpy


def _one_line(error) -> str:
    return " ".join(str(error).split())[:300]
