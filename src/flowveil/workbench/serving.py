"""Starts and stops the web server of the workbench."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flowveil.errors import MissingExtraError, OutputError, ParameterError
from flowveil.output import scratch_folder, write_files

#: Seconds after which an idle connection is closed.
IDLE_SECONDS = 20
#: Upper bound for open connections; further ones are refused.
MOST_CONNECTIONS = 600
#: No log, no headers about the server, no trust in headers of proxies.
_CONFIG: dict[str, Any] = {
    "http": "h11",
    "ws": "none",
    "loop": "asyncio",
    "lifespan": "on",
    "log_config": None,
    **dict.fromkeys(("access_log", "server_header", "date_header", "proxy_headers"), False),
    **{"timeout_keep_alive": IDLE_SECONDS, "timeout_graceful_shutdown": 1, "limit_concurrency": MOST_CONNECTIONS},
}
_FORWARDING = "If nothing happens, flowveil serve was stopped: start it again, or open the address that it has printed."


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
    """Serve the workbench until it is stopped.

    Args:
        root, max_upload, demo_people, ledger: see `flowveil.workbench.server.workbench`.
        host, port: where to listen; port 0 takes a free one.
        exposed: confirms a host that other machines can reach; without it such a host is a ParameterError.
        ready: called with the address, token included, when it can be opened.
        open_browser: whether to open it.
    """
    if not _is_loopback(host) and not exposed:
        raise ParameterError(
            f"--host {host} gives other machines access to raw trips, over a connection that is not encrypted. "
            "Hint: leave it out; if you mean it, add --i-know-this-exposes-raw-data."
        )
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise MissingExtraError("The workbench needs its web server. Hint: pip install 'flowveil[web]'.") from None
    from flowveil.workbench.guard import Door, notice
    from flowveil.workbench.server import workbench

    # Addresses hold the token, and traces may quote rows: the server keeps no log.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio"):
        logging.getLogger(name).disabled = True
    with scratch_folder("flowveil-workbench-") as room, _listening(host, port) as listener:
        for name in ("files", "jobs", "releases", "tmp"):
            os.mkdir(room / name, 0o700)
        door = Door(host, listener.getsockname()[1], max_upload)
        app = workbench(room, root, door, demo_people=demo_people, ledger=ledger)
        server = uvicorn.Server(uvicorn.Config(app, **_CONFIG))
        ready(door.new_address())
        if open_browser:
            # The browser gets the path of a file, readable by its owner only, that forwards with a separate token: all
            # users of the machine can read the command lines of processes, and a token there would let them in.
            page = notice("Opening the workbench", _FORWARDING, forward=door.new_address())
            write_files({room / "open.html": page}, private=True)
            webbrowser.open((room / "open.html").as_uri())
        # To be stopped is how a server ends.
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(server.serve(sockets=[listener]))


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
        raise OutputError(f"Port {port} of {host} cannot be used: {reason}. Hint: --port 0 takes a free one.") from None
