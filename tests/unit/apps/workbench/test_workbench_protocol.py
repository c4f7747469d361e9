"""Attacks on the workbench below its pages.

Smuggled requests, injected events, bodies too large or too slow.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from samples.served import Served, serving_here

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "mine.csv").write_text("start_lat,start_lon,end_lat,end_lon\n1,2,3,4\n", "utf-8")
    with serving_here(folder, tmp_path_factory.mktemp("tmp"), max_upload=10**6) as running:
        running.enter()
        yield running


def sent(served: Served, request: bytes, seconds: float = 5.0) -> bytes:
    """What is answered until the connection is closed, or nothing comes for a while."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=seconds) as line:
        line.sendall(request)
        got = b""
        try:
            while block := line.recv(1 << 16):
                got += block
        except (TimeoutError, ConnectionResetError):
            pass
        return got


def hidden(served: Served) -> bytes:
    """A request that would change a choice, if it was taken for one."""
    body = b'{"k": 77}'
    return (
        f"POST /api/choices HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nOrigin:"
        f" http://127.0.0.1:{served.port}\r\nCookie: {served.cookie}\r\nContent-Length:"
        f" {len(body)}\r\n\r\n"
    ).encode() + body


#: Heads whose length two programs may read differently; {n} is the length of the hidden request.
SMUGGLING = {
    "length and chunked": "Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": "Content-Length: 0\r\nContent-Length: {n}\r\n",
    "list of lengths": "Content-Length: 0, {n}\r\n",
    "signed length": "Content-Length: +{n}\r\n",
    "negative length": "Content-Length: -1\r\n",
    "hexadecimal length": "Content-Length: 0x{n:x}\r\n",
    "length with blanks": "Content-Length: {n} 0\r\n",
    "blank before the colon": "Content-Length : {n}\r\n",
    "folded header": "X: y\r\n Content-Length: {n}\r\n",
    "chunked and identity": "Transfer-Encoding: chunked, identity\r\n",
    "chunked twice": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "vertical tab": "Transfer-Encoding:\x0bchunked\r\n",
    "unknown coding": "Transfer-Encoding: xchunked\r\nContent-Length: {n}\r\n",
    "no host": "",
}


@pytest.mark.parametrize("name", SMUGGLING)
@pytest.mark.parametrize("with_cookie", [False, True])
def test_no_request_is_hidden_in_another(served, name, with_cookie):
    """Whatever the length of a body is taken for, what is in it is not carried out."""
    inner = hidden(served)
    host = "" if name == "no host" else f"Host: 127.0.0.1:{served.port}\r\n"
    cookie = f"Cookie: {served.cookie}\r\n" if with_cookie else ""
    head = f"POST /api/nothing HTTP/1.1\r\n{host}{cookie}Origin: http://127.0.0.1:{served.port}\r\n"
    before = served.do("GET", "/api/state")["choices"]
    got = sent(
        served,
        (head + SMUGGLING[name].format(n=len(inner)) + "\r\n").encode("latin-1")
        + b"0\r\n\r\n"
        + inner,
        2,
    )
    assert got.count(b"HTTP/1.1 ") <= 1
    assert b"HTTP/1.1 2" not in got
    assert served.do("GET", "/api/state")["choices"] == before


def test_what_follows_a_refused_body_is_not_a_request(served):
    """A page elsewhere can send any text as a body.

    It is refused by its head, and the rest is never parsed.
    """
    inner = hidden(served)
    head = (
        f"POST /api/choices HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nOrigin:"
        " http://evil.example\r\n"
    )
    got = sent(served, f"{head}Content-Length: 5\r\n\r\n".encode() + b"hello" + inner)
    assert got.startswith(b"HTTP/1.1 403 ")
    assert got.count(b"HTTP/1.1 ") == 1
    assert served.do("GET", "/api/state")["choices"].get("k") != 77


@pytest.mark.parametrize(
    "request_line",
    ["GET http://evil.example/ HTTP/1.1", "GET //evil.example/ HTTP/1.1", "CONNECT 127.0.0.1:80 HTTP/1.1",
     "TRACE / HTTP/1.1", "GET / HTTP/0.9", "GET / HTTP/3.0", "OPTIONS * HTTP/1.1", "GET \\ HTTP/1.1",
     "GET /api/state\x00 HTTP/1.1", "PRI * HTTP/2.0"],
)  # fmt: skip
def test_odd_request_lines_give_nothing(served, request_line):
    got = sent(
        served, f"{request_line}\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode("latin-1"), 2
    )
    assert b"HTTP/1.1 2" not in got
    assert served.root.encode() not in got
    assert b"access-control-allow" not in got.lower()


@pytest.mark.parametrize(
    "rest",
    [
        b"FFFFFFFFFFFFFFFF\r\nx",
        b"-1\r\nx",
        b"5;" + b"x" * 100_000 + b"\r\nhello",
        b"zz\r\n",
        b"5\r\nhello0\r\n\r\n",
    ],
)
def test_broken_chunks_end_the_connection(served, rest):
    head = (
        f"PUT /api/files/trips?name=x.csv HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nCookie:"
        f" {served.cookie}\r\n"
    )
    head += f"Origin: http://127.0.0.1:{served.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    kept = sorted((served.room / "files").iterdir())
    got = sent(served, head.encode() + rest, 2)
    assert b"HTTP/1.1 2" not in got
    until = time.monotonic() + 30
    while sorted((served.room / "files").iterdir()) != kept:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_heads_are_bounded(served):
    many = "".join(f"X-{n}: {'y' * 100}\r\n" for n in range(2_000))
    for head in (f"X: {'y' * 300_000}\r\n", many):
        got = sent(
            served, f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{head}\r\n".encode(), 5
        )
        assert b"HTTP/1.1 2" not in got


@pytest.mark.parametrize(
    "text",
    ['x\n\ndata: {"version": 9}\n\n', "x\r\revent: evil\r\r", "x\u2028data: 1", "\x00: quiet"],
)
def test_no_text_ends_an_event(served, text):
    """What people type is inside the JSON of one line."""
    status = served.ask("POST", "/api/choices", {"k": 9, "title": text})[0]
    talk = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    talk.request("GET", "/api/events", headers={"Cookie": served.cookie})
    answer = talk.getresponse()
    first, second = answer.readline(), answer.readline()
    assert second == b"\n"
    state = json.loads(first.removeprefix(b"data: "))
    assert b"\r" not in first
    assert state["choices"].get("title", "") == (
        text if status == 200 else state["choices"].get("title", "")
    )
    talk.close()


def test_a_listener_that_never_reads_blocks_no_other(served):
    """Its connection fills, and the others go on."""
    head = (
        f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nCookie:"
        f" {served.cookie}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.sendall(head.encode())
        for n in range(50):
            assert served.ask("POST", "/api/choices", {"k": 5 + n, "title": "x" * 200})[0] == 200
        began = time.monotonic()
        assert served.do("GET", "/api/state")["choices"]["k"] == 54
        assert time.monotonic() - began < 10
