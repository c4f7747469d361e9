"""Routes of the workbench. Every request has passed the guard; its content is checked where it is used."""

from __future__ import annotations

import inspect
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from flowveil.errors import FlowveilError, ParameterError, speaking_of_flags
from flowveil.published.document import asset, module
from flowveil.workbench.choices import choices_in_recipe, index
from flowveil.workbench.guard import POLICY_OF_REPORTS, Door, Guard, RefusedError, refusal
from flowveil.workbench.jobs import DONE, Job
from flowveil.workbench.session import ENDINGS, STARTED, File, Session, listing, suffix_of

_TYPES = {".css": "text/css", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
#: Jobs on a published release: type and name of the file that each makes.
FOLLOW_UPS = {
    "analysis": ("application/zip", "analysis.zip"),
    "dpia": ("text/markdown", "dpia.md"),
    "derive": ("application/zip", "derived.zip"),
}

#: An answer: None for the state of the session.
Answer = Response | Job | dict[str, Any] | None


def workbench(room: Path, root: Path, door: Door, *, demo_people: int = 3_320, ledger: Path | None = None) -> ASGIApp:
    """Returns the app behind its guard.

    Args:
        room, root: the private folder, and the folder below which files can be picked.
        door: access rules.
        demo_people: number of people in the demonstration data.
        ledger: folder of the ledger; None without one.
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
                asked = {**await _content(request), **request.path_params} if method == "POST" else request
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
    return answer if isinstance(answer, Response) else JSONResponse(session.state() if answer is None else answer)


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
    folder = files("flowveil.workbench") / "static"
    found = {entry.name: (entry.read_bytes(), _TYPES[os.path.splitext(entry.name)[1]]) for entry in folder.iterdir()}
    found["map.mjs"] = module("map").encode(), _TYPES[".mjs"]
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
    if role == "release" or not isinstance(path, str):
        raise ParameterError("A file must be named by its path below the folder.")
    session.pick(role, path)
    return None


async def _upload(session: Session, request: Request) -> Answer:
    """Streams an uploaded file into the private folder."""
    role = _role(request.path_params["role"])
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
    session.set_file(role, File(target, name, kept=False))
    return None


def _role(role: Any) -> str:
    if role not in ENDINGS:
        raise RefusedError(404, "This kind of file is unknown.")
    return str(role)


def _save_recipe(session: Session, _: Request) -> Answer:
    headers = {"content-disposition": 'attachment; filename="recipe.toml"'}
    return Response(session.recipe(), media_type="text/plain; charset=utf-8", headers=headers)


def _open_recipe(session: Session, asked: dict[str, Any]) -> Answer:
    if not isinstance(asked.get("text"), str):
        raise ParameterError("A recipe must be a text.")
    session.choose(choices_in_recipe(asked["text"]))
    return None


def _start(session: Session, asked: dict[str, Any]) -> Answer:
    kind = asked.get("kind")
    if kind == "candidates":
        return session.compare_pins()
    if kind == "slice":
        return session.slice_map(asked.get("run"), asked.get("slice"))
    if isinstance(kind, str) and kind in FOLLOW_UPS:
        return session.follow_up(kind, asked.get("release"), asked.get("derive"))
    if kind not in STARTED:
        raise ParameterError("This kind of job is unknown.")
    if kind == "preview" and asked.get("keep") is True:
        # Choices and their preview change together; otherwise a second page would start another preview.
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
    if job.state != DONE or not place.exists():
        raise RefusedError(404, "This job has no such file.")
    return FileResponse(place, media_type=kind, filename=name)


def _publish(session: Session, asked: dict[str, Any]) -> Answer:
    signer = asked.get("signer")
    return session.publish(
        read=asked.get("read") is True,
        accepted=asked.get("accepted") is True,
        signer=signer if isinstance(signer, str) else "",
    )


def _release_file(session: Session, request: Request) -> Answer:
    """Sends a release, its report in a sandbox, or its private certificate with the sentence that was signed."""
    folder, name = Path(session.release(request.path_params["id"])["folder"]), request.path_params["name"]
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
    "/api/recipe": _save_recipe,
    "/api/jobs/{id}/result": _job_file,
    "/api/jobs/{id}/file": _job_file,
    "/releases/{id}/{name}": _release_file,
}
_CHANGES: dict[str, Callable[[Session, dict[str, Any]], Answer]] = {
    "/api/pick": _pick,
    "/api/empty": lambda here, asked: here.remove_zones() if asked.get("role") == "zones" else here.empty(),
    "/api/choices": lambda here, asked: here.choose(asked),
    "/api/recipe": _open_recipe,
    "/api/jobs": _start,
    "/api/jobs/{id}/cancel": _cancel,
    "/api/pins": lambda here, asked: (here.unpin if asked.get("away") else here.pin)(asked.get("id")),
    "/api/publish": _publish,
    "/api/remove-release": lambda here, asked: here.remove_release(asked.get("id")),
}
