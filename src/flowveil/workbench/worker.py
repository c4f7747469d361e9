"""A worker process: runs tasks of the server one after the other, and ends with the server.

Tasks and progress are lines of JSON. Results are files, because they may be large. A thread watches the standard input:
it closes when the server ends for any reason, and then the process exits at once.
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

from flowveil.errors import FlowveilError, speaking_of_flags
from flowveil.output import write_files
from flowveil.reading.limits import limits
from flowveil.workbench.inspect_input import with_upload_names
from flowveil.workbench.work import WORK

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Upper bound for the memory of a process that may take another task, in bytes.
_SMALL = 400 * 2**20
#: Seconds between two lines of progress.
_EVERY = 0.1


class Progress:
    """Sends the progress of a task to the server."""

    def __init__(self, answers: Any, job: str) -> None:
        self._answers, self._job, self._last, self._label = answers, job, 0.0, ""

    def label(self, text: str) -> None:
        """Reports the current step."""
        self._label = text
        self._send({"label": text, "share": None})

    def share(self, done: float) -> None:
        """Reports the share that is done, from 0 to 1."""
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            self._send({"label": self._label, "share": round(done, 3)})

    def ended(self, how: str, message: str = "") -> None:
        """Reports the end of the task."""
        self._send({"ended": how, "message": message, "small": _is_small()})

    def _send(self, what: dict[str, Any]) -> None:
        self._answers.write(json.dumps({"job": self._job, **what}) + "\n")
        self._answers.flush()


def _is_small() -> bool:
    """Whether the process never used much memory; False where the system does not report it."""
    if resource is None:
        return False
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit <= _SMALL


def serve() -> None:
    """Runs tasks until the server ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # Output of libraries may quote the input: it goes neither to the server nor to a log.
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
        _run(task, Progress(answers, task["job"]))


def _run(task: dict[str, Any], progress: Progress) -> None:
    try:
        given = task["limits"]
        with speaking_of_flags(), limits(memory=given.get("memory_limit"), threads=given.get("threads")):
            result = WORK[task["kind"]](task, progress)
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
        write_files({task["result"]: lambda file: Path(file).write_text(text, encoding="utf-8")}, private=True)
    except FlowveilError as problem:
        progress.ended("failed", with_upload_names(problem, task))
    except MemoryError:
        progress.ended("failed", "This machine has not enough memory for this job.")
    except Exception as problem:
        progress.ended("failed", f"Unexpected {type(problem).__name__}.")
    else:
        progress.ended("done")
