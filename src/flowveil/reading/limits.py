"""How much memory and how many threads DuckDB may use, for everything that is read and recounted inside a block.

Results do not depend on it. It is a setting of the machine and not of a release, so no function takes it as an
argument and no report records it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from flowveil.errors import ParameterError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", re.IGNORECASE)
_given: ContextVar[dict[str, Any] | None] = ContextVar("flowveil_limits", default=None)


@contextmanager
def limits(*, memory: str | None = None, threads: int | None = None) -> Iterator[None]:
    """Limit DuckDB inside the block: ``with flowveil.limits(memory="4GB", threads=2): ...``.

    Args:
        memory: most memory for its tables, such as ``4GB``; what does not fit goes to a temporary folder. The flows
            come on top.
        threads: most threads.

    Raises:
        ParameterError: the memory is no size, or the threads no whole number above 0.
    """
    if memory is not None and (_SIZE.fullmatch(memory) is None or float(_SIZE.fullmatch(memory)[1]) == 0):  # type: ignore[index]
        raise ParameterError(f"The memory limit must be a size such as 4GB or 800MB; found {memory!a}.")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ParameterError(f"The number of threads must be a whole number of at least 1; found {threads!r}.")
    chosen = {"memory_limit": memory and memory.replace(" ", ""), "threads": threads}
    outer = _given.get() or {}
    token = _given.set({**outer, **{name: value for name, value in chosen.items() if value is not None}})
    try:
        yield
    finally:
        _given.reset(token)


def duckdb_settings() -> dict[str, Any]:
    """The limits as DuckDB takes them when it is opened; empty where there are none."""
    return dict(_given.get() or {})
