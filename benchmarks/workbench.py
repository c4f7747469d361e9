"""How soon a preview of the workbench is there, and how much memory its server takes.

A synthetic survey of half a million trips is picked in a workbench that runs as users run it.
Previews are requested one after the other, each with another k, from the request to the whole
result, the first one apart; in addition one run of ODkAnon on the same flows. Then a large file is
sent, and the server's memory is read before, during and after.

    python -m benchmarks workbench
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import flowveil
from flowveil.reading.sources.synthetic import synthetic_survey

#: Seconds in which a preview must be there, in the middle of all but the first.
TARGET = 1.0
#: What the server may take more while a file is sent, and after it.
MEGABYTES = 64


class Page:
    """A browser's part of the talk."""

    def __init__(self, address: str) -> None:
        self.at = re.match(r"http://([\d.:]+)/", address)[1]  # type: ignore[index]
        self.headers = {"Origin": f"http://{self.at}"}
        talk = http.client.HTTPConnection(self.at)
        talk.request("GET", address.partition(self.at)[2])
        self.headers["Cookie"] = (talk.getresponse().getheader("set-cookie") or "").partition(";")[
            0
        ]

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        talk = http.client.HTTPConnection(self.at, timeout=600)
        body = json.dumps(content) if isinstance(content, dict) else content
        talk.request(
            method, path, body, self.headers, encode_chunked=not isinstance(body, str | None)
        )
        answer = talk.getresponse()
        text = answer.read()
        talk.close()
        try:
            said = json.loads(text)
        except ValueError:
            raise SystemExit(
                f"{method} {path}: {answer.status}, no JSON but {text[:200]!r}"
            ) from None
        if "error" in said and said["error"] and "kind" not in said:
            raise SystemExit(said["error"])
        return said

    def run(self, kind: str, choices: dict[str, Any]) -> float:
        """Seconds from the request to the whole result."""
        began = time.perf_counter()
        name = self.ask("POST", "/api/jobs", {"kind": kind, "choices": choices})["id"]
        while True:
            (job,) = [job for job in self.ask("GET", "/api/state")["jobs"] if job["id"] == name]
            if job["state"] == "failed":
                raise SystemExit(job["error"])
            if job["state"] == "done":
                break
            time.sleep(0.03)
        self.ask("GET", f"/api/jobs/{name}/result")
        return time.perf_counter() - began


def memory(pid: int, which: str = "VmRSS") -> float:
    """Megabytes of a process: now, or at most so far (VmHWM)."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("utf-8"))
    return int(found[1]) / 1000 if found else float("nan")


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=20_400)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=1000)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        trips = Path(place) / "trips.parquet"
        pq.write_table(synthetic_survey(people=options.people), trips)
        command = [sys.executable, "-m", "flowveil", "serve", "--port", "0", "--no-open"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        served = subprocess.Popen(
            command, cwd=place, stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert served.stdout is not None
            page = Page(re.search(r"http://\S+", served.stdout.readline())[0])  # type: ignore[index]
            _previews(page, served.pid, trips, options.repeat)
            _memory(page, served.pid, options.megabytes)
        finally:
            served.terminate()
            served.wait(30)


def processor(pid: int) -> float:
    """Processor seconds of a server and of its workers so far.

    What a machine with nothing else to do would take.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    ticks = 0
    for one in [str(pid), *children]:
        ticks += sum(
            map(int, Path(f"/proc/{one}/stat").read_text("utf-8").rpartition(")")[2].split()[11:13])
        )
    return ticks / os.sysconf("SC_CLK_TCK")


def _previews(page: Page, pid: int, trips: Path, repeat: int) -> None:
    page.ask("POST", "/api/pick", {"role": "trips", "path": trips.name})
    flows = flowveil.read_trips(trips)
    first = page.run("preview", {"k": 10, "max_suppressed": 0.1})
    others, busy = [], []
    for n in range(repeat):
        before = processor(pid)
        others.append(page.run("preview", {"k": 11 + n, "max_suppressed": 0.1}))
        busy.append(processor(pid) - before)
    runs = []
    for n in range(repeat):
        began = time.perf_counter()
        flowveil.anonymize(flows, method="odkanon", budget="volume", k=11 + n)
        runs.append(time.perf_counter() - began)
    median, run = statistics.median(others), statistics.median(runs)
    print(
        f"{int(flows.trips.sum()):,} trips: first preview {first:.2f} s, then {median:.2f} s in the"
        f" middle of {repeat}"
    )
    print(f"processor time of a preview, server and workers: {statistics.median(busy):.2f} s")
    print(f"one run of ODkAnon {run:.2f} s: a preview is {median / run:.1f} times that")
    print(f"{'as asked' if median <= TARGET else 'TOO SLOW'}: at most {TARGET:g} s")


def _memory(page: Page, pid: int, megabytes: int) -> None:
    def blocks() -> Iterator[bytes]:
        for _ in range(megabytes):
            yield b"1" * 1_000_000

    before = memory(pid)
    began = time.perf_counter()
    page.ask("PUT", "/api/files/trips?name=large.csv", blocks())
    seconds = time.perf_counter() - began
    most = memory(pid, "VmHWM")
    page.ask("POST", "/api/empty", {})
    after = memory(pid)
    print(
        f"server: {before:.0f} MB, at most {most:.0f} MB for {megabytes:,} MB in {seconds:.1f} s,"
        f" then {after:.0f}"
    )
    fine = max(most, after) - before <= MEGABYTES
    print(f"{'as asked' if fine else 'TOO MUCH'}: at most {MEGABYTES} MB more")


if __name__ == "__main__":
    main(sys.argv[1:])
