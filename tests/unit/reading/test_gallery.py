"""Headers of public data sets, with rows made up like theirs.

Recognised right, or refused with a hint that works.
"""

import json
import re
from dataclasses import dataclass, field

import pytest

from flowveil import read_slices, read_trips, read_zones
from flowveil.apps.cli import main
from flowveil.core.errors import DataError

CELLS = ("8a1fb46622dffff", "8a1fb46622d7fff")


@dataclass(frozen=True)
class Sample:
    """A file made like a public one.

    Attributes:
        header: its first line.
        row: one record; ``{i}`` is its number.
        found: the columns that are recognised, by role; empty where the ends are not.
        said: the arguments of `read_trips` that the hint requires.
        time: the column of the time, the hour of the first record, and the arguments that it needs.
        zones: codes of the ends, where they are zones.
        hint: a word that the notes of reading must have.
    """

    header: str
    row: str
    found: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    time: tuple[str, str, dict[str, str]] | None = None
    zones: tuple[str, ...] = ()
    hint: str = ""


BIKE = (
    "start station latitude,start station longitude",
    "end station latitude,end station longitude",
)
LAT_LNG = {"origin": "start_lat,start_lng", "destination": "end_lat,end_lng"}
TLC = {
    "origin": "pickup_latitude,pickup_longitude",
    "destination": "dropoff_latitude,dropoff_longitude",
}
GALLERY = {
    "Citi Bike 2013": Sample(
        '"tripduration","starttime","stoptime","start station id","start station name","start'
        ' station latitude","start station longitude","end station id","end station name","end'
        ' station latitude","end station longitude","bikeid","usertype","birth year","gender"',
        '"634","2013-07-13 15:09:00","2013-07-13 15:19:00","164","E 47'
        ' St","40.75","-73.97","504","1 Ave","40.73","-73.98","{i}","Customer","\\N","0"',
        {"origin": BIKE[0], "destination": BIKE[1]},
        time=("starttime", "2013-07-13T15:00", {}),
        hint="No person column",
    ),
    "Citi Bike 2016": Sample(
        "Trip Duration,Start Time,Stop Time,Start Station ID,Start Station Name,Start Station"
        " Latitude,Start Station Longitude,End Station ID,End Station Name,End Station Latitude,End"
        " Station Longitude,Bike ID,User Type,Birth Year,Gender",
        "680,10/13/2016 15:09:07,10/13/2016 15:18:27,328,Watts,40.72,-74,150,E"
        " 2,40.72,-73.98,{i},Subscriber,1982,1",
        {
            "origin": "Start Station Latitude,Start Station Longitude",
            "destination": "End Station Latitude,End Station Longitude",
        },
        time=("Start Time", "2016-10-13T15:00", {}),
    ),
    "Citi Bike 2021": Sample(
        "ride_id,rideable_type,started_at,ended_at,start_station_name,start_station_id,end_station_name,"
        "end_station_id,start_lat,start_lng,end_lat,end_lng,member_casual",
        "{i}A2,classic_bike,2021-02-13 15:09:00.123,2021-02-13"
        " 15:19:00,A,HB1,B,HB2,40.74,-74.04,40.75,-74.03,member",
        LAT_LNG,
        time=("started_at", "2021-02-13T15:00", {}),
    ),
    "Divvy 2019": Sample(
        "trip_id,start_time,end_time,bikeid,tripduration,from_station_id,from_station_name,to_station_id,"
        "to_station_name,usertype,gender,birthyear",
        "{i},2019-01-01 0:04:37,2019-01-01"
        " 0:11:07,2167,390.0,199,Wabash,84,Milwaukee,Subscriber,Male,1989",
        said={"origin_tile": "from_station_id", "destination_tile": "to_station_id"},
        time=("start_time", "2019-01-01T00:00", {}),
        zones=("199", "84"),
    ),
    "Divvy 2013": Sample(
        "trip_id,starttime,stoptime,bikeid,tripduration,from_station_id,from_station_name,to_station_id,"
        "to_station_name,usertype,gender,birthday",
        "{i},1/2/19 3:09:00 PM,1/2/19 3:19:00"
        " PM,2167,390,199,Wabash,84,Milwaukee,Subscriber,Male,1989",
        said={"origin_tile": "from_station_id", "destination_tile": "to_station_id"},
        time=("starttime", "2019-01-02T15:00", {"time_format": "%m/%d/%y %I:%M:%S %p"}),
        zones=("199", "84"),
    ),
    "BIXI 2014": Sample(
        "start_date,start_station_code,end_date,end_station_code,duration_sec,is_member",
        "2014-04-15 00:01,6209,2014-04-15 00:18,6436,1061,1",
        {"origin_tile": "start_station_code", "destination_tile": "end_station_code"},
        time=("start_date", "2014-04-15T00:00", {}),
        zones=("6209", "6436"),
    ),
    "BIXI 2022": Sample(
        "STARTSTATIONNAME,STARTSTATIONARRONDISSEMENT,STARTSTATIONLATITUDE,STARTSTATIONLONGITUDE,ENDSTATIONNAME,"
        "ENDSTATIONARRONDISSEMENT,ENDSTATIONLATITUDE,ENDSTATIONLONGITUDE,STARTTIMEMS,ENDTIMEMS",
        "Marquette,Le Plateau,45.53,-73.58,de Bullion,Le"
        " Plateau,45.52,-73.57,1650000000000,1650000600000",
        {
            "origin": "STARTSTATIONLATITUDE,STARTSTATIONLONGITUDE",
            "destination": "ENDSTATIONLATITUDE,ENDSTATIONLONGITUDE",
        },
        time=("STARTTIMEMS", "2022-04-15T01:00", {"timezone": "America/Montreal"}),
    ),
    "TfL cycle hire": Sample(
        "Rental Id,Duration,Bike Id,End Date,EndStation Id,EndStation Name,Start Date,StartStation"
        " Id,StartStation Name",
        "{i},960,1234,13/01/2020 15:25,45,Broad St,13/01/2020 15:09,12,Malet Street",
        {"origin_tile": "StartStation Id", "destination_tile": "EndStation Id"},
        time=("Start Date", "2020-01-13T15:00", {}),
        zones=("12", "45"),
    ),
    "NYC TLC yellow 2015": Sample(
        "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,passenger_count,trip_distance,pickup_longitude,"
        "pickup_latitude,RateCodeID,store_and_fwd_flag,dropoff_longitude,dropoff_latitude,payment_type,fare_amount",
        "2,2015-01-15 19:05:39,2015-01-15 19:23:42,1,1.59,-73.99,40.75,1,N,-73.97,40.75,1,12",
        TLC,
        time=("tpep_pickup_datetime", "2015-01-15T19:00", {}),
    ),
    "NYC TLC green 2014": Sample(
        "VendorID,lpep_pickup_datetime,Lpep_dropoff_datetime,Store_and_fwd_flag,RateCodeID,Pickup_longitude,"
        ""
        "Pickup_latitude,Dropoff_longitude,Dropoff_latitude,Passenger_count,Trip_distance,Trip_type ",
        "2,2014-01-15 19:05:39,2014-01-15 19:23:42,N,1,-73.99,40.75,-73.97,40.75,1,1.59,1",
        {
            "origin": "Pickup_latitude,Pickup_longitude",
            "destination": "Dropoff_latitude,Dropoff_longitude",
        },
    ),
    "NYC TLC yellow 2019": Sample(
        "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,passenger_count,trip_distance,RatecodeID,"
        "store_and_fwd_flag,PULocationID,DOLocationID,payment_type,fare_amount",
        "1,2019-01-01 00:46:40,2019-01-01 00:53:20,{i},1.50,1,N,151,239,1,7",
        {"origin_tile": "PULocationID", "destination_tile": "DOLocationID"},
        zones=("151", "239"),
        hint="Every row is counted as one trip",
    ),
    "NYC TLC for-hire 2019": Sample(
        "hvfhs_license_num,dispatching_base_num,pickup_datetime,dropoff_datetime,PULocationID,DOLocationID,SR_Flag",
        "HV0003,B02867,2019-02-01 00:05:18,2019-02-01 00:14:57,151,239,",
        {"origin_tile": "PULocationID", "destination_tile": "DOLocationID"},
        zones=("151", "239"),
    ),
    "Census flows": Sample(
        "Area of usual residence,Area of workplace,All categories: Method of travel to work,Work"
        " from home,Train",
        "E02002330,E02002331,{i},0,3",
        said={"origin_tile": "Area of usual residence", "destination_tile": "Area of workplace"},
        zones=("E02002330", "E02002331"),
        hint="All categories: Method of travel to work",
    ),
    "NetMob OD": Sample(
        "origin,destination,date,hour,trips",
        "c1,c2,20190316,8,{i}",
        {"origin_tile": "origin", "destination_tile": "destination"},
        said={"trips": "trips"},
        zones=("c1", "c2"),
    ),
    "TTS": Sample(
        "gta06_orig,gta06_dest,A,W,total",
        "12,13,40,3,{i}",
        said={"origin_tile": "gta06_orig", "destination_tile": "gta06_dest", "trips": "total"},
        zones=("12", "13"),
        hint="may hold one: W",
    ),
    "ActivitySim": Sample(
        "trip_id,person_id,household_id,tour_id,primary_purpose,trip_num,outbound,trip_count,destination,origin,purpose,"
        "depart,trip_mode",
        "{i},{i},7,8,work,1,True,1,12,13,work,8,WALK",
        {"origin_tile": "origin", "destination_tile": "destination", "person": "person_id"},
        zones=("12", "13"),
    ),
}


