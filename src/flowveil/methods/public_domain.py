"""The pairs of zones of a noisy release, and the public tree over them.

A zone that is listed because a person went there reveals that person. So the zones come from
outside the data: the H3 cells below a region, or the user's map. The tree contains zones without
trips as well; both ends have the same tree. TopDown needs it level by level (`public_levels`), with
a zone that ends early repeated on all further levels. Every level costs budget, so levels on which
little or nothing divides are dropped. PrivTree needs nodes (`PublicTree`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Counts, Ints
from flowveil.core.errors import ParameterError, option
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.reading.areas import Area, cells_within, read_stored_area
from flowveil.release.plan import NodeZones, Plan, Suppression, Zones
from flowveil.zoning.h3 import H3Zones, h3_hierarchy, parent_of, resolution_of
from flowveil.zoning.table import by_first

#: The region of users who take the zones of the data.
OBSERVED = "observed"
#: Largest number of pairs that are listed, however few of them noise would publish.
MOST_LISTED = 6_000_000_000
#: On maps with more than MOST_STEPS levels, each kept level has at least LEAST_GROWTH times the
#: nodes of the one above.
MOST_STEPS, LEAST_GROWTH = 5, 4
#: Default H3 resolution of districts, and the most zones of a study area.
DISTRICTS, MOST_ZONES = 7, 100_000


@dataclass(frozen=True, eq=False)
class ZonesOfEnd:
    """The zones of one end, in the order of their codes, and the zone of each tile of the flows
    (-1: outside).
    """

    zones: Zones
    zone: Ints


@dataclass(frozen=True, eq=False)
class PairDomain:
    """The zones of both ends, whether their tiles are known without the data, and the entry for the
    report.
    """

    origins: ZonesOfEnd
    destinations: ZonesOfEnd
    public: bool
    described: dict[str, Any]

    def plan(self, flows: Flows) -> Plan:
        """Returns the zones of each flow; flows outside the domain are not kept."""
        origin, destination = (
            self.origins.zone[flows.origin],
            self.destinations.zone[flows.destination],
        )
        return Plan(
            origin_zone=origin,
            destination_zone=destination,
            kept=(origin >= 0) & (destination >= 0),
            origin_zones=self.origins.zones,
            destination_zones=self.destinations.zones,
            homogeneous=True,
            suppression=Suppression("noise"),
        )


def pair_domain(
    flows: Flows, level: int | None, region: str | None, *, listed: bool, method: str = "laplace"
) -> PairDomain:
    """Returns the zones for the options of a method.

    With ``listed`` zones without trips are needed too.
    """
    trees = (flows.origins, flows.destinations)
    is_h3 = all(tree.is_whole_h3 for tree in trees)
    if level is not None and (isinstance(level, bool) or not isinstance(level, int | np.integer)):
        raise ParameterError(f"level must be a whole number; found {level!r}.")
    if listed and region is None and is_h3 and flows.intake.outline is not None:
        area = read_stored_area(flows.intake.outline)
        assert area is not None
        return _area_domain(area, trees, level)
    if listed and region is None and (is_h3 or flows.whole_map is None):
        others = (
            "; or delta above 0, which publishes large flows only and needs no list; or"
            " region=observed, if the list of zones with trips may be known to everybody"
        )
        raise ParameterError(
            f"{method}{' with delta = 0' * (method == 'laplace')} publishes noisy counts for all"
            " pairs of zones, with trips or without, so it must know which zones there are, and"
            " not from the data: a zone that is listed because a person went there reveals that"
            " person. Hint: read the trips of a study area"
            f" ({option('within')}), or give region, such as region=831fb4fffffffff: H3 cells,"
            f" with commas between, that hold your area{others if method == 'laplace' else ''}."
        )
    observed = region is not None and region.strip() == OBSERVED
    names = (
        None
        if region is None or observed
        else [name.strip() for name in region.split(",") if name.strip()]
    )
    if names == []:
        raise ParameterError(
            "region is empty. Hint: H3 cells or codes of the map, with commas between."
        )
    resolution: int | None
    if is_h3:
        ends, resolution = _h3_ends(trees, level, names, listed=listed)
    elif flows.whole_map is not None and not observed:
        ends, resolution = _map_ends(flows.whole_map, trees, level, names), level
    elif names is None:
        cuts = [_cut_at(tree, level) for tree in trees]
        ends = [
            _in_code_order(tree, cut, tree.zone_of_tile(cut))
            for tree, cut in zip(trees, cuts, strict=True)
        ]
        resolution = level
    else:
        raise ParameterError(
            "region names zones, but the flows carry no map to find them on. Hint: read them with"
            " --zones (zones=...), or use region=observed."
        )
    described: dict[str, Any] = {"level": "tiles" if resolution is None else int(resolution)}
    if names is not None:
        described["region"] = names
    if not listed:
        described["pairs"] = "those with trips whose noisy count reaches the threshold"
    elif observed:
        described["pairs"] = (
            "all pairs of zones in which trips start or end: the list comes from the data"
        )
    else:
        described["pairs"] = "all pairs of the zones of " + (
            "the map" if names is None else "the region"
        )
        described["zones"] = len(ends[0].zones)
    described["zones_from_data"] = listed and observed
    return PairDomain(
        ends[0], ends[1], is_h3 or (flows.whole_map is not None and not observed), described
    )


def _area_domain(area: Area, trees: tuple[Hierarchy, Hierarchy], level: int | None) -> PairDomain:
    """Returns the H3 cells whose centres lie in a study area, with trips or without."""
    tiles = [tree.code[tree.leaf_node] for tree in trees]
    finest = min(int(resolution_of(t[:1])[0]) for t in tiles)
    level = finest if level is None else int(level)
    if not 0 <= level <= finest:
        raise ParameterError(
            f"level must be an H3 resolution from 0 to that of the tiles, {finest}; found {level}."
        )
    cells = cells_within(area, level, most=MOST_ZONES)
    if len(cells) == 0:
        raise ParameterError(
            f"No H3 cell of resolution {level} has its centre in the study area. Hint: a"
            f" finer level, or a larger area ({option('within')})."
        )
    ends = []
    for end in tiles:
        up = parent_of(end, level)
        place = np.minimum(np.searchsorted(cells, up), len(cells) - 1)
        zone = np.where(cells[place] == up, place, -1).astype(np.int32)
        ends.append(ZonesOfEnd(H3Zones(cells, finest), zone))
    described = {
        "level": level,
        "within": area.text,
        "pairs": "all pairs of the zones whose centres lie in the study area",
        "zones": len(cells),
        "zones_from_data": False,
    }
    return PairDomain(ends[0], ends[1], True, described)


def _h3_ends(
    trees: tuple[Hierarchy, Hierarchy], level: int | None, names: list[str] | None, *, listed: bool
) -> tuple[list[ZonesOfEnd], int]:
    tiles = [tree.code[tree.leaf_node] for tree in trees]
    finest = min(int(resolution_of(t[:1])[0]) for t in tiles)
    resolution = finest if level is None else int(level)
    if not 0 <= resolution <= finest:
        raise ParameterError(
            f"level must be an H3 resolution from 0 to that of the tiles, {finest}; found"
            f" {level!r}."
        )
    region = None if names is None else _h3_region(names, resolution)
    every = _cells_below(region, resolution) if listed and region is not None else None
    ends = []
    for cells in tiles:
        up = parent_of(cells, resolution)
        inside = np.ones(len(cells), np.bool_) if region is None else _below(cells, region)
        zones = np.unique(up[inside]) if every is None else every
        zone = np.where(inside, np.searchsorted(zones, up), -1).astype(np.int32)
        ends.append(ZonesOfEnd(H3Zones(zones, finest), zone))
    return ends, resolution


def _h3_region(names: list[str], resolution: int) -> Cells64:
    for name in names:
        if re.fullmatch(
            "(0x)?[0-9a-f]{1,16}", name, re.IGNORECASE
        ) is None or not h3_int.is_valid_cell(int(name, 16)):
            raise ParameterError(
                f"region: '{name}' is not an H3 cell. Hint: cells in hexadecimal, with commas"
                " between."
            )
    region = np.unique(np.array([int(name, 16) for name in names], dtype=np.uint64))
    finest = int(resolution_of(region).max())
    if finest > resolution:
        raise ParameterError(
            f"region has a cell of resolution {finest}, finer than the zones, which have resolution"
            f" {resolution}. Hint: coarser cells, or a finer level."
        )
    return region


def _cells_below(region: Cells64, resolution: int) -> Cells64:
    n = sum(h3_int.cell_to_children_size(c, resolution) for c in region.tolist())
    if n * n > MOST_LISTED:
        raise ParameterError(
            f"The region has {n:,} zones of resolution {resolution} and {n * n:,} pairs, more than"
            " can be listed. Hint: a coarser level, a smaller region, or delta above 0."
        )
    return np.unique(
        np.concatenate(
            [np.array(h3_int.cell_to_children(c, resolution), np.uint64) for c in region.tolist()]
        )
    )


def _below(cells: Cells64, region: Cells64) -> NDArray[np.bool_]:
    inside = np.zeros(len(cells), dtype=np.bool_)
    for r in range(int(resolution_of(region).max()) + 1):
        inside |= np.isin(parent_of(cells, r), region[resolution_of(region) == r])
    return inside


def _map_ends(
    whole: Hierarchy, trees: tuple[Hierarchy, Hierarchy], level: int | None, names: list[str] | None
) -> list[ZonesOfEnd]:
    """Returns the zones of the user's map: the same at both ends, with trips or without."""
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


