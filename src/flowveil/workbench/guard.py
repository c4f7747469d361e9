"""Access control of the workbench: checks every request before the application sees it.

The server gives access to raw trips, and every page in the same browser can send requests to it. Therefore

- a request must carry the session cookie, which is given once for each token (`Door.redeem`);
- the Host header must name this server (DNS rebinding), and requests that change state must come from its pages (CSRF);
- bodies are limited in size and must keep arriving;
- answers forbid inline scripts, requests to other hosts, framing and caching, and contain no tracebacks, which could
  quote a row.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from markupsafe import Markup

from flowveil.errors import FlowveilError
from flowveil.published.document import fill

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Upper bound in bytes for a request body that is not an upload.
MOST_ASKED = 1 << 20
#: Seconds for which a body may pause, and the lowest mean rate in bytes per second.
PAUSE, SLOWEST = 20.0, 10_000
#: Content security policy of the workbench: no inline code, no other hosts, no frames.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: A report contains its script. The sandbox gives it an opaque origin, so it cannot send requests to this server.
POLICY_OF_REPORTS = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_STYLE = (
    "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem;color:#1c2430;"
    "background:#fff}a{color:#0b5cad}@media(prefers-color-scheme:dark){body{color:#e8ecf1;background:#14181d}a{color:#8ec5ff}}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: Headers of the pages that are shown without the cookie, which cannot load the style sheet.
_HEADERS_OF_NOTICES = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
}
_REFUSALS = {
    "no token": "This page needs the address that flowveil serve has printed in its terminal. It ends with ?token=... "
    "and works once. Copy it from there; if the terminal is closed, run flowveil serve again.",
    "used": "This address works once and was already used. If the workbench is open in another window of this browser, "
    "use that window. Otherwise stop flowveil serve with Ctrl-C and start it again: it prints a new address.",
    "unknown": "This address is incomplete, or belongs to a workbench that has stopped. Open the address that flowveil "
    "serve has printed last; if it is not running, start it again.",
}
#: Hosts that mean all addresses of the machine.
_ANY = ("0.0.0.0", "::", "")
_OTHER_PAGE = "This request comes from another page."
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
    """A request that is refused, with its HTTP status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, eq=False)
class Door:
    """Where a server listens, the largest file that it takes in bytes, and who may enter: tokens and the cookie."""

    host: str
    port: int
    max_upload: int
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    _unused: set[str] = field(default_factory=set, repr=False)
    _used: set[str] = field(default_factory=set, repr=False)

    def new_address(self) -> str:
        """Returns an address of the server with a token that works once."""
        token = secrets.token_urlsafe(32)
        self._unused.add(token)
        shown = "127.0.0.1" if self.host in _ANY else self.host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/?token={token}"

    def redeem(self, token: str) -> bool:
        """Whether a token gives access. It never does so again."""
        found = [known for known in self._unused if _same(token, known)]
        self._unused.difference_update(found)
        self._used.update(found)
        return bool(found)

    def is_used(self, token: str) -> bool:
        """Whether a token was redeemed before."""
        return any(_same(token, known) for known in self._used)

    @property
    def cookie_name(self) -> str:
        """Contains the port: browsers send a cookie to every port of a host, and two servers must not share one."""
        return f"flowveil_{self.port}"

    def is_at(self, host: str) -> bool:
        """Whether a Host header is the address of this server. Other names are refused: DNS can point any name here."""
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        if self.host not in _ANY:
            return name in {self.host, f"[{self.host}]", *(("localhost",) if self.host == "127.0.0.1" else ())}
        try:
            return bool(ipaddress.ip_address(name.strip("[]")))
        except ValueError:
            return name == "localhost"


