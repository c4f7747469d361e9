"""Points that are where no trips are: swapped axes, lost signs, projected coordinates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyproj
import pytest

import flowveil
from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.overview import overview
from flowveil.reading.plausibility import place_of
from flowveil.zoning.gazetteer import proposals

N = 60
RNG = np.random.default_rng(3)
OSLO, CHICAGO = (59.91, 10.75), (41.88, -87.63)


def around(place: tuple[float, float], n: int = N) -> tuple[np.ndarray, np.ndarray]:
    return place[0] + RNG.normal(0, 0.02, n), place[1] + RNG.normal(0, 0.03, n)


def trips(origin, destination) -> pa.Table:
    names = ("start_lat", "start_lon", "end_lat", "end_lon")
    return pa.table(dict(zip(names, (*origin, *destination), strict=True)))


def message_of(table: pa.Table, **how: object) -> str:
    with pytest.raises(DataError) as caught:
        flowveil.read_trips(table, resolution=7, **how)
    return str(caught.value)


def test_one_end_with_swapped_axes_is_refused() -> None:
    lat, lon = around(OSLO)
    message = message_of(trips(around(OSLO), (lon, lat)))
    assert "latitude and longitude are swapped. Hint: destination='end_lon,end_lat'" in message
    message = message_of(trips((lon, lat), around(OSLO)))
    assert "origin='start_lon,start_lat'" in message
    fixed = flowveil.read_trips(
        trips(around(OSLO), (lon, lat)), destination="end_lon,end_lat", origin="start_lat,start_lon"
    )
    assert int(fixed.trips.sum()) == N


def test_both_ends_with_swapped_axes_are_refused_unless_the_place_is_confirmed() -> None:
    table = trips(around(OSLO)[::-1], around(OSLO)[::-1])
    message = message_of(table)
    assert "far from any town" in message
    assert "origin='start_lon,start_lat' destination='end_lon,end_lat'" in message
    assert int(flowveil.read_trips(table, within="58,9,62,12", resolution=7).trips.sum()) == N


def test_a_lost_sign_is_refused() -> None:
    lat, lon = around(CHICAGO)
    assert "more than a continent away" in message_of(trips(around(CHICAGO), (lat, -lon)))


def test_long_flights_and_remote_places_are_read() -> None:
    cities = np.array(
        [OSLO, CHICAGO, (-33.45, -70.66), (35.68, 139.69), (-37.8, 144.96), (1.35, 103.8)]
    )
    origin, destination = (cities[RNG.integers(0, len(cities), 200)].T for _ in range(2))
    assert int(flowveil.read_trips(trips(origin, destination), resolution=3).trips.sum()) == 200
    islands = trips(around((62.01, -6.77)), around((62.01, -6.77)))
    assert int(flowveil.read_trips(islands, resolution=7).trips.sum()) == N


@pytest.mark.parametrize(
    ("crs", "place"),
    [
        ("EPSG:25832", OSLO),
        ("EPSG:2154", (48.85, 2.35)),
        ("EPSG:27700", (51.5, -0.12)),
        ("EPSG:31983", (-23.55, -46.63)),
    ],
)
def test_projected_coordinates_are_recognised_and_read(crs, place) -> None:
    project = pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    ends = [around(place), around(place)]
    columns = [project.transform(lon, lat)[::-1] for lat, lon in ends]
    table = trips(*columns)
    message = message_of(table)
    assert "projected reference system" in message
    assert f"crs='{crs}'" in message
    assert "max_dropped" not in message
    flows = flowveil.read_trips(table, resolution=7, crs=crs)
    # Through the grid and back a point moves by less than a millimetre.
    expected = flowveil.read_trips(trips(*ends), resolution=7)
    assert replace(flows.intake, crs=None) == expected.intake
    assert flows.intake.parameters()["crs"] == crs
    assert abs(len(flows) - len(expected)) <= 1


def test_missing_and_placeholder_coordinates_stay_so_in_a_projected_system() -> None:
    north, east = np.full(100, 6_642_000.0), np.full(100, 597_000.0)
    north[0], east[0] = np.nan, np.nan
    north[1], east[1] = 0, 0
    intake = flowveil.read_trips(
        trips((north, east), (north, east)), crs="EPSG:25832", resolution=7
    ).intake
    assert intake.dropped == {"missing end": 1, "at 0,0": 1}


def test_a_custom_reference_system_is_recorded_without_its_words() -> None:
    from pyproj import CRS

    proj = "+proj=tmerc +lat_0=59.9 +lon_0=10.7 +x_0=5000 +y_0=5000 +datum=WGS84 +units=m"
    wkt = CRS.from_user_input(proj).to_wkt().replace('"unknown"', '"grid of A. Person"')
    table = pa.table(
        {"o_lat": [5000.0] * 3, "o_lon": [5000.0] * 3, "d_lat": [6000.0] * 3, "d_lon": [5000.0] * 3}
    )
    plain = [flowveil.read_trips(table, crs=crs) for crs in (proj, wkt)]
    assert plain[0].origins.code.tolist() == plain[1].origins.code.tolist()
    assert plain[0].intake.crs == proj
    assert "Person" not in plain[1].intake.crs
    assert (
        flowveil.read_trips(table, crs=CRS.from_epsg(32632).to_wkt(), max_dropped=1.0).intake.crs
        == "EPSG:32632"
    )


@pytest.mark.parametrize("crs", ["UTM 32", "EPSG:999999", "/home/me/grid.prj", "+proj=nonsense"])
def test_a_reference_system_is_known_and_names_no_file(crs) -> None:
    with pytest.raises(ParameterError, match="EPSG:25832"):
        flowveil.read_trips(trips(around(OSLO), around(OSLO)), crs=crs)


def test_a_decimal_comma_is_read_where_it_is_said(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("start_lat;start_lon;end_lat;end_lon\n" + "59,91;10,75;59,92;10,76\n" * 20)
    with pytest.raises(DataError, match="decimal_comma=True reads numbers with a decimal comma"):
        flowveil.read_trips(path)
    flows = flowveil.read_trips(path, decimal_comma=True, resolution=7)
    assert int(flows.trips.sum()) == 20
    assert flows.intake.parameters()["decimal_comma"] is True
    path.write_text("start_lat;start_lon;end_lat;end_lon\n" + "1.059,91;10,75;59,92;10,76\n" * 20)
    with pytest.raises(DataError, match="text that is not a number"):
        flowveil.read_trips(path, decimal_comma=True)


GRIDS = {
    "EPSG:31468": (52.52, 13.40),
    "EPSG:31467": (48.77, 9.18),
    "EPSG:31466": (50.94, 6.96),
    "EPSG:21781": (46.95, 7.44),
    "EPSG:2056": (47.37, 8.54),
    "EPSG:2263": (40.72, -73.98),
    "EPSG:2227": (37.77, -122.42),
    "EPSG:3435": (41.88, -87.63),
    "EPSG:3003": (45.07, 7.68),
    "EPSG:3004": (40.85, 14.27),
    "EPSG:28992": (52.37, 4.9),
    "EPSG:31370": (50.85, 4.35),
    "EPSG:2180": (52.23, 21.0),
    "EPSG:3067": (60.17, 24.94),
    "EPSG:25830": (40.42, -3.70),
    "EPSG:2193": (-36.85, 174.76),
    "EPSG:3857": (52.52, 13.40),
}


@pytest.mark.parametrize("crs", GRIDS)
def test_the_reference_system_that_puts_trips_near_people_is_proposed_first(crs) -> None:
    project = pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    lat, lon = around(GRIDS[crs])
    east, north = project.transform(lon, lat)
    points = list(zip(north.tolist(), east.tolist(), strict=True))
    first = proposals(points)[0]
    assert (first.code, first.exchanged) == (crs, False)
    turned = [one.code for one in proposals([(x, y) for y, x in points]) if one.exchanged]
    assert crs in turned


def test_a_proposal_names_the_place_and_other_evidence_decides() -> None:
    project = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:31468", always_xy=True)
    ends = [around((52.52, 13.40)), around((52.52, 13.40))]
    columns = [project.transform(lon, lat)[::-1] for lat, lon in ends]
    message = message_of(trips(*columns))
    assert "crs='EPSG:31468' (DHDN / 3-degree Gauss-Kruger zone 4) puts them in Berlin" in message
    flows = flowveil.read_trips(trips(*columns), resolution=7, crs="EPSG:31468")
    assert place_of(flows).startswith("Trips lie around Berlin, Germany; half of them within ")
    # UTM fits sixty places of the earth: only with a map or an area is a zone proposed.
    utm = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:32636", always_xy=True)
    kyiv = [utm.transform(lon, lat)[::-1] for lat, lon in (around((50.45, 30.52)) for _ in "od")]
    points = list(zip(*kyiv[0], strict=True))
    assert "EPSG:32636" not in [one.code for one in proposals(points)]
    assert "EPSG:32636" in [one.code for one in proposals(points, near=(50.4, 30.5))]


def test_exchanged_axes_and_a_wrong_system_are_found_in_projected_coordinates() -> None:
    project = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:31468", always_xy=True)
    ends = [project.transform(lon, lat) for lat, lon in (around((52.52, 13.4)) for _ in "od")]
    exchanged = trips(*ends)
    message = message_of(exchanged, crs="EPSG:31468")
    assert "northing and easting are swapped" in message
    how = {"origin": "start_lon,start_lat", "destination": "end_lon,end_lat"}
    assert f"origin='{how['origin']}' destination='{how['destination']}'" in message
    flows = flowveil.read_trips(exchanged, crs="EPSG:31468", resolution=7, **how)
    assert "Berlin" in place_of(flows)
    right = trips(*(end[::-1] for end in ends))
    assert "crs='EPSG:31468'" in message_of(right, crs="EPSG:25833")
    degrees = trips(around(OSLO), around(OSLO))
    assert "leave the reference system out" in message_of(degrees, crs="EPSG:25832")


def test_what_was_read_is_one_rounded_line_with_the_place() -> None:
    table = trips(around(OSLO, 1234), around(OSLO, 1234))
    table = table.append_column("person", pa.array([i % 7 for i in range(1234)]))
    line = overview(flowveil.read_trips(table, resolution=7))
    assert line.startswith("Read about 1,230 rows: about 1,230 trips by 7 people. Trips lie around")
    assert "Oslo, Norway" in line
    of_vehicles = table.rename_columns([*table.column_names[:-1], "device_id"])
    line = overview(flowveil.read_trips(of_vehicles, resolution=7, person="device_id"))
    assert "trips by 7 vehicles. " in line
    sliced = flowveil.read_slices(table.append_column("n", table["person"]), by="n", resolution=7)
    assert overview(sliced).startswith("Read about 1,230 rows: about 1,230 trips by 7")
