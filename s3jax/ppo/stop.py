"""Stopping a run by a signal without losing anything."""

import signal
import threading


class StopSignal:
    """Makes SIGINT and SIGTERM end a run as it should end.

    Before `hold`, when there is nothing to save, a signal raises KeyboardInterrupt. After it, the first one
    sets `requested`, for the loop to save and end, and a second one raises KeyboardInterrupt.
    """

    def __init__(self):
        self.requested = False
        self._held = False
        self._previous = {}

    def hold(self) -> None:
        """Lets the loop decide from now on when to end."""
        self._held = True

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number, _):
        if self.requested or not self._held:
            raise KeyboardInterrupt
        self.requested = True
