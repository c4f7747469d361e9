"""From trips by size to a release: time and memory of each step, next to the least that has to be
done.

Trips are written once, in parts, as Parquet in folders of days: a person for every 50 trips, as
text, with ten ways each, and three flows for every hundred trips. The floor is what a careful user
would write: DuckDB reads the columns that are needed, both ends become H3 cells in columns, and one
GROUP BY counts trips by (origin, destination, person); nothing is checked, no tree is built,
nothing is decided, nothing is written. There is one floor for each installed library that turns
columns of points into cells (``pip install polars-h3 h3ronpy``), and one with flowveil's own
indexing. The target is set by the fastest library. Floors and releases are measured in turn, each
in a separate process, in seconds and in processor seconds, which a busy machine changes less.

    python -m benchmarks.scale [MILLIONS ...] [--methods twincut,layercut] [--scratch FOLDER]
    [--memory 4GB]
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.points import ONE_BY_ONE, OWN, ways

#: What a run may cost as a multiple of the floor, and how much ten times the trips may cost.
TARGET, GROWTH = 1.5, 12.0
PART = 2_000_000
RESOLUTION = 9


def write_trips(folder: Path, rows: int) -> None:
    """The same trips whenever they are written; a folder that is there already is kept."""
    done = folder / "_done"
    if done.is_file():
        return
    rng = np.random.default_rng(17)
    n_flows, n_people = max(rows * 3 // 100, 1), max(rows // 50, 1)
    towns = rng.normal((48.85, 2.35), (0.35, 0.5), size=(60, 2))
    ends = [
        towns[rng.integers(60, size=n_flows)] + rng.normal(0, 0.05, size=(n_flows, 2))
        for _ in range(2)
    ]
    ways = (n_flows * rng.random((n_people, 10)) ** 2.5).astype(np.int32)
    names = pa.array([f"P{i:010x}" for i in (np.arange(n_people) * 2654435761 % 2**40).tolist()])
    for number, start in enumerate(range(0, rows, PART)):
        n = min(PART, rows - start)
        who = rng.integers(n_people, size=n)
        flow = ways[who, rng.integers(10, size=n)]
        columns: dict[str, Any] = {}
        for name, end in zip(("start", "end"), ends, strict=True):
            # Within a few metres of each other: most of them stay in one tile.
            columns[f"{name}_lat"], columns[f"{name}_lon"] = (
                end[flow] + rng.normal(0, 1e-5, size=(n, 2))
            ).T
        columns["person_id"] = names.take(pa.array(who))
        columns["purpose"] = pa.array(["work", "school", "other"]).take(
            pa.array(rng.integers(3, size=n))
        )
        part = folder / f"date=2024-01-{number % 28 + 1:02d}"
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), part / f"part-{number:04d}.parquet", compression="zstd")
    done.touch()


def floor(folder: Path, library: str) -> dict[str, float]:
    import duckdb

    index_points = ways()[library]
    con = duckdb.connect()
    con.execute("CREATE TABLE ends (o UBIGINT, d UBIGINT, person VARCHAR)")
    into = con.cursor()
    wanted = "start_lat, start_lon, end_lat, end_lon, person_id"
    relation = con.sql(f"SELECT {wanted} FROM read_parquet('{folder}/*/*.parquet')")
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    for batch in reader(1 << 17):
        points = [batch.column(i).to_numpy() for i in range(4)]
        o, d = (index_points(points[at], points[at + 1], RESOLUTION) for at in (0, 2))
        into.register("rows", pa.table({"o": o, "d": d, "person": batch.column(4)}))
        into.execute("INSERT INTO ends SELECT * FROM rows")
    con.execute(
        "CREATE TABLE grouped AS SELECT o, d, person, count(*) AS trips FROM ends GROUP BY ALL"
    )
    return {"rows": con.execute("SELECT count(*) FROM grouped").fetchall()[0][0]}


def release(folder: Path, method: str) -> dict[str, float]:
    import flowveil
    from flowveil.publishing import publish as publication

    recounts: list[tuple[float, float]] = []
    recount = publication._recount

    def timed_recount(*given: Any) -> None:
        before = _clocks()
        recount(*given)
        recounts.extend([before, _clocks()])

    publication._recount = timed_recount
    times = [_clocks()]
    flows = flowveil.read_trips(folder, resolution=RESOLUTION)
    times.append(_clocks())
    made = flowveil.anonymize(flows, method=method, k=10, protect="people")
    times.append(_clocks())
    with tempfile.TemporaryDirectory() as out:
        made.write(Path(out) / "release")
    times.append(_clocks())
    steps = {}
    for at, unit in enumerate(("", "_processor")):
        read, decide, publish = (b[at] - a[at] for a, b in itertools.pairwise(times))
        again = recounts[1][at] - recounts[0][at]
        values = {"read": read, "decide": decide, "write": publish - again, "recount": again}
        steps |= {f"{name}{unit}": value for name, value in values.items()}
    return {"flows": len(flows), "cells": made.flows.num_rows, **steps}


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def measured(what: str, folder: Path, memory: str | None = None) -> dict[str, float]:
    """Run one side in a separate process: a release by a method (``release:METHOD``), or the floor
    with a library."""
    command = [sys.executable, "-m", "benchmarks.scale", "--only", what, "--scratch", str(folder)]
    done = subprocess.run(
        [*command, *(["--memory", memory] if memory else [])], check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def one_side(what: str, folder: Path, memory: str | None) -> None:
    import flowveil

    start = time.perf_counter()
    with flowveil.limits(memory=memory):
        kind, _, method = what.partition(":")
        found = release(folder, method) if kind == "release" else floor(folder, what)
    used = resource.getrusage(resource.RUSAGE_SELF)
    found |= {"seconds": time.perf_counter() - start, "processor": used.ru_utime + used.ru_stime}
    print(json.dumps(found | {"gigabytes": used.ru_maxrss / 1024**2}))


def print_row(
    millions: float,
    method: str,
    ours: dict[str, float],
    floors: dict[str, dict[str, float]],
    libraries: list[str],
) -> None:
    ratio = {library: ours["seconds"] / below["seconds"] for library, below in floors.items()}
    listed = ", ".join(
        f"{name} {f['seconds']:.1f} ({f['processor']:.1f})" for name, f in floors.items()
    )
    target = (
        f"{max(ratio[library] for library in libraries):.2f}" if libraries else "none is installed"
    )
    steps = " | ".join(f"{ours[name]:.1f}" for name in ("read", "decide", "write", "recount"))
    print(
        f"| {millions:g} | {method} | {ours['flows']:,} | {ours['cells']:,} | {steps} |"
        f" {ours['seconds']:.1f} ({ours['processor']:.1f}) | {ours['gigabytes']:.1f} | {listed} |"
        f" {target} | {ratio[OWN]:.2f} |",
        flush=True,
    )


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millions", type=float, nargs="*", default=[0.01, 0.1, 1.0, 10.0])
    parser.add_argument(
        "--methods", default="twincut,layercut", help="methods to run, separated by commas"
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        help="where trips are written and kept; a temporary folder by default",
    )
    parser.add_argument("--memory", help="memory limit of the run, such as 4GB")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.only:
        return one_side(options.only, options.scratch, options.memory)
    libraries = [name for name in ways() if name not in (OWN, ONE_BY_ONE)]
    print(
        "| million trips | method | flows | cells | read s | decide s | write s | recount s | all"
        " s (processor) | GB | floor s (processor) by library | times the fastest library's floor"
        f" (at most {TARGET}) | times the floor with flowveil's own indexing |\n|{'---:|' * 13}"
    )
    last: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for millions in options.millions:
            folder = (options.scratch or Path(temporary)) / f"trips-{millions:g}m"
            write_trips(folder, int(millions * 1e6))
            floors = {library: measured(library, folder) for library in (OWN, *libraries)}
            for method in options.methods.split(","):
                ours = measured(f"release:{method}", folder, options.memory)
                print_row(millions, method, ours, floors, libraries)
                if method in last:
                    growth = ours["processor"] / last[method][1]
                    print(
                        f"{method} from {last[method][0]:g} to {millions:g} million: "
                        f"{growth:.1f}-fold "
                        f"(at most {GROWTH:g} from 10 to 100)"
                    )
                last[method] = millions, ours["processor"]
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
