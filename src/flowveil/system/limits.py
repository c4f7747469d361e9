"""Limits of memory and threads of a run, and its temporary folder.

DuckDB gets half of the memory while trips are read, and spills to disk. Arrays of numpy cannot be
spilled: their size is estimated from the number of flows and persons, and a run that would not fit
is refused with the figure. Limits are settings of the machine: results do not depend on them and no
report records them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from flowveil.core.errors import ParameterError, option
from flowveil.system.paths import named_path

#: Bytes of numpy for each flow, and for each pair of flow and person, while flows are read; bytes
#: of the program.
FLOW_READ, PERSON_READ, PROGRAM = 150, 60, 300 << 20
#: DuckDB's share of the memory while trips are read, and its minimum.
_SHARE, _LEAST = 0.5, 64 << 20
#: Files with the memory limit of a container, in the newer and the older form.
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", re.IGNORECASE)
_given: ContextVar[dict[str, Any] | None] = ContextVar("flowveil_limits", default=None)


@contextmanager
def limits(
    *, memory: str | None = None, threads: int | None = None, temp_dir: str | Path | None = None
) -> Iterator[None]:
    """Limits the resources used inside the block.

    ``with flowveil.limits(memory="4GB", threads=2): ...``.

    Args:
        memory: maximum for the run, such as ``4GB``. Tables that do not fit are spilled to a
            temporary folder; a computation that does not fit is refused.
        threads: maximum number of threads of DuckDB and of numpy; all cores by default.
        temp_dir: an existing folder for spilled tables, with room for about the size of the trips;
            the system's folder by default. A private folder is made in it, and always removed.

    Raises:
        ParameterError: the memory is not a size, the threads are not a whole number above 0, or the
            folder is missing.

    Examples:
        >>> with flowveil.limits(memory="4GB", threads=1):
        ...     flows = flowveil.read_trips("trips.csv", resolution=7, person="person_id")
    """
    if memory is not None and not size_in_bytes(memory):
        raise ParameterError(
            f"The memory limit must be a size such as 4GB or 800MB; found {memory!a}."
        )
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or threads < 1
    ):
        raise ParameterError(
            f"{option('threads')} must be a whole number of at least 1; found {threads!r}."
        )
    if (
        temp_dir is not None
        and not named_path(temp_dir, what="the temporary folder").expanduser().is_dir()
    ):
        raise ParameterError(
            f"The temporary folder ({option('temp_dir')}) must be a folder that exists."
        )
    chosen = {
        "memory": memory and size_in_bytes(memory),
        "threads": threads,
        "temp_dir": temp_dir and str(Path(temp_dir).expanduser()),
    }
    outer = _given.get() or {}
    token = _given.set(
        {**outer, **{name: value for name, value in chosen.items() if value is not None}}
    )
    try:
        yield
    finally:
        _given.reset(token)


def size_in_bytes(size: str) -> int:
    """Returns a size in bytes; 0 if the text is not a size."""
    found = _SIZE.fullmatch(size)
    if found is None:
        return 0
    unit = found[2].upper()
    return int(float(found[1]) * (1024 if "I" in unit else 1000) ** (1 + "KMGT".index(unit[0])))


def duckdb_settings() -> dict[str, Any]:
    """Returns the limits as settings of DuckDB; empty without limits."""
    given = _given.get() or {}
    settings = {"threads": given["threads"]} if "threads" in given else {}
    if "memory" in given:
        settings["memory_limit"] = f"{max(int(given['memory'] * _SHARE), _LEAST)} bytes"
    return settings


def threads() -> int:
    """Returns the maximum number of threads."""
    return int((_given.get() or {}).get("threads") or os.cpu_count() or 1)


def temporary_folder() -> str | None:
    """Returns the folder for temporary folders; None for the system's."""
    return (_given.get() or {}).get("temp_dir")


def is_limited() -> bool:
    """Returns whether the memory is limited."""
    return "memory" in (_given.get() or {})


def room_for(needed: int, *, what: str, hint: str, machine: bool = False) -> int | None:
    """Checks that numpy may allocate memory.

    Returns the bytes that remain, or None without a limit.

    The memory of the program itself comes on top of what is needed. ``what`` and ``hint`` complete
    the message; with ``machine`` the memory of this machine is the limit if none is given.
    """
    given: int | None = (_given.get() or {}).get("memory")
    limit = _memory_of_machine() if given is None and machine else given
    if limit is None:
        return None
    left = limit - PROGRAM - needed
    if left < _LEAST:
        total = _gigabytes(PROGRAM + needed + _LEAST)
        flag = option("memory", flag="--memory-limit")
        whose, more = "memory of this machine,", "use a machine with more memory"
        if given is not None:
            whose, more = "memory limit of", f"give {flag} {total.replace(' ', '')} or more"
        raise ParameterError(
            f"The {whose} {_gigabytes(limit)} does not suffice: {what} needs about {total}. Hint:"
            f" {more}, or {hint}."
        )
    return left


def _memory_of_machine() -> int | None:
    """Returns the bytes of this machine or container; None if unknown."""
    found = []
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in _CONTAINER_LIMITS:
        # Without a limit the file holds a word instead of a number.
        with suppress(OSError, ValueError), open(file, encoding="ascii") as text:
            found.append(int(text.read()))
    return min(found, default=None)


def about(n: int) -> str:
    """Returns a number in thousands, rounded up: messages may be pasted into tickets."""
    return f"{-(-n // 1000):,} thousand"


def _gigabytes(amount: int) -> str:
    """Returns gigabytes, rounded up so that the figure suffices as a limit."""
    return f"{-(-amount // 10**8) / 10:.1f} GB"
