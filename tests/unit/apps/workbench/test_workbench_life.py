"""The workbench from its start to its end: what it prints, keeps, gives and leaves behind."""

from __future__ import annotations

import asyncio
import html
import io
import json
import os
import re
import shlex
import signal
import stat
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import h3
import pytest
from pyarrow import csv

from conftest import trip_table
from flowveil import verify_derived
from flowveil.apps.cli import main
from flowveil.apps.workbench.jobs import Jobs
from samples.served import Served, serving, serving_here

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

CHOICES = {
    "k": 5,
    "resolution": 8,
    "max_suppressed": 0.1,
    "method": "odkanon",
    "title": "Trips of a test",
}

#: What a page sends when a release is signed.
SIGNED = {"read": True, "signer": "Data protection office"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    csv.write_csv(trip_table(600), folder / "trips.csv")
    one, other, *_ = h3.cell_to_children("871fb4662ffffff", 8)
    lines = [f"{start},881fb46601fffff" for start in (*[one] * 50, *[other] * 3)]
    (folder / "few.csv").write_text("\n".join(["start_h3,end_h3", *lines, ""]), "utf-8")
    (folder / "broken.csv").write_text(
        "start_lat,start_lon,end_lat,end_lon\n" + "SECRETPLACE,1,2,3\n" * 20, "utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def served(folder, tmp_path_factory) -> Iterator[Served]:
    """With separate processes and with trips: for tests of processes, and for one whole journey.

    Each takes seconds.
    """
    with serving(folder, tmp_path_factory.mktemp("tmp")) as running:
        running.enter()
        running.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
        yield running


@pytest.fixture(scope="module")
def here(folder, tmp_path_factory) -> Iterator[Served]:
    """For what is answered, whichever process does the work."""
    with serving_here(folder, tmp_path_factory.mktemp("tmp")) as running:
        running.enter()
        yield running


@pytest.fixture(scope="module")
def published(folder, tmp_path_factory) -> Iterator[Served]:
    """A session in this process that has published a release."""
    with serving_here(folder, tmp_path_factory.mktemp("tmp")) as running:
        running.enter()
        running.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
        running.do("POST", "/api/choices", CHOICES)
        running.job("check")
        running.result(running.do("POST", "/api/publish", SIGNED)["id"])
        yield running


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie counts."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text("utf-8")
    except FileNotFoundError:
        return True


@pytest.mark.slow
def test_the_release_is_that_of_the_command_and_of_the_lines(served, folder, tmp_path, monkeypatch):
    served.do("POST", "/api/choices", CHOICES)
    assert served.do("POST", "/api/publish", SIGNED, expect=400)["error"].startswith(
        "These choices were not"
    )
    assert served.job("check")["protected"]
    assert (
        "tick" in served.do("POST", "/api/publish", {**SIGNED, "read": False}, expect=400)["error"]
    )
    served.result(served.do("POST", "/api/publish", SIGNED)["id"])
    (release,) = served.do("GET", "/api/state")["releases"]
    packed = zipfile.ZipFile(
        io.BytesIO(served.ask("GET", f"/releases/{release['id']}/release.zip")[2])
    )
    monkeypatch.chdir(tmp_path)
    main([*shlex.split(release["command"])[1:], "--quiet"])
    names = sorted(p.name for p in Path("release").iterdir())
    assert sorted(packed.namelist()) == [f"release/{name}" for name in names]
    for name in names:
        assert packed.read(f"release/{name}") == Path("release", name).read_bytes(), name
    main(["verify", "release", "--against", str(folder / "trips.csv"), "--quiet"])
    exec(release["python"].replace("'release'", "'again'"), {})
    assert Path("again/manifest.json").read_bytes() == Path("release/manifest.json").read_bytes()
    # The report has its script inside, and is a stranger to the server.
    policy = served.ask("GET", f"/releases/{release['id']}/report.html")[1][
        "content-security-policy"
    ]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")


def test_a_job_killed_while_it_writes_does_not_keep_trips_from_being_removed(here, folder):
    here.upload("trips", folder / "trips.csv")
    draft = here.room / "jobs" / f".flowveil-draft-{0:016x}"
    draft.mkdir()
    (draft / "new").write_text("half a result", "utf-8")
    here.do("POST", "/api/empty", {})
    assert [*(here.room / "jobs").iterdir(), *(here.room / "files").iterdir()] == []


def test_an_unexpected_error_is_answered_in_json(here, monkeypatch):
    def fail(_):
        raise RuntimeError("a row of the input")

    monkeypatch.setattr("flowveil.apps.workbench.session.Session.empty", fail)
    assert here.do("POST", "/api/empty", {}, expect=500) == {"error": "Unexpected RuntimeError."}


#: What a hostile zip may hold: names that lead elsewhere, a link, far more than it says, far too
#: many files.
BAD_ZIPS: dict[str, list[tuple[str, bytes, int]]] = {
    "traversal": [("release/../../manifest.json", b"{}", 0o644)],
    "absolute": [("/manifest.json", b"{}", 0o644)],
    "backslashes": [("..\\manifest.json", b"{}", 0o644)],
    "link": [("release/manifest.json", b"/etc/passwd", 0o120777)],
    "twice": [("a/manifest.json", b"{}", 0o644), ("b/manifest.json", b"{}", 0o644)],
    "many": [(f"release/{n}", b"", 0o644) for n in range(65)],
}


def packed_of(entries: list[tuple[str, bytes, int]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            out.writestr(entry, content)
    return packed.getvalue()


def test_a_zip_unpacks_to_no_more_than_it_may(tmp_path, monkeypatch):
    """A bomb, and one that lies about its size."""
    from flowveil.apps.workbench import work
    from flowveil.core.errors import DataError

    monkeypatch.setattr(work, "_MOST_BYTES", 100_000)
    bomb = packed_of([("release/flows.parquet", bytes(1_000_000), 0o644)])
    at = bomb.index(b"PK\x01\x02") + 24
    lying = bomb[:at] + (10).to_bytes(4, "little") + bomb[at + 4 :]
    for number, packed in enumerate((bomb, lying)):
        (tmp_path / "x.zip").write_bytes(packed)
        out = tmp_path / f"out{number}"
        with pytest.raises(DataError):
            work.WORK["unpack"](
                work.Task({"packed": str(tmp_path / "x.zip"), "out": str(out)}, Silent())
            )
        assert not out.exists()


class Silent:
    def label(self, text: str) -> None: ...


def test_earlier_releases_are_compared_with(published):
    """The first release stays on the session.

    With another k, subtraction is tried before anything is published.
    """
    before = published.do("GET", "/api/state")["releases"]
    packed = published.ask("GET", f"/releases/{before[0]['id']}/release.zip")[2]
    published.ended(published.do("PUT", "/api/files/release?name=old.zip", packed)["id"])
    published.do("POST", "/api/choices", {**CHOICES, "k": 6})
    found = published.job("check")["audit"]
    assert found["compared"] == ["Trips of a test", "old.zip"]
    assert any("can be compared" in line for line in found["lines"])
    if found["failures"]:
        assert (
            "found something" in published.do("POST", "/api/publish", SIGNED, expect=400)["error"]
        )
    (dropped,) = [
        release["id"]
        for release in published.do("GET", "/api/state")["releases"]
        if not release["own"]
    ]
    published.do("POST", "/api/remove-release", {"id": dropped})
    published.do("POST", "/api/remove-release", {"id": before[0]["id"]}, expect=404)

    def kept() -> list[str]:
        return sorted(
            str(path)
            for folder in ("files", "releases")
            for path in (published.room / folder).rglob("*")
        )

    left = kept()
    for name, entries in BAD_ZIPS.items():
        job = published.ended(
            published.do("PUT", f"/api/files/release?name={name}.zip", packed_of(entries))["id"]
        )
        assert job["state"] == "failed", name
        # Nothing of it is kept, and nothing is where it wanted to be.
        assert kept() == left, name
    assert published.do("GET", "/api/state")["releases"] == before


def test_a_ledger_records_what_is_published(folder, tmp_path, monkeypatch):
    """A second release is checked against the first before it can be published, and the command
    names the ledger."""
    monkeypatch.chdir(tmp_path)
    with serving_here(folder, tmp_path / "tmp", ledger=tmp_path / "ledger") as running:
        running.enter()
        running.do("POST", "/api/pick", {"role": "trips", "path": "few.csv"})
        for earlier, share in enumerate((0.0, 0.3)):
            # The second leaves three trips out that the first has together with fifty.
            running.do("POST", "/api/choices", {"k": 5, "max_suppressed": share, "hierarchy": "h3"})
            found = running.job("check")["audit"]
            assert found["ledger"] == earlier
            if earlier:
                assert any("is of the same trips as" in line for line in found["failures"])
                assert running.do("POST", "/api/publish", SIGNED, expect=400)
            running.result(
                running.do("POST", "/api/publish", {**SIGNED, "accepted": bool(earlier)})["id"]
            )
        releases = running.do("GET", "/api/state")["releases"]
        packed = [running.ask("GET", f"/releases/{one['id']}/release.zip")[2] for one in releases]
    assert (tmp_path / "ledger" / "ledger.jsonl").read_text("utf-8").count("\n") == 2
    assert ["accept_differencing" in one["python"] for one in releases] == [False, True]
    # Again: the release is known, and has the same bytes.
    main([*shlex.split(releases[1]["command"])[1:], "--quiet"])
    with zipfile.ZipFile(io.BytesIO(packed[1])) as second:
        for name in second.namelist():
            assert second.read(name) == Path(name).read_bytes(), name


def test_a_broken_file_is_reported_without_quoting_it(here):
    here.do("POST", "/api/pick", {"role": "trips", "path": "broken.csv"})
    job = here.ended(here.do("POST", "/api/jobs", {"kind": "read"})["id"])
    assert job["state"] == "failed"
    assert "start_lat" in job["error"]
    assert "SECRETPLACE" not in json.dumps(here.do("GET", "/api/state"))
    assert "SECRETPLACE" not in json.dumps(here.job("inspect"))
    # A file that was sent is called by its name, not by that of the copy.
    here.do("PUT", "/api/files/zones?name=mine.csv", b"code,of\nSECRETPLACE,1\n")
    job = here.ended(here.do("POST", "/api/jobs", {"kind": "read"})["id"])
    for said in (job["error"], here.job("inspect")["problem"]):
        assert said.startswith("'mine.csv' "), said
        assert "SECRETPLACE" not in said
    here.do("POST", "/api/empty", {})


def test_zones_without_a_place_give_a_release(here):
    here.do("PUT", "/api/files/trips?name=t.csv", b"from,to\n" + b"a,b\n" * 20 + b"b,c\n" * 20)
    here.do("PUT", "/api/files/zones?name=z.csv", b"tile,parent\na,ab\nb,ab\nc,all\nab,all\nall,\n")
    choices = {**CHOICES, "resolution": None, "origin_tile": "from", "destination_tile": "to"}
    assert len(here.job("run", choices)["figures"]) >= 5
    here.do("POST", "/api/empty", {})


def test_questions_must_be_answered_before_anything_is_computed(here):
    """Who travelled is never answered for the reader, nor what a row is where it may be a count."""
    rows = "".join(f"a{i},b{i},c{i},{i % 5}\n" for i in range(60))
    here.do("PUT", "/api/files/trips?name=t.csv", f"from,to,cab_id,n\n{rows}".encode())
    here.do("POST", "/api/choices", {"origin_tile": "from", "destination_tile": "to"})
    found = here.job("inspect")
    assert (found["vehicles"], found["counts"]) == (["cab_id"], ["n"])
    assert here.do("GET", "/api/state")["unanswered"] == ["person", "row"]
    for kind in ("run", "errors", "check"):
        refused = here.do("POST", "/api/jobs", {"kind": kind}, expect=400)["error"]
        assert "Who travelled?" in refused
    answers = {"person": "", "row_is_trip": True}
    here.do("POST", "/api/choices", {"origin_tile": "from", "destination_tile": "to", **answers})
    assert here.do("GET", "/api/state")["unanswered"] == []
    assert here.do("POST", "/api/jobs", {"kind": "run"})["kind"] == "run"
    here.do("POST", "/api/empty", {})


def test_ticks_and_the_signer_are_kept_until_the_trips_change(here, folder):
    here.upload("trips", folder / "trips.csv")
    kept = {"ticks": ["one", "two"], "accepted": True, "signer": "Office"}
    assert here.do("POST", "/api/signing", kept)["signing"] == kept
    for wrong in ({**kept, "ticks": "one"}, {**kept, "signer": 3}, {}):
        assert here.do("POST", "/api/signing", wrong, expect=400)
    assert here.do("GET", "/api/state")["signing"] == kept
    here.upload("trips", folder / "trips.csv")
    assert here.do("GET", "/api/state")["signing"]["ticks"] == []
    here.do("POST", "/api/empty", {})


def test_the_page_of_a_draft_is_framed_by_the_workbench_alone(published):
    """In a sandbox: it has no origin, no cookie and no connection."""
    job = published.do("POST", "/api/jobs", {"kind": "run"})
    published.result(job["id"])
    status, headers, body = published.ask("GET", f"/drafts/{job['id']}/report.html")
    policy = headers["content-security-policy"]
    assert (status, headers["x-frame-options"]) == (200, "SAMEORIGIN")
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert policy.endswith("frame-ancestors 'self'")
    assert "connect-src" not in policy
    assert published.cookie.partition("=")[2].encode() not in body
    for path in (f"/drafts/{job['id']}/report.html", f"/drafts/{'0' * 16}/report.html"):
        assert published.ask("GET", path, cookie=False)[0] == 403
    assert published.ask("GET", f"/drafts/{'0' * 16}/report.html")[0] == 404


def test_the_certificate_is_a_page_for_a_person(published):
    (release,) = published.do("GET", "/api/state")["releases"]
    page = published.ask("GET", f"/releases/{release['id']}/certificate.html")[2].decode()
    text = html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL))
    for part in ("Trips of a test", "Paris, France", "Data protection office", "5 people"):
        assert part in text
    assert not re.search(r"[{}\[\]]", text)
    assert release["sentence"] in text


def test_next_month_is_read_and_protected_as_last_time(published, folder):
    (release,) = published.do("GET", "/api/state")["releases"]
    recipe = published.ask("GET", f"/releases/{release['id']}/recipe.toml")[2].decode()
    with serving_here(folder, published.temporary / "next") as running:
        running.enter()
        running.do("POST", "/api/recipe", {"text": recipe})
        running.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
        assert running.do("GET", "/api/state")["choices"] == CHOICES
        running.do("POST", "/api/forget", {})
        running.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
        assert running.do("GET", "/api/state")["choices"] == {"k": 10}
    published.do("POST", "/api/same-again", {"id": release["id"]})
    assert published.do("GET", "/api/state")["last_time"] == "Trips of a test"
    published.do("POST", "/api/forget", {})


def test_a_table_of_a_database_and_a_ledger_are_below_the_folder(here, folder, tmp_path):
    import duckdb

    with duckdb.connect(str(folder / "trips.db")) as con:
        con.execute(f"CREATE TABLE trips AS SELECT * FROM '{folder / 'trips.csv'}'")
    with duckdb.connect(str(tmp_path / "secret.db")) as con:
        con.execute("CREATE TABLE trips AS SELECT 1 AS a")
    for address in (
        f"duckdb:{tmp_path / 'secret.db'}?table=trips",
        "duckdb:../secret.db?table=trips",
        "duckdb:trips.db?query=SELECT * FROM read_csv('/etc/passwd')",
        "trips.csv",
        "s3://bucket/trips.parquet",
        "postgresql://me:secret@host/db?table=trips",
    ):
        assert here.ask("POST", "/api/database", {"address": address})[0] in (400, 403, 404)
    assert "trips" not in here.do("GET", "/api/state")["files"]
    state = here.do("POST", "/api/database", {"address": "duckdb:trips.db?table=trips"})
    assert state["files"]["trips"]["name"] == "duckdb:trips.db?table=trips"
    assert here.job("read", {"resolution": 8})["rows"] == 600
    for path in ("../ledger", "/tmp/ledger", ".hidden", "trips.csv"):
        assert here.ask("POST", "/api/ledger", {"path": path})[0] in (400, 403, 404)
    assert here.do("POST", "/api/ledger", {"path": "ledger"})["ledger"] == str(folder / "ledger")
    assert here.do("POST", "/api/ledger", {})["ledger"] is None
    here.do("POST", "/api/empty", {})


def test_a_file_that_changed_is_not_published(here, folder):
    (folder / "changing.csv").write_bytes((folder / "trips.csv").read_bytes())
    here.do("POST", "/api/pick", {"role": "trips", "path": "changing.csv"})
    started = here.do("GET", "/api/state")
    assert started["choices"] == {"k": 10}
    with open(folder / "changing.csv", "a", encoding="utf-8") as file:
        file.write("\n")
    job = here.ended(here.do("POST", "/api/jobs", {"kind": "read"})["id"])
    assert (job["state"], "has changed" in job["error"]) == ("failed", True)


@pytest.mark.slow
def test_jobs_are_replaced_and_cancelled(served):
    first = served.do("POST", "/api/jobs", {"kind": "describe", "choices": CHOICES})
    second = served.do("POST", "/api/jobs", {"kind": "describe", "choices": CHOICES})
    served.do("POST", f"/api/jobs/{second['id']}/cancel", {})
    assert served.ended(first["id"])["state"] == "cancelled"
    assert served.ended(second["id"])["state"] == "cancelled"
    served.do("GET", f"/api/jobs/{second['id']}/result", expect=404)
    # The page is answered, and another job runs.
    assert served.job("run", CHOICES)["k"] == CHOICES["k"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes through /proc")
def test_a_run_ends_when_the_slider_moves_on(served):
    """Even one whose process would never end: it is killed, and the last progress is shown."""
    served.job("run", CHOICES)
    held = served.workers()
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        moved = [
            served.do("POST", "/api/jobs", {"kind": "run", "choices": {**CHOICES, "k": k}})
            for k in (6, 7, 8)
        ]
        assert served.result(moved[-1]["id"])["k"] == 8
        assert [served.ended(job["id"])["state"] for job in moved] == [
            "cancelled",
            "cancelled",
            "done",
        ]
        for job in moved[:-1]:
            served.do("GET", f"/api/jobs/{job['id']}/result", expect=404)
        assert any(map(gone, held))
    finally:
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory through /proc")
def test_a_file_is_taken_while_it_arrives(served):
    """Forty megabytes go through the server, which never holds a fifth of them."""
    import http.client

    def megabytes(which: str) -> float:
        status = Path(f"/proc/{served.process.pid}/status").read_text("utf-8")
        return int(status.partition(f"{which}:")[2].split()[0]) / 1000

    before = megabytes("VmRSS")
    talk = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    sent = {"Cookie": served.cookie, "Origin": f"http://127.0.0.1:{served.port}"}
    blocks = (b"1" * 1_000_000 for _ in range(40))
    talk.request("PUT", "/api/files/trips?name=large.csv", blocks, sent, encode_chunked=True)
    assert json.loads(talk.getresponse().read())["files"]["trips"]["size"] == 40_000_000
    talk.close()
    (kept,) = (
        path for path in (served.room / "files").iterdir() if path.stat().st_size == 40_000_000
    )
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert megabytes("VmHWM") - before < 8
    served.do("POST", "/api/empty", {})
    assert not kept.exists()


def test_every_listener_hears_of_changes(here):
    import http.client

    heard = []
    for _ in range(2):
        talk = http.client.HTTPConnection("127.0.0.1", here.port, timeout=60)
        talk.request("GET", "/api/events", headers={"Cookie": here.cookie})
        answer = talk.getresponse()
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        heard.append((talk, answer))
        json.loads(answer.readline().removeprefix(b"data: "))
    here.do("POST", "/api/choices", {**CHOICES, "k": 7})
    for talk, answer in heard:
        while True:
            line = answer.readline()
            if (
                line.startswith(b"data: ")
                and json.loads(line.removeprefix(b"data: "))["choices"].get("k") == 7
            ):
                break
        talk.close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes through /proc")
def test_nothing_is_left_behind(folder, tmp_path):
    temporary = tmp_path / "tmp"
    with serving(folder, temporary) as running:
        running.enter()
        assert stat.S_IMODE(os.stat(running.room).st_mode) == 0o700
        running.do("POST", "/api/pick", {"role": "trips", "path": "broken.csv"})
        until = time.monotonic() + 120
        while len(workers := running.workers()) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        # Two that have not worked yet: they serve for other trips, too, and a job starts no more.
        running.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
        running.do("POST", "/api/jobs", {"kind": "describe", "choices": CHOICES})
        assert running.workers() == workers
        # Killed: the workers end without it, and the next start tidies up.
        running.stop(signal.SIGKILL)
        assert list(temporary.iterdir())
        while not all(map(gone, workers)):
            assert time.monotonic() < until
            time.sleep(0.05)
    with serving(folder, temporary) as running:
        assert len(list(temporary.iterdir())) == 1
        running.enter()
        # What people and trips are called is in files that fail, in requests that are refused, and
        # in results.
        running.do("POST", "/api/pick", {"role": "trips", "path": "broken.csv"})
        assert (
            running.ended(running.do("POST", "/api/jobs", {"kind": "read"})["id"])["state"]
            == "failed"
        )
        running.do("POST", "/api/choices", {"SECRETPLACE": 1}, expect=400)
        running.ask("GET", "/releases/SECRETPLACE/report.html")
        running.upload("trips", folder / "trips.csv")
        running.job("run", CHOICES)
        running.do("POST", "/api/jobs", {"kind": "describe", "choices": CHOICES})
        assert list(temporary.iterdir()) == [running.room]
        assert running.stop(signal.SIGTERM) == 0
        assert list(temporary.iterdir()) == []
        assert running.process.stderr is not None
        assert running.process.stderr.read() == ""
        assert running.process.stdout is not None
        assert running.process.stdout.read() == ""


@pytest.mark.slow
def test_second_tables_and_private_files_of_a_release(published):
    """A derived table verifies against its source without trips.

    The certificate repeats the signed sentence.
    """
    published.do("POST", "/api/pick", {"role": "trips", "path": "trips.csv"})
    published.job("check")
    published.result(published.do("POST", "/api/publish", {**SIGNED, "accepted": True})["id"])
    release = published.do("GET", "/api/state")["releases"][-1]
    status, _, certificate = published.ask("GET", f"/releases/{release['id']}/certificate.html")
    assert status == 200
    assert b"Signed by Data protection office." in certificate
    derived = published.do(
        "POST", "/api/jobs", {"kind": "derive", "release": release["id"], "derive": {"level": 6}}
    )
    assert published.ended(derived["id"])["state"] == "done"
    folders = []
    for path in (f"/releases/{release['id']}/release.zip", f"/api/jobs/{derived['id']}/file"):
        with zipfile.ZipFile(io.BytesIO(published.ask("GET", path)[2])) as packed:
            folders.append(published.temporary / f"unpacked-{derived['id']}-{len(folders)}")
            packed.extractall(folders[-1])
    source, table = (folder / "release" for folder in folders)
    assert verify_derived(table, source).holds
    analysis = published.do("POST", "/api/jobs", {"kind": "analysis", "release": release["id"]})
    assert published.ended(analysis["id"])["state"] == "done"
    packed = zipfile.ZipFile(
        io.BytesIO(published.ask("GET", f"/api/jobs/{analysis['id']}/file")[2])
    )
    assert "analysis/measures.json" in packed.namelist()
    text = published.do("POST", "/api/jobs", {"kind": "dpia", "release": release["id"]})
    assert published.ended(text["id"])["state"] == "done"
    assert b"at least" in published.ask("GET", f"/api/jobs/{text['id']}/file")[2]
    for content in ({"level": "6"}, {"sum": "time"}, {"path": "x"}, {}, None):
        refused = published.do(
            "POST", "/api/jobs", {"kind": "derive", "release": release["id"], "derive": content}
        )
        assert published.ended(refused["id"])["state"] == "failed"
    published.do(
        "POST", "/api/jobs", {"kind": "derive", "release": "x", "derive": {"level": 6}}, expect=404
    )


class IdleProcess:
    """A worker process that never answers."""

    ended = False
    busy = None

    async def run(self, *_):
        await asyncio.Event().wait()

    async def is_free(self, *_):
        return True

    def end(self):
        self.ended = True

    async def gone(self):
        pass


def test_a_process_waits_for_the_next_job_while_a_release_is_computed(tmp_path, monkeypatch):
    async def start(_room):
        return IdleProcess()

    async def settle():
        for _ in range(20):
            await asyncio.sleep(0)

    async def check():
        jobs = Jobs(tmp_path, lambda: None)
        jobs.start("run", {}, request={})
        await settle()
        jobs.warm_up()  # its second half waits for the run
        await settle()
        run = jobs.start("run", {}, request={})
        await settle()
        jobs.cancel(run)
        await settle()
        assert jobs._spare is not None
        assert not jobs._spare.ended
        await jobs.close()

    monkeypatch.setattr("flowveil.apps.workbench.jobs._Process.start", start)
    # In a thread: the browser tests of the same process leave an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, check()).result(timeout=30)
