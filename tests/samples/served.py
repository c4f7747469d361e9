"""A workbench that runs in a separate process, or in this one, and a browser's part of the talk
with it.

Every process of a job takes a second to import what it needs. Tests of what is answered and shown
do their jobs in threads here (`serving_here`); those of processes, of memory and of leftover files
start real ones (`serving`).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flowveil.apps.workbench import jobs, work


@dataclass
class Served:
    """A running workbench.

    Attributes:
        process: its process, unless it is this one.
        address: what it printed, token included.
        port, token: the parts of it.
        temporary: where its private folder is.
        cookie: what a browser has, once it has entered.
    """

    process: subprocess.Popen[str] | None
    address: str
    temporary: Path
    cookie: str = ""
    port: int = field(init=False)
    token: str = field(init=False)

    def __post_init__(self) -> None:
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{40,})", self.address)
        assert found, self.address
        self.port, self.token = int(found[1]), found[2]

    def cookie_for(self, context: Any) -> None:
        """Let a browser in: the token works once only."""
        name, _, value = self.cookie.partition("=")
        context.add_cookies(
            [
                {
                    "name": name,
                    "value": value,
                    "url": self.root,
                    "httpOnly": True,
                    "sameSite": "Strict",
                }
            ]
        )

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def room(self) -> Path:
        (room,) = self.temporary.glob("flowveil-workbench-*")
        return room

    def enter(self) -> None:
        status, headers, _ = self.ask("GET", f"/?token={self.token}", cookie=False)
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]

    def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        cookie: bool = True,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """One request as the page would make it, but for what is given.

        A header of None is left out.
        """
        sent: dict[str, Any] = {
            "Host": f"127.0.0.1:{self.port}",
            "Origin": f"http://127.0.0.1:{self.port}",
        }
        if cookie and self.cookie:
            sent["Cookie"] = self.cookie
        sent |= headers or {}
        body = (
            content
            if content is None or isinstance(content, bytes)
            else json.dumps(content).encode()
        )
        talk = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            talk.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    talk.putheader(name, value)
            if body is not None:
                talk.putheader("Content-Length", str(len(body)))
            # The server may have heard enough, and has said why.
            with suppress(BrokenPipeError, ConnectionResetError):
                talk.endheaders(body)
            answer = talk.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            talk.close()

    def do(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        expect: int | tuple[int, ...] = (200, 202),
    ) -> Any:
        """The same, with JSON in the answer."""
        status, _, body = self.ask(method, path, content)
        assert status in (expect if isinstance(expect, tuple) else (expect,)), (status, body[:500])
        return json.loads(body)

    def upload(self, role: str, path: Path) -> Any:
        return self.do("PUT", f"/api/files/{role}?name={path.name}", path.read_bytes())

    def job(self, kind: str, choices: Any = None) -> Any:
        """Start a job and wait for its result."""
        return self.result(self.do("POST", "/api/jobs", {"kind": kind, "choices": choices})["id"])

    def result(self, id_: str) -> Any:
        job = self.ended(id_)
        assert job["state"] == "done", job
        return self.do("GET", f"/api/jobs/{id_}/result")

    def ended(self, id_: str, seconds: float = 180.0) -> Any:
        """A job once it has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            (job,) = [j for j in self.do("GET", "/api/state")["jobs"] if j["id"] == id_]
            if job["state"] in ("done", "failed", "cancelled"):
                return job
            time.sleep(0.05)
        raise AssertionError(f"job {id_} did not end: {job}")

    def workers(self) -> set[int]:
        """The processes of its jobs, where /proc exists."""
        assert self.process is not None
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {
            int(pid)
            for thread in threads
            for pid in (thread / "children").read_text("utf-8").split()
        }

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(90)


@contextmanager
def serving(folder: Path, temporary: Path, *words: str) -> Iterator[Served]:
    """A workbench that was started in a folder, with a separate temporary folder."""
    temporary.mkdir(exist_ok=True)
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "flowveil", "serve", "--port", "0", "--no-open", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": path},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        found = re.search(r"http://\S+", line)
        if found is None:
            process.wait(10)
            raise AssertionError(process.stderr.read() if process.stderr else line)
        yield Served(process, found[0], temporary)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(90)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


class _GivenUpError(BaseException):
    """The job was cancelled; no part of the work may take it for a failure."""


class _Thread:
    """What `flowveil.apps.workbench.jobs` sees of a process, done by a thread."""

    #: One after the other: processes have separate memories, threads do not.
    _turn = threading.Lock()

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.stdin, self.stdout = self, asyncio.StreamReader()
        self._loop, self._gone = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(_GivenUpError):
            while line := self._tasks.get():
                task = json.loads(line)
                with self._turn:
                    work.run_task(task, work.Progress(_Answers(self), task["job"]))

    def write(self, line: bytes) -> None:
        self._tasks.put(line)

    async def drain(self) -> None: ...

    async def wait(self) -> None:
        await self._gone.wait()

    def hear(self, text: str) -> None:
        if self.returncode is not None:
            raise _GivenUpError
        # The server may have ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(
                lambda: self.returncode is None and self.stdout.feed_data(text.encode())
            )

    def kill(self) -> None:
        self.returncode = -9
        self.stdout.feed_eof()
        self._gone.set()
        self._tasks.put(b"")


@dataclass
class _Answers:
    """Reports the progress of a task; raises where the task was cancelled."""

    thread: _Thread

    def write(self, text: str) -> None:
        self.thread.hear(text)

    def flush(self) -> None: ...


class _Here(jobs._Process):
    """Replaces a process by nothing."""

    @classmethod
    async def start(cls, room: Path) -> _Here:  # noqa: ARG003
        return cls(_Thread())  # type: ignore[arg-type]

    def end(self) -> None:
        if self.busy is not None:
            self.busy.cancel()
        if not self.ended:
            self._process.kill()


@contextmanager
def serving_here(
    folder: Path,
    temporary: Path,
    *,
    max_upload: int = 2 * 10**9,
    demo_people: int = 3_320,
    ledger: Path | None = None,
    open_browser: bool = False,
) -> Iterator[Served]:
    """The same in this process: a thread serves, and others do the jobs."""
    import uvicorn

    from flowveil.apps.workbench.server import serve

    temporary.mkdir(exist_ok=True)
    servers: list[uvicorn.Server] = []
    addresses: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Server(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.append(self)

    loggers = [
        logging.getLogger(name)
        for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio")
    ]
    disabled = [logger.disabled for logger in loggers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        patch.setattr(jobs, "_Process", _Here)
        patch.setattr(uvicorn, "Server", Server)
        running = threading.Thread(
            target=serve,
            args=(folder,),
            kwargs={
                **{
                    "max_upload": max_upload,
                    "demo_people": demo_people,
                    "ledger": ledger,
                    "ready": addresses.put,
                },
                "open_browser": open_browser,
            },
            daemon=True,
        )
        running.start()
        try:
            yield Served(None, addresses.get(timeout=90), temporary)
        finally:
            for server in servers:
                server.should_exit = True
            running.join(90)
            for logger, was in zip(loggers, disabled, strict=True):
                logger.disabled = was
