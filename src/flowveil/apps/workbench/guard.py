"""Access control of the workbench: checks every request before the application sees it.

The server gives access to raw trips, and every page in the same browser can send requests to it.
Therefore

- a request must carry the session cookie, which is given once for each token (`Door.redeem`);
- the Host header must name this server (DNS rebinding), and requests that change state must come
  from its pages (CSRF);
- bodies are limited in size and must keep arriving;
- answers forbid inline scripts, requests to other hosts, framing and caching, and contain no
  tracebacks, which could quote a row.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import secrets
from dataclasses import dataclass, field

from markupsafe import Markup
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowveil.core.errors import FlowveilError
from flowveil.published.document import fill

#: Upper bound in bytes for a request body that is not an upload.
MOST_ASKED = 1 << 20
#: Seconds for which a body may pause, and the lowest mean rate in bytes per second.
PAUSE, SLOWEST = 20.0, 10_000
#: Content security policy of the workbench: no inline code, no other hosts, own frames only.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: A report contains its script. The sandbox gives it an opaque origin, so it cannot send requests
#: to this server.
POLICY_OF_REPORTS = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src"
    " 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: The same in a frame of the workbench.
POLICY_OF_DRAFTS = POLICY_OF_REPORTS.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
_STYLE = (
    "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0"
    " 1rem;color:#1c2430;"
    "background:#fff}a{color:#0b5cad}@media(prefers-color-scheme:dark){body{color:#e8ecf1;background:#14181d}a{color:#8ec5ff}}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: Headers of the pages that are shown without the cookie, which cannot load the style sheet.
_HEADERS_OF_NOTICES = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
}
_REFUSALS = {
    "no token": (
        "This page needs the address that flowveil serve has printed in its terminal. It ends with"
        " ?token=... and works once. Copy it from there; if the terminal is closed, run flowveil"
        " serve again."
    ),
    "used": (
        "This address works once and was already used. If the workbench is open in another window"
        " of this browser, use that window. Otherwise stop flowveil serve with Ctrl-C and start it"
        " again: it prints a new address."
    ),
    "unknown": (
        "This address is incomplete, or belongs to a workbench that has stopped. Open the address"
        " that flowveil serve has printed last; if it is not running, start it again."
    ),
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
    """Where a server listens, the largest file that it takes in bytes, and who may enter.

    Tokens and the cookie.
    """

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
        """Contains the port: browsers send a cookie to every port of a host, and two servers must
        not share one.
        """
        return f"flowveil_{self.port}"

    def is_at(self, host: str) -> bool:
        """Whether a Host header is the address of this server.

        Other names are refused: DNS can point any name here.
        """
        name, _, port = host.rpartition(":")
        if port != str(self.port):
            return False
        if self.host not in _ANY:
            return name in {
                self.host,
                f"[{self.host}]",
                *(("localhost",) if self.host == "127.0.0.1" else ()),
            }
        try:
            return bool(ipaddress.ip_address(name.strip("[]")))
        except ValueError:
            return name == "localhost"


class Guard:
    """ASGI application that passes on the requests that are allowed."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or refuses it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        request, began = Request(scope), False

        async def answer(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            response = self._answer(request) or self._app
            await response(scope, self._bounded(request, receive), answer)
        except Exception as problem:
            if not began:
                await refusal(request, problem)(scope, receive, answer)

    def _answer(self, request: Request) -> Response | None:
        """Answers a request with a token; None if the application may see the request.

        Else raises RefusedError.
        """
        door, (hosts, origins) = (
            self._door,
            (request.headers.getlist(name) for name in ("host", "origin")),
        )
        if len(hosts) != 1 or not door.is_at(hosts[0]):
            raise RefusedError(421, "This host is not served here.")
        own = f"http://{hosts[0]}"
        if origins not in ([], [own]):
            raise RefusedError(403, _OTHER_PAGE)
        is_entry = request.scope["path"] == "/" and request.method == "GET"
        tokens = request.query_params.getlist("token") if is_entry else []
        # Checked before Sec-Fetch-Site: the local file that opens the browser is another site.
        if len(tokens) == 1 and door.redeem(tokens[0]):
            # A page, because after a redirect the request would still count as one from another
            # site, without cookie.
            page = notice("Opening the workbench", "This takes a moment.", forward="/")
            cookie = f"{door.cookie_name}={door.cookie}; HttpOnly; SameSite=Strict; Path=/"
            return HTMLResponse(page, headers={**_HEADERS_OF_NOTICES, "set-cookie": cookie})
        if request.method not in ("GET", "HEAD") and origins != [own]:
            raise RefusedError(403, _OTHER_PAGE)
        if not _same(request.cookies.get(door.cookie_name, ""), door.cookie):
            used = any(door.is_used(token) for token in tokens)
            raise RefusedError(
                403, _REFUSALS["used" if used else "unknown" if tokens else "no token"]
            )
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RefusedError(403, _OTHER_PAGE)
        # A reload of the address: the cookie suffices, and the token leaves the address bar.
        return RedirectResponse("/", 303) if tokens else None

    def _bounded(self, request: Request, receive: Receive) -> Receive:
        """Returns a function that receives the body.

        RefusedError if it is too large or too slow.
        """
        most, got, is_complete = MOST_ASKED, 0, False
        clock = asyncio.get_running_loop().time
        began = clock()
        too_large, too_slow = (
            RefusedError(413, "The request is too large."),
            RefusedError(408, "It took too long."),
        )
        if request.method == "PUT":
            most = self._door.max_upload
            too_large = RefusedError(
                413,
                f"The file is larger than {most:,} bytes, the most that is taken. Hint: start"
                " flowveil serve with --max-upload, or in the folder of the file, and pick it"
                " there.",
            )
        # The server has checked that it is a number.
        if int(request.headers.get("content-length", "0")) > most:
            raise too_large

        async def bounded() -> Message:
            nonlocal got, is_complete
            try:
                # After the body comes the disconnect of the client, which has no time limit.
                message = await asyncio.wait_for(receive(), None if is_complete else PAUSE)
            except TimeoutError:
                raise too_slow from None
            got += len(message.get("body", b""))
            if got > most:
                raise too_large
            if not is_complete and clock() - began > PAUSE + got / SLOWEST:
                raise too_slow
            is_complete = not message.get("more_body", False)
            return message

        return bounded


def _same(one: str, two: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), two.encode())


def notice(title: str, text: str, *, forward: str = "") -> str:
    """Returns a page with one message that needs no other file.

    It goes on to the address `forward` without a click.
    """
    return str(fill("notice.html", title=title, text=text, forward=forward, style=Markup(_STYLE)))


def refusal(request: Request, problem: Exception) -> Response:
    """Returns the answer to a request that failed.

    A page for a browser that navigates, JSON for scripts.
    """
    # The message of an unexpected error may quote a row.
    status, message = 500, f"Unexpected {type(problem).__name__}."
    if isinstance(problem, FlowveilError):
        status, message = getattr(problem, "status", 400), str(problem)
    elif isinstance(problem, HTTPException):
        status, message = problem.status_code, problem.detail
    # The connection is closed: the unread rest of a body would be parsed as the next request.
    closing = {"connection": "close"}
    is_script = "text/html" not in request.headers.get("accept", "")
    if is_script or request.scope["path"].startswith(("/api/", "/static/")):
        return JSONResponse({"error": message}, status, closing)
    title = "The workbench is not open here" if status == 403 else "This page cannot be shown"
    return HTMLResponse(notice(title, message), status, {**_HEADERS_OF_NOTICES, **closing})
