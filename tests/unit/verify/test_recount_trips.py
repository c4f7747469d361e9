"""The recount's own reader reads what the engine reads, and refuses clearly what it does not
know."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.reading import Reading
from flowveil.verify.from_flows import trips_from_flows, zone_map
from flowveil.verify.recount.geometry import UnreadableInputError
from flowveil.verify.recount.tree import cell_texts
from flowveil.verify.recount.trips import read_trips
from flowveil.zoning.outside import with_outside

N = 300


def dirty_table() -> pa.Table:
    """Trips around a city: missing ends, points off the earth, people in several spellings,
    placeholders."""
    rng = np.random.default_rng(2)
    start = 48.85 + rng.normal(0, 0.05, (N, 2)) * [1, 1]
    lat, lon = start[:, 0], start[:, 1] - 46.5
    lat[:3], lon[3] = [0, 95, np.nan], 0
    lon[0] = 0
    names = [
        "A7",
        "a7 ",
        "17",
        "17.0",
        "unknown",
        "",
        "-1",
        "É",
        "é",
        "0",
        "x",
        *(f"p{i}" for i in range(20)),
    ]
    times = [
        f"2024-03-{d:02d}T{h:02d}:15:00"
        for d, h in zip(rng.integers(1, 28, N), rng.integers(0, 24, N), strict=True)
    ]
    times[5] = ""
    return pa.table(
        {
            "o_lat": lat,
            "o_lon": lon,
            "d_lat": 48.86 + rng.normal(0, 0.05, N),
            "d_lon": 2.36 + rng.normal(0, 0.05, N),
            "who": [names[i] for i in rng.integers(0, len(names), N)],
            "n": rng.integers(0, 4, N),
            "w": np.round(rng.uniform(0, 9, N), 3),
            "sex": [["f", "m", " f", ""][i] for i in rng.choice(4, N, p=[0.5, 0.4, 0.05, 0.05])],
            "t": times,
        }
    )


def summary(trips) -> dict:
    """What a recount depends on, in a form that can be compared."""

    def text(codes):
        return (cell_texts(codes) if codes.dtype == np.uint64 else codes).tolist()

    o, d = text(trips.origins), text(trips.destinations)
    people = {}
    if trips.persons is not None:
        counts = trips.persons.count(np.arange(len(trips), dtype=np.int32), len(trips))
        people = dict(enumerate(counts.tolist()))
        assert trips.persons.trips is not None
    weight = [None] * len(trips) if trips.weight is None else trips.weight.tolist()
    rows = {
        (trips.slices[s], o[a], d[b]): (n, weight[i], people.get(i))
        for i, (s, a, b, n) in enumerate(
            zip(
                trips.of_slice().tolist(),
                trips.origin.tolist(),
                trips.destination.tolist(),
                trips.trips.tolist(),
                strict=True,
            )
        )
    }
    everyone = None
    if trips.persons is not None:
        everyone = int(trips.persons.count(np.zeros(len(trips), dtype=np.int32), 1)[0])
    return {
        "rows": rows,
        "people": everyone,
        "dropped": trips.dropped,
        "outside": trips.outside,
        "tiles": (sorted(o), sorted(d)),
        "slices": (trips.slice_columns, tuple(trips.slices), trips.every),
    }


def compare(source, files=None, **how) -> None:
    """Read with the engine, record how, and read again by that record alone."""
    sliced = how.get("by") or how.get("every")
    read = flowveil.read_slices if sliced else flowveil.read_trips
    flows = read(str(source), max_dropped=0.9, **how)
    first = flows.slices[0]
    parameters = json.loads(json.dumps(first.intake.parameters()))
    if how.get("every"):
        parameters["slices"] = {"every": how["every"]}
    assert (
        Reading.from_parameters(parameters, **({"zones": how["zones"]} if "zones" in how else {}))
        is not None
    )
    own = read_trips(source, parameters, **(files or {}))
    assert summary(own) == summary(trips_from_flows(flows))


POINTS = {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon", "resolution": 8}
CASES = {
    "points": {},
    "people, counts and weights": {"person": "who", "trips": "n", "weight": "w"},
    "case kept": {"person": "who", "person_case": "keep"},
    "degrees": {"within": "2.3,48.8,2.4,48.9"},
    "degrees, crossing trips kept": {"within": "2.3,48.8,2.4,48.9", "outside": "keep"},
    "cells": {"within": "861fb4667ffffff,861fb466fffffff"},
    "one tree": {"same_zones": True},
    "attribute": {"by": "sex", "by_many": True},
    "attribute and time": {"by": "sex", "by_many": True, "time": "t", "every": "6h"},
    "hours of the week": {"time": "t", "every": "weekday-hour"},
    "a time format": {"time": "t", "every": "day", "time_format": "%Y-%m-%dT%H:%M:%S"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.slow
def test_it_reads_what_the_engine_reads(case, ending, tmp_path):
    path = tmp_path / f"trips.{ending}"
    table = dirty_table()
    if "time_format" in CASES[case]:
        table = table.filter(pa.compute.not_equal(table["t"], ""))
    (pq.write_table if ending == "parquet" else pa.csv.write_csv)(table, path)
    compare(path, **{**POINTS, **CASES[case]})


def test_folders_and_partitions(tmp_path):
    table = dirty_table()
    for month in (1, 2):
        (tmp_path / "in" / f"month={month}").mkdir(parents=True)
        pq.write_table(
            table.slice(month * 100, 100), tmp_path / "in" / f"month={month}" / "part.parquet"
        )
    compare(tmp_path / "in", **POINTS, by="month", by_many=True, partition_columns="month")
    compare(f"{tmp_path}/in/*/*.parquet", **POINTS)


def grid_map(path, *, outlines: bool):
    """Sixteen squares in four quarters, as CSV with centres or as GeoJSON with outlines."""
    rows, features = [], []
    for i in range(4):
        for j in range(4):
            south, west = 48.7 + 0.08 * i, 2.2 + 0.08 * j
            zone = {"zone": f"0{i}{j}", "parent": f"q{i // 2}{j // 2}"}
            rows.append({**zone, "lat": south + 0.04, "lon": west + 0.04})
            ring = [
                [west, south],
                [west + 0.08, south],
                [west + 0.08, south + 0.08],
                [west, south + 0.08],
                [west, south],
            ]
            features.append(
                {
                    "type": "Feature",
                    "properties": zone,
                    "geometry": {"type": "Polygon", "coordinates": [ring]},
                }
            )
    if outlines:
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    else:
        pa.csv.write_csv(pa.Table.from_pylist(rows), path)
    return rows


def test_codes_and_outlines_of_a_map(tmp_path):
    rows = grid_map(tmp_path / "map.csv", outlines=False)
    grid_map(tmp_path / "map.geojson", outlines=True)
    rng = np.random.default_rng(0)
    codes = [row["zone"] for row in rows]
    ends = {end: [codes[i] for i in rng.integers(0, 16, 200)] for end in ("from", "to")}
    ends["from"][3] = "elsewhere"
    pa.csv.write_csv(pa.table(ends), tmp_path / "codes.csv")
    pq.write_table(dirty_table(), tmp_path / "points.parquet")
    with_root = {"parent": "parent", "root": "all"}
    for name, source, how in (
        ("map.csv", "codes.csv", {"origin_tile": "from", "destination_tile": "to", "skip_unknown": True}),
        ("map.csv", "codes.csv", {"origin_tile": "from", "destination_tile": "to", "skip_unknown": True,
                                  "within": "2.3,48.7,2.6,49", "outside": "keep"}),
        ("map.geojson", "points.parquet", {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon"}),
        ("map.geojson", "points.parquet", {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon", "outside": "keep"}),
    ):  # fmt: skip
        zones = flowveil.read_zones(tmp_path / name, **with_root)
        tree = with_outside(zones.hierarchy) if how.get("outside") == "keep" else zones.hierarchy
        compare(tmp_path / source, {"zones": zone_map(tree, None)}, zones=zones, **how)


def test_h3_codes(tmp_path):
    cells = ["881fb46621fffff", "881fb46623fffff", "881fb46625fffff", "881fb4662bfffff"]
    rng = np.random.default_rng(1)
    table = pa.table(
        {f"{end}_h3": [cells[i] for i in rng.integers(0, 4, 100)] for end in ("start", "end")}
    )
    pq.write_table(table, tmp_path / "trips.parquet")
    compare(tmp_path / "trips.parquet", resolution=7)
    compare(tmp_path / "trips.parquet", resolution=9)


REFUSED = {
    "a table in memory": ({}, lambda _: dirty_table()),
    "another kind of file": ({}, lambda path: path.with_suffix(".omx")),
    "a matrix": ({"wide": True}, lambda path: path),
    "a map that is not given": ({"zones": {"tile": "zone"}}, lambda path: path),
    "an area that is not given": ({"within": "AREA"}, lambda path: path),
    "a column that is missing": (
        {"columns": {"origin": "a,b", "destination": "c,d"}},
        lambda path: path,
    ),
    "text among numbers": (
        {"columns": {"origin": "o_lat,who", "destination": "d_lat,d_lon"}},
        lambda path: path,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_does_not_know_is_refused(case, tmp_path):
    path = tmp_path / "trips.csv"
    pa.csv.write_csv(dirty_table(), path)
    (tmp_path / "trips.omx").write_bytes(b"x")
    changes, source = REFUSED[case]
    parameters = {
        "columns": {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon"},
        "resolution": 8,
        **changes,
    }
    with pytest.raises(UnreadableInputError) as refusal:
        read_trips(source(path), parameters)
    assert "p1" not in str(refusal.value)


def test_projected_coordinates_and_decimal_commas_are_published_and_left_to_the_engine(tmp_path):
    rng = np.random.default_rng(8)
    # Metres of EPSG:2154, around Paris.
    metres = (
        652_000 + 2_000 * rng.integers(0, 3, (2, N)),
        6_862_000 + 2_000 * rng.integers(0, 3, (2, N)),
    )
    names = ("o_lon", "d_lon", "o_lat", "d_lat")
    rows = zip(*(row.tolist() for half in metres for row in half), strict=True)
    lines = [";".join(names), *(";".join(f"{value},5" for value in row) for row in rows)]
    (tmp_path / "trips.csv").write_text("\n".join(lines) + "\n")
    how = {"crs": "EPSG:2154", "decimal_comma": True, "no_person": True, "resolution": 7}
    flows = flowveil.read_trips(
        tmp_path / "trips.csv", origin="o_lat,o_lon", destination="d_lat,d_lon", **how
    )
    flowveil.anonymize(flows, k=5).write(tmp_path / "out")
    verified = flowveil.verify_release(tmp_path / "out", against=tmp_path / "trips.csv")
    assert verified.holds
    assert verified.compared["read_by"] == "engine"
