"""Progress of a long run as log lines, for programs without a terminal.

The logger is ``flowveil``. Lines contain a label and a percentage, never numbers of rows or trips:
logs have more readers than the data.
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
    """Returns a progress callback that logs a line at intervals, never twice for the same
    percentage.
    """
    last = [time.monotonic(), -1.0]

    def progress(share: float) -> None:
        now, percent = time.monotonic(), int(100 * share)
        if now - last[0] >= seconds and percent != last[1]:
            last[:] = [now, percent]
            say(f"{label}: {percent} %")

    return progress
