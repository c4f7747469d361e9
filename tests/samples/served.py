"""A workbench that runs in a process of its own, and a browser's part of the talk with it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Served:
    """A running workbench.

    Attributes:
        process: its process.
        address: what it printed, token included.
        port, token: the parts of it.
        temporary: where its private folder is.
        cookie: what a browser has, once it has entered.
    """

    process: subprocess.Popen[str]
    address: str
    temporary: Path
    cookie: str = ""
    port: int = field(init=False)
    token: str = field(init=False)

    def __post_init__(self) -> None:
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{40,})", self.address)
        assert found, self.address
        self.port, self.token = int(found[1]), found[2]

    @property
    def room(self) -> Path:
        (room,) = self.temporary.glob("flowveil-workbench-*")
        return room

    def enter(self) -> None:
        status, headers, _ = self.ask("GET", f"/?token={self.token}", cookie=False)
        assert status == 303
        self.cookie = headers["set-cookie"].partition(";")[0]

    def ask(
        self, method: str, path: str, content: Any = None, *, cookie: bool = True, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request as the page would make it, but for what is given; a header of None is left out."""
        sent: dict[str, Any] = {"Host": f"127.0.0.1:{self.port}", "Origin": f"http://127.0.0.1:{self.port}"}
        if cookie and self.cookie:
            sent["Cookie"] = self.cookie
        sent |= headers or {}
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
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

    def do(self, method: str, path: str, content: Any = None, *, expect: int | tuple[int, ...] = (200, 202)) -> Any:
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
        """The processes of its jobs, where /proc tells."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {int(pid) for thread in threads for pid in (thread / "children").read_text("utf-8").split()}

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(90)


@contextmanager
def serving(folder: Path, temporary: Path, *words: str) -> Iterator[Served]:
    """A workbench that was started in a folder, with a temporary folder of its own."""
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
