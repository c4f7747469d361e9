"""The tree of halves against the obvious one, on random cells anywhere on earth and around
pentagons."""

from __future__ import annotations

import h3.api.basic_int as h3_int
import h3.api.basic_str as h3
import numpy as np
import pyarrow as pa
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil import read_trips, read_zones
from flowveil.zoning.h3 import h3_hierarchy
from flowveil.zoning.halves import halved_h3
from flowveil.zoning.public_map import H3Map
from flowveil.zoning.restriction import refined
from reference.derived_halves import _h3_tree as derived_h3
from reference.derived_halves import on_halves
from reference.halves import cells_of, climb

RESOLUTION = 4
PENTAGONS = h3_int.get_pentagons(1)
around = st.sampled_from(PENTAGONS).flatmap(
    lambda cell: st.sampled_from(sorted(h3_int.cell_to_children(cell, RESOLUTION)))
)
anywhere = st.builds(
    lambda lat, lon: h3_int.latlng_to_cell(lat, lon, RESOLUTION),
    st.floats(-90, 90),
    st.floats(-180, 180),
)


def halves_of(cells):
    return halved_h3(h3_hierarchy(np.array(sorted(cells), dtype=np.uint64)))


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        st.sets(around, min_size=1, max_size=12), st.sets(anywhere | around, min_size=1, max_size=6)
    )
)
def test_every_tile_lies_in_the_parts_that_the_rule_names(cells):
    """In the tree of the methods, and in the one that verify derives without them."""
    paths = {f"{tile:x}": climb(f"{tile:x}") for tile in cells}
    common = [c for c in paths[min(paths)] if all(c in p for p in paths.values())]
    for tree in (
        halves_of(cells),
        derived_h3(np.array(sorted(cells), dtype=np.uint64), to_the_top=False),
    ):
        code = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
        assert {code[leaf] for leaf in tree.leaf_node.tolist()} == set(paths)
        for leaf in tree.leaf_node.tolist():
            found, node = [], leaf
            while node >= 0:
                found.append(code[node])
                node = int(tree.parent[node])
            expected = paths[code[leaf]]
            expected = expected[: expected.index(common[0]) + 1] if common else [*expected, "all"]
            assert found == expected
        assert tree.level.tolist() == [
            -1 if c == "all" else h3.get_resolution(c.partition(".")[0]) for c in code
        ]


@settings(max_examples=20, deadline=None)
@given(st.sets(around | anywhere, min_size=2, max_size=12), st.randoms())
def test_tiles_stay_in_the_order_of_the_methods_tree(cells, random):
    """So flows that were published on it are recounted as they stand.

    Tiles in any other order are moved into one.
    """
    tree = halves_of(cells)
    published = tree.code[tree.leaf_node]
    derived = derived_h3(published, to_the_top=False)
    assert derived.code[derived.leaf_node].tolist() == tree.code_text(tree.leaf_node).tolist()
    shuffled = published.copy()
    random.shuffle(shuffled)
    other = derived_h3(shuffled, to_the_top=False)
    assert sorted(other.code.tolist()) == sorted(derived.code.tolist())
    above = [
        dict(zip(t.code.tolist(), t.code[np.maximum(t.parent, 0)].tolist(), strict=True))
        for t in (derived, other)
    ]
    assert above[0] == above[1]
    assert derived.geography is not None
    lat, lon = derived.geography.centers(derived.leaf_node)
    centers = [h3_int.cell_to_latlng(cell) for cell in published.tolist()]
    assert list(zip(lat.tolist(), lon.tolist(), strict=True)) == centers


@settings(max_examples=20, deadline=None)
@given(st.sets(around, min_size=2, max_size=4))
def test_zones_are_the_cells_that_their_codes_name(cells):
    tree = halves_of(cells)
    nodes = np.flatnonzero(tree.code != 0).astype(np.int32)
    codes = tree.code_text(nodes).tolist()
    places = H3Map(RESOLUTION).places(codes)
    for code, made_of, tiles in zip(codes, places.h3_cells, places.tiles.tolist(), strict=True):
        assert set(made_of) == cells_of(code)
        assert tiles == sum(h3.cell_to_children_size(c, RESOLUTION) for c in made_of)


def test_every_part_is_contiguous_and_the_union_of_its_children():
    """Of hexagons of both orientations and of a pentagon.

    Cells that touch, and an outline in one piece.
    """
    for parent in (
        h3_int.latlng_to_cell(48.8, 2.3, 5),
        h3_int.latlng_to_cell(48.8, 2.3, 6),
        PENTAGONS[3],
    ):
        tree = halves_of(h3_int.cell_to_children(parent))
        parts = np.array([v for v in range(1, tree.n_nodes) if not tree.is_leaf[v]], dtype=np.int32)
        assert len(parts) == (4 if h3_int.is_pentagon(parent) else 5)
        drawn = tree.geography.polygons(parts), tree.geography.areas_km2(parts)
        for made_of, outline, area in zip(tree.geography.h3_cells(parts), *drawn, strict=True):
            reached, left = {made_of[0]}, set(made_of[1:])
            while near := {c for c in left if any(h3.are_neighbor_cells(c, r) for r in reached)}:
                reached, left = reached | near, left - near
            assert not left
            assert outline.geom_type == "Polygon"
            flat = sum(
                shapely.Polygon([(x, y) for y, x in h3.cell_to_boundary(c)]).area for c in made_of
            )
            assert np.isclose(outline.area, flat, rtol=1e-9)
            assert np.isclose(area, sum(h3.cell_area(c, "km^2") for c in made_of))


def by_code(tree):
    code = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
    return {
        c: (None if p < 0 else code[p], v)
        for c, p, v in zip(code, tree.parent, tree.level.tolist(), strict=True)
    }


#: Few different places, on both sides of 180 degrees, so that many are equal or equally far.
places = st.tuples(st.integers(-3, 3), st.integers(-3, 3)).map(
    lambda at: (at[0] / 8, (180 + at[1] / 8 + 180) % 360 - 180)
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), places), min_size=1, max_size=20), st.integers(0, 1000)
)
def test_the_verifier_divides_a_map_as_the_methods_do(tiles, seed):
    """Whichever tiles were seen, and whether the flows come with the map's own tree or on halves
    already."""
    table = pa.table(
        {
            "tile": [f"t{i:02}" for i in range(len(tiles))],
            "zone": [f"z{zone}" for zone, _ in tiles],
            "lat": [lat for _, (lat, _) in tiles],
            "lon": [lon for _, (_, lon) in tiles],
        }
    )
    zones = read_zones(table, levels="zone,tile", lat="lat", lon="lon")
    seen = np.random.default_rng(seed).choice(table["tile"].to_numpy(), (2, 5))
    flows = read_trips(
        pa.table({"o": seen[0], "d": seen[1]}), zones=zones, origin_tile="o", destination_tile="d"
    )
    made, _ = refined(flows, "halves")
    for derived in (on_halves(flows), on_halves(made)):
        for end in ("origins", "destinations", "whole_map"):
            assert by_code(getattr(derived, end)) == by_code(getattr(made, end))
        assert derived.trips.sum() == made.trips.sum()