@pytest.fixture
def file_of(tmp_path):
    def write(sample):
        path = tmp_path / "trips.csv"
        path.write_text(
            "\n".join([sample.header, *(sample.row.replace("{i}", str(i)) for i in (3, 4, 4, 5))])
            + "\n"
        )
        return path

    return write


def options_of(sample):
    if not sample.zones:
        return {}
    import pyarrow as pa

    return {
        "zones": read_zones(
            pa.table({"zone": list(sample.zones), "parent": ["all"] * len(sample.zones)})
        )
    }


@pytest.mark.parametrize("sample", GALLERY.values(), ids=GALLERY)
def test_columns_are_recognised_or_the_hint_works(sample, file_of):
    path, how = file_of(sample), options_of(sample)
    if not sample.found and "origin_tile" in sample.said:
        with pytest.raises(DataError) as caught:
            read_trips(path, **how)
        # The hint names the arguments, and the columns there are.
        for argument in ("origin_tile", "destination_tile"):
            assert argument in str(caught.value)
    flows = read_trips(path, **sample.said, **how)
    used = {
        role: column for role, column in flows.intake.columns.items() if role not in sample.said
    }
    assert used == sample.found
    assert sample.hint in " ".join(flows.intake.notes)
    assert int(flows.trips.sum()) == (16 if "trips" in sample.said else 4)


