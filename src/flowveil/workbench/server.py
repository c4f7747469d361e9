"""Routes of the workbench. Every request has passed the guard; its content is checked where it is used."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from flowveil.errors import FlowveilError, ParameterError, speaking_of_flags
from flowveil.published.document import asset, module
from flowveil.workbench.choices import choices_in_recipe
from flowveil.workbench.guard import POLICY_OF_REPORTS, App, Door, Guard, RefusedError, in_answer, refusal
from flowveil.workbench.jobs import DONE, Job
from flowveil.workbench.pages import index
from flowveil.workbench.session import STARTED, File, Session
from flowveil.workbench.workspace import TRIPS, ZONES, suffix_of

_TYPES = {".css": "text/css", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
#: Jobs on a published release: type and name of the file that each makes.
FOLLOW_UPS = {
    "analysis": ("application/zip", "analysis.zip"),
    "dpia": ("text/markdown", "dpia.md"),
    "derive": ("application/zip", "derived.zip"),
}
_ROLES = ("trips", "zones", "release")
_NOT_AN_OBJECT = "Requests must be JSON objects."


def workbench(room: Path, root: Path, door: Door, *, demo_people: int = 3_320, ledger: Path | None = None) -> App:
    """Returns the app behind its guard.

    Args:
        room: the private folder.
        root: the folder below which files can be picked.
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

    def at(handler: Callable[[Session, Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            # Messages name settings by flag, which the page replaces by the label of the field.
            with speaking_of_flags():
                return await handler(session[0], request)

        return handle

    async def demo(here: Session, _: Request) -> Response:
        return _job(here.demo(demo_people))

    app = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/", at(_page), methods=["GET"]),
            Route("/static/{name}", at(_static), methods=["GET"]),
            Route("/api/state", at(_state), methods=["GET"]),
            Route("/api/events", at(_events), methods=["GET"]),
            Route("/api/browse", at(_browse), methods=["GET"]),
            Route("/api/files/{role}", at(_upload), methods=["PUT"]),
            Route("/api/pick", at(_pick), methods=["POST"]),
            Route("/api/demo", at(demo), methods=["POST"]),
            Route("/api/empty", at(_empty), methods=["POST"]),
            Route("/api/choices", at(_choices), methods=["POST"]),
            Route("/api/recipe", at(_save_recipe), methods=["GET"]),
            Route("/api/recipe", at(_open_recipe), methods=["POST"]),
            Route("/api/jobs", at(_start), methods=["POST"]),
            Route("/api/jobs/{id}/cancel", at(_cancel), methods=["POST"]),
            Route("/api/jobs/{id}/result", at(_result), methods=["GET"]),
            Route("/api/jobs/{id}/file", at(_job_file), methods=["GET"]),
            Route("/api/pins", at(_pin), methods=["POST"]),
            Route("/api/publish", at(_publish), methods=["POST"]),
            Route("/api/remove-release", at(_remove_release), methods=["POST"]),
            Route("/releases/{id}/release.zip", at(_download), methods=["GET"]),
            Route("/releases/{id}/report.html", at(_report), methods=["GET"]),
            Route("/releases/{id}/certificate.html", at(_certificate), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _not_found, FlowveilError: _failed, Exception: _failed},
    )
    return Guard(app, door)


async def _not_found(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    headers, body = refusal(request.scope, problem.status_code, problem.detail)
    return Response(body, problem.status_code, headers)


async def _failed(request: Request, problem: Exception) -> Response:
    status, message = in_answer(problem)
    headers, body = refusal(request.scope, status, message)
    return Response(body, status, headers)


async def _content(request: Request) -> dict[str, Any]:
    """Returns the JSON object of a request.

    Raises:
        ParameterError: the body is not a JSON object.
    """
    try:
        content = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise ParameterError(_NOT_AN_OBJECT) from None
    if not isinstance(content, dict):
        raise ParameterError(_NOT_AN_OBJECT)
    return content


def _job(job: Job) -> Response:
    return JSONResponse(job.to_dict(), 202)


# ---- pages -------------------------------------------------------------------------------------------------------


async def _page(_: Session, __: Request) -> Response:
    return Response(index(), media_type="text/html")


@cache
def _static_files() -> dict[str, tuple[bytes, str]]:
    """Returns all static files by name, read once. No name leads to another file."""
    folder = files("flowveil.workbench") / "static"
    found = {entry.name: (entry.read_bytes(), _TYPES[os.path.splitext(entry.name)[1]]) for entry in folder.iterdir()}
    found["map.mjs"] = module("map").encode(), _TYPES[".mjs"]
    found["report.css"] = asset("page.css").encode(), _TYPES[".css"]
    return found


async def _static(_: Session, request: Request) -> Response:
    found = _static_files().get(request.path_params["name"])
    if found is None:
        raise RefusedError(404, "This file is unknown.")
    return Response(found[0], media_type=found[1])


async def _state(session: Session, _: Request) -> Response:
    return JSONResponse(session.state())


async def _events(session: Session, _: Request) -> Response:
    return StreamingResponse(session.listen(), media_type="text/event-stream")


# ---- files -------------------------------------------------------------------------------------------------------


async def _browse(session: Session, request: Request) -> Response:
    role = _role(request.query_params.get("role", "trips"))
    return JSONResponse({"entries": session.browse(role, request.query_params.get("path", ""))})


async def _pick(session: Session, request: Request) -> Response:
    content = await _content(request)
    path, role = content.get("path"), _role(content.get("role"))
    if role == "release" or not isinstance(path, str):
        raise ParameterError("A file must be named by its path below the folder.")
    session.pick(role, path)
    return JSONResponse(session.state())


async def _upload(session: Session, request: Request) -> Response:
    """Streams an uploaded file into the private folder."""
    role = _role(request.path_params["role"])
    name = request.query_params.get("name", "")
    if not name or len(name) > 255 or "/" in name or "\\" in name or not name.isprintable():
        raise ParameterError("The name of the file is missing or not allowed.")
    suffix = suffix_of(name, {"trips": TRIPS, "zones": ZONES, "release": (".zip",)}[role])
    target = session.room / "files" / f"{secrets.token_hex(8)}{suffix}"
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
        return _job(session.unpack(target, name))
    session.set_file(role, File(target, name, kept=False))
    return JSONResponse(session.state())


async def _empty(session: Session, request: Request) -> Response:
    if (await _content(request)).get("role") == "zones":
        session.remove_zones()
    else:
        session.empty()
    return JSONResponse(session.state())


def _role(role: Any) -> str:
    if role not in _ROLES:
        raise RefusedError(404, "This kind of file is unknown.")
    return str(role)


# ---- jobs --------------------------------------------------------------------------------------------------------


async def _choices(session: Session, request: Request) -> Response:
    session.choose(await _content(request))
    return JSONResponse(session.state())


async def _save_recipe(session: Session, _: Request) -> Response:
    headers = {"content-disposition": 'attachment; filename="recipe.toml"'}
    return Response(session.recipe(), media_type="text/plain; charset=utf-8", headers=headers)


async def _open_recipe(session: Session, request: Request) -> Response:
    text = (await _content(request)).get("text")
    if not isinstance(text, str):
        raise ParameterError("A recipe must be a text.")
    session.choose(choices_in_recipe(text))
    return JSONResponse(session.state())


async def _start(session: Session, request: Request) -> Response:
    content = await _content(request)
    kind = content.get("kind")
    if kind == "candidates":
        return _job(session.compare_pins())
    if kind == "slice":
        return _job(session.slice_map(content.get("run"), content.get("slice")))
    if isinstance(kind, str) and kind in FOLLOW_UPS:
        return _job(session.follow_up(kind, content.get("release"), content.get("derive")))
    if kind not in STARTED:
        raise ParameterError("This kind of job is unknown.")
    if kind == "preview" and content.get("keep") is True:
        # Choices and their preview change together; otherwise a second page would start another preview.
        session.choose(content.get("choices"))
        session.start(kind)
        return JSONResponse(session.state(), 202)
    return _job(session.start(kind, content.get("choices")))


def _find_job(session: Session, request: Request) -> Job:
    job = session.jobs.get(request.path_params["id"])
    if job is None:
        raise RefusedError(404, "This job is unknown.")
    return job


async def _cancel(session: Session, request: Request) -> Response:
    job = _find_job(session, request)
    session.jobs.cancel(job)
    return JSONResponse(job.to_dict())


async def _result(session: Session, request: Request) -> Response:
    job = _find_job(session, request)
    if job.state != DONE or not job.result.exists():
        raise RefusedError(404, "This job has no result.")
    return FileResponse(job.result, media_type="application/json")


async def _pin(session: Session, request: Request) -> Response:
    content = await _content(request)
    if not isinstance(content.get("id"), str):
        raise ParameterError("A run must be named by its id.")
    if content.get("away"):
        session.unpin(content["id"])
    else:
        session.pin(content["id"])
    return JSONResponse(session.state())


# ---- releases ----------------------------------------------------------------------------------------------------


async def _publish(session: Session, request: Request) -> Response:
    content = await _content(request)
    signer = content.get("signer")
    return _job(
        session.publish(
            read=content.get("read") is True,
            accepted=content.get("accepted") is True,
            signer=signer if isinstance(signer, str) else "",
        )
    )


async def _remove_release(session: Session, request: Request) -> Response:
    session.remove_release(str((await _content(request)).get("id")))
    return JSONResponse(session.state())


def _release(session: Session, request: Request) -> Path:
    return Path(session.own_release(request.path_params["id"])["folder"])


async def _download(session: Session, request: Request) -> Response:
    place = _release(session, request).with_suffix(".zip")
    return FileResponse(place, media_type="application/zip", filename="release.zip")


async def _report(session: Session, request: Request) -> Response:
    place = _release(session, request) / "report.html"
    return FileResponse(place, media_type="text/html", headers={"content-security-policy": POLICY_OF_REPORTS})


async def _certificate(session: Session, request: Request) -> Response:
    """Sends the private certificate, with the sentence that was signed."""
    place = _release(session, request).with_suffix(".certificate.html")
    return FileResponse(place, media_type="text/html", filename="certificate.html")


async def _job_file(session: Session, request: Request) -> Response:
    """Sends the file that a job on a published release has made."""
    job = _find_job(session, request)
    kind, name = FOLLOW_UPS.get(job.kind, ("", ""))
    place = job.result.with_suffix(Path(name).suffix)
    if job.state != DONE or not name or not place.exists():
        raise RefusedError(404, "This job has no file.")
    return FileResponse(place, media_type=kind, filename=name)
