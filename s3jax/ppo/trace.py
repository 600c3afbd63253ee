"""A profile of a few updates, for `s3jax train --profile`."""

from pathlib import Path

import jax

WARM_UP, COUNT = 3, 3
"""Updates of a run, or of its continuation, before the profile and in it."""


class Trace:
    """Records what the machine does during some updates, once, into a folder."""

    def __init__(self, directory: str | Path, start: int):
        """Plans the updates after `start + WARM_UP`."""
        self._directory, self._first = Path(directory), start + WARM_UP
        self._running = self._done = False

    def after(self, update: int, result) -> None:
        """Starts or ends the record after an update, once the arrays of its `result` are there."""
        if update == self._first:
            jax.block_until_ready(result)
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # every Python call would be a record: slow, and of no use here
            jax.profiler.start_trace(self._directory, create_perfetto_trace=True, profiler_options=options)
            self._running = True
        elif update == self._first + COUNT:
            jax.block_until_ready(result)
            self.finish()

    def finish(self) -> bool:
        """Ends the record if it is still running; returns whether there is one."""
        if self._running:
            jax.profiler.stop_trace()
            self._running, self._done = False, True
        return self._done

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.finish()
