"""Spark and DuckDB: the release of the same trips by both engines, in one run, in seconds and
processor seconds.

The trips are those of `benchmarks.scale`. Each side is a separate process; its processor seconds
are those of all processes that it starts: Java, and the Pythons of the workers. Three sides:

- ``duckdb``: one machine;
- ``spark``: ``local[2]``, all flows with numbers for persons on the driver;
- ``cluster``: ``local-cluster[2,1,2048]``, executors in separate processes, and persons stay with
  them. The memory of the driver is the most that its Python and its Java have had in memory (VmHWM)
  at any time, each by itself.

    python -m benchmarks.spark FOLDER_OF_TRIPS [--sides duckdb,spark,cluster] [--driver-memory 1g]
    [--read-only]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

MASTERS = {"spark": "local[2]", "cluster": "local-cluster[2,1,2048]"}
RESOLUTION, METHOD, K = 9, "twincut", 10


def family() -> list[int]:
    """This process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(place.name))
    found = [os.getpid()]
    for process in found:
        found += children.get(process, [])
    return found


def processor_seconds() -> float:
    """Of this process and its descendants, those included that have ended and were waited for."""
    ticks = 0
    for process in family():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def most_memory(process: int) -> float:
    """The most memory that a process has had, in gigabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024**2


def digest_of(flows: Any) -> str:
    """The flows, without their persons."""
    columns = (
        flows.origin,
        flows.destination,
        flows.trips,
        flows.origins.code,
        flows.destinations.code,
    )
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()


def one_side(
    side: str, folder: Path, driver_memory: str, driver_flows: int | None, *, read_only: bool
) -> None:
    """Read, decide and write, and print what it took."""
    import flowveil

    how: dict[str, Any] = {"resolution": RESOLUTION}
    block: Any = nullcontext()
    if side != "duckdb":
        settings = {
            "spark.driver.memory": driver_memory,
            "spark.driver.maxResultSize": "0",
            "spark.ui.enabled": "false",
        }
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            " ".join(f"--conf {k}={v}" for k, v in settings.items()) + " pyspark-shell"
        )
        os.environ["PYSPARK_PYTHON"] = sys.executable
        how["engine"] = "spark"
        # All rows go to the driver, however many, unless persons are to stay with the executors.
        most = driver_flows if side == "cluster" else 10**9
        block = flowveil.cluster(master=MASTERS[side], driver_flows=most)
    times, spent = [time.perf_counter()], []
    with block, tempfile.TemporaryDirectory() as out:
        flows = flowveil.read_trips(str(folder), **how)
        steps: list[Any] = [lambda made: digest_of(made)]
        if not read_only:
            steps = [
                lambda made: flowveil.anonymize(made, METHOD, k=K, protect="people"),
                lambda made: made.write(Path(out) / "release"),
                lambda _: hashlib.sha256(
                    (Path(out) / "release" / "manifest.json").read_bytes()
                ).hexdigest(),
            ]
        result: Any = flows
        for step in steps:
            times.append(time.perf_counter())
            spent.append(processor_seconds())
            result = step(result)
        times += times[-1:] * (4 - len(times))
        spent += spent[-1:] * (3 - len(spent))
    found = {
        "flows": len(flows),
        "rows": flows.people.blocks.n_rows if side == "cluster" else flows.people.n_rows,  # type: ignore[union-attr]
        "read": times[1] - times[0],
        "decide": times[2] - times[1],
        "write": times[3] - times[2],
        "seconds": times[3] - times[0],
        "read_processor": spent[0],
        "decide_processor": spent[1] - spent[0],
        "processor": spent[2],
        "python_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
        "digest": result,
    }
    if side != "duckdb":
        java = [
            p for p in family()[1:] if b"SparkSubmit" in Path(f"/proc/{p}/cmdline").read_bytes()
        ]
        found["java_gb"] = max(map(most_memory, java))
    print(json.dumps(found))


def main(words: Sequence[str] = ()) -> None:
    """Measure the sides in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="trips that benchmarks.scale has written")
    parser.add_argument("--sides", default="duckdb,spark,cluster")
    parser.add_argument("--driver-memory", default="1g")
    parser.add_argument("--driver-flows", type=int)
    parser.add_argument("--read-only", action="store_true", help="stop when flows are read")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.only:
        read_only = options.read_only
        return one_side(
            options.only,
            options.folder,
            options.driver_memory,
            options.driver_flows,
            read_only=read_only,
        )
    print(
        "| side | flows | with persons | read s | decide s | write s | all s (processor; reading,"
        f" deciding) | Python GB | Java GB | the same bytes |\n|---|{'---:|' * 8}---|"
    )
    first: dict[str, Any] = {}
    for side in options.sides.split(","):
        flows = first.get("flows") or options.driver_flows
        more = ["--driver-flows", str(flows)] if flows else []
        more += ["--read-only"] if options.read_only else []
        command = [
            sys.executable,
            "-m",
            "benchmarks.spark",
            str(options.folder),
            "--only",
            side,
            *more,
        ]
        command += ["--driver-memory", options.driver_memory]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        found = json.loads(done.stdout.splitlines()[-1])
        first = first or found
        processor = (
            f"{found['processor']:.0f}; {found['read_processor']:.0f},"
            f" {found['decide_processor']:.0f}"
        )
        print(
            f"| {side} | {found['flows']:,} | {found['rows']:,} | {found['read']:.0f} |"
            f" {found['decide']:.0f} | {found['write']:.0f} | {found['seconds']:.0f} ({processor})"
            f" | {found['python_gb']:.2f} | {found.get('java_gb', 0):.2f} |"
            f" {found['digest'] == first['digest']} |",
            flush=True,
        )
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
