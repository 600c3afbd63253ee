"""A stand-in for BeamNG.tech: its socket protocol on the loopback interface, with the embedded car behind it.

Written from the shapes of the messages that beamngpy 1.36 exchanges. It shares no frame or sign code with the
bridge: a flipped sign in either has to show as a car that drives the wrong way.
"""

from beamng_bridge.emulator.game import Game
from beamng_bridge.emulator.server import Emulator

__all__ = ["Emulator", "Game"]
