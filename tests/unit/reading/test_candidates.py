"""What nobody named is pointed out and not used, on tables made like those in which it went wrong."""

import json

import pyarrow as pa
import pytest

from flowveil import read_trips, read_zones
from flowveil.cli import main
from flowveil.errors import DataError

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
    assert read_trips(source, trips="trips", weight="").intake.notes[0].startswith("No person column")


def test_an_od_table_whose_numbers_are_not_used_gets_a_hint():
    told = notes(table(40, workers=[i % 7 for i in range(40)], name=["x"] * 40))
    assert "Every row is counted as one trip" in told
    assert "hold numbers: workers." in told
    assert "Every row" not in notes(table(40, workers=[i % 7 for i in range(40)]), trips="workers")


def test_columns_that_look_like_persons_are_listed():
    hashes = [f"a9f3c1{i % 15:02}e7" for i in range(40)]
    told = notes(table(40, imsi_hash=hashes, code=hashes, station=[f"s{i % 12}" for i in range(40)]))
    assert "No person column was recognised" in told
    assert "look like one: imsi_hash, code." in told
    assert "names nobody" not in told


def test_persons_whose_trips_follow_each_other_are_listed_and_kinds_of_persons_are_not():
    told = notes(table(60, cab_id=["abboip"] * 25 + ["abcoij"] * 35, user_type=["day", "year"] * 30))
    assert "look like one: cab_id." in told


def test_names_that_may_be_data_are_not_repeated(tmp_path):
    path = tmp_path / "no_header.csv"
    path.write_text("start_h3,end_h3,Zoe Mill,4711\n" + f"{CELLS[0]},{CELLS[0]},Zoe Mill,4711\n" * 30)
    told = notes(path)
    assert "Zoe" not in told
    assert "4711" not in told


def test_fractions_of_trips_lead_to_the_weight():
    with pytest.raises(DataError, match="expansion factors or weights: name them with weight"):
        read_trips(table(40, trips=[1.5] * 40), trips="trips")


def test_unknown_codes_are_counted_and_listed_only_where_they_name_nobody():
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
    path.write_text("o_h3,d_h3,uid,trips\n" + "".join(f"{CELLS[0]},{CELLS[0]},p{i},{i % 3}\n" for i in range(30)))
    main(["anonymize", str(path), "--out", str(tmp_path / "r")])
    told = capsys.readouterr().out
    assert "Columns: origin_tile from o_h3; destination_tile from d_h3; person from uid." in told
    assert "Hint: --trips names it" in told
    main(["describe", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["columns"]["person"] == "uid"
    assert "--trips" in found["notes"][0]
