"""Time and peak memory of a call, measured so that noise on the machine hits both sides of a ratio
alike."""

from __future__ import annotations

import multiprocessing as mp
import resource
import time
from collections.abc import Callable
from typing import Any


def best_of(call: Callable[[], Any], *, repeat: int = 5) -> float:
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def interleaved(
    first: Callable[[], Any], second: Callable[[], Any], *, repeat: int = 5
) -> tuple[float, float]:
    """Shortest times of two calls that take turns."""
    pairs = [(best_of(first, repeat=1), best_of(second, repeat=1)) for _ in range(repeat)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


def peak_gigabytes(call: Callable[..., Any], *arguments: Any) -> float:
    """Peak resident memory of a fresh process that makes the call."""
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=_measured, args=(queue, call, arguments))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{call.__name__} failed in its own process")
    return float(queue.get())


def _measured(queue: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    call(*arguments)
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2)
