"""Work that goes to other processes, done in this one.

A process takes more than a second to start. Tests of the results of a comparison or a study need
none; that tasks end in time, and what happens where a process does not, is for
`unit/system/test_workers.py` and the tests of late runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import flowveil
from flowveil.system.workers import DONE, LOST, Ended, _result


def run_here(work, shared, tasks, *, prepare=None, **_):
    """The same as `flowveil.system.workers.run_tasks`, pickles included, for tasks that are in
    time."""
    work, prepare, shared = pickle.loads(pickle.dumps((work, prepare, shared)))
    for number, task in enumerate(pickle.loads(pickle.dumps(tasks))):
        # Getting ready is for the clock, which no test here looks at: once is enough to see that it
        # works.
        if prepare is not None and number == 0:
            prepare(shared, task)
        result = pickle.loads(pickle.dumps(_result(work, shared, task)))
        yield (
            Ended(number, LOST, error=result)
            if isinstance(result, Exception)
            else Ended(number, DONE, result)
        )


@contextmanager
def in_this_process() -> Iterator[None]:
    """Comparisons, studies and releases of many slices start no process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowveil.system.workers.run_tasks", run_here)
        patch.setattr("flowveil.publishing.slice_plans.run_tasks", run_here)
        yield


def light_sources(folder: Path) -> str:
    """A folder with a flowveil whose package imports only the requested modules.

    All of it takes ten times as long as Python itself.
    """
    package = folder / "flowveil"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__path__ = {list(flowveil.__path__)!r}\n", "utf-8")
    return str(folder)
