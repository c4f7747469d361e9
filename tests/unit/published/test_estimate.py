"""estimate.parquet: complete, within what the cells prove, between areas of a public size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import duckdb
import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import flowveil
from flowveil import anonymize_slices, read_slices
from flowveil.methods.layercut import flows_in
from flowveil.published import estimate as estimates
from flowveil.published.disaggregation import disaggregate
from flowveil.published.read_release import read_published
from flowveil.published.zone_overlaps import h3_overlap
from flowveil.release.folder import ReleaseFolder
from flowveil.zoning.public_map import H3Map, TreeMap
from samples.hourly import hourly_trips
from samples.releases import city_flows, region_flows
from unit.published.test_disaggregation import CELLS, LEVEL, RESOLUTION, tables


@settings(max_examples=40, deadline=None)
@given(CELLS)
def test_fewer_rows_keep_trips_and_bounds(cells):
    flows, zones = tables(cells)
    ends = [
        h3_overlap(zones, end, level=LEVEL, resolution=RESOLUTION)
        for end in ("origin", "destination")
    ]
    every = disaggregate(flows, *ends)
    fewer = disaggregate(flows, *ends, least=0.25)
    bounds = {
        (o, d): (low, high)
        for o, d, low, high in zip(
            every.origin.tolist(),
            every.destination.tolist(),
            *(column.tolist() for column in every.bounds.values()),
            strict=True,
        )
    }
    trips = fewer.values["trips"]
    assert trips.sum() == pytest.approx(sum(cell[2] for cell in cells))
    for o, d, volume, low, high in zip(
        fewer.origin.tolist(),
        fewer.destination.tolist(),
        trips.tolist(),
        *(column.tolist() for column in fewer.bounds.values()),
        strict=True,
    ):
        assert bounds[o, d] == pytest.approx((low, high))
        assert volume == 0 or volume >= 0.25 - 1e-9
        assert low - 1e-9 <= volume <= high + 1e-9


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    flows = city_flows(rows=4_000, around=5)
    release = flowveil.anonymize(flows, method="layercut", k=5, protect="trips")
    # Ranges are those of the published trips.
    published = flows_in(release.input, release.cell_of_flow >= 0)[1]
    return published, release.write(tmp_path_factory.mktemp("city") / "release")


def true_counts(flows, level):
    """Trips between H3 cells of a level, by their codes."""
    ends = []
    for tree, tile in ((flows.origins, flows.origin), (flows.destinations, flows.destination)):
        code = [h3.int_to_str(int(code)) for code in tree.code[tree.leaf_node]]
        ends.append(np.array([h3.cell_to_parent(one, level) for one in code])[tile].tolist())
    counts: Counter[tuple[str, str]] = Counter()
    for origin, destination, trips in zip(*ends, flows.trips.tolist(), strict=True):
        counts[origin, destination] += trips
    return counts


def test_true_counts_are_in_the_ranges(city):
    flows, folder = city
    rows = pq.read_table(folder / "estimate.parquet").to_pylist()
    counts = true_counts(flows, h3.get_resolution(rows[0]["origin"]))
    for row in rows:
        true = counts[row["origin"], row["destination"]]
        assert row["trips_low"] <= true <= row["trips_high"]
        assert row["trips_low"] - 0.01 <= row["trips"] <= row["trips_high"] + 0.01
        assert row["weight_low"] - 0.01 <= row["weight"] <= row["weight_high"] + 0.01


def test_areas_are_the_finest_of_which_enough_is_known(city, monkeypatch):
    _, folder = city
    rule = "sum(trips) filter (trips_high - trips_low < 0.5 * trips) / sum(trips)"
    estimate, cells = (f"'{folder}/{name}.parquet'" for name in ("estimate", "flows"))
    known, total = duckdb.sql(f"select {rule}, sum(trips) from {estimate}").fetchall()[0]
    assert known >= 0.5
    assert total == pytest.approx(
        duckdb.sql(f"select sum(trips) from {cells}").fetchall()[0][0], 1e-3
    )
    level = h3.get_resolution(duckdb.sql(f"select min(origin) from {estimate}").fetchall()[0][0])
    release = read_published(ReleaseFolder(folder), H3Map(8))
    monkeypatch.setattr(estimates, "KNOWN_SHARE", known + 0.01)
    coarser = estimates.estimate(release, pq.read_table(folder / "zones.parquet"))
    assert coarser is None or coarser.level < level
    # The next finer size satisfies a weaker rule only.
    monkeypatch.setattr(estimates, "KNOWN_SHARE", 0.0)
    finest = estimates.estimate(release, pq.read_table(folder / "zones.parquet"))
    assert finest is not None
    assert finest.level > level


def test_areas_are_zones_of_the_publishers_map(tmp_path):
    flows = region_flows()
    folder = flowveil.anonymize(flows, method="layercut", k=5).write(tmp_path / "region")
    published = read_published(ReleaseFolder(folder), TreeMap(flows.origins))
    made = estimates.estimate(published, pq.read_table(folder / "zones.parquet"))
    assert made is not None
    rows = made.table.to_pylist()
    assert {flows.origins.level[flows.origins.node_of_code[row["origin"]]] for row in rows} <= {
        *range(made.level + 1)
    }
    assert sum(row["trips"] for row in rows) == pytest.approx(
        sum(published.cells["trips"].to_pylist()), abs=1
    )
    for row in rows:
        assert row["trips_low"] - 0.01 <= row["trips"] <= row["trips_high"] + 0.01


def test_each_hour_has_rows_that_sum_to_its_cells(tmp_path):
    hours = read_slices(hourly_trips(), time="start", every="8h", resolution=7, person="who")
    anonymize_slices(hours, k=5, protect="trips").write(tmp_path / "hours")
    by_hour = "select time, sum(trips) from '{}' group by time order by time"
    estimate, cells = (
        duckdb.sql(by_hour.format(tmp_path / "hours" / f"{name}.parquet")).fetchall()
        for name in ("estimate", "flows")
    )
    assert [hour for hour, _ in estimate] == [hour for hour, _ in cells]
    for (_, one), (_, other) in zip(estimate, cells, strict=True):
        assert float(one) == pytest.approx(other, rel=0.01)


def test_numbers_with_errors_have_no_estimate(city):
    _, folder = city
    published = read_published(ReleaseFolder(folder), H3Map(8))
    changed = replace(
        published, statement=replace(published.statement, guarantee={"mechanism": "noise"})
    )
    assert estimates.estimate(changed, pq.read_table(folder / "zones.parquet")) is None


def test_a_zone_too_large_to_be_spread_has_no_hexagon():
    """Zones between two resolutions, which have no H3 cell, are areas themselves where they are
    large."""
    one = estimates.Estimate(7, True, pa.table({}), ())  # type: ignore[arg-type]
    outlines, lat, _ = one.places(["832834fffffffff.04", "87283080cffffff"])
    assert outlines[0] is None
    assert outlines[1].geom_type == "Polygon"
    assert len(lat) == 2
