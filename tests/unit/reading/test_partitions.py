"""Columns come from files, not from the names of their folders."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from flowveil import anonymize_slices, verify_release
from flowveil.apps.cli import main
from flowveil.core.errors import ParameterError
from flowveil.reading.engines import read_slices, read_trips
from flowveil.reading.sources import prepare
from flowveil.tabular.records import read_records
from flowveil.zoning.files import read_zones
from samples.drafts import unchecked

CELL = "8a1fb46622dffff"
TRIPS = pa.table({"start_h3": [CELL] * 3, "end_h3": [CELL] * 3, "sex": ["F", "M", "M"]})


def write(table: pa.Table, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("folder", ["trips=1000", "weight=100000", "person_id=x", "c0=x", "c2=x"])
def test_a_folder_is_no_column(tmp_path, folder, ending):
    flows = read_trips(write(TRIPS, tmp_path / folder / f"t.{ending}"))
    assert flows.trips.tolist() == [3]
    assert flows.weight is None
    assert flows.people is None


def test_a_folder_does_not_replace_a_column(tmp_path):
    write(
        TRIPS.append_column("weight", pa.array([1.0, 2.0, 3.0])),
        tmp_path / "weight=100000" / "t.parquet",
    )
    write(
        TRIPS.append_column("weight", pa.array([1.0, 2.0, 3.0])),
        tmp_path / "weight=100000" / "u.parquet",
    )
    assert read_trips(tmp_path, weight="weight").weight.tolist() == [12.0]


def test_other_readers_see_no_column_either(tmp_path):
    folder = tmp_path / "name=Zoe" / "c0=9" / "trips=7"
    zones = write(
        pa.table({"zone": ["a", "b"], "lat": [48.0, 48.1], "lon": [2.0, 2.1]}), folder / "z.parquet"
    )
    assert "name" not in read_zones(zones).columns
    assert read_records(zones).column_names == ["zone", "lat", "lon"]
    points = {
        "person": ["p", "p"],
        "time": [1_700_000_000, 1_700_000_060],
        "lat": [48.0, 48.1],
        "lon": [2.0, 2.1],
    }
    for ending in ("csv", "parquet"):
        trips = prepare("gps", write(pa.table(points), folder / f"g.{ending}"), dwell=None).trips
        assert trips["person_id"].to_pylist() == ["p"]
        assert trips["points"].to_pylist() == [2]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_partition_columns_cut_trips_when_asked_for(tmp_path, ending):
    path = write(TRIPS, tmp_path / "month=3" / "zone=l'%C3%A9t%C3%A9" / f"t.{ending}")
    sliced = read_slices(path, by="month,zone", partition_columns="month,zone", by_many=True)
    assert sliced.slice_keys == (("3", "l'été"),)
    assert sliced.intake.partition_columns == ("month", "zone")


def test_partition_columns_of_several_files(tmp_path):
    for month in (3, 4):
        write(TRIPS, tmp_path / f"trips={month}" / f"month={month}" / "t.parquet")
    write(TRIPS, tmp_path / "trips=3" / "month=__HIVE_DEFAULT_PARTITION__" / "t.parquet")
    sliced = read_slices(
        tmp_path, by="month", partition_columns=["month"], by_many=True, max_dropped=0.5
    )
    assert sliced.slice_keys == (("3",), ("4",))
    assert [s.trips.tolist() for s in sliced.slices] == [[3], [3]]
    assert sliced.intake.left_out == {"missing attribute": 3}


@pytest.mark.parametrize("role", ["trips", "weight", "person", "origin_tile"])
def test_a_partition_column_is_no_count_and_no_person(tmp_path, role):
    path = write(TRIPS, tmp_path / "x=1000" / "t.parquet")
    ends = {"destination_tile": "end_h3"} if role == "origin_tile" else {}
    with pytest.raises(ParameterError, match="path of the files"):
        read_trips(path, partition_columns="x", **{role: "x"}, **ends)
    in_memory = pads.dataset(str(tmp_path), partitioning="hive")
    with pytest.raises(ParameterError, match="path of the files"):
        read_trips(in_memory, **{role: "x"}, **ends)


def test_a_partition_column_is_not_recognised_as_a_count(tmp_path):
    path = write(TRIPS, tmp_path / "trips=1000" / "t.parquet")
    assert read_trips(path, partition_columns="trips").trips.tolist() == [3]
    assert read_trips(pads.dataset(str(tmp_path), partitioning="hive")).trips.tolist() == [3]


def test_wrong_partition_columns_are_refused(tmp_path):
    path = write(TRIPS, tmp_path / "a=1" / "a=2" / "t.parquet")
    for names, message in (("b", "no folder"), ("a", "more than one folder"), ("a,a", "twice")):
        with pytest.raises(ParameterError, match=message):
            read_trips(path, partition_columns=names)
    with pytest.raises(ParameterError, match="in memory"):
        read_trips(TRIPS, partition_columns="a")


def test_verify_reads_partition_columns_as_the_release_says(tmp_path):
    for month in (3, 4):
        write(pa.concat_tables([TRIPS] * 70), tmp_path / "in" / f"month={month}" / "t.parquet")
    out = tmp_path / "trips=7" / "out"
    out.parent.mkdir()
    asked = ["--by", "month", "--set", "input.partition_columns=month", "--format", "csv"]
    with unchecked():
        main(["anonymize", str(tmp_path / "in"), *asked, "--out", str(out)])
    assert '"partition_columns"' in (out / "report.json").read_text()
    assert verify_release(out, against=tmp_path / "in").holds
    assert (
        len(anonymize_slices(read_slices(tmp_path / "in", by="month", partition_columns="month")))
        == 2
    )
