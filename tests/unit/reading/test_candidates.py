"""Columns that were not named are pointed out and not used."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from flowveil import read_trips, read_zones
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from samples.drafts import unchecked

CELLS = ["8a1fb46622dffff", "8a1fb46622d7fff"]


def table(n=40, **columns):
    return pa.table({"o_h3": [CELLS[i % 2] for i in range(n)], "d_h3": [CELLS[0]] * n, **columns})


def notes(*tables, **options):
    return " ".join(read_trips(*tables, **options).intake.notes)


def test_walk_trips_are_not_taken_for_weights():
    # A matrix by mode, such as a travel survey publishes: W is walk trips.
    source = table(40, trips=[5] * 40, W=[3] * 40)
    flows = read_trips(source, origin_tile="o_h3", destination_tile="d_h3", trips="trips")
    assert flows.weight is None
    assert "may hold one: W. Hint: weight names it" in " ".join(flows.intake.notes)
    assert (
        read_trips(source, trips="trips", weight="").intake.notes[0].startswith("No person column")
    )


def test_an_od_table_whose_numbers_are_not_used_gets_a_hint():
    message = notes(table(40, staff=[i % 7 for i in range(40)], name=["x"] * 40))
    assert "Every row is counted as one trip" in message
    assert "hold numbers: staff." in message
    assert "Every row" not in notes(table(40, staff=[i % 7 for i in range(40)]), trips="staff")
    assert "Every row" not in notes(
        table(40, staff=[i % 7 for i in range(40)], w=[2.0] * 40), weight="w"
    )


def test_a_usual_name_of_counts_gets_a_hint_next_to_coordinates():
    places = {name: [48.8, 48.9] for name in ("start_lat", "end_lat")} | {
        n: [2.3, 2.4] for n in ("start_lon", "end_lon")
    }
    with pytest.raises(ParameterError, match=r"number of trips of each row \(trips\)"):
        notes(pa.table({**places, "trips": [300, 7]}))
    assert "Every row" not in notes(pa.table({**places, "trips": [300, 7]}), trips="")
    assert "Every row" not in notes(pa.table({**places, "minutes": [30, 7]}))


#: Names that operators give to columns of persons.
PERSONS = (
    "rider",
    "rider_id",
    "member_no",
    "customerId",
    "client",
    "card_number",
    "CardID",
    "device_id",
    "imsi",
    "imei",
    "msisdn_hash",
    "subscriber",
    "account_no",
    "phone",
    "plate",
    "license_plate",
    "tag_id",
    "bike_user",
    "passenger_id",
    "hh_id",
    "household_id",
    "indiv",
    "mobile_id",
    "token",
    "passenger_name",
    "email",
    "visitor_id",
    "mac_address",
)
#: Names of columns that hold something else, whatever their values.
OTHERS = (
    "user_type",
    "member_casual",
    "passenger_count",
    "household_size",
    "driver_age",
    "start_station_id",
    "ride_id",
    "route_hash",
    "bike_id",
    "card_type",
    "person_weight",
)


@pytest.mark.parametrize("name", PERSONS)
def test_columns_of_persons_are_found_by_their_names(name):
    source = table(40, **{name: [f"a9f3c1{i % 15:02}e7" for i in range(40)]})
    with pytest.raises(ParameterError) as caught:
        read_trips(source)
    whom = "vehicles" if name in ("device_id", "bike_user") else "people"
    assert f"person='{name}' protects {whom}" in str(caught.value)
    assert "person='' says that no column identifies persons" in str(caught.value)


def test_a_column_of_persons_is_used_or_not_as_the_answer_says():
    source = table(40, rider=[f"a9f3c1{i % 15:02}e7" for i in range(40)])
    assert read_trips(source, person="rider").people is not None
    for answer in ({"person": ""}, {"no_person": True}, {"ask_person": False}):
        assert read_trips(source, **answer).people is None


@pytest.mark.parametrize("name", OTHERS)
def test_other_columns_are_not_taken_for_persons(name):
    assert (
        read_trips(table(40, **{name: [f"a9f3c1{i % 15:02}e7" for i in range(40)]})).people is None
    )


def test_hashes_that_recur_under_a_name_that_says_nothing_are_persons():
    hashes = [f"a9f3c1{i % 15:02}e7" for i in range(40)]
    with pytest.raises(ParameterError, match=r"like persons \(x7\)"):
        read_trips(table(40, x7=hashes))
    assert read_trips(table(40, x7=[f"a9f3c1{i:02}e7" for i in range(40)])).people is None


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "pandas", "polars"])
def test_persons_are_found_in_large_tables_sorted_by_time(kind, tmp_path):
    """In the first thousand rows no person travels twice, and the first hundred names are
    missing."""
    n = 60_000
    who = [None if i < 1_500 else f"h{i * 7919 % 9_000:07d}x" for i in range(n)]
    trips = pa.table({"o_h3": [CELLS[0]] * n, "d_h3": [CELLS[1]] * n, "x7": who})
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        csv.write_csv(trips, path)
    elif kind == "parquet":
        pq.write_table(trips, path, row_group_size=5_000)
    source = {
        "arrow": lambda: trips,
        "pandas": trips.to_pandas,
        "polars": lambda: pytest.importorskip("polars").from_arrow(trips),
    }.get(kind, lambda: path)()
    with pytest.raises(ParameterError, match="A column looks like persons"):
        read_trips(source)


def test_persons_numbered_from_zero_are_persons_and_counts_of_a_mode_are_not():
    with pytest.raises(ParameterError, match="A column looks like persons"):
        read_trips(table(60, rider=[i % 20 for i in range(60)]))
    assert len(read_trips(table(60, car_driver=[max(0, i % 30 - 15) for i in range(60)]))) == 2


def test_persons_are_found_behind_many_other_columns():
    others = {f"c{i:03}": [1.5] * 40 for i in range(80)}
    with pytest.raises(ParameterError, match="A column looks like persons"):
        read_trips(table(40, **others, rider=[f"r{i % 15}" for i in range(40)]))


def test_a_household_is_never_a_count():
    message = notes(
        table(40, household_id=[i // 3 for i in range(40)], posts=[i % 5 for i in range(40)]),
        no_person=True,
    )
    assert "hold numbers: posts." in message


def test_the_command_stops_and_gives_both_answers(tmp_path, capsys):
    path = tmp_path / "t.csv"
    csv.write_csv(table(60, rider=[f"r{i % 20}" for i in range(60)]), path)
    asked = ["anonymize", str(path), "--k", "5", "--out", str(tmp_path / "r")]
    with pytest.raises(SystemExit) as stopped:
        main(asked)
    assert stopped.value.code == 2
    message = " ".join(capsys.readouterr().err.split())
    assert (
        "--person rider protects people; --no-person says that no column identifies persons"
        in message
    )
    for answer in (["--no-person"], ["--protect", "trips"], ["--person", "rider"]):
        with unchecked():
            main([*asked, *answer])
    capsys.readouterr()
    main(["describe", str(path)])
    assert "Columns that look like one: rider" in capsys.readouterr().out


def test_persons_whose_trips_follow_each_other_are_listed_and_kinds_of_persons_are_not():
    message = notes(
        table(60, cab_id=["abboip"] * 25 + ["abcoij"] * 35, user_type=["day", "year"] * 30)
    )
    assert "look like one: cab_id." in message


def test_names_that_may_be_data_are_not_repeated(tmp_path):
    path = tmp_path / "no_header.csv"
    path.write_text(
        "start_h3,end_h3,Zoe Mill,4711\n" + f"{CELLS[0]},{CELLS[0]},Zoe Mill,4711\n" * 30
    )
    message = notes(path)
    assert "Zoe" not in message
    assert "4711" not in message


def test_unknown_codes_are_counted_and_listed_only_where_they_name_no_person():
    zones = read_zones(pa.table({"zone": [f"z{i:03}" for i in range(9)], "parent": ["all"] * 9}))
    ends = ["z001"] * 60 + ["z999"] * 12 + ["z998"] * 3 + ["Zoe Mill"] * 20
    trips = pa.table({"o": ends, "d": ["z002"] * len(ends)})
    with pytest.raises(DataError) as caught:
        read_trips(trips, zones=zones, origin_tile="o", destination_tile="d")
    assert "not on the map: 35 rows" in str(caught.value)
    assert "3 different codes; with 10 ends or more: z999" in str(caught.value)
    assert "z998" not in str(caught.value)
    assert "Zoe" not in str(caught.value)


def test_hints_name_the_option_of_the_interface(tmp_path, capsys):
    zones, trips = tmp_path / "zones.csv", tmp_path / "trips.csv"
    zones.write_text("strange,lat,lon\na,48,2\nb,48.1,2.1\n")
    trips.write_text("o,d\na,b\n")
    with pytest.raises(DataError, match="name it with tile"):
        read_zones(zones)
    with pytest.raises(SystemExit):
        main(["anonymize", str(trips), "--zones", str(zones), "--out", str(tmp_path / "r")])
    assert "name it with --zones-tile" in capsys.readouterr().err


def test_columns_and_hints_are_printed_and_in_json(tmp_path, capsys):
    path = tmp_path / "trips.csv"
    path.write_text(
        "o_h3,d_h3,uid,trips\n"
        + "".join(f"{CELLS[0]},{CELLS[0]},p{i},{i % 3}\n" for i in range(30))
    )
    main(["anonymize", str(path), "--out", str(tmp_path / "r"), "--show-measures"])
    message = capsys.readouterr().err
    assert "Columns: origin_tile from o_h3; destination_tile from d_h3; person from uid." in message
    assert "Hint: --trips names it" in message
    main(["describe", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["columns"]["person"] == "uid"
    assert "--trips" in found["notes"][0]
