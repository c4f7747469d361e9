"""Routes of the workbench, and its process.

Every request has passed the guard; its content is checked on use.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import json
import logging
import os
import secrets
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from flowveil.apps.workbench.choices import index
from flowveil.apps.workbench.guard import (
    MOST_ASKED,
    POLICY_OF_DRAFTS,
    POLICY_OF_REPORTS,
    Door,
    Guard,
    RefusedError,
    notice,
    refusal,
)
from flowveil.apps.workbench.jobs import DONE, RUNNING, Job
from flowveil.apps.workbench.session import (
    ENDINGS,
    STARTED,
    UPLOADED,
    Session,
    SessionFile,
    below,
    listing,
    suffix_of,
)
from flowveil.core.errors import FlowveilError, OutputError, ParameterError, speaking_of_flags
from flowveil.published.document import asset
from flowveil.system.output import scratch_folder, write_files

_TYPES = {".css": "text/css", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
#: Jobs on a published release: type and name of the file that each makes.
FOLLOW_UPS = {
    "analysis": ("application/zip", "analysis.zip"),
    "dpia": ("text/markdown", "dpia.md"),
    "derive": ("application/zip", "derived.zip"),
}

#: An answer: None for the state of the session.
Answer = Response | Job | dict[str, Any] | None


def workbench(
    room: Path, root: Path, door: Door, *, demo_people: int = 3_320, ledger: Path | None = None
) -> ASGIApp:
    """Returns the app behind its guard.

    ``room`` is the private folder, files can be picked below ``root``.
    """
    session: list[Session] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        session.append(Session(room, root, door.max_upload, ledger))
        try:
            yield
        finally:
            await session[0].close()

    def at(path: str, handler: Callable[[Session, Any], Any], method: str = "GET") -> Route:
        async def handle(request: Request) -> Response:
            # Messages name settings by flag, which the page replaces by the label of the field.
            with speaking_of_flags():
                asked = (
                    {**await _content(request), **request.path_params}
                    if method == "POST"
                    else request
                )
                answer = handler(session[0], asked)
                return _respond(session[0], await answer if inspect.isawaitable(answer) else answer)

        return Route(path, handle, methods=[method])

    app = Starlette(
        lifespan=lifespan,
        routes=[
            *(at(path, handler) for path, handler in _SHOWN.items()),
            at("/api/files/{role}", _upload, "PUT"),
            *(at(path, handler, "POST") for path, handler in _CHANGES.items()),
            at("/api/demo", lambda here, _: here.demo(demo_people), "POST"),
        ],
        exception_handlers=dict.fromkeys((HTTPException, FlowveilError, Exception), refusal),
    )
    return Guard(app, door)


def _respond(session: Session, answer: Answer) -> Response:
    if isinstance(answer, Job):
        return JSONResponse(answer.to_dict(), 202)
    return (
        answer
        if isinstance(answer, Response)
        else JSONResponse(session.state() if answer is None else answer)
    )


async def _content(request: Request) -> dict[str, Any]:
    """Returns the JSON object of a request; ParameterError if the body is anything else."""
    content = None
    with suppress(ValueError, RecursionError):
        content = json.loads(await request.body())
    if not isinstance(content, dict):
        raise ParameterError("Requests must be JSON objects.")
    return content


@cache
def _static_files() -> dict[str, tuple[bytes, str]]:
    """Returns all static files by name, read once. No name leads to another file."""
    folder = files("flowveil.apps.workbench") / "static"
    found = {
        entry.name: (entry.read_bytes(), _TYPES[os.path.splitext(entry.name)[1]])
        for entry in folder.iterdir()
    }
    found["report.css"] = asset("page.css").encode(), _TYPES[".css"]
    return found


def _static(_: Session, request: Request) -> Answer:
    found = _static_files().get(request.path_params["name"])
    if found is None:
        raise RefusedError(404, "This file is unknown.")
    return Response(found[0], media_type=found[1])


def _browse(session: Session, request: Request) -> Answer:
    asked = request.query_params
    endings = ENDINGS[_role(asked.get("role", "trips"))]
    return {"entries": listing(session.root, asked.get("path", ""), endings)}


def _pick(session: Session, asked: dict[str, Any]) -> Answer:
    path, role = asked.get("path"), _role(asked.get("role"))
    if role in ("release", "ledger") or not isinstance(path, str):
        raise ParameterError("A file must be named by its path below the folder.")
    if role == "recipe":
        place = below(session.root, path)
        if place.stat().st_size > MOST_ASKED:
            raise RefusedError(413, "The file is too large for a recipe.")
        session.open_recipe(place.read_text(encoding="utf-8", errors="replace"), place.name)
    else:
        session.pick(role, path)
    return None


async def _upload(session: Session, request: Request) -> Answer:
    """Streams an uploaded file into the private folder."""
    role = _role(request.path_params["role"])
    if role not in UPLOADED:
        raise RefusedError(404, "This kind of file is unknown.")
    name = request.query_params.get("name", "")
    if not name or len(name) > 255 or "/" in name or "\\" in name or not name.isprintable():
        raise ParameterError("The name of the file is missing or not allowed.")
    target = session.room / "files" / f"{secrets.token_hex(8)}{suffix_of(name, ENDINGS[role])}"
    try:
        with open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            async for block in request.stream():
                file.write(block)
    except BaseException as problem:
        target.unlink(missing_ok=True)
        if isinstance(problem, ClientDisconnect):
            raise RefusedError(400, "The file did not arrive whole.") from None
        if isinstance(problem, OSError):
            raise RefusedError(507, "The disk of this machine is full.") from None
        raise
    if role == "release":
        return session.unpack(target, name)
    session.set_file(role, SessionFile(target, name, kept=False))
    return None


def _role(role: Any) -> str:
    if role not in ENDINGS:
        raise RefusedError(404, "This kind of file is unknown.")
    return str(role)


def _open_recipe(session: Session, asked: dict[str, Any]) -> Answer:
    if not isinstance(asked.get("text"), str):
        raise ParameterError("A recipe must be a text.")
    session.open_recipe(asked["text"], "the recipe")
    return None


def _same_again(session: Session, asked: dict[str, Any]) -> Answer:
    release = session.release(asked.get("id"))
    session.remember(release["choices"], release["title"])
    return None


def _start(session: Session, asked: dict[str, Any]) -> Answer:
    kind = asked.get("kind")
    if isinstance(kind, str) and kind in FOLLOW_UPS:
        return session.follow_up(kind, asked.get("release"), asked.get("derive"))
    if kind not in STARTED:
        raise ParameterError("This kind of job is unknown.")
    if kind == "run" and asked.get("keep") is True:
        # Choices and their run change together; otherwise a second page would start another run.
        session.choose(asked.get("choices"))
        session.start(kind)
        return JSONResponse(session.state(), 202)
    return session.start(kind, asked.get("choices"))


def _find_job(session: Session, id_: str) -> Job:
    job = session.jobs.get(id_)
    if job is None:
        raise RefusedError(404, "This job is unknown.")
    return job


def _cancel(session: Session, asked: dict[str, Any]) -> Answer:
    job = _find_job(session, asked["id"])
    session.jobs.cancel(job)
    return job.to_dict()


def _job_file(session: Session, request: Request) -> Answer:
    """Sends the result of a job, or the file that a job on a published release has made."""
    job = _find_job(session, request.path_params["id"])
    kind, name = "application/json", None
    if request.url.path.endswith("/file"):
        kind, name = FOLLOW_UPS.get(job.kind, ("", "none"))
    place = job.result.with_suffix(".json" if name is None else Path(name).suffix)
    # The chart of errors is shown while it grows.
    growing = job.kind == "errors" and job.state == RUNNING and name is None
    if not (job.state == DONE or growing) or not place.exists():
        raise RefusedError(404, "This job has no such file.")
    if growing:
        # At once: the file may be replaced while it is sent.
        return Response(place.read_bytes(), media_type=kind)
    return FileResponse(place, media_type=kind, filename=name)


def _draft(session: Session, request: Request) -> Answer:
    """Sends the page of a release that is tried, in a sandbox, for a frame of the workbench."""
    job = _find_job(session, request.path_params["id"])
    place = job.result.with_suffix(".html")
    if job.kind != "run" or job.state != DONE or not place.exists():
        raise RefusedError(404, "This job has no such file.")
    headers = {"content-security-policy": POLICY_OF_DRAFTS, "x-frame-options": "SAMEORIGIN"}
    return FileResponse(place, media_type="text/html", headers=headers)


def _publish(session: Session, asked: dict[str, Any]) -> Answer:
    signer = asked.get("signer")
    return session.publish(
        read=asked.get("read") is True,
        accepted=asked.get("accepted") is True,
        signer=signer if isinstance(signer, str) else "",
    )


def _release_file(session: Session, request: Request) -> Answer:
    """Sends a release, its report in a sandbox, or its private certificate with the sentence that
    was signed.
    """
    release, name = session.release(request.path_params["id"]), request.path_params["name"]
    folder = Path(release["folder"])
    if name == "recipe.toml":
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(release["recipe"], media_type="text/plain; charset=utf-8", headers=headers)
    if name == "release.zip":
        return FileResponse(folder.with_suffix(".zip"), media_type="application/zip", filename=name)
    if name == "report.html":
        policy = {"content-security-policy": POLICY_OF_REPORTS}
        return FileResponse(folder / name, media_type="text/html", headers=policy)
    if name == "certificate.html":
        return FileResponse(folder.with_suffix(f".{name}"), media_type="text/html", filename=name)
    raise RefusedError(404, "This file is unknown.")


_SHOWN: dict[str, Callable[[Session, Request], Answer]] = {
    "/": lambda _, __: Response(index(), media_type="text/html"),
    "/static/{name}": _static,
    "/api/state": lambda _, __: None,
    "/api/events": lambda here, _: StreamingResponse(here.listen(), media_type="text/event-stream"),
    "/api/browse": _browse,
    "/api/jobs/{id}/result": _job_file,
    "/api/jobs/{id}/file": _job_file,
    "/drafts/{id}/report.html": _draft,
    "/releases/{id}/{name}": _release_file,
}
_CHANGES: dict[str, Callable[[Session, dict[str, Any]], Answer]] = {
    "/api/pick": _pick,
    "/api/empty": lambda here, asked: (
        here.remove_zones() if asked.get("role") == "zones" else here.empty()
    ),
    "/api/choices": lambda here, asked: here.choose(asked),
    "/api/recipe": _open_recipe,
    "/api/jobs": _start,
    "/api/jobs/{id}/cancel": _cancel,
    "/api/same-again": _same_again,
    "/api/forget": lambda here, _: here.forget_last_time(),
    "/api/ledger": lambda here, asked: here.use_ledger(asked.get("path")),
    "/api/database": lambda here, asked: here.read_database(asked.get("address")),
    "/api/signing": lambda here, asked: here.note_signing(asked),
    "/api/publish": _publish,
    "/api/remove-release": lambda here, asked: here.remove_release(asked.get("id")),
}


# ---- the process ---------------------------------------------------------------------------------

#: Seconds after which an idle connection is closed.
IDLE_SECONDS = 20
#: Upper bound for open connections; further ones are refused.
MOST_CONNECTIONS = 600
#: Seconds within which the headers of a request must arrive.
HEAD_SECONDS = 10.0
#: No log, no headers about the server, no trust in headers of proxies.
_CONFIG: dict[str, Any] = {
    "ws": "none",
    "loop": "asyncio",
    "lifespan": "on",
    "log_config": None,
    **dict.fromkeys(("access_log", "server_header", "date_header", "proxy_headers"), False),
    **{
        "timeout_keep_alive": IDLE_SECONDS,
        "timeout_graceful_shutdown": 1,
        "limit_concurrency": MOST_CONNECTIONS,
    },
}
_FORWARDING = (
    "If nothing happens, flowveil serve was stopped: start it again, or open the address that it"
    " has printed."
)


def serve(
    root: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    max_upload: int,
    exposed: bool = False,
    demo_people: int = 3_320,
    ledger: Path | None = None,
    ready: Callable[[str], Any],
    open_browser: bool = False,
) -> None:
    """Serve the workbench until it is stopped; port 0 takes a free one.

    ``exposed`` confirms a host that other machines can reach; without it such a host is a
    ParameterError. ``ready`` is called with the address, token included, when it can be opened.
    """
    if not _is_loopback(host) and not exposed:
        raise ParameterError(
            f"--host {host} gives other machines access to raw trips, over a connection that is not"
            " encrypted. Hint: leave it out; if you mean it, add --i-know-this-exposes-raw-data."
        )
    # Addresses hold the token, and traces may quote rows: the server keeps no log.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio"):
        logging.getLogger(name).disabled = True
    with scratch_folder("flowveil-workbench-") as room, _listening(host, port) as listener:
        for name in ("files", "jobs", "releases", "tmp"):
            os.mkdir(room / name, 0o700)
        door = Door(host, listener.getsockname()[1], max_upload)
        app = workbench(room, root, door, demo_people=demo_people, ledger=ledger)
        server = uvicorn.Server(uvicorn.Config(app, http=HeaderTimeout, **_CONFIG))
        ready(door.new_address())
        if open_browser:
            # The browser gets the path of a file, readable by its owner only, that forwards with a
            # separate token: all users of the machine can read the command lines of processes, and
            # a token there would let them in.
            page = notice("Opening the workbench", _FORWARDING, forward=door.new_address())
            write_files({room / "open.html": page}, private=True)
            webbrowser.open((room / "open.html").as_uri())
        # To be stopped is how a server ends.
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listener]))


class HeaderTimeout(H11Protocol):
    """HTTP/1.1 connection that is closed if headers take longer than `HEAD_SECONDS`.

    Uvicorn limits idle ones only.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the timer."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stops the timer when the headers are complete, starts it when the next request begins."""
        super().data_received(data)
        if (
            self.conn.their_state is not h11.IDLE
            or self.cycle is None
            or self.cycle.response_complete
        ):
            self._watch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self.conn.their_state is h11.IDLE and self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; OutputError if it cannot."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or type(problem).__name__
        raise OutputError(
            f"Port {port} of {host} cannot be used: {reason}. Hint: --port 0 takes a free one."
        ) from None
