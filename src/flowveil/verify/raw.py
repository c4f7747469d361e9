"""The raw flows and their map as plain tables, from the input as it was read and nothing else.

Which tile lies in which node is worked out anew: for H3 from the bits of the codes, for other maps by following parent
codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.slices import SlicedFlows
from flowveil.verify.database import Database
from flowveil.verify.h3_parts import possible_tiles
from flowveil.verify.units import COUNTED_ONCE

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

#: Base cells of H3 that are pentagons.
_PENTAGONS = (4, 14, 24, 38, 49, 58, 63, 72, 83, 97, 107, 117)
#: A matrix has no more cells than raw flows; a family one for each level of its slice columns, and of its times.
_FEWEST_ROWS, _LEVELS_OF_TIME = 1_000, 8


@dataclass(frozen=True, eq=False)
class Raw:
    """The raw flows: of one matrix, or of slices.

    Attributes:
        columns: the slice columns; none for one matrix.
        keys: the values of each slice.
        slices: the flows of each slice.
        whole: all of them together.
    """

    columns: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    slices: tuple[Flows, ...]
    whole: Flows

    @property
    def folded(self) -> bool:
        """Whether time is an end of the flows, like the two places."""
        return self.whole.times is not None

    @property
    def most_rows(self) -> int:
        """More cells than any release of these flows has: each holds a flow of its own slice, at some level."""
        flows = sum(len(part) for part in self.slices)
        return _FEWEST_ROWS + flows * (_LEVELS_OF_TIME * 2 ** len(self.columns) if self.columns else 1)

    @classmethod
    def of(cls, flows: Flows | SlicedFlows) -> Raw:
        """The flows as they were read."""
        if isinstance(flows, SlicedFlows):
            return cls(flows.columns, flows.keys, flows.slices, flows.whole)
        return cls((), ((),), (flows,), flows)


def load_rows(db: Database, raw: Raw) -> None:
    """``rows`` (row, m, o, d, t, trips, weight): every flow of every raw slice; ``people_row`` (row, member): persons.

    Each unit whose members are counted once has such a table. ``t`` is the step of time where time folds, else empty.
    """
    import pyarrow as pa

    start = np.concatenate(([0], np.cumsum([len(part) for part in raw.slices]))).astype(np.int32)
    origin, destination = (codes_of(leaf_codes(tree)) for tree in (raw.whole.origins, raw.whole.destinations))
    whole, time = raw.whole, pa.nulls(int(start[-1]), pa.string())
    if whole.times is not None and whole.time is not None:
        time = pa.array(whole.times.labels.tolist(), pa.string()).take(pa.array(whole.time))
    weight = [pa.nulls(len(p), pa.float64()) if p.weight is None else pa.array(p.weight) for p in raw.slices]
    rows = {
        "row": np.arange(start[-1], dtype=np.int32),
        "m": np.repeat(np.arange(len(raw.slices), dtype=np.int32), np.diff(start)),
        "o": origin.take(pa.array(np.concatenate([p.origin for p in raw.slices]))),
        "d": destination.take(pa.array(np.concatenate([p.destination for p in raw.slices]))),
        "t": time,
        "trips": np.concatenate([p.trips for p in raw.slices]),
        "weight": pa.chunked_array(weight, pa.float64()),
    }
    db.store("rows", pa.table(rows))
    none = np.zeros(0, np.int32)
    for unit, members in COUNTED_ONCE.items():
        found = [(first, *(members(p) or (none, none))) for p, first in zip(raw.slices, start[:-1], strict=True)]
        cell = np.concatenate([none, *(row + first for first, row, _ in found)])
        member = np.concatenate([none, *(member for _, _, member in found)])
        db.store(f"{unit}_row", pa.table({"row": cell, "member": member}))


def load_map(db: Database, flows: Flows) -> None:
    """For each end: ``tile_*``, ``up_*`` (tile, node, step, top) and ``node_*`` (text, level, tiles, possible, coarse).

    ``tiles`` counts those of the input below a node, ``possible`` all of the map, seen or not (empty without a map);
    ``coarse`` says whether there may be several.
    """
    import pyarrow as pa

    if flows.whole_map is not None:
        db.store("tile_map", pa.table({"tile": codes_of(leaf_codes(flows.whole_map))}))
        _climb_tree(db, "map", flows.whole_map)
    for end, tree in (("o", flows.origins), ("d", flows.destinations)):
        tiles = leaf_codes(tree)
        db.store(f"tile_{end}", pa.table({"tile": codes_of(tiles)}))
        if tree.kind == "h3" and tiles.dtype == np.uint64:
            _climb_h3(db, end, tiles, tree.base_level)
        else:
            _climb_tree(db, end, tree)
        text = "node" if tiles.dtype.kind == "U" else "CASE WHEN node = 0 THEN 'all' ELSE format('{:x}', node) END"
        level = f"any_value(top - step) + {tree.base_level}"
        if tree.levels is not None:
            # Where parts of zones are nodes, a level is not a number of steps.
            db.store(f"level_{end}", pa.table({"node": codes_of(tree.code), "level": tree.levels}))
            level = f"any_value((SELECT l.level FROM level_{end} l WHERE l.node = u.node))"
        db.create(
            f"seen_{end}",
            f"SELECT node, {text} AS text, count(*) AS tiles, {level} AS level FROM up_{end} u GROUP BY node",
        )
        possible = _possible(f"seen_{end}", tiles, flows.whole_map)
        if tree.kind == "halves" and tiles.dtype.kind == "U":
            db.store(f"possible_{end}", _possible_in_parts(tree))
            possible = f"SELECT * FROM possible_{end}"
        db.create(
            f"node_{end}",
            f"SELECT v.*, n::BIGINT AS possible, coalesce(n > 1, node NOT IN (SELECT tile FROM tile_{end})) AS coarse "
            f"FROM seen_{end} v LEFT JOIN ({possible}) USING (node)",
        )


def leaves(tree: Hierarchy) -> Any:
    """The nodes that are nobody's parent: the tiles, in their order."""
    return np.flatnonzero(np.bincount(tree.parent[1:], minlength=len(tree.parent)) == 0).astype(np.int32)


