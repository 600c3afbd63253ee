"""The Lua that the emulator understands: exactly the chunks that the bridge sends, and nothing else."""

import json
import re

_NUMBER = r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"

_LIST = re.compile(
    r"local found = \{\} for name, model in pairs\(core_environment\.groundModels\) do "
    r"found\[name\] = \{static = model\.cdata\.staticFrictionCoefficient, "
    r"sliding = model\.cdata\.slidingFrictionCoefficient\} end return jsonEncode\(found\)"
)
_SET = re.compile(
    rf"local static, sliding = {_NUMBER}, {_NUMBER} "
    r"for name, model in pairs\(core_environment\.groundModels\) do "
    r"if name == '(\w+)' or \(model\.isAlias and model\.parent == '\3'\) then "
    r"model\.cdata\.staticFrictionCoefficient = static model\.cdata\.slidingFrictionCoefficient = sliding "
    r"be:setGroundModel\(name, model\.cdata\) end end "
    r"local model = core_environment\.groundModels\['\3'\]\.cdata "
    r"return jsonEncode\(\{static = model\.staticFrictionCoefficient, "
    r"sliding = model\.slidingFrictionCoefficient\}\)"
)
_RELOAD = re.compile(r"core_environment\.reloadGroundModels\(\) return 'reloaded'")
_EVENT = re.compile(rf"input\.event\('(\w+)', {_NUMBER}, FILTER_DIRECT\)")


class LuaError(Exception):
    """The chunk cannot be run."""


def run_in_engine(chunk: str, game) -> str:
    """Runs a chunk of the game engine on a `Game`; returns its result as text.

    Raises:
      LuaError: for anything but the known chunks.
    """
    text = " ".join(chunk.split())
    if _LIST.fullmatch(text):
        models = game.ground_models
        return json.dumps({name: {"static": m[0], "sliding": m[1]} for name, m in models.items()})
    if found := _SET.fullmatch(text):
        static, sliding, name = float(found[1]), float(found[2]), found[3]
        if name not in game.ground_models:
            raise LuaError(f"attempt to index field '{name}' (a nil value)")
        game.set_ground_model(name, static, sliding)
        return json.dumps({"static": static, "sliding": sliding})
    if _RELOAD.fullmatch(text):
        game.reload_ground_models()
        return "reloaded"
    raise LuaError(f"the emulator does not know this Lua: {text[:120]}")


def run_in_vehicle(chunk: str, game) -> str:
    """Runs a chunk of the vehicle on a `Game`; see `run_in_engine`."""
    for line in filter(None, map(str.strip, chunk.splitlines())):
        found = _EVENT.fullmatch(line)
        if not found:
            raise LuaError(f"the emulator does not know this Lua: {line[:120]}")
        game.input_event(found[1], float(found[2]), direct=True)
    return "nil"
