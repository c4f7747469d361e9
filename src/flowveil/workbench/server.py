"""The addresses of the workbench. Every request has passed the guard; what it asks for is checked where it is used."""

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

from flowveil.errors import FlowveilError, ParameterError
from flowveil.published.document import asset, module
from flowveil.workbench.choices import choices_in_recipe
from flowveil.workbench.guard import POLICY_OF_REPORTS, App, Door, Guard, RefusedError, in_answer, refusal
from flowveil.workbench.jobs import DONE, Job
from flowveil.workbench.pages import index
from flowveil.workbench.session import STARTED, Desk, File
from flowveil.workbench.workspace import TRIPS, ZONES, suffix_of

_TYPES = {".css": "text/css", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
_ROLES = ("trips", "zones", "release")
#: Most that a page may say at once.
_DEEPEST = "Requests are JSON objects."


def workbench(room: Path, root: Path, door: Door, *, demo_people: int = 3_320, ledger: Path | None = None) -> App:
    """The app, behind its guard.

    Args:
        room: the private folder.
        root: the folder below which files can be picked.
        door: who may enter.
        demo_people: people of the demonstration.
        ledger: the folder that remembers all releases of the data set.
    """
    desk: list[Desk] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        desk.append(Desk(room, root, door.max_upload, ledger))
        try:
            yield
        finally:
            await desk[0].close()

    def at(handler: Callable[[Desk, Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return await handler(desk[0], request)

        return handle

    async def demo(here: Desk, _: Request) -> Response:
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
            Route("/api/pins", at(_pin), methods=["POST"]),
            Route("/api/publish", at(_publish), methods=["POST"]),
            Route("/api/forget", at(_forget), methods=["POST"]),
            Route("/releases/{id}/release.zip", at(_download), methods=["GET"]),
            Route("/releases/{id}/report.html", at(_report), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _not_found, FlowveilError: _failed},
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


async def _said(request: Request) -> dict[str, Any]:
    """The object that a request carries.

    Raises:
        ParameterError: it is none.
    """
    try:
        content = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise ParameterError(_DEEPEST) from None
    if not isinstance(content, dict):
        raise ParameterError(_DEEPEST)
    return content


def _job(job: Job) -> Response:
    return JSONResponse(job.to_dict(), 202)


# ---- pages -------------------------------------------------------------------------------------------------------


async def _page(_: Desk, __: Request) -> Response:
    return Response(index(), media_type="text/html")


@cache
def _static_files() -> dict[str, tuple[bytes, str]]:
    """Everything that can be fetched, by name: there is no way from a name to another file."""
    folder = files("flowveil.workbench") / "static"
    found = {entry.name: (entry.read_bytes(), _TYPES[os.path.splitext(entry.name)[1]]) for entry in folder.iterdir()}
    found["map.mjs"] = module("map").encode(), _TYPES[".mjs"]
    found["report.css"] = asset("page.css").encode(), _TYPES[".css"]
    return found


async def _static(_: Desk, request: Request) -> Response:
    found = _static_files().get(request.path_params["name"])
    if found is None:
        raise RefusedError(404, "There is no such file.")
    return Response(found[0], media_type=found[1])


async def _state(desk: Desk, _: Request) -> Response:
    return JSONResponse(desk.state())


async def _events(desk: Desk, _: Request) -> Response:
    return StreamingResponse(desk.listen(), media_type="text/event-stream")


# ---- files -------------------------------------------------------------------------------------------------------


async def _browse(desk: Desk, request: Request) -> Response:
    role = _role(request.query_params.get("role", "trips"))
    return JSONResponse({"entries": desk.browse(role, request.query_params.get("path", ""))})


async def _pick(desk: Desk, request: Request) -> Response:
    said = await _said(request)
    path, role = said.get("path"), _role(said.get("role"))
    if role == "release" or not isinstance(path, str):
        raise ParameterError("A file is picked by its path below the folder.")
    desk.pick(role, path)
    return JSONResponse(desk.state())


async def _upload(desk: Desk, request: Request) -> Response:
    """Take a file as it comes, block by block, into the private folder."""
    role = _role(request.path_params["role"])
    name = request.query_params.get("name", "")
    if not name or len(name) > 255 or "/" in name or "\\" in name or not name.isprintable():
        raise ParameterError("The name of the file is missing or cannot be.")
    suffix = suffix_of(name, {"trips": TRIPS, "zones": ZONES, "release": (".zip",)}[role])
    target = desk.room / "files" / f"{secrets.token_hex(8)}{suffix}"
    try:
        with open(target, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            async for block in request.stream():
                file.write(block)
    except BaseException as problem:
        target.unlink(missing_ok=True)
        if isinstance(problem, ClientDisconnect):
            raise RefusedError(400, "The file did not arrive whole.") from None
        if isinstance(problem, OSError):
            raise RefusedError(507, "There is no room for the file on this machine.") from None
        raise
    if role == "release":
        return _job(desk.unpack(target, name))
    desk.place(role, File(target, name, kept=False))
    return JSONResponse(desk.state())


async def _empty(desk: Desk, request: Request) -> Response:
    if (await _said(request)).get("role") == "zones":
        desk.remove_zones()
    else:
        desk.empty()
    return JSONResponse(desk.state())


def _role(role: Any) -> str:
    if role not in _ROLES:
        raise RefusedError(404, "There is no such kind of file.")
    return str(role)


# ---- jobs --------------------------------------------------------------------------------------------------------


async def _choices(desk: Desk, request: Request) -> Response:
    desk.choose(await _said(request))
    return JSONResponse(desk.state())


async def _save_recipe(desk: Desk, _: Request) -> Response:
    headers = {"content-disposition": 'attachment; filename="recipe.toml"'}
    return Response(desk.recipe(), media_type="text/plain; charset=utf-8", headers=headers)


async def _open_recipe(desk: Desk, request: Request) -> Response:
    text = (await _said(request)).get("text")
    if not isinstance(text, str):
        raise ParameterError("A recipe is a text.")
    desk.choose(choices_in_recipe(text))
    return JSONResponse(desk.state())


async def _start(desk: Desk, request: Request) -> Response:
    said = await _said(request)
    kind = said.get("kind")
    if kind == "beside":
        return _job(desk.beside())
    if kind not in STARTED:
        raise ParameterError(f"Jobs are {', '.join(STARTED)} and beside.")
    if kind == "preview" and said.get("keep") is True:
        # Choices and their preview are seen together, or a second page would find choices that nobody tries.
        desk.choose(said.get("choices"))
        desk.start(kind)
        return JSONResponse(desk.state(), 202)
    return _job(desk.start(kind, said.get("choices")))


def _found(desk: Desk, request: Request) -> Job:
    job = desk.jobs.get(request.path_params["id"])
    if job is None:
        raise RefusedError(404, "There is no such job.")
    return job


async def _cancel(desk: Desk, request: Request) -> Response:
    job = _found(desk, request)
    desk.jobs.cancel(job)
    return JSONResponse(job.to_dict())


async def _result(desk: Desk, request: Request) -> Response:
    job = _found(desk, request)
    if job.state != DONE or not job.result.exists():
        raise RefusedError(404, "There is no result.")
    return FileResponse(job.result, media_type="application/json")


async def _pin(desk: Desk, request: Request) -> Response:
    said = await _said(request)
    if not isinstance(said.get("id"), str):
        raise ParameterError("A run is pinned by its name.")
    if said.get("away"):
        desk.unpin(said["id"])
    else:
        desk.pin(said["id"])
    return JSONResponse(desk.state())


# ---- releases ----------------------------------------------------------------------------------------------------


async def _publish(desk: Desk, request: Request) -> Response:
    said = await _said(request)
    return _job(desk.publish(read=said.get("read") is True, accepted=said.get("accepted") is True))


async def _forget(desk: Desk, request: Request) -> Response:
    desk.forget(str((await _said(request)).get("id")))
    return JSONResponse(desk.state())


def _release(desk: Desk, request: Request) -> Path:
    for release in desk.releases:
        if release["id"] == request.path_params["id"] and release["own"]:
            return Path(release["folder"])
    raise RefusedError(404, "There is no such release.")


async def _download(desk: Desk, request: Request) -> Response:
    place = _release(desk, request).with_suffix(".zip")
    return FileResponse(place, media_type="application/zip", filename="release.zip")


async def _report(desk: Desk, request: Request) -> Response:
    place = _release(desk, request) / "report.html"
    return FileResponse(place, media_type="text/html", headers={"content-security-policy": POLICY_OF_REPORTS})
