"""The emulated game's two Lua machines, the engine's and the vehicle's, for whatever text the bridge sends.

Real Lua 5.1 (the game has LuaJIT, the same language), so that a chunk with an error fails here, too. Only the
parts of the game's interface below exist; the rest is nil, as if a new version of the game had dropped it.
"""

import json

from lupa import lua51

LuaError = lua51.LuaError
"""What a chunk that cannot be run raises."""

_ENGINE = """
local game = game
be, core_environment = {}, {groundModels = {}}
function be:setGroundModel(name, cdata)
  game.set_ground_model(name, cdata.staticFrictionCoefficient, cdata.slidingFrictionCoefficient)
end
function core_environment.reloadGroundModels()
  game.each_ground_model(function(name, static, sliding, parent)
    local cdata = {staticFrictionCoefficient = static, slidingFrictionCoefficient = sliding}
    core_environment.groundModels[name] = {cdata = cdata, isAlias = parent and true, parent = parent}
    be:setGroundModel(name, cdata)
  end)
end
core_environment.reloadGroundModels()
"""

_VEHICLE = """
local game = game
FILTER_KBD, FILTER_PAD, FILTER_DIRECT = 0, 1, 2
input, electrics = {}, {values = {}}
function input.event(name, value, filter) game.input_event(name, value, filter == FILTER_DIRECT) end
function input.updateGFX(dtSim) end
function onGraphicsStep(dtSim) input.updateGFX(dtSim) end
"""

_ABSENT = "game, python, os, io, package, require, dofile, loadfile, debug = nil"


class Machine:
    """A Lua machine with a part of the game's interface.

    Args:
      interface: Lua that defines it, in terms of `game`.
      game: name -> Python function.
    """

    def __init__(self, interface: str, game: dict):
        self._lua = lua51.LuaRuntime(register_eval=False, register_builtins=False)
        names = self._lua.globals()
        names.game = self._lua.table_from(game)
        names.jsonEncode = lambda value: json.dumps(_plain(value))
        self._lua.execute(interface)
        self._lua.execute(_ABSENT)

    def run(self, chunk: str) -> str:
        """Runs a chunk; returns what it returns as text, as the game does.

        Raises:
          LuaError: if it is not Lua, or fails.
        """
        result = self._lua.execute(chunk)
        return "nil" if result is None else str(result)

    def graphics_step(self, seconds: float) -> None:
        """Runs what a vehicle runs once per frame, after so much simulated time (s)."""
        self._lua.globals().onGraphicsStep(seconds)


def engine_machine(game) -> Machine:
    """Returns the machine of the game engine of a `Game`."""
    return Machine(
        _ENGINE,
        {"set_ground_model": game.set_ground_model, "each_ground_model": game.each_ground_model},
    )


def vehicle_machine(game) -> Machine:
    """Returns the machine of a `Game`'s car."""
    return Machine(_VEHICLE, {"input_event": game.input_event})


def _plain(value):
    """Returns a Lua value as JSON types."""
    if lua51.lua_type(value) != "table":
        return value
    return {str(name): _plain(item) for name, item in value.items()}
