"""The estimate between areas: sums, layers, rounding, bounds, known totals and public weights."""

from __future__ import annotations

from unittest import mock

import h3
import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import ParameterError
from flowveil.published import disaggregation
from flowveil.published.disaggregation import calibrated, disaggregate, rounded
from flowveil.published.reconstruction import Wishes, reconstruct_tables
from flowveil.published.zone_overlaps import (
    h3_overlap,
    land_measure,
    outline_overlap,
    population_measure,
)
from reference.disaggregation import even_estimate

TOP = h3.latlng_to_cell(48.85, 2.35, 5)
NODES = [
    TOP,
    *h3.cell_to_children(TOP, 6)[:3],
    *h3.cell_to_children(h3.cell_to_children(TOP, 6)[0], 7),
]
RESOLUTION, LEVEL = 8, 7

REPORT = {
    "kind": "layered",
    "guarantee": {"k": 5},
    "parameters": {"resolution": 8},
    "statement": {
        "slice_columns": [],
        "layers": True,
        "about": {"period": "2024-03-01/2024-03-07"},
    },
}


def tables(cells):
    """Published tables of cells (origin, destination, trips, layer)."""
    columns = zip(*cells, strict=True)
    flows = pa.table(
        dict(
            zip(
                ("origin_zone", "destination_zone", "trips", "layer"),
                map(list, columns),
                strict=True,
            )
        )
    )
    used = sorted({code for cell in cells for code in cell[:2]})
    shapes = [shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(code)]) for code in used]
    zones = pa.table(
        {"zone": used, "role": ["both"] * len(used), "geometry": shapely.to_wkb(np.array(shapes))}
    )
    return flows.set_column(3, "layer", flows["layer"].cast(pa.int8())), zones


CELLS = st.lists(
    st.tuples(
        st.sampled_from(NODES), st.sampled_from(NODES), st.integers(1, 90), st.integers(1, 3)
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda cell: (cell[0], cell[1], cell[3]),
)


def by_pair(table, name="trips"):
    return {(r["origin"], r["destination"]): r[name] for r in table.to_pylist()}


@settings(max_examples=30, deadline=None)
@given(CELLS)
def test_without_activities_it_is_the_even_spread_over_what_layers_leave(cells):
    flows, zones = tables(cells)
    ends = [
        h3_overlap(zones, end, level=LEVEL, resolution=RESOLUTION)
        for end in ("origin", "destination")
    ]
    with (
        mock.patch.object(disaggregation, "ROUNDS", 0),
        mock.patch.object(disaggregation, "_LEFT", 1e-12),
    ):
        found = by_pair(disaggregate(flows, *ends, decay=False).table())
    if possible(cells):
        want = even_estimate([([o], [d], v, layer) for o, d, v, layer in cells], LEVEL, RESOLUTION)
        assert {pair: v for pair, v in found.items() if v > 1e-6} == pytest.approx(
            {pair: v for pair, v in want.items() if v > 1e-6}, rel=1e-5
        )


def possible(cells) -> bool:
    """Whether every cell has something left by the layers before it, and cells of a layer are
    disjoint."""
    tiles = [
        ({*h3.cell_to_children(o, RESOLUTION)}, {*h3.cell_to_children(d, RESOLUTION)}, layer)
        for o, d, _, layer in cells
    ]
    return not any(
        (a[2] <= b[2] and a[0] >= b[0] and a[1] >= b[1])
        or (a[2] == b[2] and a[0] & b[0] and a[1] & b[1])
        for a in tiles
        for b in tiles
        if a is not b
    )


@settings(max_examples=30, deadline=None)
@given(CELLS)
def test_totals_are_kept_and_lie_within_the_bounds(cells):
    flows, zones = tables(cells)
    ends = [
        h3_overlap(zones, end, level=LEVEL, resolution=RESOLUTION)
        for end in ("origin", "destination")
    ]
    table = disaggregate(flows, *ends).table(bounds=True)
    trips, total = table["trips"].to_numpy(), float(sum(cell[2] for cell in cells))
    assert trips.sum() == pytest.approx(total)
    assert np.all(trips >= table["trips_low"].to_numpy() - 1e-9)
    assert np.all(trips <= table["trips_high"].to_numpy() + 1e-9)
    whole = rounded(table)
    assert whole["trips"].type == pa.int64()
    assert sum(whole["trips"].to_pylist()) == total
    before, after = (starts(t) for t in (table, whole))
    assert all(abs(before[area] - after.get(area, 0)) <= 1 + 1e-9 for area in before)


def starts(table) -> dict[str, float]:
    sums = table.group_by("origin").aggregate([("trips", "sum")])
    return dict(zip(sums["origin"].to_pylist(), sums["trips_sum"].to_pylist(), strict=True))


def test_later_layers_follow_the_activity_of_finer_cells():
    # Two areas, one of them busy: a coarse cell of a later layer is expected to start there rather.
    busy, quiet = h3.cell_to_children(NODES[1], 7)[:2]
    there = h3.cell_to_children(NODES[2], 7)[0]
    far = h3.cell_to_children(NODES[3], 7)[0]
    flows, zones = tables([(busy, there, 900, 1), (quiet, there, 10, 1), (NODES[1], far, 70, 2)])
    ends = [h3_overlap(zones, end, level=7, resolution=8) for end in ("origin", "destination")]
    found = by_pair(disaggregate(flows, *ends).table())
    assert found[busy, far] > 5 * found[quiet, far]
    # Nothing more goes where a finer cell has counted everything.
    flows, zones = tables([(busy, there, 900, 1), (NODES[1], there, 70, 2)])
    ends = [h3_overlap(zones, end, level=7, resolution=8) for end in ("origin", "destination")]
    assert by_pair(disaggregate(flows, *ends).table())[busy, there] == pytest.approx(900, abs=0.01)


def test_a_later_cell_has_fewer_trips_between_two_areas_than_a_published_cell_where_possible():
    # With 10 trips between busy and far, there would have been a finer cell.
    areas = h3.cell_to_children(NODES[1], 7)
    there, far = (h3.cell_to_children(node, 7)[0] for node in NODES[2:4])
    flows, zones = tables(
        [(areas[0], there, 900, 1), (areas[1], there, 10, 1), (NODES[1], far, 20, 2)]
    )
    ends = [h3_overlap(zones, end, level=7, resolution=8) for end in ("origin", "destination")]
    found = by_pair(disaggregate(flows, *ends).table())
    assert found[areas[0], far] == max(v for (_, d), v in found.items() if d == far) < 10
    assert sum(v for (_, d), v in found.items() if d == far) == pytest.approx(20)


def test_a_few_trips_of_vast_zones_do_not_make_far_areas_likely():
    near, farther = h3.cell_to_children(NODES[1], 7)[:2]
    world = [h3.latlng_to_cell(lat, lon, 3) for lat, lon in ((48.85, 2.35), (-33.9, 18.4))]
    flows, zones = tables([(near, farther, 900, 1), (farther, near, 900, 1), (near, near, 10, 1)])
    many = {code: [code] for code in zones["zone"].to_pylist()} | {"all": world}
    flows = pa.concat_tables([flows, pa.table([["all"], ["all"], [10], [2]], schema=flows.schema)])
    zones = pa.table(
        {"zone": list(many), "role": ["both"] * len(many), "h3_cells": list(many.values())}
    )
    ends = [h3_overlap(zones, end, level=5, resolution=8) for end in ("origin", "destination")]
    found = by_pair(disaggregate(flows, *ends).table())
    assert (
        sum(
            v
            for (o, d), v in found.items()
            if h3.cell_to_latlng(o)[0] * h3.cell_to_latlng(d)[0] < 0
        )
        < 0.01
    )


def test_known_totals_are_met():
    flows, zones = tables([(NODES[1], NODES[2], 70, 1), (NODES[2], NODES[1], 30, 1)])
    table = reconstruct_tables(flows, zones, REPORT, 6)
    totals = pa.table({"area": [NODES[1], NODES[2]], "origins": [100.0, 50.0]})
    assert starts(calibrated(table, totals)) == pytest.approx({NODES[1]: 100, NODES[2]: 50})
    with pytest.raises(ParameterError, match="area"):
        calibrated(table, pa.table({"zone": ["a"], "origins": [1.0]}))


def test_public_weights_say_where_people_are():
    flows, zones = tables([(NODES[1], NODES[2], 70, 1)])
    home = h3.cell_to_children(NODES[1], 7)[3]
    lat, lon = h3.cell_to_latlng(home)
    shop = h3.cell_to_latlng(h3.cell_to_children(NODES[2], 7)[2])
    people = pa.table({"lat": [lat, shop[0]], "lon": [lon, shop[1]], "population": [500, 20]})
    found = by_pair(
        reconstruct_tables(flows, zones, REPORT, 7, wishes=Wishes(population=people, per="day"))
    )
    assert {pair: v for pair, v in found.items() if v > 1e-6} == {
        (home, h3.cell_to_children(NODES[2], 7)[2]): pytest.approx(10)
    }
    land = np.array([shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(home)]).buffer(-1e-4)])
    ends = h3_overlap(zones, "origin", level=7, resolution=8, measure=land_measure(land))
    of_zone = ends.measure[ends.first[0] : ends.first[1]]
    assert np.count_nonzero(of_zone > 0.01 * of_zone.max()) == 1
    measure = population_measure(np.array([lat]), np.array([lon]), np.array([7.0]))
    assert measure(np.array([land[0], land[0].buffer(-1)], dtype=object)).tolist() == [7.0, 0.0]


