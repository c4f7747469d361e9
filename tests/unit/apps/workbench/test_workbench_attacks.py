"""What a stranger, another page in the same browser, or a page with a cookie may not do."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import stat
import threading
import time
import webbrowser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowveil.apps.workbench import guard
from flowveil.apps.workbench.choices import choices_of, page_request
from flowveil.apps.workbench.guard import Door, RefusedError
from flowveil.apps.workbench.session import MOST_LISTENERS, below, listing
from flowveil.core.errors import ParameterError
from flowveil.publishing.run import anonymize_arguments
from flowveil.request.request import command_line
from samples.served import Served, serving, serving_here

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    """Started in a folder that has links out of it, next to a secret."""
    around = tmp_path_factory.mktemp("around")
    (around / "secret.csv").write_text("start_lat,start_lon\nSECRET,1\n", "utf-8")
    root = around / "root"
    (root / "in").mkdir(parents=True)
    (root / "in" / "mine.csv").write_text("start_lat,start_lon,end_lat,end_lon\n1,2,3,4\n", "utf-8")
    (root / "out.csv").symlink_to(around / "secret.csv")
    (root / "up").symlink_to(around)
    (root / ".hidden.csv").write_text("a\n1\n", "utf-8")
    (root / "shown.csv").symlink_to(root / ".hidden.csv")
    with serving(root, tmp_path_factory.mktemp("tmp"), "--max-upload", "1MB") as running:
        running.enter()
        yield running


# ---- who may ask ---------------------------------------------------------------------------------

ADDRESSES = (
    "/",
    "/static/workbench.css",
    "/api/state",
    "/api/events",
    "/api/browse",
    "/releases/x/release.zip",
)


@pytest.mark.parametrize("path", [*ADDRESSES, "/?token=", "/?token=wrong", "/?token=a&token=b"])
def test_without_the_token_nothing_is_answered(served, path):
    status, _, body = served.ask("GET", path, cookie=False)
    assert status == 403
    assert b"root" not in body
    assert (
        served.ask("GET", path, cookie=False, headers={"Cookie": f"flowveil_{served.port}=wrong"})[
            0
        ]
        == 403
    )


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "",
        "localhost.evil:{port}",
    ],
)
def test_a_foreign_host_is_refused_even_with_the_cookie(served, host):
    sent = {"Host": host.format(port=served.port), "Origin": None}
    assert served.ask("GET", "/api/state", headers=sent)[0] == 421
    assert served.ask("GET", f"/?token={served.token}", headers=sent)[0] == 421


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", None],
)
@pytest.mark.parametrize(
    "path", ["/api/choices", "/api/jobs", "/api/empty", "/api/publish", "/api/demo"]
)
def test_another_page_cannot_change_anything(served, path, origin):
    sent = {"Origin": origin and origin.format(port=served.port)}
    assert served.ask("POST", path, {}, headers=sent)[0] == 403


def test_another_page_cannot_read_either(served):
    assert served.ask("GET", "/api/state", headers={"Origin": "http://evil.example"})[0] == 403
    assert (
        served.ask("GET", "/api/state", headers={"Origin": None, "Sec-Fetch-Site": "cross-site"})[0]
        == 403
    )
    assert (
        served.ask("GET", "/api/state", headers={"Origin": None, "Sec-Fetch-Site": "same-origin"})[
            0
        ]
        == 200
    )


def test_two_origins_are_another_page():
    own = (b"origin", b"http://127.0.0.1:8000")
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [(b"host", own[1][7:]), own],
    }
    scope["headers"].append((b"origin", b"http://evil.example"))
    sent = []

    async def send(message):
        sent.append(message)

    # In another thread: browser tests leave a running loop in this one.
    with ThreadPoolExecutor(1) as thread:
        answer = guard.Guard(None, Door("127.0.0.1", 8000, 1))(scope, None, send)
        thread.submit(asyncio.run, answer).result(timeout=30)
    assert sent[0]["status"] == 403
    assert b"another page" in sent[1]["body"]


PERSON = {"Accept": "text/html,application/xhtml+xml", "Origin": None}


def test_the_token_opens_the_door_once(tmp_path):
    """A local file forwards to it: the browser calls that another site, and must get the cookie all
    the same."""
    with serving_here(tmp_path, tmp_path / "tmp") as running:
        address, first = f"/?token={running.token}", {**PERSON, "Sec-Fetch-Site": "cross-site"}
        assert running.ask("HEAD", address, headers=first)[0] == 403
        status, headers, body = running.ask("GET", address, headers=first)
        assert status == 200
        assert b"url=/" in body
        parts = {part.strip() for part in headers["set-cookie"].split(";")}
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= parts
        assert any(part.startswith(f"flowveil_{running.port}=") for part in parts)
        # Again, from wherever: a page that says what to do.
        status, headers, body = running.ask("GET", address, headers=PERSON)
        assert (status, "set-cookie" in headers) == (403, False)
        assert b"works once and was already used" in body
        assert b"flowveil serve" in body
        # A reload in the browser that has the cookie.
        running.cookie = next(part for part in parts if part.startswith("flowveil_"))
        status, headers, _ = running.ask("GET", address, headers=PERSON)
        assert (status, headers["location"]) == (303, "/")


def test_the_browser_is_opened_without_a_token_on_its_command_line(tmp_path, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with serving_here(tmp_path, tmp_path / "tmp", open_browser=True) as running:
        until = time.monotonic() + 60
        while not opened:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert opened[0].startswith("file://")
        file = Path(opened[0].removeprefix("file://"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        found = re.search(
            rf"url=http://127\.0\.0\.1:{running.port}(/\?token=([\w-]{{40,}}))",
            file.read_text("utf-8"),
        )
        assert found is not None
        assert found[2] not in opened[0]
        # Its token is a separate one: the printed address still opens another browser.
        assert running.ask("GET", found[1], headers=PERSON)[0] == 200
        assert running.ask("GET", found[1], headers=PERSON)[0] == 403
        running.enter()
    assert not file.exists()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/", b"printed in its terminal"),
        ("/?token=wrong", b"has stopped"),
        ("/releases/x/report.html", b"terminal"),
    ],
)
def test_people_without_a_token_get_a_page(served, path, says):
    status, headers, body = served.ask("GET", path, cookie=False, headers=PERSON)
    assert (status, headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "'unsafe" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert says in body
    assert b"flowveil serve" in body
    # Scripts get JSON.
    assert json.loads(served.ask("GET", "/api/state", cookie=False, headers=PERSON)[2])["error"]
    assert b"<h1>" in served.ask("GET", "/nowhere", headers=PERSON)[2]


def test_policy(served):
    for path in ("/", "/api/state", "/nowhere"):
        headers = served.ask("GET", path)[1]
        assert "'unsafe" not in headers["content-security-policy"]
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "other", ['prefs={"a":1}', "a b=c", 'x="un', "\xe9=1", "=", "flowveil_1=x"]
)
def test_cookies_of_other_programs_do_not_lock_the_user_out(served, other):
    """Cookies know no ports: what another program of 127.0.0.1 has set comes with ours, in whatever
    form."""
    for sent in (f"{other}; {served.cookie}", f"{served.cookie}; {other}"):
        assert served.ask("GET", "/api/state", headers={"Cookie": sent})[0] == 200
    name = served.cookie.partition("=")[0]
    assert (
        served.ask("GET", "/api/state", headers={"Cookie": f"{name}=theirs; {served.cookie}"})[0]
        == 200
    )
    assert (
        served.ask("GET", "/api/state", headers={"Cookie": f"{name}=theirs; {name}=; {other}"})[0]
        == 403
    )


def test_a_wildcard_host_takes_addresses_and_no_names():
    door = Door("0.0.0.0", 80, 1)
    assert door.is_at("192.168.1.7:80")
    assert not door.is_at("evil.example:80")
    assert not door.is_at("192.168.1.7")


# ---- paths ---------------------------------------------------------------------------------------

ELSEWHERE = (
    "../secret.csv",
    "..",
    "in/../../secret.csv",
    "up/secret.csv",
    "out.csv",
    "/etc/passwd",
    "//etc/passwd",
    "in//mine.csv",
    "./in/mine.csv",
    "..\\secret.csv",
    "in\\..\\..\\secret.csv",
    ".hidden.csv",
    "in/mine.csv\0.png",
    "~/secret.csv",
    "%2e%2e/secret.csv",
    "file:///etc/passwd",
    "in/*.csv",
    "x" * 5000,
    "shown.csv",
)


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda p: p[:20].encode("unicode_escape").decode())
def test_no_path_leads_out_of_the_folder(served, path):
    for role in ("trips", "zones"):
        status, _, body = served.ask("POST", "/api/pick", {"role": role, "path": path})
        assert status in (403, 404)
        assert b"SECRET" not in body
    assert served.do("GET", "/api/state")["files"] == {}


def test_what_leads_out_is_not_listed(served, tmp_path):
    names = [entry["name"] for entry in served.do("GET", "/api/browse?role=trips")["entries"]]
    assert names == ["in"]
    for path in ("..", "up", "%2e%2e", "in%2f..%2f..", "%2fetc", "%00"):
        assert served.ask("GET", f"/api/browse?path={path}")[0] in (403, 404)
    with pytest.raises(RefusedError):
        below(tmp_path, "a/../..")
    assert listing(tmp_path, "", (".csv",)) == []


@pytest.mark.parametrize(
    "path",
    ["/static/../guard.py", "/static/%2e%2e%2fguard.py", "/static/..%5cguard.py", "/releases/../../x/report.html",
     "/releases/%2e%2e/release.zip", "/api/jobs/..%2f..%2fx/result", "/static/"],
)  # fmt: skip
def test_addresses_do_not_traverse(served, path):
    status, _, body = served.ask("GET", path)
    assert status == 404
    assert b"import" not in body


@pytest.mark.parametrize(
    "name", ["../x.csv", "/x.csv", "a\\b.csv", "", "x.exe", "x.csv\n", "x" * 300 + ".csv"]
)
def test_names_of_uploads_name_no_place(served, name):
    from urllib.parse import quote

    before = sorted(p.name for p in (served.room / "files").iterdir())
    assert served.ask("PUT", f"/api/files/trips?name={quote(name)}", b"a\n1\n")[0] in (400, 415)
    assert (
        served.ask("PUT", f"/api/files/{quote('../trips', safe='')}?name=x.csv", b"a\n1\n")[0]
        == 404
    )
    assert sorted(p.name for p in (served.room / "files").iterdir()) == before


@pytest.mark.parametrize(
    "choices",
    [{"within": "/etc/passwd"}, {"within": "../area.geojson"}, {"zones": "/etc/passwd"}, {"resolution": 99},
     {"resolution": True}, {"k": -1}, {"max_suppressed": float("inf")}, {"method": "__class__"}, {"by": 3},
     {"options": {"a": 1}}, {"title": "x" * 301}, {"protect": ["everybody"]}, {"k": "10"}, ["k"], {"out": "/tmp/x"}],
)  # fmt: skip
def test_no_choice_is_a_path_or_out_of_range(choices):
    with pytest.raises(ParameterError):
        choices_of(choices)


def test_a_choice_of_nought_is_a_choice():
    request = page_request(choices_of({"max_suppressed": 0, "resolution": 0}))
    assert anonymize_arguments(request)["max_suppressed"] == 0
    assert "--resolution 0" in command_line(request)


# ---- sizes and times -----------------------------------------------------------------------------


def test_oversized_bodies_are_refused_and_leave_nothing(served):
    before = sorted(p.name for p in (served.room / "files").iterdir())
    status, _, body = served.ask("PUT", "/api/files/trips?name=x.csv", b"1" * 1_000_001)
    assert status == 413
    assert "--max-upload" in json.loads(body)["error"]
    # Without a length it is counted as it comes.
    talk = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    sent = {"Cookie": served.cookie, "Origin": f"http://127.0.0.1:{served.port}"}
    blocks = (b"1" * 100_000 for _ in range(30))
    try:
        talk.request("PUT", "/api/files/trips?name=x.csv", blocks, sent, encode_chunked=True)
        assert talk.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has heard enough
    finally:
        talk.close()
    assert served.ask("POST", "/api/choices", b"[" * 1_100_000)[0] == 413
    assert served.ask("POST", "/api/choices", b"[" * 900_000)[0] == 400
    assert sorted(p.name for p in (served.room / "files").iterdir()) == before


def test_a_broken_upload_leaves_nothing(served):
    before = sorted(p.name for p in (served.room / "files").iterdir())
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        head = (
            f"PUT /api/files/trips?name=x.csv HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nCookie:"
            f" {served.cookie}\r\n"
        )
        head += f"Origin: http://127.0.0.1:{served.port}\r\nContent-Length: 1000\r\n\r\n"
        line.sendall(head.encode() + b"lat,lon\n")
        time.sleep(0.2)
    until = time.monotonic() + 60
    while sorted(p.name for p in (served.room / "files").iterdir()) != before:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert served.do("GET", "/api/state")["files"] == {}


def test_200_requests_at_once(served):
    with ThreadPoolExecutor(200) as pool:
        found = list(pool.map(lambda _: served.ask("GET", "/api/state")[0], range(200)))
    assert found == [200] * 200


def test_no_more_pages_listen_than_may(served):
    """Also when all of them ask at once, and none is read."""
    head = (
        f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nCookie:"
        f" {served.cookie}\r\n\r\n"
    )
    lines = [
        socket.create_connection(("127.0.0.1", served.port), timeout=60)
        for _ in range(2 * MOST_LISTENERS)
    ]
    try:
        for line in lines:
            line.sendall(head.encode())
        heard = 0
        for line in lines:
            got = b""
            while (
                b"data: " not in got and b"Too many" not in got and not got.endswith(b"0\r\n\r\n")
            ):
                got += line.recv(1 << 16)
            heard += b"data: " in got
        assert heard == MOST_LISTENERS
    finally:
        for line in lines:
            line.close()


@pytest.mark.slow
def test_garbage_is_answered_without_a_trace(served):
    for body in (
        b"{",
        b"\xff\xfe",
        b"[]",
        b'"x"',
        b'{"kind": {"a": 1}}',
        b'{"kind": "publish"}',
        b'{"kind": "inspect"}',
    ):
        status, _, said = served.ask("POST", "/api/jobs", body)
        assert status == 400
        assert b"Traceback" not in said
        assert b".py" not in said
    assert served.ask("DELETE", "/api/jobs")[0] == 405
    assert served.ask("POST", "/api/jobs/nosuch/cancel", {})[0] == 404


@pytest.mark.slow
@pytest.mark.parametrize("head", [b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_slow_requests_end(monkeypatch, tmp_path, head):
    """A head that does not end, and a body that does not come."""
    from flowveil.apps.workbench import server as routes

    monkeypatch.setattr(routes, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(guard, "PAUSE", 0.3)
    for name in ("files", "jobs", "releases", "tmp"):
        (tmp_path / name).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        door = Door("127.0.0.1", port, 1000)
        config = uvicorn.Config(
            routes.workbench(tmp_path, Path(tmp_path), door),
            http=routes.HeaderTimeout,
            ws="none",
            loop="asyncio",
            log_config=None,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
                line.sendall(head)
                assert line.recv(100) == b""
            with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
                cookie = f"{door.cookie_name}={door.cookie}"
                line.sendall(
                    f"POST /api/choices HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin:"
                    f" http://127.0.0.1:{port}\r\nCookie: {cookie}\r\nContent-Length: 100\r\n\r\n{{".encode()
                )
                assert b" 408 " in line.recv(100)
        finally:
            server.should_exit = True
            thread.join(10)
