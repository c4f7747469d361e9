"""Layouts of the field, made from their specifications: read as they are or by the one command that
is proposed, or refused with what to do.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest

import flowveil
from flowveil.core.errors import FlowveilError

N = 12
ENDS = [(59.90 + i / 500, 10.70 + i / 300, 59.95 - i / 600, 10.80 - i / 400) for i in range(N)]
UTM = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:25832", always_xy=True)
MS = 1_700_000_000_000


@dataclass(frozen=True)
class Layout:
    """A file: its name and content, what is said of it, and its trips, or words of the refusal.

    ``proposed``: the answer that the error without options names.
    """

    name: str
    content: Callable[[], bytes]
    trips: float = N
    said: dict[str, Any] = field(default_factory=dict)
    proposed: str = ""
    refused: str = ""
    codes: tuple[str, ...] = ()


def lines(head: str, row: Callable[[int], str], n: int = N, end: str = "\n") -> Callable[[], bytes]:
    return lambda: end.join([head, *map(row, range(n))]).encode() + end.encode()


def packed(content: Callable[[], bytes]) -> Callable[[], bytes]:
    return lambda: gzip.compress(content())


def mds_trip(i: int) -> dict[str, Any]:
    a, b, c, d = ENDS[i]
    return {
        "provider_id": "5f7114d1",
        "device_id": f"v{i % 3}",
        "trip_id": f"t{i}",
        "start_time": MS + i * 3_600_000,
        "end_time": MS + i * 3_600_000 + 600_000,
        "start_location": {"lat": a, "lng": b},
        "end_location": {"lat": c, "lng": d},
    }


def mds_1_trip(i: int) -> dict[str, Any]:
    a, b, c, d = ENDS[i]
    points = [{"type": "Point", "coordinates": place} for place in ([b, a], [10.7, 59.9], [d, c])]
    features = [
        {"type": "Feature", "properties": {"timestamp": MS}, "geometry": point} for point in points
    ]
    trip = {name: mds_trip(i)[name] for name in ("device_id", "trip_id", "start_time", "end_time")}
    return {**trip, "route": {"type": "FeatureCollection", "features": features}}


def zipped(content: bytes) -> bytes:
    import io

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("trips.csv", content)
    return out.getvalue()


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def structs() -> bytes:
    ends = [[{"lat": e[j], "lng": e[j + 1]} for e in ENDS] for j in (0, 2)]
    return parquet(pa.table({"start": ends[0], "end": ends[1]}))


def drawn(kind: str) -> Callable[[], bytes]:
    def write() -> bytes:
        import tempfile

        import geopandas
        import shapely

        shapes = [shapely.LineString([(b, a), (d, c)]) for a, b, c, d in ENDS]
        frame = geopandas.GeoDataFrame({"n": range(N)}, geometry=shapes, crs="EPSG:4326")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"t.{kind}"
            frame.to_file(path)
            return path.read_bytes()

    return write


def sheet() -> bytes:
    import tempfile

    import pyogrio

    table = pa.table({"from": ["z1"] * N, "to": ["z2"] * N, "n": [str(i + 1) for i in range(N)]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.xlsx"
        pyogrio.write_arrow(table, path, driver="XLSX", geometry_type=None)
        return path.read_bytes()


def plans() -> bytes:
    persons = "".join(
        f'<person id="p{i}"><plan selected="no"></plan><plan selected="yes">'
        f'<activity type="home" x="{10_000 + i}" y="20000" end_time="08:00:00"/><leg mode="pt"/>'
        '<activity type="pt interaction" x="1" y="1"/><leg mode="walk"/>'
        f'<activity type="work" x="12000" y="{21_000 + i}" end_time="25:00:00"/><leg mode="car"/>'
        f'<activity type="home" x="{10_000 + i}" y="20000"/></plan></person>'
        for i in range(N)
    )
    head = '<?xml version="1.0"?><!DOCTYPE population SYSTEM "population_v6.dtd">'
    return f"{head}<population>{persons}</population>".encode()


def in_utm(i: int) -> tuple[float, ...]:
    a, b, c, d = ENDS[i]
    return (*UTM.transform(b, a), *UTM.transform(d, c))


def csv_of(i: int) -> str:
    return ",".join(map(str, ENDS[i]))


FROM: Callable[[str], dict[str, Any]] = lambda name: {"source_format": name}  # noqa: E731
PAIRS = tuple(f"z{i}" for i in range(1, 5))
MITMA = "fecha|periodo|origen|destino|distancia|actividad_origen|residencia|viajes|viajes_km"
MITMA_1 = "fecha|origen|destino|actividad_origen|residencia|edad|periodo|distancia|viajes|viajes_km"
MATSIM = (
    "person;trip_number;trip_id;dep_time;trav_time;start_x;start_y;end_x;end_y;start_link;end_link"
)
MATSIM_CRS = {"crs": "EPSG:25832", "within": "-180,-90,180,90"}
CARPOOL = (
    "journey_id;trip_id;start_datetime;start_lat;start_lon;start_insee;end_datetime;end_lat;end_lon"
)
LAYOUTS = {
    "MDS 2.0 as JSON": Layout(
        "t.json",
        lambda: json.dumps({"version": "2.0.0", "trips": [*map(mds_trip, range(N))]}).encode(),
        said={**FROM("mds"), "every": "hour", "timezone": "Europe/Oslo"},
        proposed="source_format='mds'",
    ),
    "MDS 2.0 line by line": Layout(
        "t.ndjson",
        lambda: "\n".join(json.dumps(mds_trip(i)) for i in range(N)).encode(),
        said=FROM("mds"),
        proposed="source_format='mds'",
    ),
    "MDS 1.2": Layout(
        "t.json",
        lambda: json.dumps(
            {"version": "1.2.0", "data": {"trips": [*map(mds_1_trip, range(N))]}}
        ).encode(),
        said=FROM("mds"),
        proposed="source_format='mds'",
    ),
    "MITMA from 2022": Layout(
        "t.csv.gz",
        packed(lines(MITMA, lambda i: f"20230131|{i:02}|z1|z2|2-10|casa|01|{i}.125|9.5")),
        sum(range(N)) + N / 8,
        {**FROM("mitma"), "every": "hour"},
        "source_format='mitma'",
        codes=PAIRS,
    ),
    "MITMA to 2021": Layout(
        "t.txt.gz",
        packed(lines(MITMA_1, lambda i: f"20210201|z1|z2|casa|01|NA|{i}|002-005|13.241|50.4")),
        13.241 * N,
        {**FROM("mitma"), "every": "1h"},
        "source_format='mitma'",
        codes=PAIRS,
    ),
    "INE": Layout(
        "t.csv",
        lines(
            "CELDA_ORIGEN;NOMBRE_O;CELDA_DESTINO;NOMBRE_D;FLUJO", lambda i: f"z1;A;z2;B;{i + 15}"
        ),
        sum(range(N)) + 15 * N,
        FROM("ine"),
        "source_format='ine'",
        codes=PAIRS,
    ),
    "LODES": Layout(
        "t.csv.gz",
        packed(
            lines("w_geocode,h_geocode,S000,SA01,createdate", lambda i: f"z1,z2,{i + 1},0,2020")
        ),
        sum(range(N + 1)),
        FROM("lodes"),
        "source_format='lodes'",
        codes=PAIRS,
    ),
    "GTFS-ride, riders": Layout(
        "rider_trip.txt",
        lines(
            "rider_id,trip_id,boarding_stop_id,alighting_stop_id,service_date,boarding_time",
            lambda i: f"r{i},t1,z1,z2,20230131,{15 + i}:10:00",
        ),
        said={**FROM("gtfs-ride"), "every": "day"},
        proposed="source_format='gtfs-ride'",
        codes=PAIRS,
    ),
    "GTFS-ride, counts": Layout(
        "board_alight.txt",
        lines("trip_id,stop_id,stop_sequence,boardings,alightings", lambda i: f"t1,z1,{i},3,4"),
        refused="rider_trip.txt has trips",
    ),
    "MATSim, trips": Layout(
        "output_trips.csv.gz",
        packed(
            lines(
                MATSIM,
                lambda i: "p{};1;p_1;{}:10:00;00:10:00;{};{};{};{};l;l".format(
                    i, 20 + i, *in_utm(i)
                ),
            )
        ),
        said={**FROM("matsim"), "crs": "EPSG:25832", "every": "hour"},
        proposed="source_format='matsim'",
    ),
    "MATSim, plans": Layout("plans.xml", plans, 2 * N, {**MATSIM_CRS, "max_dropped": 1.0}),
    "Visum $O": Layout(
        "m.mtx",
        lambda: (
            b"$O;D3\r\n* From To\r\n0.00 24.00\r\n* Factor\r\n1.00\r\n*\r\nz1 z1 1.500\r\n"
            b'z1 z2 2.500\r\n* Network object names\r\n$NAMES\r\nz1 "A"\r\n'
        ),
        4,
        codes=PAIRS,
    ),
    "Visum $V": Layout(
        "m.mtx",
        lambda: (
            b"$V;D1\n* From To\n6.00 9.00\n* Factor\n2.00\n*\n* Number\n2\n* Names\nz1 z2\n*\n"
            b"* Obj z1 Sum = 3\n1.0 2.0\n* Obj z2\n3.0\n4.0\n"
        ),
        20,
        codes=PAIRS,
    ),
    "Visum $E": Layout(
        "m.mtx",
        lambda: b"$E\n0 24\n1\n- z1 z1 1 z2 2\n- z2 z1 3\n",
        6,
        codes=PAIRS,
    ),
    "SUMO, O-format": Layout(
        "od.txt",
        lambda: b"$OR;D2\n* From Time To Time\n0.00 1.00\n1.00\nz1 z2 5.00\n",
        5,
        codes=PAIRS,
    ),
    "SUMO, tazRelation": Layout(
        "od.xml",
        lambda: (
            b'<data><interval id="a" begin="0" end="3600"><tazRelation from="z1" to="z2" '
            b'count="7"/><tazRelation from="z2" to="z1" count="2"/></interval></data>'
        ),
        9,
        codes=PAIRS,
    ),
    "TIDES": Layout(
        "fare_transactions.csv",
        lines(
            "transaction_id,service_date,event_timestamp,amount,stop_id",
            lambda i: f"t{i},2023-01-31,2023-01-31T08:{i:02}:00,2.5,s1",
        ),
        refused="flowveil prepare cdr",
    ),
    "trackintel, trips": Layout(
        "trips.csv",
        lines(
            "id,user_id,started_at,finished_at,origin_staypoint_id,destination_staypoint_id,geom",
            lambda i: (
                f"{i},u{i},2023-01-31 08:00:00+00:00,2023-01-31 09:00:00+00:00,1,2,"
                '"MULTIPOINT ({1} {0}, {3} {2})"'.format(*ENDS[i])
            ),
        ),
        said={**FROM("trackintel"), "every": "hour", "timezone": "Europe/Oslo"},
    ),
    "trackintel, triplegs": Layout(
        "triplegs.csv",
        lines(
            "id,user_id,started_at,finished_at,geom",
            lambda i: (
                f"{i},u{i},2023-01-31 08:00:00,2023-01-31 09:00:00,"
                '"LINESTRING ({1} {0}, 10.7 59.9, {3} {2})"'.format(*ENDS[i])
            ),
        ),
        said={"person": "user_id"},
    ),
    "scikit-mobility, flows": Layout(
        "flows.csv",
        lines("flow,origin,destination", lambda i: f"{i + 1},z1,z2"),
        sum(range(N + 1)),
        FROM("scikit-mobility"),
        "trips='flow'",
        codes=PAIRS,
    ),
    "scikit-mobility, points": Layout(
        "points.csv",
        lines("uid,datetime,lat,lng", lambda i: f"u1,2023-01-31 08:00:{i:02},59.9,10.7"),
        refused="flowveil prepare gps",
    ),
    "England and Wales, ODWP01EW": Layout(
        "odwp01ew.csv",
        lines(
            "Middle layer Super Output Areas code,Middle layer Super Output Areas label,MSOA of"
            " workplace code,MSOA of workplace label,Place of work indicator (4 categories)"
            " code,Count",
            lambda i: f"z1,A 001,z2,B 002,3,{i + 1}",
        ),
        sum(range(N + 1)),
        FROM("odwp01ew"),
        "source_format='odwp01ew'",
        codes=PAIRS,
    ),
    "French carpools": Layout(
        "trajets.csv",
        lines(
            CARPOOL,
            lambda i: "{};t;2023-01-31T08:10:00;{};{};75056;2023-01-31T08:30:00;{};{}".format(
                i, *ENDS[i]
            ),
        ),
        said={**FROM("carpool"), "every": "1h"},
    ),
    "French carpools to 2023": Layout(
        "trajets.csv",
        lines(
            "journey_id;journey_start_datetime;journey_start_lon;journey_start_lat;journey_end_lon;"
            "journey_end_lat;passenger_seats",
            lambda i: "{};2022-01-31T08:10:00+01:00;{1};{0};{3};{2};1".replace("{}", str(i)).format(
                *ENDS[i]
            ),
        ),
        said={**FROM("carpool"), "every": "1h"},
        proposed="source_format='carpool'",
    ),
    "FlowKit": Layout(
        "flows.csv",
        lines("pcod_from,pcod_to,value", lambda i: f"z1,z2,{i + 16}"),
        sum(range(N)) + 16 * N,
        FROM("flowkit"),
        "source_format='flowkit'",
        codes=PAIRS,
    ),
    "FlowAPI": Layout(
        "flows.json",
        lambda: json.dumps(
            {
                "query_id": "a1",
                "query_result": [{"origin": "z1", "destination": "z2", "trips": 20}] * 3,
            }
        ).encode(),
        60,
        FROM("flowkit"),
        "trips='trips'",
        codes=PAIRS,
    ),
    "multimno": Layout(
        "migration.parquet",
        lambda: parquet(
            pa.table({"previous_zone": ["z1"] * 3, "new_zone": ["z2"] * 3, "migration": [1.5] * 3})
        ),
        4.5,
        FROM("multimno"),
        "source_format='multimno'",
        codes=PAIRS,
    ),
    "a sheet": Layout(
        "od.xlsx",
        sheet,
        sum(range(N + 1)),
        {"trips": "n"},
        "trips='n'",
        codes=PAIRS,
    ),
    "a zip archive": Layout(
        "t.zip", lambda: zipped(lines("start_lat,start_lon,end_lat,end_lon", csv_of)())
    ),
    "without a header": Layout(
        "od.csv",
        lambda: b"z1 z2 3\nz2 z1 4\n",
        7,
        {"column_names": "origin,destination,n", "trips": "n"}
        | {"origin_tile": "origin", "destination_tile": "destination"},
        codes=PAIRS,
    ),
    "GeoJSON lines": Layout("t.geojson", drawn("geojson")),
    "GeoPackage lines": Layout("t.gpkg", drawn("gpkg")),
    "two points as text": Layout(
        "t.csv",
        lines(
            "origin;destination;day;hour",
            lambda i: "POINT({1} {0});POINT({3} {2});2023-01-31;".format(*ENDS[i]) + str(i),
        ),
        said={
            "origin": "origin_lat,origin_lon",
            "destination": "destination_lat,destination_lon",
            "time": "day,hour",
            "every": "1h",
        },
    ),
    "x and y": Layout(
        "t.csv",
        lines("o_x,o_y,d_x,d_y", lambda i: ",".join(map(str, in_utm(i)))),
        said={"crs": "EPSG:25832"},
        proposed="crs='EPSG:25832'",
    ),
    "fields of structs": Layout("t.parquet", structs),
}


def written(tmp_path: Path, layout: Layout) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / layout.name
    path.write_bytes(layout.content())
    if not layout.codes:
        return path, {"resolution": 6}
    rows = "".join(f"{code},all\n" for code in layout.codes)
    return path, {
        "zones": flowveil.read_zones(
            pa.table({"zone": [*layout.codes, "all"], "parent": ["all"] * 4 + [None]})
        )
        if rows
        else None
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_or_refused_with_what_to_do(tmp_path, name):
    layout = LAYOUTS[name]
    path, how = written(tmp_path, layout)
    if layout.refused or layout.proposed:
        with pytest.raises(FlowveilError) as refused:
            flowveil.read_trips(path, **how)
        assert (layout.refused or layout.proposed) in str(refused.value)
    if layout.refused:
        return
    said = {**layout.said, **how}
    if "every" in said:
        sliced = flowveil.read_trips(path, ask_person=False, **said)
        total, summary = sum(float(part.trips.sum()) for part in sliced.slices), sliced.intake
        assert len(sliced.slices) == _hours(layout) if said["every"] != "day" else 2
    else:
        flows = flowveil.read_trips(path, ask_person=False, **said)
        total, summary = float(flows.trips.sum()), flows.intake
    assert total == pytest.approx(layout.trips)
    assert not summary.dropped
    if how.get("zones") is None and "crs" not in said:
        places = (
            [flowveil.read_trips(path, ask_person=False, **said)] if "every" not in said else []
        )
        for flows in places:
            lat, lon = flows.origins.geography.centers(flows.origins.leaf_node)
            assert np.allclose([lat.mean(), lon.mean()], [59.92, 10.73], atol=0.2)


def _hours(layout: Layout) -> int:
    """The distinct hours of the layout's times."""
    one = ("trackintel, trips", "French carpools", "French carpools to 2023")
    return 1 if layout in [LAYOUTS[name] for name in one] else N


