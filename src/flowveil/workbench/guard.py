"""Who may ask, how much and how slowly: what every request passes before anything else sees it.

Raw trips lie behind this server, and every page that is open in the same browser can send requests to it. So a request
must carry the cookie that only the token in the printed address buys; it must name this server as its host, or a
foreign name that was pointed at 127.0.0.1 could read the answers (DNS rebinding); whatever changes something must come
from a page of this server (CSRF). Bodies are counted while they arrive and have to keep arriving. Answers forbid inline
scripts, foreign requests and framing, are kept by no cache, and never hold a trace of a failure: it could quote a row.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from flowveil.errors import FlowveilError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Most bytes of a body that is no upload.
MOST_ASKED = 1 << 20
#: Seconds for which a body may pause, and bytes a second that it must bring in the long run.
PAUSE, SLOWEST = 20.0, 10_000
#: What every page of the workbench may do. Nothing inline, nothing from elsewhere, in no frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: A report has its script inside. Sandboxed, it is a stranger to this server: it can neither ask nor be answered.
POLICY_OF_REPORTS = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class RefusedError(FlowveilError):
    """A request that is not answered.

    Attributes:
        status: the code of HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Door:
    """What opens the workbench.

    Attributes:
        host, port: where it listens.
        max_upload: most bytes of one file.
        token: in the address that is printed.
        cookie: what a browser gets for it.
    """

    host: str
    port: int
    max_upload: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def address(self) -> str:
        """The address to open, token included."""
        shown = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """Cookies do not know ports, so two workbenches need two names."""
        return f"flowveil_{self.port}"

    def is_at(self, host: str) -> bool:
        """Whether a Host header names this server: by its address, never by a name that anybody may point at it."""
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        if self.host in ("0.0.0.0", "::", ""):
            return _is_address(name.strip("[]"))
        return name in {self.host, f"[{self.host}]", *(("localhost",) if self.host == "127.0.0.1" else ())}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


class Guard:
    """The app behind the door."""

    def __init__(self, app: App, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        began = False

        async def answer(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                said = {name.decode().lower() for name, _ in message["headers"]}
                added = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n not in said]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            if await self._let_in(scope, answer):
                await self._app(scope, _Body(scope, receive, self._door.max_upload).receive, answer)
        except Exception as problem:
            if not began:
                await _say(answer, *in_answer(problem))

    async def _let_in(self, scope: Scope, answer: Send) -> bool:
        """Whether the app may see the request; the token alone is answered here, by a cookie.

        Raises:
            RefusedError: it may not.
        """
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1 or not self._door.is_at(hosts[0]):
            raise RefusedError(421, "This is not the host that was asked for.")
        own, said = f"http://{hosts[0]}", dict(headers)
        changes = scope["method"] not in ("GET", "HEAD")
        if ("origin" in said or changes) and said.get("origin") != own:
            raise RefusedError(403, "This request comes from another page.")
        if said.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RefusedError(403, "This request comes from another page.")
        if scope["path"] == "/" and scope["method"] == "GET":
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
            if len(given) == 1 and _same(given[0], self._door.token):
                await _redirect(answer, f"{self._door.cookie_name}={self._door.cookie}")
                return False
        given = _cookies(said.get("cookie", ""), self._door.cookie_name)
        if not any(_same(value, self._door.cookie) for value in given):
            raise RefusedError(403, "Open the address that flowveil serve has printed, with its token.")
        return True


def _same(one: str, two: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), two.encode())


def _cookies(header: str, name: str) -> list[str]:
    """The values of a cookie, whatever stands beside it.

    Cookies know no ports: those of other programs of this machine come too, in forms that no parser takes, or by the
    same name.
    """
    return [value for part in header.split(";") for key, _, value in [part.strip().partition("=")] if key == name]


def in_answer(problem: Exception) -> tuple[int, str]:
    """The code and the words with which a failure is answered."""
    if isinstance(problem, FlowveilError):
        return getattr(problem, "status", 400), str(problem)
    # The message of a foreign error may quote a row: name its kind and nothing else.
    return 500, f"Unexpected {type(problem).__name__}."


async def _redirect(answer: Send, cookie: str) -> None:
    headers = [
        (b"location", b"/"),
        (b"set-cookie", f"{cookie}; HttpOnly; SameSite=Strict; Path=/".encode()),
        (b"content-length", b"0"),
    ]
    await answer({"type": "http.response.start", "status": 303, "headers": headers})
    await answer({"type": "http.response.body", "body": b""})


async def _say(answer: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    # What was not read of the body would be taken for the next request.
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await answer({"type": "http.response.start", "status": status, "headers": headers})
    await answer({"type": "http.response.body", "body": body})


class _Body:
    """The body of a request, counted and timed while it arrives."""

    def __init__(self, scope: Scope, receive: Receive, max_upload: int) -> None:
        upload = scope["method"] == "PUT"
        self._most = max_upload if upload else MOST_ASKED
        self._too_large = (
            f"The file is larger than {in_words(max_upload)}, the most that is taken. Hint: start flowveil serve with "
            "--max-upload, or in the folder of the file, and pick it there."
            if upload
            else "The request is too large."
        )
        self._receive, self._got, self._complete = receive, 0, False
        self._began = asyncio.get_running_loop().time()
        length = dict(scope["headers"]).get(b"content-length", b"0")
        # The server has checked that it is a number.
        if int(length) > self._most:
            raise RefusedError(413, self._too_large)

    async def receive(self) -> Message:
        """The next part.

        Raises:
            RefusedError: there is too much of it, or it comes too slowly.
        """
        if self._complete:
            # What comes now is the news that the browser has gone, which may take as long as it likes.
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), PAUSE)
        except TimeoutError:
            raise RefusedError(408, "The request took too long.") from None
        self._got += len(message.get("body", b""))
        if self._got > self._most:
            raise RefusedError(413, self._too_large)
        if asyncio.get_running_loop().time() - self._began > PAUSE + self._got / SLOWEST:
            raise RefusedError(408, "The request took too long.")
        self._complete = not message.get("more_body", False)
        return message


def in_words(size: int) -> str:
    """A size for people: 500 MB, 2 GB."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:,.3g} {name}"
    return f"{size} bytes"
