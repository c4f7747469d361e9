"""Which pairs of zones a noisy release is about.

A zone that is listed because a person went there reveals that person. So the zones come from outside the data: the
H3 cells below a region, or a map that the user brought. Where only large counts are published no list is needed, and
where the user says that everybody may know the zones with trips, those serve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.release.zones import NodeZones, Zones
from flowveil.zoning.h3 import Cells64, H3Zones, parent_of, resolution_of

#: What a user writes for the zones of the data.
OBSERVED = "observed"
#: More pairs than this are not listed, however few of them noise would publish.
MOST_LISTED = 6_000_000_000


@dataclass(frozen=True, eq=False)
class ZonesOfEnd:
    """The zones of one end, in the order of their codes, and the zone of each tile of the flows (-1: outside)."""

    zones: Zones
    zone: Ints


@dataclass(frozen=True, eq=False)
class PairDomain:
    """The zones of both ends.

    Attributes:
        origins: the origin zones.
        destinations: the destination zones.
        public: how many tiles a zone has is known without the data.
        described: in words and codes, for the report.
    """

    origins: ZonesOfEnd
    destinations: ZonesOfEnd
    public: bool
    described: dict[str, Any]


def pair_domain(
    flows: Flows, level: int | None, region: str | None, *, listed: bool, method: str = "laplace"
) -> PairDomain:
    """Work out the zones.

    Args:
        flows: the flows.
        level: as given.
        region: as given.
        listed: all zones must be listed, those without trips too.
        method: whom the zones are for, for messages.
    """
    trees = (flows.origins, flows.destinations)
    is_h3 = all(tree.kind == "h3" and tree.code.dtype == np.uint64 for tree in trees)
    if level is not None and (isinstance(level, bool) or not isinstance(level, int | np.integer)):
        raise ParameterError(f"level must be a whole number; found {level!r}.")
    if listed and region is None and (is_h3 or flows.whole_map is None):
        others = (
            "; or delta above 0, which publishes large flows only and needs no list; or region=observed, if the list "
            "of zones with trips may be known to everybody"
        )
        raise ParameterError(
            f"{method}{' with delta = 0' * (method == 'laplace')} publishes noisy counts for all pairs of zones, with "
            "trips or without, so it must know which zones there are, and not from the data: a zone that is listed "
            "because a person went there reveals that person. Hint: give region, such as region=831fb4fffffffff: H3 "
            f"cells, with commas between, that hold your area{others if method == 'laplace' else ''}."
        )
    observed = region is not None and region.strip() == OBSERVED
    names = None if region is None or observed else _split(region)
    resolution: int | None
    if is_h3:
        ends, resolution = _h3_ends(trees, level, names, listed=listed)
    elif flows.whole_map is not None and not observed:
        ends, resolution = _map_ends(flows.whole_map, trees, level, names), level
    elif names is None:
        ends, resolution = [_tree_end(tree, level) for tree in trees], level
    else:
        raise ParameterError(
            "region names zones, but the flows carry no map to find them on. Hint: read them with --zones "
            "(zones=...), or use region=observed."
        )
    described: dict[str, Any] = {"level": "tiles" if resolution is None else int(resolution)}
    if names is not None:
        described["region"] = names
    if not listed:
        described["pairs"] = "those with trips whose noisy count reaches the threshold"
    elif observed:
        described["pairs"] = "all pairs of zones in which trips start or end: the list comes from the data"
    else:
        described["pairs"] = "all pairs of the zones of " + ("the map" if names is None else "the region")
        described["zones"] = len(ends[0].zones)
    described["zones_from_data"] = listed and observed
    return PairDomain(ends[0], ends[1], is_h3 or (flows.whole_map is not None and not observed), described)


def _split(region: str) -> list[str]:
    names = [name.strip() for name in region.split(",") if name.strip()]
    if not names:
        raise ParameterError("region is empty. Hint: H3 cells or codes of the map, with commas between.")
    return names


def _h3_ends(
    trees: tuple[Hierarchy, Hierarchy], level: int | None, names: list[str] | None, *, listed: bool
) -> tuple[list[ZonesOfEnd], int]:
    tiles = [tree.code[tree.leaf_node] for tree in trees]
    finest = min(int(resolution_of(t[:1])[0]) for t in tiles)
    resolution = finest if level is None else int(level)
    if not 0 <= resolution <= finest:
        raise ParameterError(f"level must be an H3 resolution from 0 to that of the tiles, {finest}; found {level!r}.")
    region = None if names is None else _h3_region(names, resolution)
    every = _cells_below(region, resolution) if listed and region is not None else None
    ends = []
    for cells in tiles:
        up = parent_of(cells, resolution)
        inside = np.ones(len(cells), np.bool_) if region is None else _below(cells, region)
        zones = _distinct(up[inside]) if every is None else every
        zone = np.where(inside, np.searchsorted(zones, up), -1).astype(np.int32)
        ends.append(ZonesOfEnd(H3Zones(zones, finest), zone))
    return ends, resolution


def _h3_region(names: list[str], resolution: int) -> Cells64:
    cells = []
    for name in names:
        try:
            cell = int(name, 16)
        except ValueError:
            cell = 0
        if not h3_int.is_valid_cell(cell):
            raise ParameterError(
                f"region: '{name}' is not an H3 cell. Hint: cells in hexadecimal, with commas between."
            )
        cells.append(cell)
    region = _distinct(np.array(cells, dtype=np.uint64))
    if resolution_of(region).max() > resolution:
        raise ParameterError(
            f"region has a cell of resolution {int(resolution_of(region).max())}, finer than the zones, which have "
            f"resolution {resolution}. Hint: coarser cells, or a finer level."
        )
    return region


def _cells_below(region: Cells64, resolution: int) -> Cells64:
    n = sum(h3_int.cell_to_children_size(c, resolution) for c in region.tolist())
    if n * n > MOST_LISTED:
        raise ParameterError(
            f"The region has {n:,} zones of resolution {resolution} and {n * n:,} pairs, more than can be listed. "
            "Hint: a coarser level, a smaller region, or delta above 0."
        )
    return _distinct(
        np.concatenate([np.array(h3_int.cell_to_children(c, resolution), np.uint64) for c in region.tolist()])
    )


def _below(cells: Cells64, region: Cells64) -> NDArray[np.bool_]:
    inside = np.zeros(len(cells), dtype=np.bool_)
    for r in range(int(resolution_of(region).max()) + 1):
        inside |= np.isin(parent_of(cells, r), region[resolution_of(region) == r])
    return inside


def _distinct(cells: Cells64) -> Cells64:
    ordered = np.sort(cells)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _map_ends(
    whole: Hierarchy, trees: tuple[Hierarchy, Hierarchy], level: int | None, names: list[str] | None
) -> list[ZonesOfEnd]:
    """Zones of the map as it was given: the same at both ends, seen or not."""
    cut = _cut_at(whole, level)
    zone_of_leaf = whole.zone_of_tile(cut)
    if names is not None:
        inside = _zones_below(whole, cut, names)
        zone_of_leaf = np.where(inside, np.cumsum(inside) - 1, -1)[zone_of_leaf]
        cut = cut[inside]
    by_code = np.argsort(whole.code[whole.leaf_node])
    known = whole.code[whole.leaf_node][by_code]
    ends = []
    for tree in trees:
        leaf = by_code[np.searchsorted(known, tree.code[tree.leaf_node])]
        ends.append(_in_code_order(whole, cut, zone_of_leaf[leaf]))
    return ends


def _tree_end(tree: Hierarchy, level: int | None) -> ZonesOfEnd:
    cut = _cut_at(tree, level)
    return _in_code_order(tree, cut, tree.zone_of_tile(cut))


def _cut_at(tree: Hierarchy, level: int | None) -> Ints:
    """The nodes of one level, and the tiles that end above it."""
    if level is None:
        return tree.leaf_node
    lowest, highest = int(tree.level.min()), int(tree.level.max())
    if not lowest <= level <= highest:
        raise ParameterError(f"level must be from {lowest} to {highest} in this hierarchy; found {level!r}.")
    return np.flatnonzero((tree.level == level) | (tree.is_leaf & (tree.level < level))).astype(np.int32)


def _zones_below(tree: Hierarchy, cut: Ints, names: list[str]) -> NDArray[np.bool_]:
    codes = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32))
    inside = np.zeros(len(cut), dtype=np.bool_)
    for name in names:
        node = np.flatnonzero(codes == name)
        if len(node) == 0:
            raise ParameterError(f"region: the map has no zone '{name}'. Hint: codes of the map, with commas between.")
        below = (tree.leaf_start[cut] >= tree.leaf_start[node]) & (tree.leaf_stop[cut] <= tree.leaf_stop[node])
        if not below.any():
            raise ParameterError(f"region: zone '{name}' is finer than the level of the published zones.")
        inside |= below
    return inside


def _in_code_order(tree: Hierarchy, cut: Ints, zone: NDArray[Any]) -> ZonesOfEnd:
    """Number the zones by their codes, so that pairs in the order of numbers are in the order of publication."""
    order = np.argsort(tree.code_text(cut))
    rank = np.empty(len(cut) + 1, dtype=np.int32)
    rank[order] = np.arange(len(cut), dtype=np.int32)
    rank[-1] = -1
    return ZonesOfEnd(NodeZones(tree, cut[order]), rank[zone])