def test_polygons_of_the_reader_need_no_hexagons():
    flows, zones = tables([(NODES[1], NODES[2], 70, 1)])
    shape = shapely.from_wkb(zones["geometry"][zones["zone"].to_pylist().index(NODES[1])].as_py())
    west, south, east, north = shape.bounds
    middle = (west + east) / 2
    codes = np.array(["east", "west"])
    halves = np.array(
        [
            shapely.box(middle, south - 1, east + 1, north + 1),
            shapely.box(west - 1, south - 1, middle, north + 1),
        ]
    )
    ends = [outline_overlap(zones, end, codes, halves) for end in ("origin", "destination")]
    table = disaggregate(flows, *ends, decay=False).table()
    assert sum(table["trips"].to_pylist()) == pytest.approx(70)
    of_origin = starts(table)
    assert of_origin["east"] == pytest.approx(of_origin["west"], rel=0.05)


def test_a_pair_of_districts_with_a_cell_inside_has_no_trips_in_other_cells():
    fine = h3.cell_to_children(h3.cell_to_children(TOP, 6)[0], 7)
    coarse = h3.cell_to_parent(fine[0], 6)
    inside = h3.cell_to_children(fine[0], 8)[0]
    flows, zones = tables([(inside, fine[1], 20, 1), (coarse, fine[1], 30, 2)])
    districts = {**REPORT["parameters"], "options": {"districts": LEVEL}}
    for parameters, is_complete in ((districts, True), (REPORT["parameters"], False)):
        report = {**REPORT, "parameters": parameters}
        rows = reconstruct_tables(flows, zones, report, LEVEL).to_pylist()
        trips = {(row["origin"], row["destination"]): row["trips"] for row in rows}
        assert (abs(trips[fine[0], fine[1]] - 20) < 1e-3) == is_complete
        assert sum(trips.values()) == pytest.approx(50)
