"""A worker process: takes tasks from the server one after the other, and ends when the server does.

Tasks and news of them are lines of JSON. Results are written into files and not sent: they may be large, and the server
shall not hold them. A thread watches the standard input: once the server has gone, however it went, it closes, and the
process ends in the middle of whatever it does.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from flowveil.errors import FlowveilError
from flowveil.output import write_files
from flowveil.reading.limits import limits
from flowveil.workbench.inspect_input import in_words
from flowveil.workbench.work import WORK

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Bytes that a process may have taken and still stay for the next task.
_SMALL = 400 * 2**20
#: Seconds between two lines of progress.
_EVERY = 0.1


class News:
    """Where a task says how far it is."""

    def __init__(self, answers: Any, job: str) -> None:
        self._answers, self._job, self._last, self._label = answers, job, 0.0, ""

    def label(self, text: str) -> None:
        """Say what is being done."""
        self._label = text
        self._tell({"label": text, "share": None})

    def share(self, done: float) -> None:
        """Say how much of it is done, from 0 to 1."""
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            self._tell({"label": self._label, "share": round(done, 3)})

    def ended(self, how: str, message: str = "") -> None:
        """Say that the task has ended."""
        self._tell({"ended": how, "message": message, "small": _is_small()})

    def _tell(self, what: dict[str, Any]) -> None:
        self._answers.write(json.dumps({"job": self._job, **what}) + "\n")
        self._answers.flush()


def _is_small() -> bool:
    """Whether this process has never taken much memory, so that it may stay; no, where the system does not say."""
    if resource is None:
        return False
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit <= _SMALL


def serve() -> None:
    """Serve tasks for as long as the server lives."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # Whatever a library prints must not end up among the answers, nor in a log: it may quote the input.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())
    warnings.simplefilter("ignore")
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()

    def watch() -> None:
        for line in sys.stdin:
            tasks.put(line)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    while True:
        task = json.loads(tasks.get())
        _run(task, News(answers, task["job"]))


def _run(task: dict[str, Any], news: News) -> None:
    try:
        with limits(memory=task["limits"].get("memory_limit"), threads=task["limits"].get("threads")):
            result = WORK[task["kind"]](task, news)
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
        write_files({task["result"]: lambda file: Path(file).write_text(text, encoding="utf-8")}, private=True)
    except FlowveilError as problem:
        news.ended("failed", in_words(problem, task))
    except MemoryError:
        news.ended("failed", "There is not enough memory for this.")
    except Exception as problem:
        news.ended("failed", f"Unexpected {type(problem).__name__}.")
    else:
        news.ended("done")
