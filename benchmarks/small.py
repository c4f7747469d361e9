"""What small releases cost: processor seconds to read, anonymise, write and verify one of every
kind, and of commands.

    python -m benchmarks.small [--repeat 5] [--only TEXT]

Tests make thousands of such releases and start hundreds of such processes, so this is what the
suite costs. Every figure is the smallest of several runs in one process, after one that is not
counted (it imports and compiles); writing contains the check of the draft. Those of commands are of
whole processes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

import flowveil
from samples.verified import findings_of

FORMATS = "csv,geojson,gpkg,omx,flowmap,kepler,arrow"
STEPS = ("read", "anonymize", "write", "verify")
COMMANDS = ("help", "anonymize", "verify")


def trips(rows: int = 600) -> pa.Table:
    """Trips of a hundred persons around two centres of a town."""
    rng = np.random.default_rng(7)
    person = rng.integers(0, 100, rows)
    ends = {
        f"{end}_{axis}": np.round(base + rng.normal(0, 0.015, rows) + (person % 2) * 0.02, 5)
        for end, axis, base in (
            *(("origin", "lat", 48.85), ("origin", "lon", 2.35)),
            *(("destination", "lat", 48.86), ("destination", "lon", 2.36)),
        )
    }
    start = np.datetime64("2024-03-04T00:00:00") + (rng.beta(2, 2, rows) * 86_000).astype(
        "timedelta64[s]"
    )
    return pa.table(
        {
            **ends,
            "person": person,
            "weight": np.round(rng.uniform(1, 9, rows), 2),
            "sex": np.where(rng.random(rows) < 0.5, "f", "m"),
            "start": start.astype("datetime64[s]"),
        }
    )


def mapped() -> tuple[pa.Table, pa.Table]:
    """Trips between the zones of a map of one's own, and the map."""
    rng = np.random.default_rng(4)
    names = [f"{a}{b}" for a in "ABCD" for b in range(6)]
    zones = pa.table(
        {
            "zone": names,
            "district": [name[0] for name in names],
            "lat": np.round(48.8 + np.arange(24) % 6 / 50, 3),
            "lon": np.round(2.3 + np.arange(24) // 6 / 50, 3),
        }
    )
    ends = rng.choice(names, (2, 600))
    return pa.table({"from": ends[0], "to": ends[1]}), zones


def kinds() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any], dict[str, Any]]]:
    """How each kind of release is read and anonymised, and its exports."""
    table, (moves, zones) = trips(), mapped()
    anonymize: Any = flowveil.anonymize
    places = table.select(
        [name for name in table.column_names if name.endswith(("lat", "lon", "sex", "start"))]
    )
    people = {"resolution": 7, "person": "person"}

    def read(**options: Any) -> Callable[[], Any]:
        source = table if "person" in options else places
        return lambda: flowveil.read_trips(source, **options)

    own = {
        "origin_tile": "from",
        "destination_tile": "to",
        "zones": flowveil.read_zones(zones, levels=["district", "zone"]),
    }
    noise = {"epsilon": 2.0, "region": "observed"}
    return {
        "people": (read(**people), lambda flows: anonymize(flows, k=5, protect="people"), {}),
        "population and l": (
            read(**people, weight="weight"),
            lambda flows: anonymize(flows, k=5, protect=["people", "population"], l=2),
            {},
        ),
        "slices": (
            lambda: flowveil.read_slices(places, resolution=7, by="sex"),
            lambda flows: flowveil.anonymize_slices(flows, k=5),
            {},
        ),
        "mondrian": (
            read(resolution=7),
            lambda flows: anonymize(flows, k=5, method="mondrian"),
            {},
        ),
        "glove": (read(resolution=7), lambda flows: anonymize(flows, k=5, method="glove"), {}),
        "laplace": (
            read(resolution=7),
            lambda flows: anonymize(flows, method="laplace", **noise),
            {},
        ),
        "topdown": (
            read(resolution=7),
            lambda flows: anonymize(
                flows, method="topdown", epsilon=2.0, level=7, region="841fb47ffffffff"
            ),
            {},
        ),
        "folded": (
            lambda: flowveil.read_slices(places, resolution=7, time="start", every="6h").folded(),
            lambda flows: anonymize(flows, k=5, method="paircut"),
            {},
        ),
        "own zones": (
            lambda: flowveil.read_trips(moves, **own),
            lambda flows: anonymize(flows, k=5),
            {},
        ),
        "exports": (read(resolution=7), lambda flows: anonymize(flows, k=5), {"formats": FORMATS}),
    }


def costs(name: str, *, repeat: int) -> list[float]:
    """Processor seconds of each step for one kind of release."""
    read, anonymize, written = kinds()[name]
    found = []
    for _ in range(repeat + 1):
        with tempfile.TemporaryDirectory() as place:
            folder, at = Path(place, "release"), [time.process_time()]
            flows = read()
            at.append(time.process_time())
            release = anonymize(flows)
            at.append(time.process_time())
            release.write(folder, **written)
            at.append(time.process_time())
            findings = findings_of(folder, flows)
            at.append(time.process_time())
            if findings:
                raise RuntimeError(f"{name}: {findings}")
            found.append(np.diff(at))
    return [float(seconds) for seconds in np.min(found[1:], axis=0)]


def command_costs(*, repeat: int) -> list[float]:
    """Processor seconds of whole processes: help, anonymising a small CSV, verifying what came of
    it."""
    with tempfile.TemporaryDirectory() as place:
        source, folder = Path(place, "trips.csv"), Path(place, "release")
        pyarrow.csv.write_csv(trips(), source)
        reading = ["--resolution", "7", "--person", "person"]
        made = ["anonymize", str(source), *reading, "--protect", "people", "--k", "5", "--out"]
        _process([*made, str(folder)])
        words = (
            lambda _: ["--help"],
            lambda run: [*made, f"{folder}-{run}"],
            lambda _: ["verify", str(folder), "--against", str(source), *reading],
        )
        return [min(_process(each(run)) for run in range(repeat)) for each in words]


def _process(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "flowveil", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="", help="kinds with this in their name")
    given = parser.parse_args()
    print("| processor seconds | " + " | ".join(STEPS) + " |\n|---|" + "---|" * len(STEPS))
    for name in kinds():
        if given.only in name:
            figures = costs(name, repeat=given.repeat)
            print(
                f"| {name} | " + " | ".join(f"{seconds:.3f}" for seconds in figures) + " |",
                flush=True,
            )
    if given.only in "commands":
        print(
            "\n| processor seconds | " + " | ".join(COMMANDS) + " |\n|---|" + "---|" * len(COMMANDS)
        )
        figures = command_costs(repeat=given.repeat)
        print("| a process | " + " | ".join(f"{seconds:.3f}" for seconds in figures) + " |")


if __name__ == "__main__":
    main()