def _cut_at(tree: Hierarchy, level: int | None) -> Ints:
    """Returns the nodes of one level, and the tiles that end above it."""
    if level is None:
        return tree.leaf_node
    lowest, highest = int(tree.level.min()), int(tree.level.max())
    if not lowest <= level <= highest:
        raise ParameterError(
            f"level must be from {lowest} to {highest} in this hierarchy; found {level!r}."
        )
    return np.flatnonzero((tree.level == level) | (tree.is_leaf & (tree.level < level))).astype(
        np.int32
    )


def _zones_below(tree: Hierarchy, cut: Ints, names: list[str]) -> NDArray[np.bool_]:
    inside = np.zeros(len(cut), dtype=np.bool_)
    for name in names:
        node = tree.node_of_code.get(name)
        if node is None:
            raise ParameterError(
                f"region: the map has no zone '{name}'. Hint: codes of the map, with commas"
                " between."
            )
        below = (cut >= node) & (cut < tree.stop[node])
        if not below.any():
            raise ParameterError(
                f"region: zone '{name}' is finer than the level of the published zones."
            )
        inside |= below
    return inside


def _in_code_order(tree: Hierarchy, cut: Ints, zone: NDArray[Any]) -> ZonesOfEnd:
    """Numbers the zones by their codes, so that pairs in the order of numbers are in the order of
    publication.
    """
    order = np.argsort(tree.code_text(cut))
    rank = np.empty(len(cut) + 1, dtype=np.int32)
    rank[order] = np.arange(len(cut), dtype=np.int32)
    rank[-1] = -1
    return ZonesOfEnd(NodeZones(tree, cut[order]), rank[zone])