def test_most_layouts_are_read():
    read = [name for name, layout in LAYOUTS.items() if not layout.refused]
    assert len(LAYOUTS) >= 33
    assert len(read) >= 28


def test_the_columns_of_a_usual_map_and_named_columns_win(tmp_path):
    path = tmp_path / "od.csv"
    path.write_text("w_geocode,h_geocode,S000,SA01\n360610001001000,360610001001001,5,2\n")
    crosswalk = tmp_path / "xwalk.csv"
    crosswalk.write_text(
        "tabblk2020,st,cty,trct,bgrp\n"
        "360610001001000,36,36061,36061000100,360610001001\n"
        "360610001001001,36,36061,36061000100,360610001001\n"
    )
    flows = flowveil.read_trips(path, zones=crosswalk, source_format="lodes")
    assert flows.intake.zones["levels"] == "st,cty,trct,bgrp,tabblk2020"
    assert int(flows.trips.sum()) == 5
    young = flowveil.read_trips(path, zones=crosswalk, source_format="lodes", trips="SA01")
    assert int(young.trips.sum()) == 2
    again = flowveil.read_trips(
        path, zones=crosswalk, **{"source_format": young.intake.source_format, "trips": "SA01"}
    )
    assert again.intake.parameters() == young.intake.parameters()
