"""How useful a release is to a reader who needs flows between areas of a given size.

True counts against estimates.

Methods that merge and methods that add noise publish different things over different zones. A
reader of either wants the same: how many trips go from here to there. So both are compared by that,
for squares of some kilometres. The count between two squares is estimated by spreading each
published count evenly over its two zones. The error is computed from the true counts, empty pairs
included, so it is for the data holder alone.

A zone is spread over points in it: centres of small H3 cells, or of the tiles of the user's map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import h3.api.basic_int as h3_cells
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.arrays import Floats
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.zoning.h3 import parent_of, resolution_of

#: Sides of the squares, in kilometres.
SIDES = (1, 2, 5)
#: The largest flows that are looked for.
LARGEST = 100
#: Zones are spread over H3 cells of this resolution, some 0.1 km² each.
_POINTS_AT = 9
#: A cell this many resolutions above them holds more than 10,000.
_MANY_STEPS = 4
_KM_PER_DEGREE = 111.195

Numbers = NDArray[np.int64]
#: The zones of an end, the zone of each point, and its place.
_Points = tuple[pa.Array, Numbers, Floats]


@dataclass(frozen=True)
class Usefulness:
    """Errors of a reader's estimate, for squares of one size.

    Attributes:
        side: of the squares, in kilometres.
        flows: error of the flows: the sum of absolute differences over all pairs of squares, as a
            share of the trips.
        marginals: the same for trips that begin in a square, and that end in one; the mean of both.
        largest: the share of the largest true flows that are among as many largest estimated ones,
            between squares where trips begin and where they end.
    """

    side: float
    flows: float
    marginals: float
    largest: float

    def to_dict(self) -> dict[str, float]:
        """As measures of a run."""
        named = {
            "flow_error": self.flows,
            "marginal_error": self.marginals,
            "largest_found": self.largest,
        }
        return {f"{name}_{self.side:g}km": value for name, value in named.items()}


def usefulness(
    release: Any, *, sides: Sequence[float] = SIDES, region: Sequence[int] | None = None
) -> list[Usefulness]:
    """Hold what a release says of pairs of squares against the true trips.

    Args:
        release: a release of one matrix, exact or noisy.
        sides: of the squares, in kilometres.
        region: H3 cells outside which nothing is looked at, neither trips nor estimates; None for
            everywhere.

    Returns:
        One entry for each size; none where zones or tiles have no places.
    """
    flows: Flows = release.input
    ends = []
    for end, tree, used in (
        ("origin", flows.origins, flows.origin),
        ("destination", flows.destinations, flows.destination),
    ):
        tiles, points = _tiles(tree, region), _points_of(release, end, region)
        if tiles is None or points is None:
            return []
        ends.append((tiles, np.unique(used), points))
    return [
        _compared(side, flows, release.flows, *(_End.of(*end, side) for end in ends))
        for side in sides
    ]


def _compared(
    side: float, flows: Flows, published: pa.Table, origins: _End, destinations: _End
) -> Usefulness:
    """The errors.

    Squares without trips are not listed: whatever is estimated there is error, however it is
    spread.
    """
    true = np.zeros((origins.n, destinations.n))
    o, d = origins.of_tile[flows.origin], destinations.of_tile[flows.destination]
    kept = (o >= 0) & (d >= 0)
    np.add.at(true, (o[kept], d[kept]), flows.trips[kept])
    zone_o, zone_d = (
        pc.index_in(published[name], value_set=end.codes).to_numpy()
        for name, end in (("origin_zone", origins), ("destination_zone", destinations))
    )
    trips = np.zeros((len(origins.codes), len(destinations.codes)))
    np.add.at(trips, (zone_o, zone_d), published["trips"].to_numpy())
    estimate = origins.share.T @ trips @ destinations.share
    inside = float(origins.inside @ trips @ destinations.inside)
    marginals = (
        (true.sum(axis=1), origins.share.T @ (trips @ destinations.inside)),
        (true.sum(axis=0), (origins.inside @ trips) @ destinations.share),
    )
    total = float(true.sum())
    errors = [
        float(np.abs(t - e).sum() + inside - e.sum()) / total
        for t, e in ((true, estimate), *marginals)
    ]
    wanted = min(LARGEST, int(np.count_nonzero(true)))
    largest = [
        set(np.argpartition(-matrix, wanted - 1, axis=None)[:wanted].tolist())
        for matrix in (true, estimate)
    ]
    return Usefulness(
        side, errors[0], (errors[1] + errors[2]) / 2, len(largest[0] & largest[1]) / wanted
    )


def _squares(places: Floats, side: float) -> Numbers:
    """Two whole numbers for each place: its square.

    Each row of squares is as far from the equator as its middle is.
    """
    row = np.floor(places[:, 0] * _KM_PER_DEGREE / side)
    width = np.cos(np.radians((row + 0.5) * side / _KM_PER_DEGREE)) * _KM_PER_DEGREE
    return np.stack([row, np.floor(places[:, 1] * width / side)], axis=1).astype(np.int64)


def _tiles(tree: Hierarchy, region: Sequence[int] | None) -> Floats | None:
    """Latitude and longitude of each tile; not numbers outside the region."""
    if tree.geography is None:
        return None
    places = np.stack(tree.geography.centers(tree.leaf_node), axis=1)
    if region is not None:
        places[~_inside(tree.code[tree.leaf_node], region)] = np.nan
    return places


def _inside(cells: NDArray[np.uint64], region: Sequence[int]) -> NDArray[np.bool_]:
    """Which cells are inside one of the cells of a region; coarser ones are not."""
    inside = np.zeros(len(cells), dtype=np.bool_)
    level = resolution_of(cells)
    for place in region:
        step = h3_cells.get_resolution(place)
        fine = level >= step
        inside[fine] |= parent_of(cells[fine], step) == np.uint64(place)
    return inside


@dataclass(frozen=True, eq=False)
class _End:
    """The squares of one end in which trips begin, or end, and what zones have in them.

    Attributes:
        n: how many squares there are.
        of_tile: the square of each tile; -1 outside the region.
        codes: the published zones.
        share: zones by squares: the share of each zone in each square.
        inside: the share of each zone in the region, in these squares or elsewhere.
    """

    n: int
    of_tile: Numbers
    codes: pa.Array
    share: Floats
    inside: Floats

    @classmethod
    def of(cls, tiles: Floats, used: NDArray[np.int32], points: _Points, side: float) -> _End:
        """From the places of all tiles, those in which trips begin, or end, and points in the
        published zones."""
        codes, zone, places = points
        used = used[~np.isnan(tiles[used, 0])]
        squares, number = np.unique(_squares(tiles[used], side), axis=0, return_inverse=True)
        of_tile = np.full(len(tiles), -1, dtype=np.int64)
        of_tile[used] = number
        within = ~np.isnan(places[:, 0])
        at = _found(squares, _squares(places[within], side))
        # What lies outside the map is a zone without a place: no part of it is in any square.
        size = np.maximum(np.bincount(zone, minlength=len(codes)), 1)
        share = np.zeros((len(codes), len(squares)))
        np.add.at(share, (zone[within][at >= 0], at[at >= 0]), 1.0)
        inside = np.bincount(zone[within], minlength=len(codes)) / size
        return cls(len(squares), of_tile, codes, share / size[:, None], inside)


def _found(squares: Numbers, wanted: Numbers) -> Numbers:
    """The place of each square among sorted ones; -1 where it is not among them."""
    low = np.minimum(squares.min(axis=0), wanted.min(axis=0, initial=0))
    wide = int(max(squares[:, 1].max(), wanted[:, 1].max(initial=0)) - low[1]) + 1
    keys, ask = ((rows[:, 0] - low[0]) * wide + rows[:, 1] - low[1] for rows in (squares, wanted))
    at = np.minimum(np.searchsorted(keys, ask), len(keys) - 1)
    return np.where(keys[at] == ask, at, -1)


def _points_of(release: Any, end: str, region: Sequence[int] | None) -> _Points | None:
    """The zones of an end, and points in them.

    The zone of each, its latitude and longitude (none outside the region).

    From the published zones, and for the user's own map from that map.
    """
    listed = release.zones.filter(
        pc.is_in(release.zones["role"], value_set=pa.array([end, "both"]))
    )
    tree, in_cells = release.input.whole_map, "h3_cells" in release.zones.column_names
    if in_cells:
        cells = [[int(text, 16) for text in cells] for cells in listed["h3_cells"].to_pylist()]
        parts = [(number, *_points(cell)) for number, cells in enumerate(cells) for cell in cells]
        zone = np.repeat([number for number, _, _ in parts], [len(small) for _, small, _ in parts])
        places = np.concatenate([places for _, _, places in parts])
        if region is not None:
            places[~_inside(np.concatenate([small for _, small, _ in parts]), region)] = np.nan
    elif tree is not None and tree.geography is not None:
        leaves = _leaves(tree, listed["zone"].to_pylist())
        zone = np.repeat(np.arange(len(leaves)), [len(found) for found in leaves])
        places = np.stack(tree.geography.centers(np.concatenate(leaves)), axis=1)
    else:
        return None
    return listed["zone"].combine_chunks(), zone, places


def _points(cell: int) -> tuple[NDArray[np.uint64], Floats]:
    """The small cells that make up a cell and their centres; a fine one is its own part."""
    coarse = _POINTS_AT - h3_cells.get_resolution(cell)
    if coarse > _MANY_STEPS:
        return _many_points(cell)
    return _centered([cell] if coarse <= 0 else h3_cells.cell_to_children(cell, _POINTS_AT))


@lru_cache(maxsize=4)
def _many_points(cell: int) -> tuple[NDArray[np.uint64], Floats]:
    """The same, kept: both ends and all releases of a comparison may have the same few large
    zones."""
    return _centered(h3_cells.cell_to_children(cell, _POINTS_AT))


def _centered(cells: Sequence[int]) -> tuple[NDArray[np.uint64], Floats]:
    return np.array(cells, dtype=np.uint64), np.array(
        [h3_cells.cell_to_latlng(cell) for cell in cells]
    )


def _leaves(tree: Hierarchy, codes: Sequence[str]) -> list[NDArray[Any]]:
    """The tiles of zones of a map."""
    node = {
        code: i
        for i, code in enumerate(tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist())
    }
    return [
        tree.leaf_node[tree.leaf_start[node[code]] : tree.leaf_stop[node[code]]] for code in codes
    ]
