"""Progress as lines of a log: what a program without a terminal shows of a long run.

The logger is ``flowveil``. Lines name what is done and how far it is, never a number of rows or trips: a log is read
by more people than the data.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

#: Seconds between two lines.
EVERY = 5.0

log = logging.getLogger("flowveil")
log.addHandler(logging.NullHandler())


def lines_every(
    label: str, say: Callable[[str], None] = log.info, *, seconds: float = EVERY
) -> Callable[[float], None]:
    """A progress that says a line now and then: nothing in the first seconds, and never two lines for one percent."""
    last = [time.monotonic(), -1.0]

    def progress(share: float) -> None:
        now, percent = time.monotonic(), int(100 * share)
        if now - last[0] >= seconds and percent != last[1]:
            last[:] = [now, percent]
            say(f"{label}: {percent} %")

    return progress
