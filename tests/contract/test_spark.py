"""The Spark engine on a real Spark: flows and releases of the DuckDB engine, byte by byte, or a
clear refusal."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import flowveil
from conftest import trip_table
from contract.odd_values import ODD, outcome
from contract.test_engines import same
from flowveil.apps.cli import cli
from flowveil.core.errors import DataError, MissingExtraError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.remote_people import RemotePeople
from flowveil.reading import Reading
from flowveil.reading.engines import read_flows
from flowveil.reading.engines import spark as spark_engine
from flowveil.reading.engines.spark_batches import COLUMNS, ROWS
from flowveil.reading.engines.spark_session import on_the_cluster
from flowveil.system import limits
from samples.drafts import unchecked
from samples.installed import needs
from samples.small_spark import QUICK, SMALL
from samples.spark_cluster import standalone_cluster

if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("the Spark engine needs Java 17, and Java is missing", allow_module_level=True)
needs("pyspark")
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One real Spark for all tests of this file, with two threads.

    Small, because the tables are.
    """
    from pyspark.sql import SparkSession

    settings = {**SMALL, "spark.log.level": "OFF"}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()


def trips(n: int = 400) -> pa.Table:
    table = trip_table(n)
    at = 1_700_000_000 + np.arange(n) % 3 * 86_400
    return table.append_column("sex", [["f", "m"] * (n // 2)]).append_column("at", pa.array(at))


def equal(one: Flows, other: Flows) -> bool:
    """Whether two readings agree in every byte of every slice, and in what they say of the rows."""
    assert (one.slice_columns, one.slice_keys, one.every) == (
        other.slice_columns,
        other.slice_keys,
        other.every,
    )
    # Only Spark says where flows are.
    assert replace(one.whole.intake, notes=one.whole.intake.notes[:-1]) == other.whole.intake
    return all(same(a, b) for a, b in zip(one.slices, other.slices, strict=True))


def files(folder: Path) -> dict[str, str]:
    """Hashes and not bytes: where two folders differ, pytest would look for the difference for an
    hour."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def zones(tmp_path: Path) -> Path:
    """A map of squares, each with a parent."""
    corners = [(i, j) for i in range(6) for j in range(6)]
    squares = []
    for i, j in corners:
        west, south = 2.2 + 0.05 * i, 48.75 + 0.04 * j
        ring = [
            [west, south],
            [west + 0.05, south],
            [west + 0.05, south + 0.04],
            [west, south + 0.04],
            [west, south],
        ]
        about = {"zone": f"z{i}{j}", "parent": f"p{i // 2}{j // 2}"}
        squares.append(
            {
                "type": "Feature",
                "properties": about,
                "geometry": {"type": "Polygon", "coordinates": [ring]},
            }
        )
    path = tmp_path / "zones.geojson"
    path.write_text(
        json.dumps({"type": "FeatureCollection", "features": squares}), encoding="utf-8"
    )
    return path


def test_flows_are_those_of_duckdb_whatever_the_partitions(spark: Any, tmp_path: Path) -> None:
    table = trips()
    on_map = flowveil.read_zones(zones(tmp_path), tile="zone", parent="parent", root="all")
    cases: list[tuple[int, dict[str, Any]]] = [
        (
            1,
            {
                "weight": "weight",
                "resolution": 8,
                "same_zones": True,
                "within": "2.2,48.8,2.5,48.9",
                "time": "at",
                "timezone": "UTC",
            },
        ),
        (5, {"by": "sex", "time": "at", "every": "day", "timezone": "UTC", "weight": "weight"}),
        (3, {"zones": on_map, "max_dropped": 0.5}),
    ]
    for parts, how in cases:
        frame = spark.createDataFrame(table).repartition(parts)
        assert equal(
            read_flows(frame, Reading.from_arguments(**how)),
            read_flows(table, Reading.from_arguments(**how)),
        )


@pytest.mark.parametrize("name", ODD)
def test_odd_values_are_read_as_written_down(spark: Any, name: str) -> None:
    table, how, expected = ODD[name]
    assert outcome(spark.createDataFrame(table), how) == expected


@pytest.mark.usefixtures("spark")
def test_releases_are_those_of_duckdb_to_the_last_byte(tmp_path: Path) -> None:
    pq.write_table(trips(), tmp_path / "trips.parquet")
    asked = [
        str(tmp_path / "trips.parquet"),
        "--k",
        "3",
        "--protect",
        "people",
        "--protect",
        "population",
    ]
    asked += ["--weight", "weight", "--l", "2", "--by", "sex", "--resolution", "8"]
    for engine in ("spark", "duckdb"):
        out = str(tmp_path / engine)
        # The second is to have the bytes of the first, which was recounted.
        with unchecked() if engine == "duckdb" else nullcontext():
            done = CliRunner().invoke(cli, ["anonymize", *asked, "--engine", engine, "--out", out])
        assert done.exit_code == 0, done.output
    assert files(tmp_path / "spark") == files(tmp_path / "duckdb")
    held = [
        "verify",
        str(tmp_path / "duckdb"),
        "--against",
        asked[0],
        "--set",
        "resources.engine=spark",
        "--set",
        "resources.driver_flows=399",
    ]
    assert CliRunner().invoke(cli, held).exit_code == 0


@pytest.mark.usefixtures("spark")
def test_files_are_read_as_duckdb_reads_them(tmp_path: Path) -> None:
    table = trips()
    for month in ("3", "4"):
        folder = tmp_path / "trips" / f"month={month}" / "weight=1000"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part 1.parquet")
    (tmp_path / "trips" / "_SUCCESS").write_text("")
    how = {"by": "month", "partition_columns": "month", "weight": "weight", "by_many": True}
    folder = tmp_path / "trips"
    assert equal(
        read_flows(folder, Reading.from_arguments(**how), engine="spark"),
        read_flows(folder, Reading.from_arguments(**how)),
    )
    (tmp_path / "text [1]").mkdir()
    for i, mark in enumerate((b"", b"\xef\xbb\xbf")):
        sink = pa.BufferOutputStream()
        pa_csv.write_csv(table.slice(200 * i, 200), sink, pa_csv.WriteOptions(delimiter=";"))
        (tmp_path / "text [1]" / f"a*{i}.csv").write_bytes(
            mark + sink.getvalue().to_pybytes().replace(b"\n", b"\r\n")
        )
    folder = tmp_path / "text [1]"
    assert equal(
        read_flows(folder, Reading.from_arguments(), engine="spark"),
        read_flows(folder, Reading.from_arguments()),
    )


def test_a_table_is_read_by_its_name(spark: Any) -> None:
    table = trips(40)
    spark.createDataFrame(table).createOrReplaceTempView("journeys")
    assert equal(read_flows("journeys", Reading(), engine="spark"), read_flows(table, Reading()))
    with pytest.raises(ParameterError, match="no file and no table 'voyages'"):
        read_flows("voyages", Reading(), engine="spark")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "bad",
    [
        b"48.85,2.35,48.86,2.36,SECRET",
        b'48.85,2.35,48.86,2.36,7,"SECRET',
        b"48.85,2.35,48.86,2.36,SECRET\xff,1",
        b"SECRET,2.35,48.86,2.36,1,1",
    ],
)
def test_no_message_discloses_a_value(tmp_path: Path, bad: bytes, capfd: Any) -> None:
    lines = [
        b"o_lat,o_lon,d_lat,d_lon,uid,note",
        b"48.85,2.35,48.86,2.36,a,b",
        bad,
        b"48.85,2.35,48.86,2.36,a,b",
    ]
    (tmp_path / "trips.csv").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(DataError) as caught:
        read_flows(tmp_path / "trips.csv", Reading(), engine="spark")
    assert "SECRET" not in str(caught.value) + "".join(capfd.readouterr())
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_all_flows_go_to_the_driver_and_are_refused_if_they_exceed_its_memory(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = trips(40)
    frame = spark.createDataFrame(table)
    for who, note in (
        (None, "persons stay on the cluster"),
        ("", "without persons, nothing can be counted"),
    ):
        with flowveil.cluster(driver_flows=10):
            there = flowveil.read_trips(frame, person=who)
        here = flowveil.read_trips(table, person=who)
        assert note in there.intake.notes[-1]
        for column in ("origin", "destination", "trips"):
            assert getattr(there, column).tolist() == getattr(here, column).tolist()
        assert (there.people is None) == (here.people is None)
    # A driver for which these flows are too many.
    monkeypatch.setattr(limits, "_memory_of_machine", lambda: limits.PROGRAM)
    with (
        flowveil.cluster(driver_flows=10),
        pytest.raises(
            ParameterError,
            match=r"memory of this machine, .* taking 1 thousand flows to the driver needs",
        ),
    ):
        flowveil.read_trips(frame)


#: What is made of persons that stay on the cluster: partitions, how trips are read, and methods
#: with guarantees. Every method of `flowveil.core.remote_people` is run without a cluster in
#: `test_distant`; here those that are promised for one.
STAY: dict[str, tuple[int, dict[str, Any], list[tuple[str, dict[str, Any]]]]] = {
    "tiles": (
        1,
        {"weight": "weight", "resolution": 8},
        [
            ("twincut", {"protect": ["people", "population"], "l": 2}),
            ("suppression", {"protect": "trips"}),
        ],
    ),
    "map": (
        4,
        {"weight": "weight", "max_dropped": 0.5},
        [("odkanon", {"protect": ["people", "population"]}), ("paircut", {"protect": "people"})],
    ),
    "slices": (
        3,
        {"by": "sex", "weight": "weight", "resolution": 8},
        [("twincut", {"protect": "people", "l": 2})],
    ),
}


@pytest.mark.parametrize("name", STAY)
def test_persons_that_stay_on_the_cluster_make_the_same_releases(
    spark: Any, tmp_path: Path, name: str
) -> None:
    parts, how, runs = STAY[name]
    if name == "map":
        how = {
            **how,
            "zones": flowveil.read_zones(zones(tmp_path), tile="zone", parent="parent", root="all"),
        }
    table, reading = trips(), Reading.from_arguments(**how)
    local = read_flows(table, reading)
    # On the map, fewer than there are flows.
    with flowveil.cluster(driver_flows=1 if name == "map" else sum(map(len, local.slices))):
        there = read_flows(spark.createDataFrame(table).repartition(parts), reading)
    assert all(isinstance(part.people, RemotePeople) for part in there.slices)
    assert "stay on the cluster" in there.intake.notes[-1]
    made: Any = flowveil.anonymize_slices if how.get("by") else flowveil.anonymize
    for method, guarantee in runs:
        # Those of this machine are to have the bytes of a folder that was recounted.
        for place, flows, how_checked in (
            ("there", there, nullcontext),
            ("here", local, unchecked),
        ):
            one: Any = flows if how.get("by") else flows.whole
            with how_checked():
                made(one, method, k=3, max_suppressed=0.3, **guarantee).write(
                    tmp_path / f"{place}-{method}"
                )
        assert files(tmp_path / f"there-{method}") == files(tmp_path / f"here-{method}")


def test_a_task_that_fails_each_time_is_a_clear_error(spark: Any) -> None:
    def failing(_: Any) -> Any:
        raise ValueError("SECRET")

    frame = spark.createDataFrame(trips(40)).mapInArrow(
        failing, spark.createDataFrame(trips(40)).schema
    )
    with pytest.raises(DataError, match="a task failed repeatedly") as caught:
        flowveil.read_trips(frame)
    assert "SECRET" not in str(caught.value)


def test_a_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.pandas.functions import pandas_udf  # what every task of the engine is made by

    monkeypatch.setitem(sys.modules, "pandas", None)
    with (
        pytest.raises(MissingExtraError, match="needs pyspark with pandas"),
        on_the_cluster("the input"),
    ):
        pandas_udf(iter, returnType="n int", functionType=207)


def test_a_standalone_cluster_that_loses_executors_makes_the_same_releases(tmp_path: Path) -> None:
    """A master and two workers on loopback.

    Where the cluster is gone for good, nothing is written.
    """
    pq.write_table(trips(), tmp_path / "trips.parquet")
    script = Path(__file__).parent / "spark_faults.py"
    with standalone_cluster(tmp_path / "cluster") as master:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--conf spark.executor.memory=512m {QUICK}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [sys.executable, str(script), str(tmp_path), master]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    expected = ["encrypted", "killed", "equal", "killed", "counted"]
    expected += [f"{name}: same bytes" for name in ("layercut", "slices")]
    expected += ["the cluster is gone", "nothing published", "too little memory"]
    assert done.stdout.splitlines()[: len(expected)] == expected, done.stdout + done.stderr[-2000:]
    assert len(list((tmp_path / "cluster").glob("work-*/app-*/*"))) > 2


def test_rows_of_a_person_in_two_tasks_are_refused(spark: Any) -> None:
    """They would be counted as two persons."""
    for parts in (1, 2):
        batches = spark.sparkContext.parallelize(
            [(ROWS, 3, 1, b""), (ROWS, 3, 1, b"")], parts
        ).toDF(COLUMNS)
        with (
            nullcontext()
            if parts == 1
            else pytest.raises(DataError, match="of each person together")
        ):
            spark_engine._check_whole(batches)


def test_workers_that_choose_other_buckets_are_refused(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = spark_engine._versions()
    monkeypatch.setattr(
        spark_engine, "_versions", lambda: {**versions, "the hash of DuckDB": "another"}
    )
    with pytest.raises(DataError, match="other versions than the driver: the hash of DuckDB"):
        flowveil.read_trips(spark.createDataFrame(trips(40)))


def test_spark_connect_makes_the_same_releases(tmp_path: Path) -> None:
    """A session without a context: numbers of tasks are those that it is set to, and queries carry
    what they need."""
    needs("grpc")
    pq.write_table(trips(), tmp_path / "trips.parquet")
    script = Path(__file__).parent / "spark_connect.py"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    expected = [
        "persons on the driver: same bytes, False",
        "persons on the cluster: same bytes, True",
    ]
    assert done.stdout.splitlines() == expected, done.stdout + done.stderr[-2000:]