class Guard:
    """ASGI application that passes on the requests that are allowed."""

    def __init__(self, app: App, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or refuses it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        began = False

        async def answer(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                present = {name.decode().lower() for name, _ in message["headers"]}
                added = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            if await self._let_in(scope, answer):
                await self._app(scope, _Body(scope, receive, self._door.max_upload).receive, answer)
        except Exception as problem:
            if not began:
                await _send(answer, *refusal(scope, *in_answer(problem)))

    async def _let_in(self, scope: Scope, answer: Send) -> bool:
        """Whether the application may see the request; RefusedError if not. Requests with a token are answered here."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1 or not self._door.is_at(hosts[0]):
            raise RefusedError(421, "This host is not served here.")
        own, fields = f"http://{hosts[0]}", dict(headers)
        if "origin" in fields and fields["origin"] != own:
            raise RefusedError(403, _OTHER_PAGE)
        # Cookies of other programs on this host may come too, in any syntax.
        cookies = (part.strip().partition("=") for part in fields.get("cookie", "").split(";"))
        has_cookie = any(n == self._door.cookie_name and _same(value, self._door.cookie) for n, _, value in cookies)
        tokens: list[str] = []
        if scope["path"] == "/" and scope["method"] == "GET":
            tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
            # Checked before Sec-Fetch-Site: the local file that opens the browser is another site.
            if len(tokens) == 1 and self._door.redeem(tokens[0]):
                await self._enter(answer)
                return False
        if scope["method"] not in ("GET", "HEAD") and fields.get("origin") != own:
            raise RefusedError(403, _OTHER_PAGE)
        if not has_cookie:
            used = any(self._door.is_used(token) for token in tokens)
            raise RefusedError(403, _REFUSALS["used" if used else "unknown" if tokens else "no token"])
        if fields.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RefusedError(403, _OTHER_PAGE)
        if tokens:
            # A reload of the address: the cookie suffices, and the token leaves the address bar.
            await _send(answer, 303, {"location": "/"}, b"")
        return not tokens

    async def _enter(self, answer: Send) -> None:
        """Sets the cookie and forwards to the workbench.

        By a page: after a redirect the request would still count as one from another site, without the cookie.
        """
        cookie = f"{self._door.cookie_name}={self._door.cookie}; HttpOnly; SameSite=Strict; Path=/"
        page = notice("Opening the workbench", "This takes a moment.", forward="/")
        await _send(answer, 200, {**_HEADERS_OF_NOTICES, "set-cookie": cookie}, page)


def _same(one: str, two: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), two.encode())


def in_answer(problem: Exception) -> tuple[int, str]:
    """Status code and message of a failure."""
    if isinstance(problem, FlowveilError):
        return getattr(problem, "status", 400), str(problem)
    # The message of any other error may quote a row.
    return 500, f"Unexpected {type(problem).__name__}."


def notice(title: str, text: str, *, forward: str = "") -> bytes:
    """Returns a page with one message that needs no other file; it goes on to the address `forward` without a click."""
    return str(fill("notice.html", title=title, text=text, forward=forward, style=Markup(_STYLE))).encode()


def refusal(scope: Scope, status: int, message: str) -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and body of a refusal: a page for a browser that navigates, JSON for scripts."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    # The connection is closed: the unread rest of a body would be parsed as the next request.
    if b"text/html" not in accepted or scope["path"].startswith(("/api/", "/static/")):
        headers = {"content-type": "application/json", "connection": "close"}
        return status, headers, json.dumps({"error": message}).encode()
    title = "The workbench is not open here" if status == 403 else "This page cannot be shown"
    return status, {**_HEADERS_OF_NOTICES, "connection": "close"}, notice(title, message)


async def _send(answer: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    fields = [(n.encode(), v.encode()) for n, v in {**headers, "content-length": str(len(body))}.items()]
    await answer({"type": "http.response.start", "status": status, "headers": fields})
    await answer({"type": "http.response.body", "body": body})


class _Body:
    """Receives the body of a request and limits its size and duration."""

    def __init__(self, scope: Scope, receive: Receive, max_upload: int) -> None:
        self._most, self._too_large = MOST_ASKED, "The request is too large."
        if scope["method"] == "PUT":
            self._most = max_upload
            self._too_large = (
                f"The file is larger than {max_upload:,} bytes, the most that is taken. Hint: start flowveil serve "
                "with --max-upload, or in the folder of the file, and pick it there."
            )
        self._receive, self._got, self._complete = receive, 0, False
        self._began = asyncio.get_running_loop().time()
        # The server has checked that it is a number.
        if int(dict(scope["headers"]).get(b"content-length", b"0")) > self._most:
            raise RefusedError(413, self._too_large)

    async def receive(self) -> Message:
        """Returns the next chunk; RefusedError if the body is too large or too slow."""
        if self._complete:
            # The next message is the disconnect of the client, which has no time limit.
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
