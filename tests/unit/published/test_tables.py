"""The two published tables."""

from __future__ import annotations

import io
import json

import geopandas
import h3.api.basic_int as h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from flowveil.core.flows import Flows
from flowveil.zoning.h3 import h3_hierarchy
from samples.releases import city_flows, nested_release, region_flows, release_of


def test_the_matrix_is_sorted_typed_and_complete():
    release = release_of(city_flows(), budget="volume")
    table = release.flows
    assert table.schema.names == ["origin_zone", "destination_zone", "trips", "weight"]
    assert [f.type for f in table.schema] == [pa.string(), pa.string(), pa.int64(), pa.float64()]
    pairs = list(
        zip(table["origin_zone"].to_pylist(), table["destination_zone"].to_pylist(), strict=True)
    )
    assert pairs == sorted(set(pairs))
    expected = {
        (
            str(release.plan.origin_zones.codes(release.cells.origin[i : i + 1])[0]),
            str(release.plan.destination_zones.codes(release.cells.destination[i : i + 1])[0]),
        ): (int(release.cells.trips[i]), float(release.cells.weight[i]))
        for i in range(len(release.cells))
    }
    values = zip(table["trips"].to_pylist(), table["weight"].to_pylist(), strict=True)
    assert dict(zip(pairs, values, strict=True)) == expected


def test_no_weight_column_without_weights():
    release = release_of(city_flows(weights=False), budget="volume")
    assert release.flows.schema.names == ["origin_zone", "destination_zone", "trips"]


def test_zones_are_those_of_published_cells_and_no_others():
    release = release_of(city_flows(), k=12, budget="volume", max_suppressed=0.3)
    rows = release.zones.to_pylist()
    for role, cells in (
        ("origin", release.flows["origin_zone"]),
        ("destination", release.flows["destination_zone"]),
    ):
        listed = [r["zone"] for r in rows if r["role"] in (role, "both")]
        assert sorted(listed) == sorted(set(cells.to_pylist()))
    # The case must be able to fail: some zone of the cut has no published cell at all.
    assert len(np.unique(release.cells.origin)) < len(release.plan.origin_zones)
    assert [(r["zone"], r["role"]) for r in rows] == sorted((r["zone"], r["role"]) for r in rows)


def test_the_number_of_tiles_is_that_of_the_map_however_many_were_seen():
    """As many tiles seen as there are would mean that every one was, those of suppressed flows
    too."""
    flows = city_flows()
    seen = np.unique(flows.destination)[::2]
    inside = np.isin(flows.destination, seen)
    thinned = Flows.from_pairs(
        flows.origin[inside],
        np.searchsorted(seen, flows.destination[inside]),
        flows.trips[inside],
        origins=flows.origins,
        destinations=h3_hierarchy(flows.destinations.code[flows.destinations.leaf_node[seen]]),
    )
    release = release_of(thinned, budget="volume")
    rows = release.zones.to_pylist()
    assert [r["tiles"] for r in rows] == [
        h3.cell_to_children_size(h3.str_to_int(r["zone"]), 8) for r in rows
    ]
    assert "both" in {r["role"] for r in rows}
    assert len({r["zone"] for r in rows}) == len(rows)
    # The case must be able to fail: in some zones fewer tiles were seen than there are.
    zones = release.plan.destination_zones
    possible = {r["zone"]: r["tiles"] for r in rows}
    codes = zones.codes(np.arange(len(zones))).tolist()
    assert any(
        size < possible.get(code, 0) for size, code in zip(zones.size.tolist(), codes, strict=True)
    )


def test_without_a_map_the_number_of_tiles_is_unknown():
    assert release_of(region_flows(), budget="volume").zones["tiles"].null_count > 0


def test_geopandas_reads_zones_as_geoparquet(tmp_path):
    release = release_of(city_flows(), budget="volume")
    folder = release.write(tmp_path / "release")
    zones = geopandas.read_parquet(folder / "zones.parquet")
    assert zones.crs.to_epsg() == 4326 or zones.crs.to_authority() == ("OGC", "CRS84")
    assert zones.geometry.is_valid.all()
    assert (zones.geometry.geom_type == "Polygon").all()
    assert shapely.contains_xy(zones.geometry.to_numpy(), zones["lon"], zones["lat"]).all()
    geo = json.loads(pq.read_schema(folder / "zones.parquet").metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    geometry = geo["columns"]["geometry"]
    assert (geometry["encoding"], geometry["geometry_types"]) == ("WKB", ["Polygon"])
    assert geometry["bbox"] == pytest.approx(zones.total_bounds.tolist())
    # Readers skip rows of other places by these bounds.
    assert geometry["covering"]["bbox"]["xmin"] == ["bbox", "xmin"]
    part = geopandas.read_parquet(folder / "zones.parquet", bbox=zones.total_bounds.tolist())
    assert len(part) == len(zones)
    squared = zones.to_crs(zones.estimate_utm_crs()).area / 1e6
    assert squared.to_numpy() == pytest.approx(zones["area_km2"].to_numpy(), rel=0.02)


def test_without_a_map_zones_are_geoparquet_without_outlines():
    table = release_of(region_flows(), budget="volume").zones
    geo = json.loads(table.schema.metadata[b"geo"])
    assert geo["columns"]["geometry"]["geometry_types"] == []
    for name in ("area_km2", "lat", "lon", "geometry"):
        assert table[name].null_count == len(table)
    assert table["role"].to_pylist().count("both") > 0
    assert table.schema.field("geometry").type == pa.binary()


def test_nested_zones_are_listed_once():
    rows = nested_release().zones.to_pylist()
    assert [(r["zone"], r["role"], r["tiles"], r["level"]) for r in rows] == [
        ("X", "both", 2, 1),
        ("Y", "both", 2, 1),
        ("x1", "destination", 1, 2),
        ("x2", "destination", 1, 2),
    ]


def test_the_order_of_the_input_rows_does_not_matter():
    flows = city_flows()
    order = np.random.default_rng(1).permutation(len(flows))
    again = Flows.from_pairs(
        flows.origin[order],
        flows.destination[order],
        flows.trips[order],
        origins=flows.origins,
        destinations=flows.destinations,
        weight=flows.weight[order],
    )

    def written(table):
        sink = io.BytesIO()
        pq.write_table(table, sink)
        return sink.getvalue()

    one, other = release_of(flows, budget="volume"), release_of(again, budget="volume")
    assert written(one.flows) == written(other.flows)
    assert written(one.zones) == written(other.zones)
