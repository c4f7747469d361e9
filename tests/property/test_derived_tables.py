"""Derived tables equal sums computed the slow way, whatever the zones, layers and slices.

Derived twice is once.
"""

from __future__ import annotations

import h3
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import ParameterError
from flowveil.core.hierarchy import H3_PARTS
from flowveil.published.derive import Derivation, derive_published
from flowveil.release.statement import Published, Statement
from flowveil.zoning.public_map import H3Map
from reference.derive import ancestor, grouped

#: A hexagon and a pentagon, whose children are divided otherwise.
ROOTS = ("841fb47ffffffff", next(iter(h3.get_pentagons(4))))


@st.composite
def zones(draw):
    """An H3 cell below one of two roots, a part of one, or a zone without a cell."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.sampled_from(["all", "outside"]))
    cell = draw(st.sampled_from(ROOTS))
    for _ in range(draw(st.integers(0, 3))):
        children = sorted(h3.cell_to_children(cell))
        cell = children[draw(st.integers(0, len(children) - 1))]
    parts = (".0246", ".04", ".26", ".35") if h3.is_pentagon(cell) else H3_PARTS[1:6]
    return cell + draw(st.sampled_from(["", "", "", *parts]))


@st.composite
def releases(draw, *, sliced=False):
    """A published table; several rows of a pair are layers."""
    rows = draw(
        st.lists(
            st.tuples(
                zones(),
                zones(),
                st.integers(5, 99),
                st.integers(1, 10**9),
                st.sampled_from(["F", "M"]),
            ),
            min_size=1,
            max_size=25,
        )
    )
    columns = {
        "origin_zone": [row[0] for row in rows],
        "destination_zone": [row[1] for row in rows],
        "trips": [row[2] for row in rows],
        "weight": [row[3] / 1_000_000 for row in rows],
        "layer": pa.array([1] * len(rows), pa.int8()),
    }
    if sliced:
        columns["sex"] = pa.array([row[4] for row in rows], pa.string())
    statement = Statement(
        layers=True,
        method="layercut",
        parameters={"resolution": 8, **({"slices": {"every": None}} if sliced else {})},
        guarantee={"k": 5, "protect": ["trips"], "trips": 5},
        homogeneous=False,
        slice_columns=("sex",) if sliced else (),
    )
    return Published(pa.table(columns), statement, H3Map(8))


def derived(source, **how):
    return derive_published(source, Derivation(**how), manifest_sha256="0" * 64)


@settings(max_examples=150)
@given(releases(), st.integers(0, 8))
def test_coarser_zones_equal_the_sums_over_ancestors(source, level):
    assert derived(source, level=level).cells.to_pylist() == grouped(
        source.cells.to_pylist(), level
    )


@settings(max_examples=60)
@given(releases(sliced=True), st.integers(0, 8), st.integers(0, 8))
def test_deriving_twice_is_deriving_once(source, first, second):
    twice = derived(derived(source, level=max(first, second)), level=min(first, second))
    once = derived(source, level=min(first, second))
    assert twice.cells.equals(once.cells)
    assert twice.statement.homogeneous == once.statement.homogeneous
    assert once.cells.to_pylist() == grouped(
        source.cells.to_pylist(), min(first, second), keep=("sex",)
    )


@settings(max_examples=100)
@given(releases(sliced=True), st.integers(4, 7))
def test_slices_are_added_up_where_their_zones_are_common_and_refused_elsewhere(source, level):
    rows = source.cells.to_pylist()
    nested = False
    for end in ("origin_zone", "destination_zone"):
        found = {ancestor(row[end], level) for row in rows}
        # A zone contains another one where that one's cells of the finest resolution are all among
        # its own.
        tiles = {zone: frozenset(_tiles(zone)) for zone in found - {"all"}}
        nested |= "all" in found and len(found) > 1
        nested |= any(a != b and tiles[a] < tiles[b] for a in tiles for b in tiles)
    if nested or not rows:
        with pytest.raises(ParameterError, match=r"different zones|no slices"):
            derived(source, level=level, sum=("sex",))
    else:
        assert derived(source, level=level, sum=("sex",)).cells.to_pylist() == grouped(rows, level)


def _tiles(zone):
    """The cells of resolution 8 in a zone; outside is one tile."""
    if zone == "outside":
        return ["outside"]
    cell, _, digits = zone.partition(".")
    if not digits:
        return h3.cell_to_children(cell, 8)
    resolution = h3.get_resolution(cell) + 1
    shift = 3 * (15 - resolution)
    children = [
        c for c in h3.cell_to_children(cell, resolution) if str(int(c, 16) >> shift & 7) in digits
    ]
    return [tile for child in children for tile in h3.cell_to_children(child, 8)]
