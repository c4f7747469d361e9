"""Groups that releases confine together, on cases that can be done by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import h3
import pyarrow as pa
import pytest
import shapely

from flowveil.verify.audit.published import period_of, published_release
from flowveil.verify.audit.subtraction import confined_groups

PARENT = h3.cell_to_parent("89b2c55b5b3ffff", 8)
TILES = sorted(h3.cell_to_children(PARENT, 9))
#: Two districts of two tiles each, in an area that has no others.
MADE_OF = {
    "area": TILES[:4],
    "west": TILES[:2],
    "east": TILES[2:4],
    **{f"t{i}": [TILES[i]] for i in range(4)},
}


def release(
    cells,
    *,
    k=3,
    period=None,
    homogeneous=True,
    rule="short cells",
    within=None,
    population=None,
    weight=None,
):
    pairs = sorted(cells)
    columns = {
        "origin_zone": [o for o, _ in pairs],
        "destination_zone": [d for _, d in pairs],
        "trips": pa.array([cells[p] for p in pairs], pa.int64()),
    }
    if weight is not None:
        columns["weight"] = [float(weight[p]) for p in pairs]
    codes = sorted({zone for pair in pairs for zone in pair})
    protect = ["trips"] if population is None else ["population"]
    report = {
        "kind": "plain",
        "method": "twincut",
        "statement": {
            "about": {} if period is None else {"period": period},
            "homogeneous": homogeneous,
            "suppression": {"rule": rule},
        },
        "parameters": {"within": within},
        "guarantee": {"k": k, "protect": protect, "trips": k, "population": population},
    }
    zones = pa.table({"zone": codes, "h3_cells": [MADE_OF[code] for code in codes]})
    return published_release(pa.table(columns), zones, report)


def test_the_remainder_of_a_cell_is_a_group_and_one_pair_is_a_single_cell():
    coarse = release({("west", "east"): 9, ("east", "east"): 9})
    fine = release({("t0", "east"): 8, ("east", "east"): 9, ("t1", "west"): 5})
    (group,) = confined_groups([coarse, fine]).groups
    assert (group.low, group.high, group.single, group.absent) == (1, 1, True, 1)
    assert group.pairs == (("t1", "east"),)


def test_pairs_at_their_bounds_are_exact_though_their_sum_is_above_k():
    # 4 trips in two pairs of at most 2: each holds exactly 2, though the remainder is above k.
    coarse = release({("west", "east"): 4})
    fine = release({("t0", "west"): 5, ("t1", "west"): 5, ("east", "east"): 6})
    found = confined_groups([coarse, fine])
    assert sorted((g.kind, g.low, g.high, g.pairs) for g in found.groups) == [
        ("cell", 2, 2, (("t0", "east"),)),
        ("cell", 2, 2, (("t1", "east"),)),
    ]


def test_cells_that_cross_bound_what_they_share():
    # Rows of 10 and 3, columns of 4 and 9: the first row and the first column share 1 at least, and
    # 4 at most.
    rows = {("t0", "west"): 10, ("t1", "west"): 3}
    columns = {("west", "t0"): 4, ("west", "t1"): 9}
    assert confined_groups([release(rows), release(columns)]).groups == ()
    # A guarantee of 5 is not met by them: a field that must hold 1 to 4 is short of it, whatever
    # the trips are.
    found = confined_groups([release(rows, k=5), release(columns, k=5)]).groups
    assert [(g.kind, g.low, g.high, g.pairs) for g in found] == [
        ("crossing", 1, 4, (("t0", "west"), ("west", "t0"))),
    ]


def test_months_are_subtracted_from_their_quarter_and_a_part_from_its_whole():
    quarter = release({("west", "east"): 16}, period="2024-01-01/2024-03-31")
    months = [
        release({("t0", "east"): 5}, period="2024-01-01/2024-01-31"),
        release({("t1", "east"): 5}, period="2024-02-01/2024-02-29"),
        release({("west", "east"): 5}, period="2024-03-01/2024-03-31"),
    ]
    assert len(confined_groups(months)) == 0
    (group,) = confined_groups([quarter, *months]).groups
    assert (group.low, group.high) == (1, 1)
    assert len(confined_groups([quarter, *months[:2]])) == 0
    (group,) = confined_groups(
        [release({("t0", "east"): 6}, period="2024-01-01/2024-03-31"), months[0]]
    ).groups
    assert (group.low, group.high) == (1, 1)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"period": "2024-01-15/2024-02-15"}, "overlap in part"),
        ({"period": None}, "no period"),
        ({"period": "2024-01-01/2024-01-31", "within": "area.geojson"}, "different areas"),
    ],
)
def test_what_is_not_stated_to_be_of_the_same_trips_is_not_compared(other, reason):
    one = release({("west", "east"): 9}, period="2024-01-01/2024-01-31")
    found = confined_groups([one, release({("t0", "east"): 8}, **other)])
    assert len(found) == 0
    assert reason in found.unchecked[0][1]


def test_zones_of_h3_and_of_a_map_are_not_compared():
    of_cells = release({("west", "east"): 9})
    square = shapely.to_wkb(shapely.box(0, 0, 1, 1))
    of_map = replace(of_cells, h3_cells={}, outlines={"west": square, "east": square})
    found = confined_groups([of_cells, of_map])
    assert "zones of a map" in found.unchecked[0][1]


def test_releases_that_contradict_each_other_confine_nothing():
    found = confined_groups([release({("west", "east"): 5}), release({("t0", "east"): 8})])
    assert (len(found), found.contradictions) == (0, 1)


def test_a_cell_without_its_hopeless_flows_is_not_taken_for_whole():
    fine, coarse = {("t0", "east"): 8}, {("west", "east"): 9}
    assert len(confined_groups([release(coarse, rule="hopeless flows"), release(fine)])) == 0
    # But what it leaves out of another's cell is known.
    assert len(confined_groups([release(coarse), release(fine, rule="hopeless flows")])) == 1


def test_a_remainder_may_be_short_in_weight_alone():
    coarse = release({("west", "east"): 20}, population=100, weight={("west", "east"): 300})
    fine = release({("t0", "east"): 10}, population=100, weight={("t0", "east"): 250})
    (group,) = confined_groups([coarse, fine]).groups
    assert (group.unit, group.low) == ("weight", 50.0)
    # The same by the months of a quarter: 20 trips are left, which weigh 50.
    said = {"population": 100, "weight": {("west", "east"): 300}}
    quarter = release({("west", "east"): 40}, period="2024-01-01/2024-03-31", **said)
    said["weight"] = {("west", "east"): 125}
    months = [
        release({("west", "east"): 10}, period=f"2024-0{m}-01/2024-0{m}-{d}", **said)
        for m, d in ((1, 31), (2, 29))
    ]
    march = {"period": "2024-03-01/2024-03-31", "population": 100, "weight": {("t0", "t0"): 900}}
    (group,) = confined_groups([quarter, *months, release({("t0", "t0"): 9}, **march)]).groups
    assert (group.unit, group.low, group.absent) == ("weight", 50.0, 1)


def test_a_period_is_an_interval_of_days_and_nothing_else():
    assert period_of("2024-01-01/2024-03-31") == (date(2024, 1, 1), date(2024, 3, 31))
    assert period_of("2024-02") == (date(2024, 2, 1), date(2024, 2, 29))
    assert period_of("spring 2024") is None
    assert period_of("2024-03-31/2024-01-01") is None