def district_domain(
    method: str, flows: Flows, districts: int | None, region: str | None
) -> PairDomain:
    """Returns the districts of both ends: of a region, of the study area, or of the whole map.

    H3 districts of a study area are those whose centres lie in it, with trips or without. Raises
    ParameterError as `public_domain`, or if the list is empty.
    """
    is_h3 = flows.origins.is_whole_h3 and flows.destinations.is_whole_h3
    if is_h3 and districts is None:
        finest = int(resolution_of(flows.origins.code[flows.origins.leaf_node[:1]])[0])
        districts = min(DISTRICTS, finest)
    return public_domain(method, flows, districts, region)


def public_domain(method: str, flows: Flows, level: int | None, region: str | None) -> PairDomain:
    """Returns the zones of both ends; raises ParameterError if they would come from the data."""
    if region is not None and region.strip() == OBSERVED:
        raise ParameterError(
            f"{method} needs a public tree of zones, so region=observed (the zones of the data) is"
            " not allowed. Hint: name a region, or use laplace."
        )
    domain = pair_domain(flows, level, region, listed=True, method=method)
    if not domain.public:
        raise ParameterError(
            f"{method} needs zones from outside the data. Hint: give region, or --zones"
            " (zones=...)."
        )
    return domain


@dataclass(frozen=True, eq=False)
class PublicTree:
    """The tree above the zones of a public domain.

    ``zones`` are all of its nodes, ``node_of_zone`` the nodes of the domain's zones, below which
    nothing is used. ``tops`` are the nodes that hold them, in node order: the root of the map, or
    the cells or zones of the region.
    """

    tree: Hierarchy
    zones: Zones
    node_of_zone: Ints
    tops: Ints

    @classmethod
    def from_domain(cls, domain: PairDomain) -> PublicTree:
        """Returns the tree over the zones of a public domain."""
        zones, region = domain.origins.zones, domain.described.get("region")
        nodes: Zones
        if isinstance(zones, H3Zones):
            tree = h3_hierarchy(zones.cells)
            nodes, node_of_zone = H3Zones(tree.code, zones.tile_resolution), tree.leaf_node
            region = region and [format(int(name, 16), "x") for name in region]
        else:
            assert isinstance(zones, NodeZones)
            tree, node_of_zone = zones.hierarchy, zones.nodes
            nodes = NodeZones(tree, np.arange(tree.n_nodes, dtype=np.int32))
        tops = np.zeros(1, dtype=np.int32)
        if region is not None:
            tops = np.unique([tree.node_of_code[name] for name in region]).astype(np.int32)
            # Without those below others.
            tops = tops[tops >= np.maximum.accumulate(np.append(0, tree.stop[tops][:-1]))]
        return cls(tree, nodes, node_of_zone, tops)

    @cached_property
    def n_children(self) -> Counts:
        """Number of children of each node; 0 for a zone of the domain."""
        n_children = self.tree.n_children.astype(np.int64)
        n_children[self.node_of_zone] = 0
        return n_children

    @cached_property
    def narrowest(self) -> Ints:
        """For each node the deepest one with the same zones of the domain."""
        ends = np.where(
            self.n_children == 1, self.tree.n_nodes, np.arange(self.tree.n_nodes, dtype=np.int32)
        )
        return np.minimum.accumulate(ends[::-1])[::-1].astype(np.int32)

    @cached_property
    def children(self) -> tuple[Ints, Counts]:
        """All nodes but the root, by parent; and the start of each parent's children."""
        order = np.argsort(self.tree.parent, kind="stable")[1:].astype(np.int32)
        return order, np.append(0, np.cumsum(self.tree.n_children))

    def child_of(self, nodes: Ints, tile: Ints) -> Counts:
        """Returns which child of each node, from 0, contains a tile."""
        order, start = self.children
        wide = self.tree.n_tiles + 1
        key = self.tree.parent[order].astype(np.int64) * wide + self.tree.leaf_start[order]
        return (
            np.searchsorted(key, nodes.astype(np.int64) * wide + tile, side="right")
            - 1
            - start[nodes]
        )

    def chains(self) -> list[Ints]:
        """Returns the ancestors of the zones, from the tops down.

        A zone that ends early is repeated.
        """
        tree, chains = self.tree, [self.node_of_zone]
        highest = tree.depth[self.tops][
            np.searchsorted(self.tops, self.node_of_zone, side="right") - 1
        ]
        while np.any(tree.depth[chains[-1]] > highest):
            depth = tree.depth[chains[-1]]
            lifts = (depth > highest) & (depth == depth[depth > highest].max())
            chains.append(np.where(lifts, tree.parent[chains[-1]], chains[-1]))
        return chains[::-1]


