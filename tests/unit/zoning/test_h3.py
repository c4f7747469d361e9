"""The bit-built H3 tree agrees with the h3 package, pentagons and several base cells included."""

from __future__ import annotations

import h3.api.basic_int as h3_int
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import DataError
from flowveil.zoning.h3 import (
    VIRTUAL_ROOT_CODE,
    h3_hierarchy,
    n_descendants,
    parent_of,
    resolution_of,
)


def cells_near(
    lat: float, lon: float, spread: float, n: int, resolution: int, seed: int
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    lats = np.clip(rng.normal(lat, spread, n), -89.9, 89.9)
    lons = (rng.normal(lon, spread, n) + 180) % 360 - 180
    cells = [h3_int.latlng_to_cell(a, b, resolution) for a, b in zip(lats, lons, strict=True)]
    return np.unique_values(np.array(cells, dtype=np.uint64))


def check_tree(tiles: np.ndarray) -> None:
    tree = h3_hierarchy(np.sort(tiles))
    codes = [int(c) for c in tree.code]
    assert (codes[1:] and len(set(codes)) == len(codes)) or len(codes) == 1
    assert [codes[v] for v in tree.leaf_node] == sorted(int(t) for t in tiles)
    for node in range(1, tree.n_nodes):
        above = codes[tree.parent[node]]
        resolution = h3_int.get_resolution(codes[node])
        assert tree.level[node] == resolution
        if above == 0:
            assert resolution == 0
        else:
            assert h3_int.cell_to_parent(codes[node], resolution - 1) == above
    if codes[0] == 0:
        assert len({h3_int.get_base_cell_number(int(t)) for t in tiles}) > 1
        assert tree.code_text(np.array([0]))[0] == "all"
    else:
        # The smallest cell that holds all: no child of the root holds them all.
        assert tree.n_nodes == 1 or tree.n_children[0] > 1


@settings(max_examples=30, deadline=None)
@given(
    st.floats(-80, 80),
    st.floats(-180, 179),
    st.sampled_from([0.001, 0.1, 5, 60]),
    st.integers(1, 40),
    st.integers(0, 12),
    st.integers(0, 10**6),
)
def test_random_cells(lat, lon, spread, n, resolution, seed):
    check_tree(cells_near(lat, lon, spread, n, resolution, seed))


@pytest.mark.parametrize("resolution", [2, 5, 9])
def test_pentagons(resolution):
    for pentagon in h3_int.get_pentagons(resolution):
        disk = np.array(sorted(h3_int.grid_disk(pentagon, 2)), dtype=np.uint64)
        check_tree(disk)
        children = np.array(
            sorted(h3_int.cell_to_children(pentagon, resolution + 2)), dtype=np.uint64
        )
        tree = h3_hierarchy(children)
        assert int(tree.code[0]) == pentagon
        assert tree.n_children[0] == 6


@pytest.mark.parametrize("resolution", range(16))
def test_parents_equal_the_package(resolution):
    cells = cells_near(10, 20, 60, 200, resolution, resolution)
    assert np.all(resolution_of(cells) == resolution)
    for r in range(resolution + 1):
        want = [h3_int.cell_to_parent(int(c), r) for c in cells]
        assert parent_of(cells, r).tolist() == want


@pytest.mark.parametrize("resolution", range(0, 16, 3))
def test_all_cells_below_equal_the_package(resolution):
    for r in range(resolution + 1):
        near = {h3_int.latlng_to_cell(lat, 2.35, r) for lat in (-17.0, 48.85)}
        around = {c for pentagon in h3_int.get_pentagons(r) for c in h3_int.grid_disk(pentagon, 1)}
        cells = np.array(sorted(near | around), dtype=np.uint64)
        want = [h3_int.cell_to_children_size(c, resolution) for c in cells.tolist()]
        assert n_descendants(cells, resolution).tolist() == want
    root = np.array([VIRTUAL_ROOT_CODE], dtype=np.uint64)
    assert n_descendants(root, resolution).tolist() == [h3_int.get_num_cells(resolution)]


def test_the_whole_earth_at_base_resolution():
    tiles = np.array(sorted(h3_int.get_res0_cells()), dtype=np.uint64)
    tree = h3_hierarchy(tiles)
    assert tree.n_nodes == 123
    assert tree.base_level == -1
    assert tree.geography.areas_km2(np.array([0], dtype=np.int32))[0] == pytest.approx(
        510_065_622, rel=1e-3
    )


def test_single_tile_is_its_own_root():
    cell = h3_int.latlng_to_cell(48.85, 2.35, 10)
    tree = h3_hierarchy(np.array([cell], dtype=np.uint64))
    assert tree.n_nodes == tree.n_tiles == 1
    assert tree.level[0] == 10


def test_refuses_mixed_resolutions_and_disorder():
    a, b = h3_int.latlng_to_cell(48.85, 2.35, 9), h3_int.latlng_to_cell(48.85, 2.35, 10)
    with pytest.raises(DataError, match="several H3 resolutions"):
        h3_hierarchy(np.array(sorted([a, b]), dtype=np.uint64))
    with pytest.raises(DataError, match="increasing order"):
        h3_hierarchy(np.array([b, b], dtype=np.uint64))
    with pytest.raises(DataError, match="at least one tile"):
        h3_hierarchy(np.array([], dtype=np.uint64))


def test_outlines_hold_their_centres_and_split_at_the_antimeridian():
    for lon in (2.35, 179.99, -179.99):
        cell = h3_int.latlng_to_cell(-17.0, lon, 4)
        tree = h3_hierarchy(np.array([cell], dtype=np.uint64))
        (outline,) = tree.geography.polygons(np.array([0], dtype=np.int32))
        west, _, east, _ = outline.bounds
        assert -180 <= west < east <= 180
        (lat,), (lon_,) = tree.geography.centers(np.array([0], dtype=np.int32))
        import shapely

        assert outline.buffer(1e-6).contains(shapely.Point(lon_, lat))
        assert outline.area < 5
