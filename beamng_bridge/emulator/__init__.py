"""A stand-in for BeamNG.tech: its socket protocol on the loopback interface, with the embedded car behind it.

Written from the shapes of the messages that beamngpy 1.36 exchanges. It shares no frame or sign code with the
bridge: a flipped sign in either has to show as a car that drives the wrong way.
"""

__all__ = ["Emulator", "Game"]


def __getattr__(name):
    """Imports on use: the server needs msgpack, which comes with beamngpy."""
    if name == "Emulator":
        from beamng_bridge.emulator.server import Emulator

        return Emulator
    if name == "Game":
        from beamng_bridge.emulator.game import Game

        return Game
    raise AttributeError(name)