@dataclass(frozen=True, eq=False)
class Level:
    """The nodes of one level, numbered from 0 in the order of their first zones.

    Without parents on the first level. ``nodes`` are those of the public tree, unless the level is
    that of everything.
    """

    name: str
    node_of_zone: Ints
    parent: Ints
    n_nodes: int
    nodes: Ints = field(default_factory=lambda: np.zeros(0, np.int32))

    def children(self) -> tuple[Ints, Counts]:
        """Returns the nodes of this level ordered by parent, and the start of each parent's
        children.
        """
        order = np.argsort(self.parent, kind="stable").astype(np.int32)
        return order, np.concatenate(([0], np.cumsum(np.bincount(self.parent))))


def public_levels(domain: PairDomain) -> list[Level]:
    """Returns the levels from a single node down to the zones of a public domain."""
    public, is_h3 = PublicTree.from_domain(domain), isinstance(domain.origins.zones, H3Zones)
    chains, level = public.chains(), public.tree.level
    names = [
        level[chains[0]].min() + i if is_h3 else level[nodes].max()
        for i, nodes in enumerate(chains)
    ]
    levels = [Level("all", np.zeros(len(domain.origins.zones), np.int32), np.zeros(0, np.int32), 1)]
    numbered = []
    for name, nodes in zip(names, chains, strict=True):
        first, node = by_first(nodes)
        numbered.append((str(int(name)), nodes[first], node))
    if not is_h3 and len(numbered) > MOST_STEPS:
        growing = numbered[-1:]
        for name, nodes, node in numbered[-2::-1]:
            if len(nodes) * LEAST_GROWTH <= len(growing[-1][1]):
                growing.append((name, nodes, node))
        numbered = growing[::-1]
    for name, nodes, node in numbered:
        n = len(nodes)
        if n > levels[-1].n_nodes:
            parent = np.empty(n, dtype=np.int32)
            parent[node] = levels[-1].node_of_zone
            levels.append(Level(name, node, parent, n, nodes))
    return levels
