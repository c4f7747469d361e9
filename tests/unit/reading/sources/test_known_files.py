"""Porto, New York and NetMob 2025: tiny files in their formats."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.engines import read_slices, read_trips
from flowveil.reading.sources.netmob25 import prepare_netmob25
from flowveil.reading.sources.nyc_tlc import prepare_nyc_tlc
from flowveil.reading.sources.porto import prepare_porto

PORTO = """"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA","POLYLINE"
"T1","B",NA,"15","200","1408039037","A","False","[[-8.5,41.1],[-8.55,41.15],[-8.6,41.2]]"
"T2","C",NA,NA,"201","1408039037","A","False","[]"
"T3","A","7",NA,"200","1408049037","A","True","[[-8.7,41.3]]"
"T4","B",NA,"15","200","1408059037","A","False","[[-8.1,41.0], [-8.2,41.5]]"
"""


def test_porto_takes_the_first_and_last_point_and_counts_short_tracks(tmp_path: Path):
    path = tmp_path / "train.csv"
    path.write_text(PORTO, encoding="utf-8")
    found = prepare_porto(path)
    assert found.dropped == {"empty tracks": 1, "tracks of one point": 1}
    first, second = found.trips.to_pylist()
    assert (first["start_lat"], first["start_lon"], first["end_lat"], first["end_lon"]) == (
        41.1,
        -8.5,
        41.2,
        -8.6,
    )
    assert (first["end_time"] - first["start_time"]).total_seconds() == 30
    assert (second["end_lat"], second["end_lon"], second["points"]) == (41.5, -8.2, 2)
    assert len(read_trips(found.trips, resolution=7)) == 2


def test_porto_refuses_another_table():
    with pytest.raises(DataError, match="POLYLINE"):
        prepare_porto(pa.table({"TRIP_ID": ["a"]}))


def test_nyc_zones_drop_ids_that_are_not_on_the_map():
    trips = pa.table(
        {
            "lpep_pickup_datetime": ["2020-03-01 00:20:18"] * 4,
            "lpep_dropoff_datetime": ["2020-03-01 00:30:18"] * 4,
            "PULocationID": [1.0, 2.0, 264.0, None],
            "DOLocationID": [2.0, 9.0, 1.0, 1.0],
        }
    )
    zones = pa.table({"LocationID": [1, 2, 3], "zone": ["A", "B", "C"]})
    found = prepare_nyc_tlc(trips, zones=zones)
    assert found.trips.select(["start_zone", "end_zone"]).to_pylist() == [
        {"start_zone": "1", "end_zone": "2"}
    ]
    assert found.dropped == {"missing zones": 1, "zones that are not on the map": 2}
    assert prepare_nyc_tlc(trips).trips.num_rows == 2


def test_nyc_coordinates_of_all_years():
    old = pa.table(
        {
            "Trip_Pickup_DateTime": ["2009-01-04 02:52:00"] * 2,
            "Trip_Dropoff_DateTime": ["2009-01-04 03:02:00"] * 2,
            "Start_Lon": [-73.99, 0.0],
            "Start_Lat": [40.72, 0.0],
            "End_Lon": [-73.98, -73.9],
            "End_Lat": [40.75, 40.7],
        }
    )
    found = prepare_nyc_tlc(old)
    assert found.trips.num_rows == 1
    assert found.dropped == {"trips with an end at 0,0": 1}
    with pytest.raises(DataError, match="PULocationID"):
        prepare_nyc_tlc(pa.table({"a": [1]}))


@pytest.fixture
def netmob(tmp_path: Path) -> Path:
    folder = tmp_path / "netmob25"
    (folder / "gps").mkdir(parents=True)
    (folder / "individuals_dataset.csv").write_text(
        "ID,SEX,AGE,PRO_CAT,GPS_RECORD,WEIGHT_INDIV\n"
        "10_1,Woman,34,Executives,True,2000.5\n10_2,Man,77,Retired,True,1500\n10_3,Man,20,Students,False,900\n",
        encoding="utf-8",
    )
    rows = ["LOCAL DATETIME,LATITUDE,LONGITUDE,SPEED"]
    rows += [f"2022-11-14 08:{m:02d}:00,48.{80 + m},2.3,5" for m in (0, 1, 2, 6, 7)]
    (folder / "gps" / "10_1.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    # Begins where and a second after the first person's record ends.
    (folder / "gps" / "10_2.csv").write_text(
        "LOCAL DATETIME,LATITUDE,LONGITUDE,SPEED\n2022-11-14 08:07:01,48.87,2.3,5\n2022-11-14"
        " 08:08:01,48.9,2.3,5\n",
        encoding="utf-8",
    )
    (folder / "gps" / "10_3.csv").write_text(
        "LOCAL DATETIME,LATITUDE,LONGITUDE,SPEED\n", encoding="utf-8"
    )
    return folder


def test_netmob_keeps_what_the_weights_distinguish(netmob: Path):
    (netmob / "individuals_dataset.csv").write_text(
        "ID,SEX,AGE,DIPLOMA,PRO_CAT,NB_PERS_HOUSE,NB_CAR,DEPARTMENT,GPS_RECORD,WEIGHT_INDIV\n"
        "10_1,Woman,25,Bac+2,Executives,3,1,75,True,2000.5\n10_2,Man,66,,Retired,1,0,93,True,1500\n",
        encoding="utf-8",
    )
    names = ("age_group", "department", "cars", "household", "diploma")
    rows = {tuple(t[name] for name in names) for t in prepare_netmob25(netmob).trips.to_pylist()}
    assert rows == {("16-25", "75", "1", "3", "Bac+2"), ("66-80", "93", "0", "1", None)}


def test_netmob_cuts_after_three_minutes_and_joins_the_individuals(netmob: Path):
    found = prepare_netmob25(netmob)
    rows = [
        (t["person_id"], t["sex"], t["age"], t["profession"], t["weight"], t["points"])
        for t in found.trips.to_pylist()
    ]
    assert rows == [
        ("10_1", "Woman", "30-39", "Executives", 2000.5, 3),
        ("10_1", "Woman", "30-39", "Executives", 2000.5, 2),
        ("10_2", "Man", "70+", "Retired", 1500.0, 2),
    ]
    assert found.dropped == {
        "participants without a complete record": 1,
        "files of no participant with a record": 1,
    }
    assert read_slices(found.trips, by="sex", by_many=True).slice_columns == ("sex",)


@pytest.mark.parametrize(
    ("points", "trips"),
    [
        # The clocks go back at 3:00: in local time the points of the second hour would lie among
        # those of the first.
        (
            [("2022-10-30 00:58:00", 1), ("2022-10-30 01:00:30", 2), ("2022-10-30 01:02:00", 3)],
            [("02:58", "02:02", 48.1, 48.3)],
        ),
        # The clocks go forward at 2:00: in local time the trip would have a gap of an hour.
        (
            [("2023-03-26 00:58:00", 1), ("2023-03-26 01:00:30", 2), ("2023-03-26 01:02:00", 3)],
            [("01:58", "03:02", 48.1, 48.3)],
        ),
    ],
)
def test_netmob_gaps_are_in_utc_and_times_local(netmob: Path, points, trips):
    rows = ["LATITUDE,LONGITUDE,UTC DATE,UTC TIME,LOCAL DATE,LOCAL TIME"]
    for text, place in points:
        instant = datetime.fromisoformat(text).replace(tzinfo=UTC)
        local = instant.astimezone(ZoneInfo("Europe/Paris"))
        rows.append(f"48.{place},2.3,{instant:%Y-%m-%d,%H:%M:%S},{local:%Y-%m-%d,%H:%M:%S}")
    (netmob / "gps" / "10_2.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    found = [t for t in prepare_netmob25(netmob).trips.to_pylist() if t["person_id"] == "10_2"]
    assert [
        (f"{t['start_time']:%H:%M}", f"{t['end_time']:%H:%M}", t["start_lat"], t["end_lat"])
        for t in found
    ] == trips


def test_netmob_keeps_trips_of_one_point_where_asked_and_sums_weights_over_persons(netmob: Path):
    (netmob / "gps" / "10_2.csv").write_text(
        HEAD + "2022-11-14 08:07:01,48.87,2.3,5\n", encoding="utf-8"
    )
    dropping, keeping = prepare_netmob25(netmob), prepare_netmob25(netmob, keep_one_point=True)
    assert dropping.dropped["trips of one point"] == 1
    assert "trips of one point" not in keeping.dropped
    assert (dropping.trips.num_rows, keeping.trips.num_rows) == (2, 3)
    assert "1 of 3 trips have one point" in keeping.notes[0]
    assert dropping.notes[-1].startswith("1 participants with trips represent 2,000 people")
    assert keeping.notes[-1].startswith("2 participants with trips represent 3,500 people")


def test_netmob_says_what_is_missing(netmob: Path, tmp_path: Path):
    with pytest.raises(ParameterError, match="folder"):
        prepare_netmob25(netmob / "individuals_dataset.csv")
    (netmob / "individuals_dataset.csv").write_text(
        "ID,SEX,WEIGHT_INDIV\n1,F,2\n", encoding="utf-8"
    )
    with pytest.raises(DataError, match="recorded"):
        prepare_netmob25(netmob)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ParameterError, match="--individuals"):
        prepare_netmob25(tmp_path / "empty")


def test_prepare_on_the_command_line(netmob: Path, tmp_path: Path, capsys):
    out = tmp_path / "trips.parquet"
    main(["prepare", "netmob25", str(netmob), "--out", str(out)])
    assert pq.read_table(out).num_rows == 3
    said = capsys.readouterr().out
    assert "3 trips" in said
    assert "10_1" not in said
    with pytest.raises(SystemExit) as ended:
        main(["prepare", "netmob25", str(netmob), "--out", str(out / "t.parquet")])
    assert ended.value.code == 2


HEAD = "LOCAL DATETIME,LATITUDE,LONGITUDE,SPEED\n"
DAMAGED = {
    "a quote that is not closed": (
        HEAD + '2022-11-14 08:07:01,48.87,2.3,"5\n2022-11-14 08:08:01,48.9,2.3,5\n'
    ),
    "more columns, quoted across lines": (
        HEAD + '2022-11-14 08:07:01,48.87,2.3,5,"x\n"2022-11-14 08:08:01,48.9,2.3,5\n'
    ),
    "no header": "2022-11-14 08:07:01,48.87,2.3,5\n2022-11-14 08:08:01,48.9,2.3,5\n",
    "not text": "\x00\x01\x02",
    "nothing at all": "",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_netmob_counts_a_file_that_cannot_be_read(
    netmob: Path, tmp_path: Path, capsys, content: str
):
    (netmob / "gps" / "10_2.csv").write_text(content, encoding="utf-8")
    main(["prepare", "netmob25", str(netmob), "--out", str(tmp_path / "trips.parquet")])
    assert pq.read_table(tmp_path / "trips.parquet")["person_id"].to_pylist() == ["10_1", "10_1"]
    said = "".join(capsys.readouterr())
    assert "1 GNSS files that cannot be read" in said
    assert "without a point" not in said
    assert "10_2" not in said
    # With no other file there is nothing to go on with: refused, and nothing of the file is
    # repeated.
    (netmob / "gps" / "10_1.csv").unlink()
    with pytest.raises(DataError) as refused:
        prepare_netmob25(netmob)
    assert "10_2" not in str(refused.value)
    assert "48.87" not in str(refused.value)


def test_netmob_reads_files_of_different_headers_and_counts_those_without_points(netmob: Path):
    (netmob / "gps" / "10_2.csv").write_text(
        "longitude;latitude;valid;utc date;utc time\r\n2.3;48.87;SPS;2022-11-14;08:07:01\r\n"
        "2.3;48.8;No fix;2022-11-14;08:07:30\r\n2.3;48.9;SPS;2022-11-14;08:08:01\r\n\r\n",
        encoding="utf-8",
    )
    found = prepare_netmob25(netmob)
    assert found.trips.to_pylist()[-1]["person_id"] == "10_2"
    assert found.trips.to_pylist()[-1]["points"] == 2
    (netmob / "gps" / "10_2.csv").write_text(HEAD, encoding="utf-8")
    assert prepare_netmob25(netmob).dropped["participants without a point that can be used"] == 1


def test_no_source_repeats_a_first_line_of_data(netmob: Path, tmp_path: Path, capsys):
    lines = {
        "gps": "SECRETPERSON,2024-01-01 08:00:00,48.851234,2.351234\n",
        "porto": (
            '"SECRETTRIP","B",,"15","SECRETTAXI",1408039037,"A","False","[[-8.512345,41.1],[-8.6,41.2]]"\n'
        ),
        "nyc-tlc": "SECRETVENDOR,2020-03-01 00:20:18,2020-03-01 00:30:18,48.851234,2.351234\n",
    }
    for name, line in lines.items():
        (tmp_path / "bare.csv").write_text(line * 3, encoding="utf-8")
        asked = ["--person", "SECRETPERSO"] if name == "gps" else []
        _refused_without_a_word_of_data(
            ["prepare", name, str(tmp_path / "bare.csv"), *asked], capsys
        )
    (tmp_path / "bare.csv").write_text(
        "SECRETPERSON,Woman,34,Executives,True,48.851234\n", encoding="utf-8"
    )
    given = ["--individuals", str(tmp_path / "bare.csv")]
    _refused_without_a_word_of_data(["prepare", "netmob25", str(netmob), *given], capsys)


def _refused_without_a_word_of_data(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--out", "never-written.parquet"])
    said = "".join(capsys.readouterr())
    assert ended.value.code == 2
    assert "looks like data" in said
    for secret in ("SECRETPERSON", "SECRETT", "SECRETV", "1234", "1408039037", "Woman"):
        assert secret not in said


@pytest.mark.real
def test_the_real_porto_sample(shared_data: Path):
    found = prepare_porto(shared_data / "porto_taxi" / "test.csv")
    assert found.trips.num_rows + sum(found.dropped.values()) == 320


@pytest.mark.real
def test_the_real_green_taxi_trips(shared_data: Path):
    place = shared_data / "nyc_green_taxi_zones"
    found = prepare_nyc_tlc(place / "trips.parquet", zones=place / "zones.csv")
    assert found.trips.num_rows + sum(found.dropped.values()) == 1_282_467
    assert not {"264", "265"} & set(found.trips["start_zone"].unique().to_pylist())
