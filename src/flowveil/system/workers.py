"""Worker processes and threads for slices, comparisons and studies.

A process receives the shared data once, then tasks one after the other. A task over its time limit
is killed with its process; one that runs out of memory affects no other. A process imports the same
flowveil and does not run the calling script, so scripts need no ``__main__`` guard. Output of
libraries is discarded, because it may quote the input. Results do not depend on the assignment of
tasks to processes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from flowveil.core.errors import FlowveilError

#: Outcomes of a task: with a result, stopped at its time limit, or without a result.
DONE, LATE, LOST = "done", "late", "lost"
#: Seconds that a process may take to start, load the shared data and prepare a task.
START_LIMIT = 600.0

Result = TypeVar("Result")


class Ended(NamedTuple):
    """Outcome of the task with this number: ``done``, ``late`` or ``lost``.

    The error is a flowveil error, or one that names only the type, because other messages may quote
    the input.
    """

    number: int
    how: str
    result: Any = None
    error: Exception | None = None


def run_tasks(
    work: Callable[[Any, Any], Any],
    shared: Any,
    tasks: Sequence[Any],
    *,
    workers: int = 1,
    time_limit: float | None = None,
    prepare: Callable[[Any, Any], None] | None = None,
    fresh: bool = False,
    in_order: bool = False,
) -> Generator[Ended, None, None]:
    """Runs ``work(shared, task)`` for every task in worker processes.

    No process outlives the iteration; close the iterator if it may be left early.

    Args:
        work, shared: a module-level function with a picklable result; data that is sent once to
            each process.
        time_limit: seconds for a task after its process is ready.
        prepare: called before each task, outside its time limit, for imports and compilation.
        fresh: use a new process for every task, so that none profits from an earlier one.
    """
    load = pickle.dumps((work, prepare, shared), protocol=pickle.HIGHEST_PROTOCOL)
    children: list[_Child] = []
    lock, cancelled, of_thread = threading.Lock(), threading.Event(), threading.local()

    def run(number: int, task: Any) -> Ended:
        child: _Child | None = getattr(of_thread, "child", None)
        if child is None:
            with lock:
                if cancelled.is_set():
                    raise RuntimeError("The work was cancelled.")
                child = _Child(load)
                children.append(child)
        how, result = child.run(task, time_limit)
        if fresh or child.spent:
            child.end()
        of_thread.child = None if fresh or child.spent else child
        return (
            Ended(number, LOST, error=result)
            if isinstance(result, Exception)
            else Ended(number, how, result)
        )

    pool = ThreadPoolExecutor(max_workers=max(1, min(workers, len(tasks))))
    try:
        futures = [pool.submit(run, number, task) for number, task in enumerate(tasks)]
        for future in futures if in_order else as_completed(futures):
            yield future.result()
    finally:
        with lock:
            cancelled.set()
            for child in children:
                child.end()
        pool.shutdown(cancel_futures=True)


def prefetch(
    work: Iterable[Callable[[], Result]], *, threads: int, waiting: int = 0
) -> Generator[Result, None, None]:
    """Yields results of callables in order while other threads (``threads`` with the caller)
    compute the next ones.

    For numpy, which releases the interpreter lock. Limits and message settings are those of the
    caller. At most ``threads + waiting`` results are in memory.
    """
    pieces = iter(work)
    if threads == 1:
        yield from (piece() for piece in pieces)
        return
    with ThreadPoolExecutor(max_workers=threads - 1) as pool:
        at_work = deque(
            pool.submit(copy_context().run, piece)
            for piece in islice(pieces, threads - 1 + waiting)
        )
        while at_work:
            done = at_work.popleft().result()
            at_work.extend(pool.submit(copy_context().run, piece) for piece in islice(pieces, 1))
            yield done


class _Child:
    """A worker process, ``spent`` if it ended or was stopped.

    Requests and answers are consecutive pickles.
    """

    def __init__(self, load: bytes) -> None:
        self.spent = False
        self._load = load
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from flowveil.system.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )

    def run(self, task: Any, time_limit: float | None) -> tuple[str, Any]:
        """Returns the outcome of a task, and its result."""
        ready, _ = self._within(START_LIMIT, lambda: self._send(task))
        answer, late = (None, False) if ready is None else self._within(time_limit, self._receive)
        return (LATE if late else LOST, None) if answer is None else (DONE, answer[0])

    def end(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            # Closing flushes data that no one reads.
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, task: Any) -> Any:
        """Sends a task, preceded by the shared data for the first.

        Returns when the process is ready.
        """
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(self._load)
        self._load = b""
        pickle.dump(task, stdin, protocol=pickle.HIGHEST_PROTOCOL)
        stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        return pickle.load(self._process.stdout)  # type: ignore[arg-type]

    def _within(self, seconds: float | None, talk: Callable[[], Any]) -> tuple[Any, bool]:
        """Returns the answer of the process (None if it ended or was stopped), and whether it was
        stopped.
        """
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(min(seconds or threading.TIMEOUT_MAX, threading.TIMEOUT_MAX), stop)
        timer.daemon = True
        timer.start()
        reply = None
        try:
            reply = talk()
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            self.spent = True
        finally:
            timer.cancel()
            timer.join()
        # An answer may arrive while the process is being stopped.
        self.spent |= late.is_set()
        return reply, late.is_set()


def serve() -> None:
    """Main function of a worker process: reads the shared data from standard input, then tasks
    until the end.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output of libraries must not mix with answers.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    work, prepare, shared = pickle.load(sys.stdin.buffer)

    def answer(reply: Any) -> None:
        pickle.dump(reply, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()

    with answers, contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            task = pickle.load(sys.stdin.buffer)
            if prepare is not None:
                prepare(shared, task)
            answer("ready")
            answer((_result(work, shared, task),))


def _result(work: Callable[[Any, Any], Any], shared: Any, task: Any) -> Any:
    try:
        return work(shared, task)
    except FlowveilError as problem:
        return problem
    except Exception as problem:
        return RuntimeError(f"Unexpected {type(problem).__name__} in a worker process.")