def leaf_codes(tree: Hierarchy) -> Any:
    """The code of each tile, in node order."""
    return tree.code[leaves(tree)]


def codes_of(codes: Any) -> Any:
    """Codes as an Arrow column."""
    import pyarrow as pa

    return pa.array(codes.tolist(), type=pa.string()) if codes.dtype.kind == "U" else pa.array(codes)


def _climb_h3(db: Database, end: str, tiles: Any, base_level: int) -> None:
    """``up``: every cell above a tile, from its bits: 3 for each resolution, all set below the cell's own."""
    finest = int(tiles[0]) >> 52 & 15
    top = finest - base_level
    parts = []
    for r in range(finest, max(base_level, 0) - 1, -1):
        kept, added = 0xFFFFFFFFFFFFFFFF ^ (15 << 52), (r << 52) | ((1 << 3 * (15 - r)) - 1)
        node = f"(tile & {kept}::UBIGINT) | {added}::UBIGINT"
        parts.append(f"SELECT tile, {node} AS node, {finest - r} AS step, {top} AS top FROM tile_{end}")
    if base_level < 0:
        parts.append(f"SELECT tile, 0::UBIGINT, {top}, {top} FROM tile_{end}")
    db.create(f"up_{end}", " UNION ALL ".join(parts))


def _climb_tree(db: Database, end: str, tree: Hierarchy) -> None:
    """``up``: every node above a tile, by following parent codes one step at a time."""
    import pyarrow as pa

    has_parent = tree.parent >= 0
    child, parent = tree.code[has_parent], tree.code[tree.parent[has_parent]]
    db.store(f"parent_{end}", pa.table({"child": codes_of(child), "parent": codes_of(parent)}))
    db.create(
        f"up_{end}",
        f"WITH RECURSIVE climb AS (SELECT tile, tile AS node, 0 AS step FROM tile_{end} UNION ALL "
        f"SELECT tile, parent, step + 1 FROM climb JOIN parent_{end} ON node = child) "
        "SELECT *, max(step) OVER (PARTITION BY tile) AS top FROM climb",
    )


def _possible_in_parts(tree: Hierarchy) -> Any:
    """How many tiles (n) there are below each node of a tree of H3 cells and parts of them."""
    import pyarrow as pa

    finest = int(tree.level[leaves(tree)[0]])
    n = [possible_tiles(code, finest) for code in tree.code.tolist()]
    return pa.table({"node": codes_of(tree.code), "n": pa.array(n, pa.int64())})


def _possible(seen: str, tiles: Any, whole_map: Hierarchy | None) -> str:
    """SQL: of each node, how many tiles (n) there are below it.

    Below an H3 cell there are seven times as many with each resolution; below a pentagon, a pentagon and five hexagons
    each time. Tiles of a map are counted on the whole map.
    """
    if tiles.dtype.kind == "U":
        counted = "SELECT node, count(*) AS n FROM up_map GROUP BY node"
        return counted if whole_map is not None else f"SELECT node, NULL::BIGINT AS n FROM {seen}"
    finest = int(tiles[0]) >> 52 & 15
    pentagon = (
        f"((node >> 45) & 127) IN {_PENTAGONS} "
        "AND (node & ((1::UBIGINT << 45) - 1)) = ((1::UBIGINT << (3 * (15 - level))) - 1)"
    )
    hexagons = [7 ** (finest - r) for r in range(finest + 1)]
    pentagons = [1 + 5 * (n - 1) // 6 for n in hexagons]
    below = f"(CASE WHEN {pentagon} THEN {pentagons} ELSE {hexagons} END)[level + 1]"
    return f"SELECT node, CASE WHEN node = 0 THEN {2 + 120 * hexagons[0]} ELSE {below} END AS n FROM {seen}"
