"""Stopping a run by a signal without losing anything."""

import signal
import threading


class StopSignal:
    """Makes SIGINT and SIGTERM end a run as it should end.

    Before `hold`, a signal raises KeyboardInterrupt. After it, the first one only sets `requested`: a
    compilation comes to its end, since JAX 0.10 crashes at exit after an exception amid one; the loop
    saves and ends. A second signal raises KeyboardInterrupt.
    """

    def __init__(self):
        self.requested = False
        self._held = False
        self._previous = {}

    def hold(self) -> None:
        """Leaves it to the caller from now on when to end."""
        self._held = True

    def end_if_requested(self) -> None:
        """Raises KeyboardInterrupt if a signal has come: for a moment when there is nothing to save."""
        if self.requested:
            raise KeyboardInterrupt

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
