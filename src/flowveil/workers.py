"""Work in processes of its own: the one way for slices, comparisons and studies.

A process gets what all tasks share once and then tasks one after the other. A task that takes too long is stopped with
its process, and one that uses too much memory takes no other along. A process finds the same flowveil as this one and
runs nothing of the program that called: a script needs no guard around its first line. What libraries print there is
dropped, because it may quote the input. Which process works on what does not matter to the results.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextvars import copy_context
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from flowveil.errors import FlowveilError

#: How a task may end: with a result, stopped after its time, or without a result.
DONE, LATE, LOST = "done", "late", "lost"
#: Seconds that a process may take to start, to unpack what is shared and to get ready for a task.
START_LIMIT = 600.0

Result = TypeVar("Result")


class Ended(NamedTuple):
    """How one task ended.

    Attributes:
        number: its place among the tasks.
        how: ``done``, ``late`` or ``lost``.
        result: what the work returned; None unless it is done.
        error: what the work raised, if it is one of ours, else an error that names its kind only: the message of a
            foreign one may quote the input. None where the process ended.
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
    """Run ``work(shared, task)`` for every task in other processes.

    No process outlives the iteration, however it ends; close the iterator where it may be left early.

    Args:
        work: a function of a module; it must return something that can be pickled.
        shared: what all tasks need; sent once to each process.
        tasks: what to work on.
        workers: processes that run side by side.
        time_limit: seconds that a task may take once its process is ready for it.
        prepare: called before each task, out of its time: for what is imported or compiled at the first call.
        fresh: give every task a new process, so that nothing another task left behind makes it faster.
        in_order: yield in the order of the tasks; otherwise as they end.
    """
    load = pickle.dumps((work, prepare, shared), protocol=pickle.HIGHEST_PROTOCOL)
    crew = _Crew(load, time_limit, fresh=fresh)
    pool = ThreadPoolExecutor(max_workers=max(1, min(workers, len(tasks))))
    try:
        futures = [pool.submit(crew.run, number, task) for number, task in enumerate(tasks)]
        order: Iterator[Future[Ended]] = iter(futures) if in_order else as_completed(futures)
        for future in order:
            yield future.result()
    finally:
        crew.dismiss()
        pool.shutdown(cancel_futures=True)


def prefetch(work: Iterable[Callable[[], Result]], *, threads: int, waiting: int = 0) -> Generator[Result, None, None]:
    """What each piece of work returns, in order, while other threads of this process are at the next ones.

    For numpy, which lets other threads run while it counts. Limits and words of messages are those of the caller.

    Args:
        work: the pieces.
        threads: how many may work, this one included.
        waiting: pieces that lie ready for a thread: where it takes a while to come by one, threads need not wait.
            Besides these, no more are in memory than there are threads, the one that was handed out included.
    """
    pieces = iter(work)
    if threads == 1:
        yield from (piece() for piece in pieces)
        return
    with ThreadPoolExecutor(max_workers=threads - 1) as pool:
        at_work = deque(pool.submit(copy_context().run, piece) for piece in islice(pieces, threads - 1 + waiting))
        while at_work:
            done = at_work.popleft().result()
            at_work.extend(pool.submit(copy_context().run, piece) for piece in islice(pieces, 1))
            yield done


def parallel_map(work: Iterable[Callable[[], Result]], *, threads: int) -> Generator[Result, None, None]:
    """What each piece of work returns, in order, where whoever asks has nothing to do meanwhile.

    A thread asks for the next piece itself, one thread at a time, so that what it takes to prepare a piece is done
    beside other pieces too. No more pieces are in the works than there are threads; where there is to be one, it is
    this one. Which thread gets which piece, and how far the others are then, is left to chance: pieces must not need
    each other. Limits and words of messages are those of the caller.
    """
    pieces = enumerate(work)
    if threads == 1:
        yield from (piece() for _, piece in pieces)
        return
    turn = threading.Lock()

    def one() -> tuple[int, Result] | None:
        with turn:
            number, piece = next(pieces, (-1, None))
        return None if piece is None else (number, piece())

    done: dict[int, Result] = {}
    with ThreadPoolExecutor(max_workers=threads) as pool:
        waiting = deque(pool.submit(copy_context().run, one) for _ in range(threads))
        at = 0
        while waiting:
            ended = waiting.popleft().result()
            if ended is None:
                continue
            waiting.append(pool.submit(copy_context().run, one))
            done[ended[0]] = ended[1]
            del ended
            while at in done:
                yield done.pop(at)
                at += 1


