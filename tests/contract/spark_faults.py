"""Run by `test_spark` as a separate program.

A standalone cluster whose executors are killed while they work.

A process can have one Spark session, and the tests have another one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import flowveil
from contract.test_engines import same
from flowveil.core.errors import DataError
from flowveil.core.remote_people import RemotePeople, count_distinct
from flowveil.reading.engines.spark_session import session


def fatal(marker: str) -> Any:
    """Rows unchanged; the first task kills its executor, and the second fails again."""

    def passed(batches: Any) -> Iterator[Any]:
        fail_twice(marker)
        yield from batches

    return passed


def fail_twice(marker: str) -> None:
    """The first time of all the executor is killed in which this runs, the second time something
    else is wrong."""
    for attempt in (1, 2):
        try:
            os.close(os.open(f"{marker}-{attempt}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        if attempt == 1:
            # The worker's parent is Spark's daemon for Python, and its parent the executor.
            daemon = os.getppid()
            executor = int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
            os.kill(executor, signal.SIGKILL)
        raise ValueError("a failure made for a test")


def fatal_count(flow: Any, person: Any, asked: Any) -> Any:
    """Persons counted in a block, by tasks that fail like those above."""
    if len(flow):
        fail_twice(asked[0])
    return count_distinct(flow, person, asked[1])


def release_files(flows: Any, folder: Path, method: str) -> dict[str, bytes]:
    """The files of a release of these flows, with people protected."""
    how: Any = {"k": 3, "protect": "people", "max_suppressed": 0.3}
    flowveil.anonymize(flows, method, **how).write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def compare_releases(rows: Any, folder: Path, master: str) -> None:
    """Prints whether releases of the cluster, where an executor is killed while it reads, have the
    bytes of DuckDB."""
    source = folder / "trips.parquet"
    for name, read, how, method in (
        ("layercut", flowveil.read_trips, {"resolution": 8}, "layercut"),
        ("slices", flowveil.read_slices, {"resolution": 8, "by": "sex"}, "twincut"),
    ):
        here = read(source, **how)
        fragile = rows.mapInArrow(fatal(str(folder / f"marker-{name}")), rows.schema)
        with flowveil.cluster(master=master, driver_flows=1):
            there = read(fragile, **how)
        parts = there.slices
        remote = all(isinstance(part.people, RemotePeople) for part in parts)
        killed = (folder / f"marker-{name}-1").exists()
        equal = release_files(there, folder / f"{name}-there", method) == release_files(
            here, folder / f"{name}-here", method
        )
        print(f"{name}: {'same bytes' if remote and killed and equal else (remote, killed, equal)}")


def main(folder: Path, master: str) -> None:
    """Print what happened, a line each."""
    with flowveil.cluster(master=master):
        spark = session()
        print(
            "encrypted" if spark.conf.get("spark.io.encryption.enabled") == "true" else "readable"
        )
        rows = spark.createDataFrame(pq.read_table(folder / "trips.parquet")).repartition(3)
        read = flowveil.read_trips(
            rows.mapInArrow(fatal(str(folder / "marker")), rows.schema), weight="weight"
        )
    print(
        "killed"
        if (folder / "marker-1").exists() and (folder / "marker-2").exists()
        else "nothing was killed"
    )
    expected = flowveil.read_trips(folder / "trips.parquet", weight="weight")
    print(
        "equal"
        if same(read, expected) and read.intake.rows == expected.intake.rows
        else "different"
    )
    with flowveil.cluster(master=master, driver_flows=len(expected)):
        there = flowveil.read_trips(rows, weight="weight")
    people: Any = there.people
    asked = (str(folder / "counting"), (*people.window(people.row), len(there)))
    # By the name of its module, by which workers find it.
    counted = people.blocks.summed(import_module("contract.spark_faults").fatal_count, asked)
    print("killed" if (folder / "counting-2").exists() else "nothing was killed")
    print("counted" if np.array_equal(counted, expected.n_people()) else "counted otherwise")
    compare_releases(rows, folder, master)
    spark.stop()
    try:
        flowveil.anonymize(there, k=3).write(folder / "release")
    except DataError as error:
        print("the cluster is gone" if "Nothing was written" in str(error) else error)
    print("nothing published" if not (folder / "release").exists() else "published")
    small = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.maxResultSize", "4k")
        .getOrCreate()
    )
    try:
        flowveil.read_trips(small.createDataFrame(pq.read_table(folder / "trips.parquet")))
    except DataError as error:
        print("too little memory" if "too little memory" in str(error) else error)
    small.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
