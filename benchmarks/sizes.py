"""One table: the default's whole run by size and kind of the input, next to the least possible.

Trips are those of San Francisco or Santiago. Larger inputs are copies of the city, each at another
place: so the number of trips a flow (1.8 to 4) stays that of real data. Floors are what a careful
user would write: DuckDB reads the columns, both ends become H3 cells by flowveil's own indexing (or
are codes of a map), and one GROUP BY counts; nothing is checked, decided or written. Every row is a
separate process; processor seconds count, because a busy machine changes them less.

    python -m benchmarks sizes                     up to a million trips, in some minutes
    python -m benchmarks.sizes 0.01 0.1 1 10 100   sizes of the first kind, in million trips
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

from benchmarks.scale import _clocks
from benchmarks.twincut_table import DATA

SETS = {"Santiago": "santiago_taxi/trips.parquet", "San Francisco": "cabspotting_sf/trips.parquet"}
RESOLUTION = 9
ENDS = ("o_lat", "o_lon", "d_lat", "d_lon")
#: Degrees between copies of a city, and copies in a row of them.
APART, COLUMNS = 2.0, 20
TIME = {"time": "start_ts", "timezone": "America/Los_Angeles"}
#: By name: the set, million trips, how they are read, and the zones of a map.
KINDS: dict[str, tuple[str, float, dict[str, Any], int]] = {
    "trips": ("San Francisco", 1.0, {"person": ""}, 0),
    "people (cabs)": ("San Francisco", 1.0, {"person": "cab_id"}, 0),
    "24 hours": ("San Francisco", 1.0, {"person": "", **TIME, "every": "hour"}, 0),
    "168 hours of the week": (
        "San Francisco",
        1.0,
        {"person": "", **TIME, "every": "weekday-hour"},
        0,
    ),
    "map of 1,000 zones": ("San Francisco", 1.0, {"person": ""}, 1_000),
    "map of 25,000 zones": ("San Francisco", 1.0, {"person": ""}, 25_000),
    "map of 100,000 zones": ("San Francisco", 1.0, {"person": ""}, 100_000),
}


def write_copies(folder: Path, name: str, rows: int) -> None:
    """Writes so many trips: a sample of the city, or copies of it at other places."""
    table = pq.read_table(DATA / SETS[name])
    rng = np.random.default_rng(11)
    folder.mkdir(parents=True)
    if rows < len(table):
        table = table.take(pa.array(np.sort(rng.choice(len(table), rows, replace=False))))
    for copy, start in enumerate(range(0, rows, len(table))):
        part = table.slice(0, min(len(table), rows - start))
        shift = {"lat": APART * (copy // COLUMNS), "lon": APART * (copy % COLUMNS)}
        for column in ENDS:
            moved = part[column].to_numpy() + shift[column[2:]]
            at = part.schema.get_field_index(column)
            part = part.set_column(at, column, pa.array(moved))
        if "cab_id" in part.column_names:
            cabs = pa.array([f"{cab}-{copy}" for cab in part["cab_id"].to_pylist()])
            part = part.set_column(part.schema.get_field_index("cab_id"), "cab_id", cabs)
        pq.write_table(part, folder / f"part-{copy:04d}.parquet", compression="zstd")


def write_map(folder: Path, trips: Path, n_zones: int) -> None:
    """Writes a map of points near where trips begin or end, and the same trips between its
    zones."""
    from scipy.spatial import cKDTree

    table = pq.read_table(trips)
    points = [np.column_stack([table[f"{end}_{axis}"] for axis in ("lat", "lon")]) for end in "od"]
    rng = np.random.default_rng(3)
    chosen = np.concatenate(points)[rng.choice(2 * len(table), n_zones, replace=False)]
    chosen = chosen + rng.normal(0, 1e-4, chosen.shape)
    codes = np.array([f"Z{i:06d}" for i in range(n_zones)])
    folder.mkdir(parents=True)
    places = {"zone": codes, "lat": chosen[:, 0], "lon": chosen[:, 1]}
    pq.write_table(pa.table(places), folder / "zones.parquet")
    near = [cKDTree(chosen).query(ends)[1] for ends in points]
    coded = {"from_zone": codes[near[0]], "to_zone": codes[near[1]]}
    pq.write_table(pa.table(coded), folder / "trips.parquet")


def floor(folder: Path, how: dict[str, Any], mapped: bool) -> None:
    import duckdb

    from benchmarks.points import index_points

    con = duckdb.connect()
    if mapped:
        con.execute(
            "CREATE TABLE grouped AS SELECT from_zone, to_zone, count(*)"
            f" FROM read_parquet('{folder}/trips.parquet') GROUP BY ALL"
        )
        return
    further = [how[name] for name in ("person", "time") if how.get(name)]
    relation = con.sql(f"SELECT {', '.join((*ENDS, *further))} FROM '{folder}/*.parquet'")
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    into, made = con.cursor(), False
    for batch in reader(1 << 17):
        points = [batch.column(i).to_numpy() for i in range(4)]
        columns = {
            end: index_points(points[at], points[at + 1], RESOLUTION)
            for end, at in (("o", 0), ("d", 2))
        }
        for at, name in enumerate(further, start=4):
            values = batch.column(at)
            columns[name] = values.to_numpy() // 3600 % 24 if name == how.get("time") else values
        into.register("rows", pa.table(columns))
        into.execute(
            f"{'INSERT INTO' if made else 'CREATE TABLE'} ends {'' if made else 'AS'}"
            " SELECT * FROM rows"
        )
        made = True
    con.execute(
        f"CREATE TABLE grouped AS SELECT {', '.join(columns)}, count(*) FROM ends GROUP BY ALL"
    )


def release(folder: Path, how: dict[str, Any], mapped: bool) -> dict[str, float]:
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
    if mapped:
        ends = {"origin_tile": "from_zone", "destination_tile": "to_zone"}
        zones = flowveil.read_zones(folder / "zones.parquet")
        flows = flowveil.read_trips(folder / "trips.parquet", zones=zones, **ends, **how)
    else:
        places = {"origin": ENDS[:2], "destination": ENDS[2:]}
        flows = flowveil.read_trips(folder, resolution=RESOLUTION, **places, **how)
    times.append(_clocks())
    protect = "people" if how.get("person") else "trips"
    made = flowveil.anonymize(flows, k=10, protect=protect)
    times.append(_clocks())
    with tempfile.TemporaryDirectory() as out:
        made.write(Path(out) / "release")
    times.append(_clocks())
    read, decide, publish = (b[1] - a[1] for a, b in itertools.pairwise(times))
    again = recounts[1][1] - recounts[0][1]
    steps = {"read": read, "decide": decide, "write": publish - again, "recount": again}
    return {"flows": len(flows), "cells": made.flows.num_rows, **steps}


def one_side(spec: dict[str, Any]) -> None:
    start = time.perf_counter()
    folder = Path(spec["folder"])
    figures: dict[str, float] = {}
    if spec["side"] == "floor":
        floor(folder, spec["how"], spec["mapped"])
    else:
        figures = release(folder, spec["how"], spec["mapped"])
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures |= {"seconds": time.perf_counter() - start, "processor": used.ru_utime + used.ru_stime}
    print(json.dumps(figures | {"gigabytes": used.ru_maxrss / 1024**2}))


def measured(side: str, folder: Path, how: dict[str, Any], mapped: bool) -> dict[str, float]:
    spec = {"side": side, "folder": str(folder), "how": how, "mapped": mapped}
    command = [sys.executable, "-m", "benchmarks.sizes", "--one", json.dumps(spec)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def print_row(
    kind: str, name: str, millions: float, ours: dict[str, float], least: dict[str, float]
) -> None:
    steps = " | ".join(f"{ours[step]:.1f}" for step in ("read", "decide", "write", "recount"))
    print(
        f"| {kind} | {name} | {millions:g} | {ours['flows']:,.0f} | {ours['cells']:,.0f} |"
        f" {steps} | {ours['processor']:.1f} ({ours['seconds']:.1f}) | {ours['gigabytes']:.1f} |"
        f" {least['processor']:.1f} | {ours['processor'] / least['processor']:.1f} |",
        flush=True,
    )


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millions", type=float, nargs="*", default=[0.01, 0.1, 1.0])
    parser.add_argument("--only-sizes", action="store_true", help="leave the other kinds out")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.one:
        return one_side(json.loads(options.one))
    print(
        "| kind | data | million trips | flows | cells | read | decide | write | recount | whole run,"
        " processor s (seconds) | GB | floor, processor s | times the floor |\n"
        f"|---|---|{'---:|' * 11}"
    )
    rows = [
        ("trips", name, millions, {"person": ""}, 0)
        for name in SETS
        for millions in options.millions
    ]
    if not options.only_sizes:
        rows += [(kind, *row) for kind, row in itertools.islice(KINDS.items(), 1, None)]
    with tempfile.TemporaryDirectory() as scratch:
        for kind, name, millions, how, n_zones in rows:
            trips = Path(scratch) / f"{name}-{millions:g}"
            if not trips.exists():
                write_copies(trips, name, int(millions * 1e6))
            folder = trips
            if n_zones:
                folder = Path(scratch) / f"map-{n_zones}"
                write_map(folder, trips, n_zones)
            mapped = n_zones > 0
            least = measured("floor", folder, how, mapped)
            print_row(kind, name, millions, measured("release", folder, how, mapped), least)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
