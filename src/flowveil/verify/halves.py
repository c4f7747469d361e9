"""The tree of halves, derived anew: for a release whose report says that its zones are parts of cells or of zones.

Nothing here is shared with what makes the tree for the methods. For H3, every tile is followed upwards one cell at a
time by what the library h3 says, and the parts between by `flowveil.verify.h3_parts`. For a map of one's own, the
children of each zone are divided by the rule of docs/zones.md, one zone after the other. Flows may come with the tree
they were read with or with the one they were published on: only their tiles, and the zones of the map, are taken from
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np

from flowveil.flows import Flows, People
from flowveil.hierarchy import Hierarchy
from flowveil.slices import SlicedFlows
from flowveil.verify.h3_parts import parts_around
from flowveil.verify.raw import leaf_codes, leaves
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.naming import named_like

_MARK = "~"
_WHOLE_DEGREE = 10**7


def on_halves(flows: Flows | SlicedFlows, *, to_the_top: bool = False) -> Flows | SlicedFlows | None:
    """The flows over trees of halves; None where their trees have none.

    Args:
        flows: the input.
        to_the_top: whether the trees go on above the smallest node that holds all tiles.
    """
    trees = _trees(flows if isinstance(flows, Flows) else flows.slices[0], to_the_top=to_the_top)
    if trees is None:
        return None
    if isinstance(flows, Flows):
        return _moved(flows, trees)
    return replace(flows, slices=tuple(_moved(part, trees) for part in flows.slices))


def _trees(flows: Flows, *, to_the_top: bool) -> tuple[Hierarchy, Hierarchy, Hierarchy | None] | None:
    both = (flows.origins, flows.destinations)
    # One tree for both ends stays one.
    trees = both[:1] if both[0] is both[1] else both
    if all(tree.kind in ("h3", "halves") and tree.code.dtype == np.uint64 for tree in both):
        cells = [_h3_tree(leaf_codes(tree).tolist(), to_the_top=to_the_top) for tree in trees]
        return cells[0], cells[-1], None
    whole = flows.whole_map
    if whole is None or whole.kind != "table" or not isinstance(whole.geography, ZoneGeography):
        return None
    divided = named_like(_map_tree(whole), whole)
    ends = [_with_tiles(divided, set(leaf_codes(tree).tolist()), to_the_top=to_the_top) for tree in trees]
    return ends[0], ends[-1], divided


def _moved(flows: Flows, trees: tuple[Hierarchy, Hierarchy, Hierarchy | None]) -> Flows:
    """The same flows with the numbers that their tiles have in other trees."""
    ends = []
    for tile, before, after in (
        (flows.origin, flows.origins, trees[0]),
        (flows.destination, flows.destinations, trees[1]),
    ):
        number = {_text(code): i for i, code in enumerate(leaf_codes(after).tolist())}
        ends.append(np.array([number[_text(code)] for code in leaf_codes(before).tolist()], dtype=np.int32)[tile])
    order = np.lexsort(ends[::-1])
    people = flows.people
    if people is not None:
        row = np.argsort(order)[people.cell].astype(np.int32)
        sorted_rows = np.lexsort((people.person, row))
        people = People(row[sorted_rows], people.person[sorted_rows])
    return replace(
        flows,
        origin=ends[0][order],
        destination=ends[1][order],
        trips=flows.trips[order],
        weight=None if flows.weight is None else flows.weight[order],
        people=people,
        tiles=None,
        time=None if flows.time is None else flows.time[order],
        origins=trees[0],
        destinations=trees[1],
        whole_map=trees[2],
    )


def _text(code: Any) -> str:
    return code if isinstance(code, str) else format(code, "x")


def _tree(
    above: dict[str, str], levels: dict[str, int], geography: Any, kind: str, *, to_the_top: bool = False
) -> Hierarchy:
    """The tree of (node, what it lies in), from the smallest node that holds all tiles on, or from the top."""
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
    return Hierarchy(parent=tree.parent, code=tree.code, geography=geography(tree), kind=kind, levels=level)


# ---- H3 --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _TileCenters:
    """Where the tiles of a tree lie; nothing else of it is asked for."""

    tree: Hierarchy

    def centers(self, nodes: Any) -> tuple[Any, Any]:
        found = [h3_int.cell_to_latlng(int(code, 16)) for code in self.tree.code[nodes].tolist()]
        lat, lon = np.array(found, dtype=np.float64).reshape(-1, 2).T
        return lat, lon

    def areas_km2(self, nodes: Any) -> Any:  # noqa: ARG002
        raise AssertionError("only centres are asked for")

    def polygons(self, nodes: Any) -> Any:  # noqa: ARG002
        raise AssertionError("only centres are asked for")


def _h3_tree(tiles: Sequence[int], *, to_the_top: bool) -> Hierarchy:
    above: dict[str, str] = {}
    levels: dict[str, int] = {}
    tops = set()
    for tile in tiles:
        cell, resolution = tile, h3_int.get_resolution(tile)
        while f"{cell:x}" not in levels:
            levels[f"{cell:x}"] = resolution
            if resolution == 0:
                tops.add(cell)
                break
            parent = h3_int.cell_to_parent(cell, resolution - 1)
            lower = f"{cell:x}"
            for part in parts_around(cell, parent, resolution):
                above[lower] = part
                levels[part] = resolution - 1
                lower = part
            above[lower] = f"{parent:x}"
            cell, resolution = parent, resolution - 1
    if len(tops) > 1 or to_the_top:
        levels["all"] = -1
        above |= {f"{top:x}": "all" for top in tops}
    return _tree(above, levels, _TileCenters, "halves", to_the_top=to_the_top)


# ---- a map of one's own ----------------------------------------------------------------------------------------------


def _map_tree(whole: Hierarchy) -> Hierarchy:
    """The zones of a map, and parts of them between: whatever parts it has already are left out first."""
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
        return ZoneGeography.of(tree, places.take(np.array([number[c] for c in leaf_codes(tree).tolist()])))

    return _tree(above, levels, where, "table")


def _points(whole: Hierarchy, children: dict[str, list[str]], root: str) -> dict[str, tuple[float, float]]:
    """The mean of the tiles of each zone, in ten-millionths of a degree; longitude from that of the first tile on."""
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
            sums[zone] = (sum(b[0] for b in below), sum(b[1] for b in below), sum(b[2] for b in below))
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
    is_wide = (max(west_east) - min(west_east)) * math.cos(middle) > max(north_south) - min(north_south)
    ordered = sorted(zones, key=lambda zone: (*(points[zone][::-1] if is_wide else points[zone]), zone))
    cut = len(zones) - len(zones) // 2
    for number, half in enumerate((ordered[:cut], ordered[cut:]), start=1):
        if len(half) == 1:
            above[half[0]] = name
            continue
        part = f"{name}{_MARK}{number}"
        above[part], levels[part] = name, level
        _divide(part, half, points, above, levels, level)


def _with_tiles(whole: Hierarchy, tiles: set[str], *, to_the_top: bool) -> Hierarchy:
    """The part of a tree that holds some tiles."""
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
        return whole.geography.take(np.array([number[code] for code in tree.code.tolist()], dtype=np.int32))

    return _tree(above, levels, where, "table", to_the_top=to_the_top)
