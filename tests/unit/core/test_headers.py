"""A first line that may be a record is never repeated."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowveil.apps.cli import main
from flowveil.core.errors import DataError, FlowveilError
from flowveil.core.headers import Header
from flowveil.reading.engines import read_trips
from flowveil.reading.sources import prepare
from flowveil.tabular.records import check_columns, check_roles, read_records
from flowveil.zoning.files import read_zones

#: Records of text: each first line has words that no message may repeat.
RECORDS = {
    "values recur": "Zoulou,Paris,bicycle\nYankee,Lyon,Zoulou\n",
    "names": "Zoulou Martin,nurse,Paris\nYankee Dupont,baker,Lyon\n",
    "lower case": "zoulou,nurse,paris\nyankee,baker,lyon\n",
    "an identifier": "zoulou-0007,start,end\nyankee-0008,a,b\n",
    "a date": "zoulou,12 Mar 2024,home\nyankee,13 Mar 2024,work\n",
    "a place": "zoulou,POINT (2.3 48.8),zone\nyankee,POINT (2.4 48.9),zone\n",
    "codes recur": "user_zoulou,Z1,Z2,h3\nuser_yankee,Z1,Z3,h3\n",
    "semicolons": "zoulou;nurse;paris\nyankee;baker;lyon\n",
}


@pytest.mark.parametrize("text", RECORDS.values(), ids=RECORDS)
def test_the_first_record_of_a_file_without_names_is_not_quoted(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    asked = (
        lambda: read_trips(path),
        lambda: read_trips(path, origin_tile="zoulo", destination_tile="pari"),
        lambda: read_zones(path),
        lambda: read_zones(path, tile="zoulo"),
        lambda: prepare("gps", path, person="zoulo"),
        lambda: prepare("porto", path),
        lambda: prepare("nyc-tlc", path),
        lambda: check_columns(read_records(path), ["zoulo"], "quasi identifier"),
        lambda: check_roles(read_records(path), quasi_identifiers=()),
    )
    for ask in asked:
        with pytest.raises(FlowveilError) as caught:
            ask()
        said = str(caught.value).casefold()
        assert "zoulou" not in said
        assert "nurse" not in said
        assert "paris" not in said


@pytest.mark.parametrize(
    "command", [["anonymize", "--out", "o"], ["describe"], ["compare", "--out", "o"]]
)
def test_commands_do_not_quote_it_either(tmp_path, capsys, command):
    path = tmp_path / "t.csv"
    path.write_text(RECORDS["lower case"])
    with pytest.raises(SystemExit) as stopped:
        main([command[0], str(path), *command[1:], "--json"])
    assert stopped.value.code == 2
    message = capsys.readouterr()
    assert "zoulou" not in message.out + message.err
    assert "not repeated" in message.err


def test_a_line_that_a_map_stumbles_over_is_not_quoted(tmp_path):
    path = tmp_path / "zones.csv"
    path.write_text("zone,parent\na,b\nZoulou Martin,b,c\n")
    with pytest.raises(DataError) as caught:
        read_zones(path)
    assert "Zoulou" not in str(caught.value)
    drawn = tmp_path / "zones.geojson"
    drawn.write_text('{"type": "FeatureCollection", "features": [{"Zoulou Martin": ')
    with pytest.raises(DataError) as caught:
        read_zones(drawn)
    assert "Zoulou" not in str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        ("PULocationID", "DOLocationID", "tpep_pickup_datetime", "fare_amount"),
        ("start_lat", "start_lng", "Start Station Name", "member_casual"),
        ("ID", "WEIGHT_INDIV", "LOCAL DATE", "SEX"),
        (
            "age",
            "workclass",
            "fnlwgt",
            "education",
            "marital-status",
            "occupation",
            "hours-per-week",
        ),
        ("geo_code", "Parent Zone", "MSOA11CD"),
    ],
)
def test_names_of_columns_are_repeated(names):
    header = Header(names)
    assert f"'{names[0]}'" in header.described()
    assert f"'{names[1]}'" in header.did_you_mean(names[1][:-1])


@pytest.mark.parametrize(
    "names",
    [
        ("Zoulou Martin", "person", "trips"),
        ("person", "trips", "2024-03-12"),
        ("person", "trips", "user123"),
        ("zoulou", "yankee", "zone"),
    ],
    ids=["a name", "a date", "an identifier", "words that name no column"],
)
def test_one_sign_of_data_is_enough(names):
    header = Header(names)
    assert header.may_be_data
    assert header.did_you_mean(names[0][:-1]) == ""
    assert "3 columns" in header.described()


def test_a_name_that_has_no_word_for_columns_is_never_quoted():
    """Stations and short codes are words of columns as well as values.

    The name next to them is a person's.
    """
    header = Header(("zoulou", "zone", "F", "paris station", "stop"))
    assert "'zone'" in header.described()
    assert "2 more" in header.described()
    assert "zoulou" not in header.described() + header.did_you_mean("zoulo") + header.listed(
        ["zoulou", "zone"]
    )
    assert "paris" not in header.described() + header.did_you_mean("paris statio")


def test_columns_without_a_role_are_pointed_at_by_number():
    table = pa.table({"Zoulou Martin": ["x"], "Lyon": ["y"]})
    with pytest.raises(FlowveilError, match="number 1, 2 "):
        check_roles(table, quasi_identifiers=())
