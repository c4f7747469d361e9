from __future__ import annotations

import numpy as np
import shapely
from hypothesis import given
from hypothesis import strategies as st

from flowveil.zoning.geometry import NOWHERE, places_from_outlines, zones_at

#: Squares of a grid, so that corners belong to four of them; their codes are not in the order of
#: the file.
CODES = np.array(["d", "b", "a", "c", "e"])
SQUARES = np.array(
    [*shapely.box([0, 1, 0, 1], [0, 0, 1, 1], [1, 2, 1, 2], [1, 1, 2, 2]), shapely.box(5, 5, 6, 6)]
)

coordinate = st.sampled_from(np.arange(-0.5, 6.75, 0.25).tolist())


@given(
    st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=30), st.permutations(range(5))
)
def test_each_point_is_in_the_zone_with_the_smallest_code_of_those_that_cover_it(
    points, order
) -> None:
    outlines, codes = SQUARES[list(order)], CODES[list(order)]
    lon, lat = np.array(points).T
    found = zones_at(outlines, codes, lat, lon)
    for (x, y), zone in zip(points, found.tolist(), strict=True):
        covering = sorted(
            c
            for o, c in zip(outlines, codes.tolist(), strict=True)
            if o.covers(shapely.Point(x, y))
        )
        assert (codes[zone] if zone != NOWHERE else None) == (covering[0] if covering else None)


def test_zones_across_the_180th_meridian_hold_points_on_both_sides() -> None:
    east, west = shapely.box(179, 0, 181, 1), shapely.box(-181, 2, -179, 3)
    codes = np.array(["e", "w"])
    lat, lon = (
        np.array([0.5, 0.5, 0.5, 2.5, 2.5, 9.0]),
        np.array([179.5, -179.5, -178.5, -179.5, 179.5, 179.5]),
    )
    found = zones_at(places_from_outlines(codes, np.array([east, west])).drawn, codes, lat, lon)
    assert found.tolist() == [0, 0, NOWHERE, 1, 1, NOWHERE]
