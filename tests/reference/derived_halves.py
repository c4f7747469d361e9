"""The tree of halves, derived independently.

For a release whose zones are parts of cells or of zones.

Nothing here is shared with what makes the tree for the methods. For H3, all tiles are followed
upwards together, one resolution at a time, by the bits of their codes, and through the parts
between by the list of `reference.h3_parts`; a test holds that against what the library h3 says of
each cell. For a map of one's own, the children of each zone are divided by the rule of
docs/zones.md, one zone after the other. Flows may come with the tree they were read with or with
the one they were published on: only their tiles, and the zones of the map, are taken from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np

from flowveil.core.flows import Flows
from flowveil.core.hierarchy import OUTSIDE, OUTSIDE_CELL, Hierarchy
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.naming import named_like
from flowveil.zoning.outside import inside_of, with_outside
from reference.h3_parts import PARTS, hexadecimal, numbers_of, parts_above

_MARK = "~"
_WHOLE_DEGREE = 10**7
#: Marks a missing cell, among nodes that are cells times eight.
_ALL_NODE, _OUTSIDE_NODE = np.uint64(0), np.uint64(1)


def on_halves(flows: Flows, *, to_the_top: bool = False) -> Flows | None:
    """The flows over trees of halves; None where their trees have none.

    Args:
        flows: the input.
        to_the_top: whether the trees go on above the smallest node that holds all tiles.
    """
    trees = _trees(flows, to_the_top=to_the_top)
    if trees is None:
        return None
    if not flows.slice_columns:
        return _moved(flows, trees)
    parts = [_moved(part, trees) for part in flows.slices]
    return Flows.from_slices(flows.slice_columns, flows.slice_keys, parts, flows.every)


def _trees(
    flows: Flows, *, to_the_top: bool
) -> tuple[Hierarchy, Hierarchy, Hierarchy | None] | None:
    both = (flows.origins, flows.destinations)
    # One tree for both ends stays one.
    trees = both[:1] if both[0] is both[1] else both
    if all(tree.kind in ("h3", "halves") and tree.code.dtype == np.uint64 for tree in both):
        place = cache(h3_int.cell_to_latlng)
        cells = [_h3_tree(leaf_codes(tree), to_the_top=to_the_top, place=place) for tree in trees]
        return cells[0], cells[-1], None
    whole = None if flows.whole_map is None else inside_of(flows.whole_map)
    if whole is None or whole.kind != "table" or not isinstance(whole.geography, ZoneGeography):
        return None
    divided = named_like(_map_tree(whole), whole)
    ends = [
        _with_tiles(divided, set(leaf_codes(tree).tolist()), to_the_top=to_the_top)
        for tree in trees
    ]
    return ends[0], ends[-1], divided if whole is flows.whole_map else with_outside(divided)


def _moved(flows: Flows, trees: tuple[Hierarchy, Hierarchy, Hierarchy | None]) -> Flows:
    """The same flows with the numbers that their tiles have in other trees."""
    on = replace(flows, tiles=None, origins=trees[0], destinations=trees[1], whole_map=trees[2])
    ends = []
    for tile, before, after in (
        (flows.origin, flows.origins, trees[0]),
        (flows.destination, flows.destinations, trees[1]),
    ):
        known, own = _texts(leaf_codes(after)), _texts(leaf_codes(before))
        if np.array_equal(known, own):
            ends.append(tile)
            continue
        by_text = np.argsort(known)
        place = by_text[np.searchsorted(known[by_text], own)]
        ends.append(place.astype(np.int32)[tile])
    if ends[0] is flows.origin and ends[1] is flows.destination:
        # All tiles keep their numbers, and so flows and persons their order.
        return on
    order = np.argsort(
        ends[0].astype(np.int64) * (int(ends[1].max(initial=0)) + 1) + ends[1], kind="stable"
    )
    return replace(
        on,
        origin=ends[0][order],
        destination=ends[1][order],
        trips=flows.trips[order],
        **flows.added(lambda values: values[order]),
        people=(
            None
            if flows.people is None
            else flows.people.renumber(np.argsort(order).astype(np.int32))
        ),
        leaves=tuple(leaf[order] for leaf in flows.leaves),
    )


def _texts(codes: Any) -> Any:
    """Codes as text."""
    if codes.dtype.kind == "U":
        return codes
    return np.where(codes == np.uint64(OUTSIDE_CELL), np.array(OUTSIDE), hexadecimal(codes))


def _tree(
    above: dict[str, str],
    levels: dict[str, int],
    geography: Any,
    kind: str,
    *,
    to_the_top: bool = False,
) -> Hierarchy:
    """The tree of (node, parent), from the smallest node that holds all tiles on, or from the
    top."""
    children: dict[str, list[str]] = {}
    for code, parent in above.items():
        children.setdefault(parent, []).append(code)
    (top,) = set(children) - set(above) or set(levels)
    gone = set()
    while not to_the_top and len(children.get(top, ())) == 1:
        gone.add(top)
        top = children[top][0]
    codes = [code for code in levels if code not in gone]
    place = {code: i for i, code in enumerate(codes)}
    up = [-1 if code == top else place[above[code]] for code in codes]
    tree, node = Hierarchy.from_parents(np.array(up), np.array(codes))
    level = np.empty(len(codes), dtype=np.int32)
    level[node] = [levels[code] for code in codes]
    return Hierarchy(
        parent=tree.parent, code=tree.code, geography=geography(tree), kind=kind, levels=level
    )


# ---- H3 ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _TileCenters:
    """Positions of the tiles of a tree of these codes and parents, and nothing else.

    Attributes:
        code, parent: of each node.
        place: of a cell, kept for both ends: most tiles are seen at both.
    """

    code: Any
    parent: Any
    place: Callable[[int], tuple[float, float]]

    def centers(self, nodes: Any) -> tuple[Any, Any]:
        code = self.code[nodes]
        found = np.full((len(code), 2), np.nan)
        cell = (code != "all") & (code != OUTSIDE)
        found[cell] = self._of_cells(code[cell])
        if (code == "all").any():
            found[code == "all"] = self._of_everything()
        return found[:, 0], found[:, 1]

    def _of_cells(self, codes: Any) -> Any:
        return np.array([self.place(cell) for cell in numbers_of(codes).tolist()]).reshape(-1, 2)

    def _of_everything(self) -> tuple[float, float]:
        """The mean direction of the cells right below it."""
        below = self.code[self.parent == 0]
        lat, lon = np.radians(self._of_cells(below[below != OUTSIDE])).T
        x, y, z = (
            (np.cos(lat) * np.cos(lon)).mean(),
            (np.cos(lat) * np.sin(lon)).mean(),
            np.sin(lat).mean(),
        )
        return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))

    def areas_km2(self, nodes: Any) -> Any:  # noqa: ARG002
        raise AssertionError("only centres are asked for")

    def polygons(self, nodes: Any) -> Any:  # noqa: ARG002
        raise AssertionError("only centres are asked for")


def _h3_tree(
    tiles: Any,
    *,
    to_the_top: bool,
    place: Callable[[int], tuple[float, float]] = h3_int.cell_to_latlng,
) -> Hierarchy:
    """The tree of cells and parts above these tiles.

    A node is a cell times eight, plus the number of the part.
    """
    crossing = bool((tiles == np.uint64(OUTSIDE_CELL)).any())
    inside = tiles[tiles != np.uint64(OUTSIDE_CELL)]
    resolutions = inside >> np.uint64(52) & np.uint64(15)
    cells = np.zeros(0, dtype=np.uint64)
    lower, upper = [], []
    for resolution in range(int(resolutions.max(initial=0)), 0, -1):
        cells = _distinct(cells, inside[resolutions == resolution])
        parents, small, large = parts_above(cells, resolution)
        above = parents << np.uint64(3)
        # A child that is in no small part is in the large one itself.
        first = np.where(small > 0, above | small, above | large)
        lower += [cells << np.uint64(3), (above | small)[small > 0], above | large]
        upper += [first, (above | large)[small > 0], above]
        cells = parents
    cells = _distinct(cells, inside[resolutions == 0])
    if len(cells) > 1 or to_the_top or crossing:
        lower.append(
            np.concatenate(
                (cells << np.uint64(3), np.full(int(crossing), _OUTSIDE_NODE, dtype=np.uint64))
            )
        )
        upper.append(np.full(len(lower[-1]), _ALL_NODE, dtype=np.uint64))
    child, at = np.unique(np.concatenate([inside[:0], *lower]), return_index=True)
    parent = np.concatenate([inside[:0], *upper])[at]
    nodes = _distinct(child, parent, inside << np.uint64(3))
    up = np.full(len(nodes), -1, dtype=np.int64)
    up[np.searchsorted(nodes, child)] = np.searchsorted(nodes, parent)
    kept = np.ones(len(nodes), dtype=np.bool_)
    n_children = np.bincount(up[up >= 0], minlength=len(nodes))
    (top,) = np.flatnonzero(up < 0)
    while not to_the_top and n_children[top] == 1:
        kept[top] = False
        (top,) = np.flatnonzero(up == top)
    up[top] = -1
    number = np.cumsum(kept) - 1
    up = np.where(up < 0, -1, number[up])[kept]
    nodes = nodes[kept]
    order = _by_first_tile(up, np.searchsorted(nodes, _nodes_of(tiles)))
    tree, node = Hierarchy.from_parents(up, order)
    codes = _node_texts(nodes)[np.argsort(node)]
    levels = np.empty(len(nodes), dtype=np.int32)
    levels[node] = np.select(
        [nodes == _ALL_NODE, nodes == _OUTSIDE_NODE],
        [-1, 0],
        (nodes >> np.uint64(55) & np.uint64(15)).astype(np.int32),
    )
    where = _TileCenters(codes, tree.parent, place)
    return Hierarchy(parent=tree.parent, code=codes, geography=where, kind="halves", levels=levels)


def _nodes_of(tiles: Any) -> Any:
    """The nodes that tiles are: see `_h3_tree`."""
    return np.where(tiles == np.uint64(OUTSIDE_CELL), _OUTSIDE_NODE, tiles << np.uint64(3))


def _by_first_tile(up: Any, tiles: Any) -> Any:
    """A number for each node, by the first of some tiles inside it, parents before children.

    Siblings in this order keep the order of tiles, wherever the tiles of every node are
    consecutive.
    """
    first, height = np.full(len(up), len(tiles)), np.zeros(len(up), dtype=np.int64)
    at, place, step = tiles, np.arange(len(tiles)), 0
    while len(at):
        np.minimum.at(first, at, place)
        height[at] = np.maximum(height[at], step)
        inner = up[at] >= 0
        at, place, step = up[at][inner], place[inner], step + 1
    number = np.empty(len(up), dtype=np.uint64)
    number[np.lexsort((-height, first))] = np.arange(len(up), dtype=np.uint64)
    return number


def _distinct(*values: Any) -> Any:
    """The distinct ones of all, in order.

    Numpy.unique looks each up in a table, which takes longer than sorting.
    """
    ordered = np.sort(np.concatenate(values))
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]


def _node_texts(nodes: Any) -> Any:
    """The codes of nodes: a cell, a cell and the digits of a part, or a word."""
    part = (nodes & np.uint64(7)).astype(np.int64)
    suffix = np.array(["", *(f".{digits}" for digits in PARTS)])[part]
    texts = np.char.add(hexadecimal(nodes >> np.uint64(3)), suffix)
    texts[nodes == _ALL_NODE] = "all"
    texts[nodes == _OUTSIDE_NODE] = OUTSIDE
    return texts


# ---- a map of one's own --------------------------------------------------------------------------


def _map_tree(whole: Hierarchy) -> Hierarchy:
    """The zones of a map, and parts of them between.

    Whatever parts it has already are left out first.
    """
    codes, up = whole.code.tolist(), whole.parent.tolist()
    above: dict[str, str] = {}
    for node, code in enumerate(codes):
        parent = up[node]
        while parent >= 0 and _MARK in codes[parent]:
            parent = up[parent]
        if _MARK not in code and parent >= 0:
            above[code] = codes[parent]
    root = codes[0]
    children: dict[str, list[str]] = {}
    for code, zone in above.items():
        children.setdefault(zone, []).append(code)
    points = _points(whole, children, root)
    levels = {root: int(whole.level[0])}
    waiting = [root]
    while waiting:
        zone = waiting.pop()
        for code in children.get(zone, ()):
            levels[code] = levels[zone] + 1
            waiting.append(code)
    for zone, own in children.items():
        _divide(zone, own, points, above, levels, levels[zone])
    places = whole.geography.places if isinstance(whole.geography, ZoneGeography) else None
    number = {codes[leaf]: i for i, leaf in enumerate(leaves(whole).tolist())}

    def where(tree: Hierarchy) -> ZoneGeography:
        assert places is not None
        at = np.array([number[c] for c in leaf_codes(tree).tolist()])
        return ZoneGeography(places.take(at), tree.leaf_start, tree.leaf_stop)

    return _tree(above, levels, where, "table")


def _points(
    whole: Hierarchy, children: dict[str, list[str]], root: str
) -> dict[str, tuple[float, float]]:
    """The mean of the tiles of each zone, in ten-millionths of a degree.

    Longitude from that of the first tile on.
    """
    assert whole.geography is not None
    lat, lon = whole.geography.centers(leaves(whole))
    tiles = leaf_codes(whole).tolist()
    at = {
        c: (round(a * _WHOLE_DEGREE), round(b * _WHOLE_DEGREE))
        for c, a, b in zip(tiles, lat.tolist(), lon.tolist(), strict=True)
    }
    origin, half = at[min(tiles)][1], 180 * _WHOLE_DEGREE
    sums: dict[str, tuple[int, int, int]] = {}
    order = [root]
    for zone in order:
        order.extend(children.get(zone, ()))
    for zone in reversed(order):
        if zone in at:
            sums[zone] = (at[zone][0], (at[zone][1] - origin + half) % (2 * half) - half, 1)
        else:
            below = [sums[child] for child in children[zone]]
            sums[zone] = (
                sum(b[0] for b in below),
                sum(b[1] for b in below),
                sum(b[2] for b in below),
            )
    return {zone: (y / n, x / n) for zone, (y, x, n) in sums.items()}


def _divide(
    name: str,
    zones: list[str],
    points: dict[str, tuple[float, float]],
    above: dict[str, str],
    levels: dict[str, int],
    level: int,
) -> None:
    """Put zones below a node of this name: two at the most, else in halves."""
    if len(zones) <= 2:
        above |= dict.fromkeys(zones, name)
        return
    north_south = [points[zone][0] for zone in zones]
    west_east = [points[zone][1] for zone in zones]
    middle = math.radians((min(north_south) + max(north_south)) / 2 / _WHOLE_DEGREE)
    is_wide = (max(west_east) - min(west_east)) * math.cos(middle) > max(north_south) - min(
        north_south
    )
    ordered = sorted(
        zones, key=lambda zone: (*(points[zone][::-1] if is_wide else points[zone]), zone)
    )
    cut = len(zones) - len(zones) // 2
    for number, half in enumerate((ordered[:cut], ordered[cut:]), start=1):
        if len(half) == 1:
            above[half[0]] = name
            continue
        part = f"{name}{_MARK}{number}"
        above[part], levels[part] = name, level
        _divide(part, half, points, above, levels, level)


def _with_tiles(whole: Hierarchy, tiles: set[str], *, to_the_top: bool) -> Hierarchy:
    """The part of a tree that holds some tiles; with `outside` among them, to the top."""
    if OUTSIDE in tiles and OUTSIDE not in whole.code:
        return with_outside(_with_tiles(whole, tiles - {OUTSIDE}, to_the_top=True))
    codes, up = whole.code.tolist(), whole.parent.tolist()
    kept: dict[int, None] = {}
    for node in (n for n in leaves(whole).tolist() if codes[n] in tiles):
        while node >= 0 and node not in kept:
            kept[node] = None
            node = up[node]
    above = {codes[node]: codes[up[node]] for node in kept if up[node] >= 0}
    levels = {codes[node]: int(whole.level[node]) for node in kept}
    number = {code: i for i, code in enumerate(codes)}

    def where(tree: Hierarchy) -> ZoneGeography:
        assert isinstance(whole.geography, ZoneGeography)
        return whole.geography.take(
            np.array([number[code] for code in tree.code.tolist()], dtype=np.int32)
        )

    return _tree(above, levels, where, "table", to_the_top=to_the_top)


def leaves(tree: Hierarchy) -> Any:
    """The nodes without children: the tiles, in their order."""
    return np.flatnonzero(np.bincount(tree.parent[1:], minlength=len(tree.parent)) == 0).astype(
        np.int32
    )


def leaf_codes(tree: Hierarchy) -> Any:
    """The code of each tile, in node order."""
    return tree.code[leaves(tree)]
