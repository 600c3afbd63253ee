"""What can go wrong with the game, on request."""

from typing import NamedTuple

KINDS = ("drop", "delay", "half", "wrong_id", "disconnect", "restart", "stale", "nan", "lag")
"""drop: no answer. delay: an answer after `seconds`. half: half an answer, then silence. wrong_id: an answer
to another request. disconnect: all connections close before the answer. restart: the same, and the game has
forgotten its scenario. stale: the sensors repeat themselves. nan: a sensor says NaN. lag: from now on every
answer is `seconds` late, while the game runs on."""


class Fault(NamedTuple):
    """A fault that begins at a message.

    Attributes:
      kind: one of `KINDS`.
      message: how many messages are answered properly before.
      seconds: of a delay or a lag.
    """

    kind: str
    message: int
    seconds: float = 0.0
