from __future__ import annotations

import pytest

from flowveil.core.errors import DataError, ParameterError
from flowveil.core.headers import Header
from flowveil.reading.columns import ColumnMap, complete, parse_pair


def recognise(
    *names: str, cells: tuple[str, ...] = (), wanted: ColumnMap | None = None
) -> ColumnMap:
    return complete(wanted or ColumnMap(), names, holds_tiles=lambda name: name in cells)


@pytest.mark.parametrize(
    "names",
    [
        ("start_lat", "start_lon", "end_lat", "end_lon"),
        ("start_lat", "start_lng", "end_lat", "end_lng"),
        ("START_LAT", "Start_Lon", "End_Lat", "end_LON"),
        ("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude"),
        ("o_lat", "o_lon", "d_lat", "d_lon"),
        ("lat0", "lng0", "lat1", "lng1"),
        ("lat1", "lon1", "lat2", "lon2"),
        ("lat0", "lon0", "lat1", "lon1"),
        ("origin_lat", "origin_lon", "destination_lat", "destination_lon"),
        ("origin_lat", "origin_lng", "dest_lat", "dest_lng"),
        ("from_lat", "from_lon", "to_lat", "to_lon"),
        ("start_latitude", "start_longitude", "end_latitude", "end_longitude"),
        (
            "start station latitude",
            "start station longitude",
            "end station latitude",
            "end station longitude",
        ),
    ],
)
def test_usual_coordinate_names_are_recognised(names: tuple[str, str, str, str]) -> None:
    found = recognise("trip_id", *names, "speed")
    assert (found.origin, found.destination) == (names[:2], names[2:])
    assert not found.has_tiles


@pytest.mark.parametrize(
    "names",
    [("start_h3", "end_h3"), ("origin_h3", "destination_h3"), ("o_hex", "d_hex"), ("H3_O", "H3_D")],
)
def test_usual_tile_names_are_recognised(names: tuple[str, str]) -> None:
    assert recognise(*names).ends == names


@pytest.mark.parametrize(
    "names", [("origin", "destination"), ("origin_tile", "destination_tile"), ("o", "d")]
)
def test_plain_names_are_tiles_only_if_they_hold_cells(names: tuple[str, str]) -> None:
    assert recognise(*names, cells=names).ends == names
    with pytest.raises(DataError, match="not recognised"):
        recognise(*names)
    with pytest.raises(DataError, match="not recognised"):
        recognise(*names, cells=names[:1])


@pytest.mark.parametrize("name", ["trips", "n_trips", "count", "weight", "W", "WEIGHT_INDIV"])
def test_a_count_or_a_weight_is_never_guessed(name: str) -> None:
    for ends in (("o_hex", "d_hex"), ("o_lat", "o_lon", "d_lat", "d_lon")):
        found = recognise(*ends, name)
        assert found.trips is None
        assert found.weight is None


@pytest.mark.parametrize("name", ["person_id", "uid", "USER_ID", "person", "participant_id"])
def test_persons_are_recognised(name: str) -> None:
    assert recognise("o_hex", "d_hex", name).person == name
    assert not recognise("o_hex", "d_hex", name, wanted=ColumnMap(person="")).person


@pytest.mark.parametrize(
    ("names", "listed", "flag"),
    [
        (
            ("o_lat", "o_lon", "d_lat", "d_lon", "start_h3", "end_h3"),
            ("'start_h3'", "'o_lat'"),
            "origin_tile",
        ),
        (("o_lat", "o_lon", "o_lng", "d_lat", "d_lon", "d_lng"), ("'o_lng'", "'d_lon'"), "origin"),
        (("lat0", "lon0", "lat1", "lon1", "lat2", "lon2"), ("'lat0'", "'lat2'"), "origin"),
        (("o_hex", "d_hex", "uid", "person_id"), ("'uid'", "'person_id'"), "--person"),
    ],
)
def test_several_candidates_are_listed(
    names: tuple[str, ...], listed: tuple[str, ...], flag: str
) -> None:
    with pytest.raises(DataError) as caught:
        recognise(*names)
    assert all(name in str(caught.value) for name in listed)
    assert flag in str(caught.value)


def test_all_missing_columns_are_named_at_once() -> None:
    wanted = ColumnMap(
        origin=("o_lat", "o_lno"), destination=("d_lat", "d_lon"), person="uidd", weight="zzz"
    )
    with pytest.raises(DataError) as caught:
        recognise("o_lat", "o_lon", "d_lat", "d_lon", "uid", wanted=wanted)
    message = str(caught.value)
    assert "3 named columns" in message
    assert "'o_lno'. Did you mean 'o_lon'?" in message
    assert "'uidd'. Did you mean 'uid'?" in message
    assert "'zzz'" in message
    assert "'d_lat', 'd_lon', 'uid'" in message


def test_named_columns_win_over_known_names_and_blanks_around_them_do_not_matter() -> None:
    wanted = ColumnMap(origin=("a", "b"), destination=("c", "d"), person="cab_id")
    found = recognise(
        "o_lat", "o_lon", "d_lat", "d_lon", " a", "b", "c", "d", "cab_id", "uid", wanted=wanted
    )
    assert found.as_recorded() == {"origin": " a,b", "destination": "c,d", "person": "cab_id"}


def test_a_duplicate_column_is_refused_only_if_it_is_used() -> None:
    with pytest.raises(DataError, match="Several columns are called"):
        recognise("o_hex", "d_hex", "uid", "uid", wanted=ColumnMap(person="uid"))
    assert recognise("o_hex", "d_hex", "note", "note").ends == ("o_hex", "d_hex")


@pytest.mark.parametrize("value", ["lat", "a,b,c", "", ",", ("a",), ("a", "")])
def test_a_pair_is_two_names(value: str | tuple[str, ...]) -> None:
    with pytest.raises(ParameterError, match="latitude and a longitude"):
        parse_pair(value, role="origin")


def test_pairs_are_parsed() -> None:
    assert parse_pair("a, b", role="origin") == ("a", "b")
    assert parse_pair(["a,x", "b"], role="origin") == ("a,x", "b")
    assert parse_pair(None, role="origin") is None


@pytest.mark.parametrize(
    "given",
    [
        {"origin": ("a", "b")},
        {"destination_tile": "a"},
        {"origin": ("a", "b"), "destination": ("a", "b")},
        {
            "origin": ("a", "b"),
            "destination": ("c", "d"),
            "origin_tile": "e",
            "destination_tile": "f",
        },
    ],
)
def test_ends_that_do_not_fit_together_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        ColumnMap(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cell",
    [
        "48.85",
        "-2.3",
        "1408039037",
        "2024-01-01 08:00:00",
        "2024-01-01T08:00",
        "01/02/2024 8:00",
        "[[-8.5,41.1]]",
        "1e-5",
    ],
)
def test_a_line_of_data_is_recognised(cell):
    assert Header(["SECRET", cell]).may_be_data
    with pytest.raises(DataError, match="looks like data") as refused:
        complete(ColumnMap(person="SECRE"), ["SECRET", cell], holds_tiles=lambda _: False)
    assert "SECRET" not in str(refused.value)


def test_names_are_no_data():
    assert not Header(
        ["PULocationID", "start_lat", "t1", "LOCAL DATE", "2011 census", "[lat]", "e5"]
    ).may_be_data
