"""Reporting progress from long-running stages."""

import contextlib
from collections.abc import Callable

from tqdm import tqdm

Progress = Callable[..., None]
"""`progress(done, total, note="")`: how much is done, of how much, and a short remark."""


def silent(done, total, note="") -> None:
    """Reports nothing."""


@contextlib.contextmanager
def bar(description: str, unit: str = "it"):
    """Yields a `Progress` that draws a bar with rate and remaining time on standard error."""
    with contextlib.ExitStack() as stack:
        line = None

        def progress(done, total, note=""):
            nonlocal line
            if line is None:  # not before: an error on the way should not follow an empty bar
                line = stack.enter_context(
                    tqdm(desc=description, unit=unit, initial=done, total=total, mininterval=0.5)
                )
            line.total = total
            line.set_postfix_str(note, refresh=done == line.n)
            line.update(done - line.n)
            if done == line.initial:  # the clock starts with the work, not while it is prepared
                line.unpause()

        yield progress