TIMED = {name: sample for name, sample in GALLERY.items() if sample.time}


@pytest.mark.parametrize("sample", TIMED.values(), ids=TIMED)
def test_times_are_read_right_or_the_hint_works(sample, file_of):
    path, how = file_of(sample), {**options_of(sample), **sample.said}
    column, hour, said = sample.time
    if "time_format" in said:
        with pytest.raises(DataError, match=re.escape("time_format (--time-format)")):
            read_slices(path, time=column, every="1h", **how)
    assert read_slices(path, time=column, every="1h", **said, **how).slice_keys == ((hour,),)


def printed(capsys, *words: str) -> tuple[int, str]:
    """What a command says, and how it ends."""
    try:
        main(list(words))
        code = 0
    except SystemExit as done:
        code = int(done.code or 0)
    said = capsys.readouterr()
    return code, said.out + said.err


def flags_in(text: str) -> list[str]:
    """The options that the hints of a message name."""
    return [
        flag for hint in text.split("Hint:")[1:] for flag in re.findall(r"--[a-z][a-z-]*", hint)
    ]


@pytest.mark.parametrize("name", ["Divvy 2013", "Census flows", "NetMob OD", "TTS"])
def test_hints_can_be_followed_as_they_are_printed(name, file_of, tmp_path, capsys):
    sample = GALLERY[name]
    zones = tmp_path / "zones.csv"
    zones.write_text("zone,parent\n" + "".join(f"{code},all\n" for code in sample.zones), "utf-8")
    command = ["describe", str(file_of(sample)), "--k", "3", "--zones", str(zones)]
    command += ["--set", "zones.zones_tile=zone", "--set", "zones.zones_parent=parent"]
    if not sample.found:
        # The columns of the ends are what only the user knows; the option for them is as printed.
        code, text = printed(capsys, *command)
        assert code == 2
        for role in ("origin_tile", "destination_tile"):
            (flag,) = {flag for flag in flags_in(text) if flag.strip("-").replace("-", "_") == role}
            command += [flag, sample.said[role]]
    if sample.time is not None:
        code, text = printed(capsys, *command, "--time", sample.time[0], "--every", "1h")
        assert code == 2
        assert "--time-format" in flags_in(text)
        form = f"slices.time_format={sample.time[2]['time_format']}"
        command += ["--time", sample.time[0], "--every", "1h", "--set", form]
    code, text = printed(capsys, *command)
    if code == 2:
        # A usual name of counts is asked for.
        counts = re.search(r"each row \((.*?)[,)].*?Say which: (--trips) \w+ counts", text)
    else:
        counts = re.search(
            r"columns that hold numbers: (.*?)[.,] .*?Hint: (--[a-z-]+) names it", text
        )
    if sample.time is None:
        code, text = printed(
            capsys, *command, counts[2], sample.said.get("trips", counts[1]), "--json"
        )
        assert code == 0, text
        assert json.loads(text[text.index("{") :])["trips"] == 16
