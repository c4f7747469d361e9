"""Jobs of worker processes: their progress and how they ended.

A new job replaces an unfinished one of its kind: a reader who moves a slider wants the last
position only. Runs share one process that stays alive with the flows in memory. Every other job has
a separate process, so that cancelling it ends the process; it ends with its job, and the process of
runs when the trips change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowveil.system.limits import duckdb_settings

#: States of a job; the last three are final.
WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
#: Upper bound for jobs with a separate process that run concurrently.
MOST_RUNNING = 2
#: Seconds that a superseded run may take to finish; restarting its process costs about as much.
GRACE = 1.0
#: Number of results to keep, by kind; 3 of others.
_KEPT = {"run": 6}
#: Upper bound for a line of progress.
_LONGEST = 1 << 20


def remove(paths: Iterable[Path]) -> None:
    """Removes files and folders that may be missing."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@dataclass(eq=False)
class Job:
    """One job."""

    kind: str  # a name of `flowveil.apps.workbench.work.WORK`
    request: Mapping[str, Any]  # the choices that it was started with, for pages
    result: Path  # the file of its result
    leftover: tuple[Path, ...] = ()  # files and folders to remove; see `Jobs.start`
    keys: Mapping[str, str] = field(default_factory=dict)  # see `choices.keys_of`
    state: str = WAITING
    label: str = ""
    share: float | None = None
    error: str | None = None
    seconds: float | None = None
    running: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        """The name of its files."""
        return self.result.stem

    @property
    def ended(self) -> bool:
        """Whether its state is final."""
        return self.state in (DONE, FAILED, CANCELLED)

    def drop(self) -> None:
        """Removes its result files."""
        remove(self.result.parent.glob(f"{self.id}.*"))

    def tidy(self, *, done: bool) -> None:
        """Removes leftover files, and leftover folders unless the job is done."""
        for place in self.leftover:
            if place.is_file() or not done:
                remove(place.parent.glob(f"{place.stem}*"))

    def to_dict(self) -> dict[str, Any]:
        """Returns the job for pages."""
        names = ("id", "kind", "state", "label", "share", "error", "seconds", "request", "keys")
        return {name: getattr(self, name) for name in names}


