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
    with tqdm(desc=description, unit=unit, dynamic_ncols=True, smoothing=0.05, mininterval=0.5) as line:

        def progress(done, total, note=""):
            if line.total != total:
                line.total = total
                line.refresh()
            if note:
                line.set_postfix_str(note, refresh=False)
            line.update(done - line.n)

        yield progress
