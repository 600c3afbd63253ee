"""A watchdog inside the game: Lua in the vehicle that brakes when no command has come for a while.

It is the only part that still acts when the bridge is killed, stopped or cut off, or when a policy holds the
interpreter's lock. It counts simulated time, which is real time while the game keeps up: a frame that takes
long trips nothing, and the way a car goes without a command is bounded at any frame rate.

It hooks `input.updateGFX`, which the vehicle calls once per frame (read in public copies of the game's Lua,
up to 0.33), and `prove` tries it out before every drive.
"""

import json
import time

from beamng_bridge.session import Session, SessionError

_ARM = """s3jax_watchdog = s3jax_watchdog or {}
local dog = s3jax_watchdog
dog.limit, dog.release = %(limit).9g, %(release).9g
dog.silence, dog.trips, dog.braking = 0, 0, false
function dog.command(steering, throttle, brake)
  dog.silence, dog.braking = 0, false
  input.event('steering', steering, %(filter)s)
  input.event('throttle', throttle, %(filter)s)
  input.event('brake', brake, %(filter)s)
  return dog.trips
end
if not dog.update then
  dog.update = input.updateGFX
  input.updateGFX = function(dt)
    if dog.limit then
      dog.silence = dog.silence + dt
      if dog.silence > dog.release then
        dog.limit = nil
        input.event('parkingbrake', 1, FILTER_DIRECT)
        input.event('brake', 0, FILTER_DIRECT)
      elseif dog.silence > dog.limit then
        if not dog.braking then dog.trips, dog.braking = dog.trips + 1, true end
        input.event('throttle', 0, FILTER_DIRECT)
        input.event('brake', 1, FILTER_DIRECT)
      end
    end
    return dog.update(dt)
  end
end
return 'armed'"""

_COMMAND = "return s3jax_watchdog.command(%.9g, %.9g, %.9g)"
_STATE = "return jsonEncode({trips = s3jax_watchdog.trips, braking = s3jax_watchdog.braking})"
_DISARM = "if s3jax_watchdog then s3jax_watchdog.limit = nil end return 'disarmed'"

RELEASE = 60.0
"""Seconds of braking after which it pulls the parking brake and lets go, so that a human can take over."""


class Watchdog:
    """Arms and feeds the watchdog of a session's car.

    Args:
      session: a loaded scenario.
      limit: simulated seconds without a command after which it brakes.
    """

    def __init__(self, session: Session, limit: float):
        self._session, self._limit = session, limit

    def arm(self) -> None:
        """Starts it anew, with no trips; it counts from now while the game runs."""
        filtered = "FILTER_DIRECT" if self._session.config.direct_input else "FILTER_PAD"
        chunk = _ARM % {"limit": self._limit, "release": RELEASE, "filter": filtered}
        if self._session.vehicle_lua(chunk) != "armed":
            raise SessionError(
                "the watchdog in the game could not be armed; drive in lock-step, without --real-time"
            )

    def command(self, inputs: dict) -> int:
        """Sends `steering`, `throttle` and `brake`, and feeds it; returns how often it has braked so far."""
        values = tuple(inputs[name] for name in ("steering", "throttle", "brake"))
        return round(float(self._session.vehicle_lua(_COMMAND % values)))

    def disarm(self) -> None:
        """Ends it; does nothing where there is none."""
        self._session.vehicle_lua(_DISARM)

    def prove(self, patience: float = 2.0) -> None:
        """Lets the standing car run without commands until the watchdog brakes, then ends it.

        Args:
          patience: wall seconds to wait for it beyond its limit.

        Raises:
          SessionError: if it does not brake.
        """
        session = self._session
        session.send({"steering": 0.0, "throttle": 0.0, "brake": 0.0})
        self.arm()
        session.run()
        deadline = time.monotonic() + self._limit + patience
        tripped = False
        while not tripped and time.monotonic() < deadline:
            time.sleep(0.02)
            state = json.loads(session.vehicle_lua(_STATE))
            tripped = bool(state["braking"]) and session.poll()[1]["brake_input"] > 0.99
        self.disarm()
        session.halt()
        if not tripped:
            raise SessionError(
                "the watchdog in the game did not brake when no command came: this version of the game does "
                "not call it. Drive in lock-step, without --real-time"
            )
