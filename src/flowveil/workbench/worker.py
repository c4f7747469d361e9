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
import warnings
from pathlib import Path
from typing import Any

from flowveil.errors import FlowveilError, speaking_of_flags
from flowveil.output import write_files
from flowveil.reading.limits import limits
from flowveil.workbench.inspect_input import with_upload_names
from flowveil.workbench.work import WORK, Progress, Task


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
    message = None
    try:
        given = task["limits"]
        with speaking_of_flags(), limits(memory=given.get("memory_limit"), threads=given.get("threads")):
            result = WORK[task["kind"]](Task(task, progress))
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
        write_files({task["result"]: lambda file: Path(file).write_text(text, encoding="utf-8")}, private=True)
    except FlowveilError as problem:
        message = with_upload_names(problem, task)
    except MemoryError:
        message = "This machine has not enough memory for this job."
    except Exception as problem:
        message = f"Unexpected {type(problem).__name__}."
    progress.send(ended="done" if message is None else "failed", message=message or "")
