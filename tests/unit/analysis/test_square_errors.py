"""What a reader gets of the flows between squares: equal to a plain count, point by point."""

from __future__ import annotations

from collections import Counter, defaultdict

import h3
import numpy as np
import pytest
from benchmarks.square_errors import _squares, usefulness

from conftest import trip_table
from flowveil import anonymize, read_trips

REGION = h3.latlng_to_cell(48.85, 2.35, 5)


def naive(release, side: float) -> list[float]:
    """Error of flows, of what begins and of what ends in a square, pair by pair of squares."""

    def points(zone: str) -> list[str]:
        return [zone] if h3.get_resolution(zone) >= 9 else sorted(h3.cell_to_children(zone, 9))

    flows = release.input
    tiles = [
        tree.code_text(tree.leaf_node).tolist() for tree in (flows.origins, flows.destinations)
    ]
    true = [
        (tiles[0][o], tiles[1][d], t)
        for o, d, t in zip(flows.origin, flows.destination, flows.trips, strict=True)
    ]
    said = [
        tuple(row.values())
        for row in release.flows.select(["origin_zone", "destination_zone", "trips"]).to_pylist()
    ]
    every = sorted(
        {p for o, d, _ in said for z in (o, d) for p in points(z)} | set(tiles[0]) | set(tiles[1])
    )
    every = [p for p in every if h3.cell_to_parent(p, 5) == REGION]
    squares = _squares(np.array([h3.cell_to_latlng(p) for p in every]), side).tolist()
    place = dict(zip(every, map(tuple, squares), strict=True))
    off, begins, ends, total = defaultdict(float), defaultdict(float), defaultdict(float), 0
    for o, d, trips in true:
        if o in place and d in place:
            off[place[o], place[d]] -= trips
            begins[place[o]] -= trips
            ends[place[d]] -= trips
            total += trips
    # A pair of points counts like any other pair of the same squares.
    share = {
        zone: {
            square: n / len(points(zone))
            for square, n in Counter(map(place.get, points(zone))).items()
        }
        for zone in {z for o, d, _ in said for z in (o, d)}
    }
    for o, d, trips in said:
        for a, one in share[o].items():
            for b, other in share[d].items():
                if a is not None and b is not None:
                    off[a, b] += trips * one * other
                    begins[a] += trips * one * other
                    ends[b] += trips * one * other
    return [sum(map(abs, errors.values())) / total for errors in (off, begins, ends)]


@pytest.mark.parametrize("method", ["twincut", "privtree"])
def test_it_is_the_plain_count(method):
    flows = read_trips(trip_table(250), resolution=9)
    asked = (
        {"k": 5, "protect": "trips", "hierarchy": "h3"}
        if method == "twincut"
        else {"epsilon": 3.0, "bound": 4}
    )
    asked |= {} if method == "twincut" else {"region": REGION, "level": 7}
    release = anonymize(flows, method, **asked)
    (found,) = usefulness(release, sides=(2,), region=[int(REGION, 16)])
    flow_error, begins, ends = naive(release, 2)
    assert found.flows == pytest.approx(flow_error)
    assert found.marginals == pytest.approx((begins + ends) / 2)
    assert 0 <= found.largest <= 1


def test_exact_tiles_have_no_error():
    release = anonymize(
        read_trips(trip_table(250), resolution=9),
        "suppression",
        k=1,
        protect="trips",
        allow_small_k=True,
    )
    for size in usefulness(release):
        assert (size.flows, size.marginals, size.largest) == (pytest.approx(0), pytest.approx(0), 1)


def test_trips_with_an_end_outside_the_area_are_neither_counted_nor_lost():
    table = trip_table(250)
    flows = read_trips(table, resolution=9, within="2.35,48.8,2.4,48.9", outside="keep")
    release = anonymize(flows, "suppression", k=1, protect="trips", allow_small_k=True)
    assert "outside" in release.zones["zone"].to_pylist()
    for size in usefulness(release):
        assert (size.flows, size.marginals, size.largest) == (pytest.approx(0), pytest.approx(0), 1)
