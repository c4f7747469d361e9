"""How long reading trips takes, compared with the unavoidable work.

The floor is what a careful user would write: DuckDB reads the CSV file, a loop calls h3 for both
ends of every trip, one GROUP BY counts the pairs; no column is checked, no row is screened, no tree
is built. The program prints the time of `read_trips` divided by the floor, both measured in turn in
the same run.

    python benchmarks/ingest.py [--rows 1700000] [--repeat 3] [--persons]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from flowveil.reading.engines import read_trips

#: What reading may cost, as a multiple of the floor.
TARGET = 2.0


def write_trips(path: Path, rows: int) -> None:
    rng = np.random.default_rng(7)
    center = rng.normal((48.85, 2.35), 0.08, size=(40, 2))
    columns = {}
    for end in ("start", "end"):
        point = center[rng.integers(len(center), size=rows)] + rng.normal(0, 0.02, size=(rows, 2))
        columns[f"{end}_lat"], columns[f"{end}_lon"] = np.round(point, 6).T
    columns["person_id"] = rng.integers(0, max(rows // 40, 1), size=rows)
    pa_csv.write_csv(pa.table(columns), path)


def floor(path: Path, resolution: int) -> int:
    con = duckdb.connect()
    trips = con.execute(
        f"SELECT start_lat, start_lon, end_lat, end_lon FROM read_csv('{path}')"
    ).fetchnumpy()
    start = zip(trips["start_lat"].tolist(), trips["start_lon"].tolist(), strict=True)
    end = zip(trips["end_lat"].tolist(), trips["end_lon"].tolist(), strict=True)
    pairs = pa.table(
        {
            "o": pa.array(
                [h3_int.latlng_to_cell(lat, lon, resolution) for lat, lon in start], pa.uint64()
            ),
            "d": pa.array(
                [h3_int.latlng_to_cell(lat, lon, resolution) for lat, lon in end], pa.uint64()
            ),
        }
    )
    con.register("pairs", pairs)
    con.execute("CREATE TABLE flows AS SELECT o, d, count(*) AS trips FROM pairs GROUP BY o, d")
    return int(con.execute("SELECT count(*) FROM flows").fetchall()[0][0])


def seconds(run: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_700_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--resolution", type=int, default=10)
    parser.add_argument("--persons", action="store_true", help="read the person column too")
    options = parser.parse_args(words)
    person = "person_id" if options.persons else ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trips.csv"
        write_trips(path, options.rows)
        ratios = []
        for _ in range(options.repeat):
            below, n_floor = seconds(lambda: floor(path, options.resolution))
            ours, n_ours = seconds(
                lambda: len(read_trips(path, resolution=options.resolution, person=person))
            )
            if n_floor != n_ours:
                raise SystemExit(f"{n_ours} flows, but the floor has {n_floor}")
            ratios.append(ours / below)
            print(f"floor {below:6.2f} s   read_trips {ours:6.2f} s   ratio {ratios[-1]:.2f}")
    print(
        f"{options.rows:,} rows, {n_ours:,} flows: median ratio {np.median(ratios):.2f}, target"
        f" {TARGET:.1f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
