"""Soak test: sessions of the workbench, killed runs, fuzzed inputs and folders.

    make soak
    python -m benchmarks.soak --sessions 50 --runs 200 --inputs 10000 --folders 10000

- **Sessions**: uploads that arrive, break off or are no table; jobs that end or are cancelled; in
  between the server is killed. After each session its private folder is empty, and after a start
  only one private folder exists.
- **Runs**: `anonymize` over an earlier release, killed (SIGKILL) at a random write or at a random
  time; every fourth with a ledger. Afterwards the folder is the earlier release, the new one, or
  missing. The next start restores what was moved aside and removes the rest. A release that exists
  is in its ledger.
- **Inputs and folders**: `benchmarks.fuzz_reading` and `benchmarks.fuzz_verify`.

Prints counts and resident memory, and a line for each problem; the exit code is 1 if there is any.
Needs /proc.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import csv

from benchmarks import fuzz_reading, fuzz_verify
from benchmarks.workbench import Page, memory
from flowveil.reading.sources.synthetic import synthetic_survey
from flowveil.system.output import scratch_folder, try_place
from samples.killed import KILL_AT_CHANGE

#: Releases of two titles differ in their bytes, and either may replace the other.
_TITLES = ("first", "second")
#: Contents of the file with which Python's tempfile tries a folder.
_PROBES = (b"", b"blat")
#: Megabytes that a process may grow between the first fifth of its work and the end.
GROWTH = 32


def environment(temporary: Path) -> dict[str, str]:
    """Variables of a process that finds this flowveil and has a separate temporary folder."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "TMPDIR": str(temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


# ---- killed runs ---------------------------------------------------------------------------------


