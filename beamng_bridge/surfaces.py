"""The grip of the level's road, through the game's ground models.

A ground model's coefficients multiply with the tyre's own, so they are no friction multipliers by themselves:
`RoadSurface` scales those that the running game has, and `calibration` measures which scale gives which share
of the deceleration on the unchanged road.
"""

import json
import re

import numpy as np

from beamng_bridge.session import Session, SessionError

_NAME = re.compile(r"^[A-Z0-9_]{1,31}$")

_LIST = """local found = {}
for name, model in pairs(core_environment.groundModels) do
  found[name] = {static = model.cdata.staticFrictionCoefficient,
    sliding = model.cdata.slidingFrictionCoefficient}
end
return jsonEncode(found)"""

_SET = """local static, sliding = %.9g, %.9g
for name, model in pairs(core_environment.groundModels) do
  if name == '%s' or (model.isAlias and model.parent == '%s') then
    model.cdata.staticFrictionCoefficient = static
    model.cdata.slidingFrictionCoefficient = sliding
    be:setGroundModel(name, model.cdata)
  end
end
local model = core_environment.groundModels['%s'].cdata
return jsonEncode({static = model.staticFrictionCoefficient, sliding = model.slidingFrictionCoefficient})"""

_RELOAD = "core_environment.reloadGroundModels() return 'reloaded'"


def ground_models(session: Session) -> dict[str, dict[str, float]]:
    """Returns name -> `static` and `sliding` coefficient of each ground model of the running game.

    Raises:
      SessionError: if the game's answer cannot be read.
    """
    return _decode(session.lua(_LIST))


def reload_ground_models(session: Session) -> None:
    """Undoes every change to ground models, also those of a bridge that crashed."""
    session.lua(_RELOAD)


class RoadSurface:
    """Scales the friction of the ground model that the level's road is made of.

    Args:
      session: a loaded scenario.
      model: name of the ground model, such as `ASPHALT`; `surfaces` lists them.
      scales: pairs of friction multiplier and the scale of the coefficients that gives it, ascending; between
        them it is interpolated. None takes the multiplier as the scale, uncalibrated.

    Raises:
      SessionError: if the game has no such model.
    """

    def __init__(self, session: Session, model: str, scales=None):
        model = model.upper()
        if not _NAME.match(model):
            raise SessionError(f"ground model {model!r}: expected letters, digits and underscores")
        known = ground_models(session)
        if model not in known:
            raise SessionError(f"the game has no ground model {model}; it has {', '.join(sorted(known))}")
        self._session, self._model, self._original = session, model, known[model]
        points = np.asarray(scales if scales is not None else [[0.0, 0.0], [2.0, 2.0]], float)
        self._multipliers, self._scales = points.T
        self._now = None

    def set(self, multiplier: float) -> None:
        """Sets the road's friction; sends nothing if it is that already.

        Raises:
          SessionError: if the game does not hold the new coefficients afterwards.
        """
        if multiplier == self._now:
            return
        self.scale(float(np.interp(multiplier, self._multipliers, self._scales)))
        self._now = multiplier

    def scale(self, scale: float) -> None:
        """Sets the road's coefficients to a multiple of the game's own; errors as for `set`."""
        self.coefficients(*(scale * self._original[key] for key in ("static", "sliding")))

    def coefficients(self, static: float, sliding: float) -> None:
        """Sets the road's coefficients; errors as for `set`."""
        name, self._now = self._model, None
        held = _decode(self._session.lua(_SET % (static, sliding, name, name, name)))
        if abs(held["static"] - static) > 1e-4 or abs(held["sliding"] - sliding) > 1e-4:
            raise SessionError(f"ground model {name} holds {held} after it was set to {static}, {sliding}")

    def restore(self) -> None:
        """Puts the game's own coefficients back."""
        reload_ground_models(self._session)
        self._now = None


def _decode(text: str):
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        raise SessionError(f"the game's Lua answered {str(text)[:100]!r} instead of JSON") from None
