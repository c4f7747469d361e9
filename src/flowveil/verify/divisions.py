"""Whether adaptive pairs of zones are what dividing a public tree can give, and their counts can be noise on trips.

Every published pair must be reached by dividing pairs from the top of the region or map: along the end with more
possible tiles, the origin where both have as many, unless that end cannot be divided. On the way to it no other pair
may be published: the two would count the same trips.

Pairs whose noisy count is below 1 are not listed, and how far the tree was divided there is not known. So the numbers
are asked one question only: of listed pairs with trips, how many are exact? Whatever the count c >= 1, and given that
the pair is listed, its draw is 0 with a chance of 1 - q at most: P(X = 0) / P(X >= 1 - c) <= P(X = 0) / P(X >= 0) =
1 - q. Draws are independent of each other and of the divisions, so Chernoff's bound holds for any number of pairs.

Shares nothing with the method: nodes are climbed to anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_cells
import numpy as np

from flowveil.verify.database import Database
from flowveil.verify.law import Zones, columns_of, load_pairs, too_many

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy


def check_divisions(promise: Mapping[str, Any], flows: Flows, db: Database, *, law: bool) -> Iterator[str]:
    """Findings on the published pairs, and on their numbers against the raw flows.

    Args:
        promise: what the report says of the noise; its numbers are in their ranges.
        flows: the flows it was made from.
        db: with ``published_rows``.
        law: whether the numbers are looked at.
    """
    zones = [Zones.of(flows, end, promise["domain"]) for end in (flows.origins, flows.destinations)]
    pairs = {(o, d) for o, d in db.rows("SELECT origin_zone, destination_zone FROM published_rows")}
    if flows.origins.kind == "h3" and flows.origins.code.dtype == np.uint64:
        codes = {code for end in zones for code in end.of_tile if code is not None}.union(*pairs)
        tree = _tree_of_cells(promise["domain"], flows, codes)
    else:
        tree = _tree_of_map(promise["domain"], flows)
    unknown = sum(o not in tree.way or d not in tree.way for o, d in pairs)
    if unknown:
        yield f"flows.parquet: {unknown} pairs have zones that dividing the region or map does not give"
        return
    ways = [(pair, list(tree.divisions(*pair))) for pair in pairs]
    odd = sum(way[-1] != pair for pair, way in ways)
    if odd:
        yield f"flows.parquet: {odd} pairs are not what dividing the wider end first gives"
    nested = sum(any(above in pairs for above in way[:-1]) for _, way in ways)
    if nested:
        yield f"flows.parquet: {nested} pairs lie in other published pairs"
    if law and not (odd or nested):
        yield from _check_exact(promise, flows, db, tree, zones)


@dataclass(frozen=True)
class _Tree:
    """The public tree: of each node the way to it from the top, its possible tiles, and whether it can be divided."""

    way: Mapping[str, tuple[str, ...]]
    tiles: Mapping[str, int]
    inner: frozenset[str]

    def divisions(self, origin: str, destination: str) -> Iterator[tuple[str, str]]:
        """The pairs from the top to a pair; the last is another pair where it cannot be reached."""
        ways, at = (self.way[origin], self.way[destination]), [0, 0]
        while True:
            nodes = ways[0][at[0]], ways[1][at[1]]
            yield nodes
            if nodes == (origin, destination):
                return
            can = [node in self.inner for node in nodes]
            end = 0 if can[0] and (self.tiles[nodes[0]] >= self.tiles[nodes[1]] or not can[1]) else 1
            at[end] += 1
            if at[end] == len(ways[end]):
                return


def _tree_of_cells(domain: Mapping[str, Any], flows: Flows, codes: set[str]) -> _Tree:
    """The cells above these, up to the topmost cells of the region; those that are outside or too fine have no way."""
    region, level = {int(code, 16) for code in domain["region"]}, int(domain["level"])
    finest = _level(int(flows.origins.code[flows.origins.leaf_node[0]]))
    way: dict[str, tuple[str, ...]] = {}
    for code in codes:
        cell = int(code, 16)
        chain = [h3_cells.cell_to_parent(cell, r) for r in range(_level(cell) + 1)]
        inside = [i for i, up in enumerate(chain) if up in region]
        if inside and len(chain) - 1 <= level:
            way[code] = tuple(f"{up:x}" for up in chain[inside[0] :])
    nodes = {node for steps in way.values() for node in steps}
    tiles = {node: h3_cells.cell_to_children_size(int(node, 16), finest) for node in nodes}
    return _Tree(way, tiles, frozenset(node for node in nodes if _level(int(node, 16)) < level))


def _level(cell: int) -> int:
    return int(h3_cells.get_resolution(cell))


def _tree_of_map(domain: Mapping[str, Any], flows: Flows) -> _Tree:
    """The nodes of the map down to the level; one with a single child is the same area as that child."""
    tree: Hierarchy = flows.origins if flows.whole_map is None else flows.whole_map
    codes = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
    level = None if domain["level"] == "tiles" else int(domain["level"])
    names = None if domain.get("region") is None else set(map(str, domain["region"]))
    way: dict[int, tuple[str, ...]] = {}
    inner, single = set(), set()
    for node in range(tree.n_nodes):
        up = int(tree.parent[node])
        if level is not None and int(tree.level[node]) > level:
            continue
        if up in way:
            way[node] = (*way[up][:-1], codes[node]) if up in single else (*way[up], codes[node])
        elif names is None or codes[node] in names:
            way[node] = (codes[node],)
        below = level is None or int(tree.level[node]) < level
        if node in way and tree.n_children[node] and below:
            inner.add(codes[node])
            if tree.n_children[node] == 1:
                single.add(node)
    kept = {codes[node]: steps for node, steps in way.items() if node not in single}
    tiles = {codes[node]: int(tree.size[node]) for node in way}
    return _Tree(kept, tiles, frozenset(inner))


def _check_exact(
    promise: Mapping[str, Any], flows: Flows, db: Database, tree: _Tree, zones: list[Zones]
) -> Iterator[str]:
    import pyarrow as pa

    load_pairs(db, promise, flows, zones)
    of = sorted({code for end in zones for code in end.of_tile if code is not None})
    # A zone with a single child above it goes by the name of its finest area.
    steps = [(code, node) for code in of for node in tree.way.get(code, ())]
    columns = zip(*steps, strict=True) if steps else ((), ())
    db.store("ups", pa.table(dict(zip(("zone", "up"), (pa.array(c, pa.string()) for c in columns), strict=True))))
    counted, raw, noisy = columns_of(
        db,
        "SELECT sum(c)::BIGINT, sum(raw)::BIGINT, any_value(trips) FROM counted JOIN ups a ON a.zone = o "
        "JOIN ups b ON b.zone = d JOIN published_rows ON origin_zone = a.up AND destination_zone = b.up "
        "GROUP BY origin_zone, destination_zone HAVING sum(c) > 0",
    )
    chance = -math.expm1(-1 / promise["scale"])
    for true in (counted, raw):
        if too_many(int(np.sum(noisy == true)), len(noisy), chance):
            yield "flows.parquet: more counts are exact than noise of this scale leaves: these are counts, not noise"
            return