class KilledRuns:
    """Runs of `anonymize` in one folder, each killed at a random point.

    Attributes:
        problems: a line for each broken promise.
        ended: how many runs ended how.
    """

    def __init__(self, place: Path, seed: int) -> None:
        self.problems: list[str] = []
        self.ended: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._trips, self._temporary = place / "trips.csv", place / "tmp"
        self._folder, self._release = place / "out", place / "out" / "release"
        self._temporary.mkdir(parents=True)
        self._folder.mkdir()
        csv.write_csv(synthetic_survey(people=40), self._trips)
        #: Contents of the whole releases that a run may leave.
        self._known: set[str] = set()
        self._changes: dict[bool, int] = {}
        self._seconds = 0.0
        for ledger in (False, True):
            for title in _TITLES:
                began = time.monotonic()
                printed = self._start(0, title, ledger=ledger).communicate(timeout=600)[0]
                self._seconds = max(self._seconds, time.monotonic() - began)
                self._changes[ledger] = int(re.search(r"changes: (\d+)", printed)[1])  # type: ignore[index]
                self._known.add(content(self._release))
                self._reset()

    def _start(self, last: int, title: str, *, ledger: bool) -> subprocess.Popen[str]:
        command = [
            "anonymize",
            self._trips,
            "--k",
            "5",
            "--resolution",
            "7",
            "--title",
            title,
            "--quiet",
        ]
        command += ["--out", self._release]
        if ledger:
            command += ["--ledger", self._folder / "ledger"]
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                KILL_AT_CHANGE + "from flowveil.apps.cli import main; main()",
                str(last),
                *map(str, command),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(self._temporary),
            start_new_session=True,
        )

    def _reset(self) -> None:
        shutil.rmtree(self._folder)
        self._folder.mkdir()

    def run(self, number: int) -> None:
        """Runs once, kills, and checks what is left."""
        ledger = number % 4 == 3
        # A ledger refuses a second release of the same trips, and a release in it may not be
        # replaced by one outside.
        if ledger or number % 4 == 0:
            self._reset()
        before = content(self._release)
        at_write = self._rng.random() < 0.5
        last = self._rng.randint(1, self._changes[ledger]) if at_write else -1
        process = self._start(last, self._rng.choice(_TITLES), ledger=ledger)
        try:
            process.wait(600 if at_write else self._rng.uniform(0, self._seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        killed = "killed at a write" if at_write else "killed at a time"
        self.ended[killed if process.returncode == -signal.SIGKILL else "done before"] += 1
        if process.returncode not in (0, -signal.SIGKILL):
            self.problems.append(f"run {number}: exit code {process.returncode}")
        left = content(self._release)
        if left and left not in self._known:
            self.problems.append(f"run {number}: a part of a release is in its place")
        self.ended["drafts left by a kill"] += any(
            path.name.startswith(".") for path in self._folder.iterdir()
        )
        self._check_next_start(number, before, ledger)

    def _check_next_start(self, number: int, before: str, ledger: bool) -> None:
        """Does what every run does first, and checks that everything is tidy."""
        try_place(self._release)
        with scratch_folder(parent=self._temporary):
            pass
        left = content(self._release)
        if left not in self._known and (left or before):
            self.problems.append(f"run {number}: the earlier release is lost")
        allowed = {"release", "ledger"} if ledger else {"release"}
        remains = [path for path in self._folder.iterdir() if path.name not in allowed]
        # Python itself tries a temporary folder with a small file.
        remains += [
            path
            for path in self._temporary.iterdir()
            if not (path.is_file() and path.read_bytes() in _PROBES)
        ]
        for path in remains:
            inside = sorted(p.name for p in path.iterdir()) if path.is_dir() else "a file"
            self.problems.append(f"run {number}: left behind {path.name}: {inside}")
            shutil.rmtree(path, ignore_errors=True)
        if ledger and left:
            command = [
                sys.executable,
                "-m",
                "flowveil",
                "--quiet",
                "ledger",
                self._folder / "ledger",
            ]
            code = subprocess.run(
                command, capture_output=True, env=environment(self._temporary), check=False
            ).returncode
            manifest = hashlib.sha256((self._release / "manifest.json").read_bytes()).hexdigest()
            if code or manifest not in (self._folder / "ledger" / "ledger.jsonl").read_text(
                "utf-8"
            ):
                self.problems.append(f"run {number}: the release is not in its ledger")


def content(folder: Path) -> str:
    """A hash of all files of a folder; empty if the folder does not exist."""
    if not folder.exists():
        return ""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(
        b"".join(p.name.encode() + hashlib.sha256(p.read_bytes()).digest() for p in files)
    ).hexdigest()


# ---- the workbench -------------------------------------------------------------------------------


class Sessions:
    """A workbench and the sessions of its user.

    Attributes:
        problems: a line for each broken promise.
        done: how often what was done.
        megabytes: resident memory of the server after each session, by server.
    """

    def __init__(self, place: Path, seed: int) -> None:
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self.megabytes: list[list[float]] = []
        self._rng = random.Random(seed)
        self._root, self._temporary = place / "root", place / "tmp"
        self._root.mkdir(parents=True)
        self._temporary.mkdir()
        csv.write_csv(synthetic_survey(people=40), place / "trips.csv")
        self._trips = (place / "trips.csv").read_bytes()

    @contextmanager
    def server(self, *, kill: bool) -> Iterator[tuple[Page, int]]:
        """A workbench, stopped or killed at the end."""
        command = [sys.executable, "-m", "flowveil", "serve", "--port", "0", "--no-open"]
        served = subprocess.Popen(
            command,
            cwd=self._root,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(self._temporary),
        )
        try:
            assert served.stdout is not None
            page = Page(re.search(r"http://\S+", served.stdout.readline())[0])  # type: ignore[index]
            self._expect(
                len(list(self._temporary.iterdir())) == 1, "a start left an older private folder"
            )
            self.megabytes.append([])
            yield page, served.pid
        finally:
            served.send_signal(signal.SIGKILL if kill else signal.SIGINT)
            served.wait(60)
            assert served.stdout is not None
            served.stdout.close()
        self.done["servers killed" if kill else "servers stopped"] += 1
        self._expect(
            kill or not any(self._temporary.iterdir()), "a stopped server left its private folder"
        )

    def _expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(f"after {self.done['sessions']} sessions: {problem}")

    def session(self, page: Page, pid: int) -> None:
        """Uploads, jobs and cancels of one user, then everything is emptied and checked."""
        for _ in range(self._rng.randint(1, 3)):
            self._upload(page)
            for _ in range(self._rng.randint(1, 3)):
                self._job(page)
        page.ask("POST", "/api/empty", {})
        self.done["sessions"] += 1
        (room,) = self._temporary.iterdir()
        remains: list[Path] = []
        # A cancelled process is killed at once; its files are removed when it has ended.
        for _ in range(100):
            remains = [
                path for name in ("files", "jobs", "releases") for path in (room / name).iterdir()
            ]
            if not remains:
                break
            time.sleep(0.1)
        self._expect(
            not remains, f"files of a session are left: {sorted(p.suffix for p in remains)}"
        )
        self.megabytes[-1].append(memory(pid))

    def _upload(self, page: Page) -> None:
        kind = self._rng.choice(("whole", "whole", "whole", "broken off", "no table"))
        self.done[f"uploads {kind}"] += 1
        body = self._rng.randbytes(20_000) if kind == "no table" else self._trips
        talk = http.client.HTTPConnection(page.at, timeout=120)
        talk.putrequest("PUT", "/api/files/trips?name=trips.csv")
        for name, value in {**page.headers, "Content-Length": str(len(body))}.items():
            talk.putheader(name, value)
        talk.endheaders(body[: self._rng.randrange(len(body))] if kind == "broken off" else body)
        if kind != "broken off":
            answer = talk.getresponse()
            answer.read()
            self._expect(answer.status == 200, f"an upload was answered with {answer.status}")
        talk.close()

    def _job(self, page: Page) -> None:
        kind = self._rng.choice(("read", "describe", "preview", "run"))
        talk = http.client.HTTPConnection(page.at, timeout=120)
        wanted = {"kind": kind, "choices": {"k": 5, "resolution": 7}}
        talk.request("POST", "/api/jobs", json.dumps(wanted), page.headers)
        answer = talk.getresponse()
        started = json.loads(answer.read())
        talk.close()
        if "id" not in started:
            # The first upload broke off, so there are no trips.
            self.done["jobs refused"] += 1
            return
        if self._rng.random() < 0.6:
            time.sleep(self._rng.uniform(0, 1.5))
            page.ask("POST", f"/api/jobs/{started['id']}/cancel", {})
            self.done["jobs cancelled"] += 1
            return
        until = time.monotonic() + 300
        while time.monotonic() < until:
            states = {job["id"]: job["state"] for job in page.ask("GET", "/api/state")["jobs"]}
            if states.get(started["id"]) in ("done", "failed"):
                self.done[f"jobs {states[started['id']]}"] += 1
                return
            time.sleep(0.1)
        self._expect(False, f"a job '{kind}' did not end")


# ---- all of it -----------------------------------------------------------------------------------


def growth(megabytes: list[float]) -> tuple[float, float]:
    """Resident memory after a fifth of the work, and at the end: the larger of the last tenth."""
    return megabytes[len(megabytes) // 5], max(megabytes[-max(1, len(megabytes) // 10) :])


def soak_sessions(place: Path, count: int, seed: int) -> list[str]:
    """Runs sessions on one server, but for a tenth on servers that are killed."""
    soak = Sessions(place, seed)
    for _ in range(count // 10):
        with soak.server(kill=True) as (page, pid):
            soak.session(page, pid)
    with soak.server(kill=False) as (page, pid):
        for _ in range(count - count // 10):
            soak.session(page, pid)
    first, last = growth(soak.megabytes[-1])
    print(
        f"workbench: {dict(sorted(soak.done.items()))}; server {first:.0f} MB, at the end"
        f" {last:.0f} MB",
        flush=True,
    )
    return soak.problems + [f"the server grew from {first:.0f} to {last:.0f} MB"] * (
        last - first > GROWTH
    )


def soak_runs(place: Path, count: int, seed: int) -> list[str]:
    """Kills runs at random points."""
    soak = KilledRuns(place, seed)
    for number in range(count):
        soak.run(number)
    print(f"runs: {dict(sorted(soak.ended.items()))}", flush=True)
    return soak.problems


def soak_inputs(place: Path, count: int, seed: int) -> list[str]:
    """Reads changed trip files, and looks at the memory of this process."""
    place.mkdir()
    ended: Counter[str] = Counter()
    problems, megabytes = [], []
    for number in range(seed, seed + count):
        how, wrong = fuzz_reading.one(number, place)
        ended[how] += 1
        problems += [f"input {number}: {wrong}"] * bool(wrong)
        megabytes.append(memory(os.getpid()))
    first, last = growth(megabytes)
    print(f"inputs: {dict(ended)}; {first:.0f} MB, at the end {last:.0f} MB", flush=True)
    return problems + [f"reading grew from {first:.0f} to {last:.0f} MB"] * (last - first > GROWTH)


def soak_folders(count: int, seed: int) -> list[str]:
    """Verifies changed folders, in one separate process."""
    problems, first = [], seed
    with tempfile.TemporaryDirectory(prefix="flowveil-soak-") as place:
        while first < seed + count:
            first, lines = fuzz_verify._block(
                first, min(fuzz_verify.PER_PROCESS, seed + count - first), None, place
            )
            problems += lines
    print(f"folders: {count} changed", flush=True)
    return [f"folder {line}" for line in problems]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--folders", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="other numbers try other cases")
    chosen = parser.parse_args()
    problems = []
    with tempfile.TemporaryDirectory(prefix="flowveil-soak-") as place:
        if chosen.sessions:
            problems += soak_sessions(Path(place) / "workbench", chosen.sessions, chosen.seed)
        if chosen.runs:
            problems += soak_runs(Path(place) / "runs", chosen.runs, chosen.seed)
        if chosen.inputs:
            problems += soak_inputs(Path(place) / "inputs", chosen.inputs, chosen.seed)
    if chosen.folders:
        problems += soak_folders(chosen.folders, chosen.seed)
    print("\n".join([*problems, f"{len(problems)} problems"]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