class Jobs:
    """All jobs of a server, oldest first."""

    def __init__(self, room: Path, changed: Callable[[], None]) -> None:
        self._room, self._changed = room, changed
        self._jobs: dict[str, Job] = {}
        self._slots = asyncio.Semaphore(MOST_RUNNING)
        self._turn, self._sparing = asyncio.Lock(), asyncio.Lock()
        self._warm: _Process | None = None
        self._spare: _Process | None = None
        self._processes: set[_Process] = set()
        self._warming: set[asyncio.Task[None]] = set()
        self._closed = False

    def __iter__(self) -> Any:
        return iter(list(self._jobs.values()))

    def get(self, id_: str) -> Job | None:
        """Returns the job of that id; None if it is unknown."""
        return self._jobs.get(id_)

    def start(
        self,
        kind: str,
        task: Mapping[str, Any],
        *,
        request: Mapping[str, Any],
        then: Callable[[Job], None] | None = None,
        leftover: tuple[Path, ...] = (),
        keys: Mapping[str, str] | None = None,
    ) -> Job:
        """Starts a job, which replaces an unfinished one of its kind.

        ``request`` is what pages get to know of the task, ``then`` is called when the job is done,
        ``leftover`` has files to remove when it has ended, and folders to remove unless it is done,
        ``keys`` are compared with those of the choices of the session.
        """
        for other in self:
            if other.kind == kind:
                self.cancel(other)
        place = self._room / "jobs" / f"{secrets.token_hex(8)}.json"
        job = Job(kind, request, place, leftover, keys or {})
        self._jobs[job.id] = job
        self._drop_oldest(kind)
        run = self._run_warm if kind == "run" else self._run_alone
        job.running = asyncio.get_running_loop().create_task(
            self._follow(job, run, dict(task), then)
        )
        self._changed()
        return job

    def cancel(self, job: Job) -> None:
        """Stops a job."""
        if not job.ended:
            job.state, job.share = CANCELLED, None
            if job.running is not None:
                job.running.cancel()
            self._changed()

    def cancel_all(self) -> None:
        """Stops all jobs and removes their results."""
        for job in self:
            self.cancel(job)
            job.drop()
        self._jobs.clear()
        # A process that has not worked yet has no data of the old trips.
        if self._warm is not None and self._warm.busy is not None:
            self._warm.end()
            self._warm = None

    async def close(self) -> None:
        """Stops all jobs and ends all processes."""
        self._closed = True
        running = [*self._warming, *(job.running for job in self._jobs.values())]
        self.cancel_all()
        await asyncio.gather(
            *(task for task in running if task is not None), return_exceptions=True
        )
        for process in list(self._processes):
            process.end()
            await process.gone()

    async def _ready(self, process: _Process | None) -> _Process:
        """Returns the process, or a new one if it is missing or has ended."""
        if process is None or process.ended:
            self._processes = {one for one in self._processes if not one.ended}
            process = await _Process.start(self._room)
            self._processes.add(process)
        return process

    def _drop_oldest(self, kind: str) -> None:
        """Removes the oldest results of a kind, so that the folder stays small."""
        old = [job for job in self if job.kind == kind and job.ended]
        for job in old[: max(0, len(old) - _KEPT.get(kind, 3))]:
            job.drop()
            del self._jobs[job.id]

    async def _follow(
        self,
        job: Job,
        run: Callable[..., Any],
        task: dict[str, Any],
        then: Callable[[Job], None] | None,
    ) -> None:
        task |= {
            "job": job.id,
            "kind": job.kind,
            "result": str(job.result),
            "limits": duckdb_settings(),
        }
        began = time.monotonic()
        try:
            how, message = await run(job, task)
        except asyncio.CancelledError:
            job.state = CANCELLED
            job.drop()
            job.tidy(done=False)
            raise
        except Exception as problem:
            how, message = FAILED, f"Unexpected {type(problem).__name__}."
        finally:
            job.seconds = round(time.monotonic() - began, 3)
            self._changed()
        job.tidy(done=how == DONE)
        job.state, job.error, job.share = how, message or None, None
        if how == DONE and then is not None:
            then(job)
        self._changed()

    async def _run_alone(self, job: Job, task: dict[str, Any]) -> tuple[str, str]:
        async with self._slots:
            async with self._sparing:
                process, self._spare = await self._ready(self._spare), None
            try:
                return await process.run(task, lambda progress: self._report(job, progress))
            finally:
                process.end()
                await asyncio.shield(process.gone())
                self.warm_up()

    async def _run_warm(self, job: Job, task: dict[str, Any]) -> tuple[str, str]:
        """Runs a job in the process of runs, which gets `GRACE` seconds to finish a superseded
        one.
        """
        async with self._turn:
            if self._warm is not None and not await self._warm.is_free(GRACE):
                self._warm.end()
                self._warm = None
            self._warm = await self._ready(self._warm)
            return await self._warm.run(task, lambda progress: self._report(job, progress))

    def warm_up(self) -> None:
        """Starts the process of runs and one for the next job ahead of time, unless they are
        running.

        Every call has its own task: an earlier one may be waiting for a run after the spare
        process was taken.
        """
        if not self._closed:
            task = asyncio.get_running_loop().create_task(self._start_ahead())
            self._warming.add(task)
            task.add_done_callback(self._warming.discard)

    async def _start_ahead(self) -> None:
        async with self._sparing:
            self._spare = await self._ready(self._spare)
        async with self._turn:
            self._warm = await self._ready(self._warm)

    def _report(self, job: Job, progress: Mapping[str, Any]) -> None:
        if not job.ended:
            job.state, job.label, job.share = RUNNING, str(progress["label"]), progress["share"]
            self._changed()


class _Process:
    """A worker process; see `flowveil.apps.workbench.work`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        #: The task that it was given last.
        self.busy: asyncio.Task[tuple[str, str]] | None = None

    @classmethod
    async def start(cls, room: Path) -> _Process:
        """Starts a process. Its temporary files go into the private folder."""
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-P",
                "-c",
                "from flowveil.apps.workbench.work import serve; serve()",
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": path,
                **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(room / "tmp")),
            },
            cwd=room / "tmp",
            limit=_LONGEST,
            # Ctrl-C in the terminal is for the server, which ends its processes itself.
            start_new_session=True,
        )
        return cls(process)

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    async def gone(self) -> None:
        """Waits until it has ended."""
        await self._process.wait()

    async def run(
        self, task: Mapping[str, Any], report: Callable[[Mapping[str, Any]], None]
    ) -> tuple[str, str]:
        """Runs a task. Cancelling the caller does not stop the process."""
        self.busy = asyncio.get_running_loop().create_task(self._talk(task, report))
        return await asyncio.shield(self.busy)

    async def is_free(self, seconds: float) -> bool:
        """Whether its task finishes within the given seconds."""
        if self.busy is not None:
            await asyncio.wait({self.busy}, timeout=seconds)
        return self.busy is None or self.busy.done()

    async def _talk(
        self, task: Mapping[str, Any], report: Callable[[Mapping[str, Any]], None]
    ) -> tuple[str, str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(ConnectionError):
            stdin.write(json.dumps(task).encode() + b"\n")
            await stdin.drain()
        while line := await stdout.readline():
            progress = json.loads(line)
            if progress["job"] != task["job"]:
                continue
            if "ended" in progress:
                return progress["ended"], progress["message"]
            report(progress)
        return FAILED, "The process of this job has ended. It may have run out of memory."

    def end(self) -> None:
        """Kills the process and its children."""
        if self.busy is not None:
            self.busy.cancel()
        with contextlib.suppress(ProcessLookupError):
            if not self.ended and hasattr(os, "killpg"):
                os.killpg(self._process.pid, 9)
            elif not self.ended:
                self._process.kill()