@contextlib.contextmanager
def run_in_background(work: Callable[[], Result], *, threads: int) -> Iterator[Callable[[], Result]]:
    """Something to be asked for what a piece of work returns, which another thread of this process is at meanwhile.

    For work of the libraries that leave Python's lock alone, or beside such work. With one thread it is done when it is
    asked for. Limits and words of messages are those of the caller.
    """
    if threads == 1:
        yield work
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(copy_context().run, work).result


class _Crew:
    """The processes; each thread of the pool takes one that is idle, or starts one."""

    def __init__(self, load: bytes, time_limit: float | None, *, fresh: bool) -> None:
        self._load, self._time_limit, self._fresh = load, time_limit, fresh
        self._lock = threading.Lock()
        self._all: set[_Child] = set()
        self._idle: list[_Child] = []
        self._dismissed = False

    def run(self, number: int, task: Any) -> Ended:
        """Run one task."""
        child = self._take()
        how, result = child.run(task, self._time_limit)
        with self._lock:
            if self._fresh or child.spent:
                self._all.discard(child)
                child.end()
            else:
                self._idle.append(child)
        if isinstance(result, Exception):
            return Ended(number, LOST, error=result)
        return Ended(number, how, result)

    def dismiss(self) -> None:
        """End all processes; threads that wait for one see that it is gone."""
        with self._lock:
            self._dismissed = True
            for child in self._all:
                child.end()

    def _take(self) -> _Child:
        with self._lock:
            if self._dismissed:
                raise RuntimeError("The work was given up.")
            if self._idle:
                return self._idle.pop()
            child = _Child(self._load)
            self._all.add(child)
            return child


class _Child:
    """A process that serves tasks. What it is sent and what it answers are pickles, one after the other.

    Attributes:
        spent: whether it ended or was stopped, and cannot be asked again.
    """

    def __init__(self, load: bytes) -> None:
        self.spent = False
        self._load = load
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from flowveil.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )

    def run(self, task: Any, time_limit: float | None) -> tuple[str, Any]:
        """How the task ended, and its result."""
        ready, _ = self._within(START_LIMIT, lambda: self._send(task))
        if ready is None:
            return LOST, None
        answer, late = self._within(time_limit, self._receive)
        if answer is None:
            return (LATE if late else LOST), None
        return DONE, answer[0]

    def end(self) -> None:
        """Stop the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            # Closing writes what is left, which nobody reads any more.
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, task: Any) -> Any:
        """Send a task, and what is shared before the first; return when the process is ready for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(self._load)
        self._load = b""
        pickle.dump(task, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def _within(self, seconds: float | None, talk: Callable[[], Any]) -> tuple[Any, bool]:
        """What the process says, or None where it ended or was stopped; and whether it was stopped."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(min(seconds or threading.TIMEOUT_MAX, threading.TIMEOUT_MAX), stop)
        timer.daemon = True
        timer.start()
        said = None
        try:
            said = talk()
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            self.spent = True
        finally:
            timer.cancel()
            timer.join()
        # An answer may come at the moment at which its process is stopped.
        self.spent |= late.is_set()
        return said, late.is_set()


def serve() -> None:
    """In a process: take what is shared from the standard input, then tasks, for as long as some come."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints must not end up among the answers.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    work, prepare, shared = pickle.load(sys.stdin.buffer)

    def answer(said: Any) -> None:
        pickle.dump(said, answers, protocol=pickle.HIGHEST_PROTOCOL)
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
