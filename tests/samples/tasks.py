"""Tasks for other processes, in a separate module that imports next to nothing.

Each process imports it.
"""

from __future__ import annotations

import operator
import os
import time

from flowveil.core.errors import InfeasibleError, ParameterError


def work(shared, task):
    """What a task says it does."""
    what, value = task
    if what == "add":
        return shared + value
    if what == "sleep":
        time.sleep(value)
        return os.getpid()
    if what == "touch":
        value.touch()
    if what in ("touch", "wait"):
        while not value.exists():
            time.sleep(0.01)
        return what
    if what == "print":
        print(value)
        os.write(1, b"SECRET")
        return value
    if what == "die":
        os._exit(value)
    raise {"param": ParameterError("k must be 5."), "infeasible": InfeasibleError("none")}.get(
        what, KeyError("SECRET0001")
    )


def nap(_shared, task):
    if task[0] == "sleep":
        time.sleep(2.5)


class Slow:
    """Unpickles to a number, slowly."""

    def __reduce__(self):
        return operator.getitem, ([Nap(), 7], 1)


class Nap:
    """Sleeps when unpickled."""

    def __reduce__(self):
        return time.sleep, (1.5,)
