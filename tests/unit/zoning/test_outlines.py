"""Outlines of H3 zones: unions of their cells at the finest resolution, that neither overlap nor
leave gaps."""

from __future__ import annotations

import h3.api.basic_int as h3
import numpy as np
import pytest
import shapely

from flowveil.zoning.outlines import dissolved
from reference.h3_outlines import (
    are_drawn,
    area_km2,
    area_tolerance,
    area_tolerances,
    areas_km2,
    is_drawn,
)

#: A city, the date line, a pole, and a pentagon.
PLACES = [(37.77, -122.42), (20.0, 180.0), (90.0, 0.0), h3.cell_to_latlng(h3.get_pentagons(5)[3])]


def _mixed(cell: int) -> list[list[int]]:
    """A cell and those around it, divided unevenly, some into parts of two and of four children."""
    zones = []
    for n, around in enumerate(h3.grid_disk(cell, 1)):
        level = h3.get_resolution(around) + 1
        children = sorted(h3.cell_to_children(around, level))
        if n % 3 == 0 or h3.is_pentagon(around):
            zones.append([around])
        elif n % 3 == 1:
            zones += [[children[i] for i in digits] for digits in ((0, 2, 4, 6), (1, 3), (5,))]
        else:
            zones += [[c] for c in children[1:]] + [
                [c] for c in h3.cell_to_children(children[0], level + 1)
            ]
    return zones


@pytest.mark.parametrize("place", PLACES[::3])
def test_zones_of_different_levels_share_their_edges_and_nothing_else(
    place: tuple[float, float],
) -> None:
    zones = _mixed(h3.latlng_to_cell(*place, 5))
    outlines, areas = dissolved(zones, 8)
    assert shapely.coverage_is_valid(outlines)
    assert shapely.union_all(outlines).area == pytest.approx(
        shapely.area(outlines).sum(), rel=1e-12
    )
    cells = [[c for cell in of_zone for c in h3.cell_to_children(cell, 8)] for of_zone in zones]
    assert areas == pytest.approx(
        [sum(h3.cell_area(c) for c in of_zone) for of_zone in cells], rel=1e-5
    )
    brute = [
        shapely.union_all([shapely.Polygon([p[::-1] for p in h3.cell_to_boundary(c)]) for c in of])
        for of in cells
    ]
    apart = shapely.area(shapely.symmetric_difference(outlines, np.array(brute, dtype=object)))
    assert np.all(apart < 1e-4 * shapely.area(outlines))


@pytest.mark.parametrize("place", PLACES)
def test_verify_knows_the_union_of_cells_and_refuses_hexagons_and_messages(
    place: tuple[float, float],
) -> None:
    zones = _mixed(h3.latlng_to_cell(*place, 4))
    outlines, areas = dissolved(zones, 6)
    for cells, outline, area in zip(zones, outlines, areas, strict=True):
        assert shapely.is_valid(outline)
        assert is_drawn(outline, cells, 6)
        assert area_km2(outline, cells) == pytest.approx(area, rel=area_tolerance(outline))
    cells, outline = zones[0], outlines[0]
    assert not is_drawn(dissolved([cells], 5)[0][0], cells, 6)
    assert not is_drawn(outlines[1], cells, 6)
    moved = shapely.transform(outline, lambda points: points + np.array([2e-7, 0]))
    assert not is_drawn(moved, cells, 6)


def test_the_order_of_corners_carries_no_message() -> None:
    cell = h3.latlng_to_cell(*PLACES[0], 6)
    ring = shapely.get_coordinates(dissolved([[cell]], 7)[0][0])[:-1]
    assert is_drawn(shapely.Polygon(ring), [cell], 7)
    assert not is_drawn(shapely.Polygon(np.roll(ring, 1, axis=0)), [cell], 7)
    assert not is_drawn(shapely.Polygon(np.roll(ring[::-1], 1, axis=0)), [cell], 7)


def test_the_whole_world_has_the_area_of_the_sphere() -> None:
    outlines, areas = dissolved([h3.get_res0_cells()], 1)
    assert shapely.is_valid(outlines[0])
    assert areas[0] == pytest.approx(4 * np.pi * 6371.007180918475**2, rel=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_outlines_are_judged_together_as_each_is_alone(place: tuple[float, float]) -> None:
    zones = _mixed(h3.latlng_to_cell(*place, 4))
    outlines = dissolved(zones, 6)[0].copy()
    changed = [
        lambda g: g,
        lambda g: shapely.transform(g, lambda points: points + np.array([2e-7, 0])),
        lambda g: shapely.reverse(g),
        lambda g: shapely.convex_hull(g),
        lambda _: None,
        lambda _: shapely.Polygon(),
        lambda _: shapely.Point(1, 2),
        lambda _: outlines[0],
    ]
    for i in range(len(outlines)):
        outlines[i] = changed[i % len(changed)](outlines[i])
    together = are_drawn(outlines, zones, 6)
    assert together.any()
    assert not together.all()
    assert together.tolist() == [
        is_drawn(g, cells, 6) for g, cells in zip(outlines, zones, strict=True)
    ]
    drawn = np.flatnonzero(together).tolist()
    assert areas_km2(outlines[drawn], [zones[i] for i in drawn]) == pytest.approx(
        [area_km2(outlines[i], zones[i]) for i in drawn], rel=1e-12
    )
    assert area_tolerances(outlines[drawn]).tolist() == [area_tolerance(outlines[i]) for i in drawn]


def test_an_edge_that_two_zones_share_counts_against_the_one_that_it_does_not_bound() -> None:
    """Both outlines have the edges of both: what is inside of one zone is looked for in its own
    cells."""
    one, other = sorted(h3.grid_disk(h3.latlng_to_cell(*PLACES[0], 6), 1))[:2]
    outlines = dissolved([[one], [other]], 7)[0]
    assert are_drawn(outlines, [[one], [other]], 7).tolist() == [True, True]
    assert are_drawn(outlines[[1, 1]], [[one], [other]], 7).tolist() == [False, True]
    assert are_drawn(outlines[[0, 0]], [[one], [other]], 7).tolist() == [True, False]


def test_only_everything_goes_along_the_frame_of_the_map() -> None:
    frame = dissolved([h3.get_res0_cells()], 1)[0][0]
    assert is_drawn(frame, sorted(h3.get_res0_cells()), 1)
    assert not is_drawn(frame, sorted(h3.get_res0_cells())[:-1], 1)
    assert not is_drawn(frame, [h3.latlng_to_cell(*PLACES[0], 3)], 4)


def test_an_edge_between_opposite_points_of_the_globe_has_no_sides() -> None:
    opposite = shapely.Polygon([(-90, 0), (90, 0), (0, 45)])
    assert not is_drawn(opposite, [h3.latlng_to_cell(20, 0, 0)], 1)
