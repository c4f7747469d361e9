"""How much memory and how many threads a run may use, and where what does not fit is kept meanwhile.

A limit holds for the whole run. DuckDB gets half of it while trips are read and spills the rest to disk; what numpy
needs afterwards cannot be spilled, so it is estimated before it is taken, from the number of flows and of flows times
persons, and a run that would not fit is refused with the figure. Results do not depend on any of it: it is a setting of
the machine and not of a release, so no function takes it as an argument and no report records it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from flowveil.errors import ParameterError, option
from flowveil.paths import named_path

#: Bytes of numpy for each flow and for each flow and person while flows are handed over by the engine, and what the
#: program itself takes, its libraries included.
FLOW_READ, PERSON_READ, PROGRAM = 150, 60, 300 << 20
#: DuckDB's share of the memory while trips are read, and the least it can work with.
_SHARE, _LEAST = 0.5, 64 << 20
#: Where a container says how much memory it may take, in the newer and the older form.
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", re.IGNORECASE)
_given: ContextVar[dict[str, Any] | None] = ContextVar("flowveil_limits", default=None)


@contextmanager
def limits(
    *, memory: str | None = None, threads: int | None = None, temp_dir: str | Path | None = None
) -> Iterator[None]:
    """Limit what is used inside the block: ``with flowveil.limits(memory="4GB", threads=2): ...``.

    Args:
        memory: most memory for the run, such as ``4GB``: of tables that are read, which go to a temporary folder where
            they do not fit, and of what is computed from them, which is refused where it would not.
        threads: most threads that count, of DuckDB and of numpy; all cores by default.
        temp_dir: an existing folder for what does not fit, with room for about the size of the trips; the system's own
            by default. A private folder is made in it, and removed whatever happens.

    Raises:
        ParameterError: the memory is no size, the threads no whole number above 0, or the folder is none.
    """
    if memory is not None and not _bytes(memory):
        raise ParameterError(f"The memory limit must be a size such as 4GB or 800MB; found {memory!a}.")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ParameterError(f"The number of threads must be a whole number of at least 1; found {threads!r}.")
    if temp_dir is not None and not named_path(temp_dir, what="the temporary folder").expanduser().is_dir():
        raise ParameterError(f"The temporary folder ({option('temp_dir')}) must be a folder that exists.")
    chosen = {
        "memory": memory and _bytes(memory),
        "threads": threads,
        "temp_dir": temp_dir and str(Path(temp_dir).expanduser()),
    }
    outer = _given.get() or {}
    token = _given.set({**outer, **{name: value for name, value in chosen.items() if value is not None}})
    try:
        yield
    finally:
        _given.reset(token)


def _bytes(size: str) -> int:
    """A size in bytes; 0 for what is none."""
    found = _SIZE.fullmatch(size)
    if found is None:
        return 0
    unit = found[2].upper()
    return int(float(found[1]) * (1024 if "I" in unit else 1000) ** (1 + "KMGT".index(unit[0])))


def duckdb_settings() -> dict[str, Any]:
    """The limits as DuckDB takes them when it is opened; empty where there are none."""
    given = _given.get() or {}
    settings = {"threads": given["threads"]} if "threads" in given else {}
    if "memory" in given:
        settings["memory_limit"] = in_bytes(max(int(given["memory"] * _SHARE), _LEAST))
    return settings


def threads() -> int:
    """How many threads may count at a time."""
    return int((_given.get() or {}).get("threads") or os.cpu_count() or 1)


def silence(connection: Any) -> None:
    """Keeps DuckDB from drawing a bar of its own: it would stand among what a command prints, JSON included.

    In a notebook without the package that would draw the bar there is none, and DuckDB refuses to be asked.
    """
    import duckdb

    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")


def in_bytes(amount: int) -> str:
    """A size as DuckDB takes it."""
    return f"{amount} bytes"


def temporary_folder() -> str | None:
    """Where temporary folders are made; None for the system's own place."""
    found: str | None = (_given.get() or {}).get("temp_dir")
    return found


def is_limited() -> bool:
    """Whether there is a limit on the memory."""
    return "memory" in (_given.get() or {})


def room_for(needed: int, *, what: str, hint: str, machine: bool = False) -> int | None:
    """Make sure that numpy may take so much; returns what is left of the limit then, None where there is no limit.

    Args:
        needed: bytes beyond those of the program itself.
        what: needs them.
        hint: what else could be done than to give more memory.
        machine: where no limit is given, the memory of this machine is one.

    Raises:
        ParameterError: there is a limit, and it does not leave so much.
    """
    given: int | None = (_given.get() or {}).get("memory")
    limit = _memory_of_machine() if given is None and machine else given
    if limit is None:
        return None
    left = limit - PROGRAM - needed
    if left < _LEAST:
        asked = _gigabytes(PROGRAM + needed + _LEAST)
        flag = option("memory", flag="--memory-limit")
        whose, more = "memory of this machine,", "use a machine with so much"
        if given is not None:
            whose, more = "memory limit of", f"give {flag} {asked.replace(' ', '')} or more"
        raise ParameterError(
            f"The {whose} {_gigabytes(limit)} does not suffice: {what} needs about {asked}. Hint: {more}, or {hint}."
        )
    return left


def _memory_of_machine() -> int | None:
    """In bytes: what there is, or what a container may take of it; None where the system does not say."""
    found = []
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in _CONTAINER_LIMITS:
        # A word instead of a number says that there is no limit.
        with suppress(OSError, ValueError), open(file, encoding="ascii") as text:
            found.append(int(text.read()))
    return min(found, default=None)


def about(n: int) -> str:
    """A number for such messages, in thousands, rounded up: an error is pasted into tickets."""
    return f"{-(-n // 1000):,} thousand"


def _gigabytes(amount: int) -> str:
    """Rounded up, so that giving the figure suffices."""
    return f"{-(-amount // 10**8) / 10:.1f} GB"
