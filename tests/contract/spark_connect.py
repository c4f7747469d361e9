"""Reads trips and publishes them through Spark Connect; run by test_spark.py in a separate process.

A process has one kind of Spark session. The server is that of the pyspark package, started on
loopback.
"""

from __future__ import annotations

import sys
from pathlib import Path

import flowveil
from flowveil.core.remote_people import RemotePeople
from samples.drafts import unchecked
from samples.small_spark import SMALL

if __name__ == "__main__":
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    session = SparkSession.builder.remote("local[2]").config(map=SMALL).getOrCreate()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    how = {"resolution": 8, "person": "person_id", "weight": "weight"}
    on_duckdb = flowveil.read_trips(folder / "trips.parquet", **how)
    for name, rows in (("persons on the driver", 10_000), ("persons on the cluster", 10)):
        with flowveil.cluster(driver_flows=rows):
            flows = flowveil.read_trips(folder / "trips.parquet", engine="spark", **how)
        with unchecked():
            folders = [
                flowveil.anonymize(each, k=5).write(folder / f"{number}-{name}", overwrite=True)
                for number, each in enumerate((on_duckdb, flows))
            ]
        same = all(
            (folders[0] / part.name).read_bytes() == part.read_bytes()
            for part in folders[1].iterdir()
        )
        print(
            f"{name}: {'same bytes' if same else 'other bytes'},"
            f" {isinstance(flows.people, RemotePeople)}"
        )
    session.stop()
