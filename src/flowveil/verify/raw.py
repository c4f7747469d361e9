"""The raw flows and their map as plain tables, from the input as it was read and nothing else.

Which tile lies in which node is worked out anew: for H3 from the bits of the codes, for other maps by following
parents. Codes that are texts are numbered first, in their order, because a number is joined much faster than a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.slices import SlicedFlows
from flowveil.verify.database import Database
from flowveil.verify.h3_parts import PENTAGONS
from flowveil.verify.members import elsewhere
from flowveil.verify.units import COUNTED_ONCE, SUMMED

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

#: What stands for everything outside the area among H3 cells: no cell, and larger than all.
_OUTSIDE = 0x78FFFFFFFFFFFFFF
_CELL_TEXT = f"CASE node WHEN 0 THEN 'all' WHEN {_OUTSIDE} THEN 'outside' ELSE format('{{:x}}', node) END"
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


@dataclass(frozen=True, eq=False)
class Numbers:
    """What nodes are called in the tables of a recount: H3 cells by themselves, other codes by their place among all.

    Attributes:
        origins, destinations, whole_map: the number of each node of these trees; None without a map.
    """

    origins: Any
    destinations: Any
    whole_map: Any


def load_codes(db: Database, flows: Flows) -> Numbers:
    """``code`` (node, text): the codes that are texts, of both ends and of the map, numbered in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trees = [tree for tree in (flows.origins, flows.destinations, flows.whole_map) if tree is not None]
    # One tree for both ends is listed once.
    listed = {id(tree): tree for tree in trees if tree.code.dtype.kind == "U"}
    # As Python's texts: of an array of numpy, Arrow takes a code only up to its first NUL.
    columns = [pa.array(tree.code.tolist(), pa.string()) for tree in listed.values()]
    encoded = pa.concat_arrays([pa.array([], pa.string()), *columns]).dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    db.store("code", pa.table({"node": place, "text": encoded.dictionary}))
    ends = np.cumsum([len(column) for column in columns])[:-1]
    found = dict(zip(listed, np.split(place[encoded.indices.to_numpy()], ends), strict=True)) if listed else {}
    numbers = [found.get(id(tree), tree.code) for tree in trees]
    return Numbers(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else None)


def load_rows(db: Database, raw: Raw, numbers: Numbers) -> None:
    """``rows`` (row, m, o, d, t, what adds up): every flow of every raw slice; ``people_row`` (row, member): persons.

    Each unit whose members are counted once has such a table, unless they are elsewhere. ``t`` is the step of time
    where time folds, else empty.
    """
    import pyarrow as pa

    start = np.concatenate(([0], np.cumsum([len(part) for part in raw.slices]))).astype(np.int32)
    origin, destination = (
        number[leaves(tree)]
        for tree, number in ((raw.whole.origins, numbers.origins), (raw.whole.destinations, numbers.destinations))
    )
    whole, time = raw.whole, pa.nulls(int(start[-1]), pa.string())
    if whole.times is not None and whole.time is not None:
        time = pa.array(whole.times.labels.tolist(), pa.string()).take(pa.array(whole.time))
    rows = {
        "row": np.arange(start[-1], dtype=np.int32),
        "m": np.repeat(np.arange(len(raw.slices), dtype=np.int32), np.diff(start)),
        "o": origin[np.concatenate([p.origin for p in raw.slices])],
        "d": destination[np.concatenate([p.destination for p in raw.slices])],
        "t": time,
        "trips": np.concatenate([p.trips for p in raw.slices]),
    }
    for name in SUMMED:
        parts = [(getattr(part, name), len(part)) for part in raw.slices]
        known = [pa.nulls(n, pa.float64()) if values is None else pa.array(values) for values, n in parts]
        rows[name] = pa.chunked_array(known, pa.float64())
    db.store("rows", pa.table(rows))
    none = np.zeros(0, np.int32)
    distant = elsewhere(raw.slices, start)
    for unit, members in COUNTED_ONCE.items():
        if distant is not None:
            db.elsewhere[unit] = distant
            continue
        found = [(first, *(members(p) or (none, none))) for p, first in zip(raw.slices, start[:-1], strict=True)]
        if len(found) == 1:
            ((_, cell, member),) = found
            # The input's own columns, and no copies of them, which would stay in memory beside DuckDB's.
            db.at_hand[f"{unit}_row"] = cell, member
        else:
            cell = np.concatenate([none, *(row + first for first, row, _ in found)])
            member = np.concatenate([none, *(member for _, _, member in found)])
        db.store(f"{unit}_row", pa.table({"row": cell, "member": member}))


def load_map(db: Database, flows: Flows, numbers: Numbers) -> None:
    """For each end: ``tile_*``, ``up_*`` (tile, node, step, top) and ``node_*`` (text, level, tiles, possible, coarse).

    ``tiles`` counts those of the input below a node, ``possible`` all of the map, seen or not (empty without a map);
    ``coarse`` says whether there may be several.
    """
    import pyarrow as pa

    if flows.whole_map is not None:
        db.store("tile_map", pa.table({"tile": numbers.whole_map[leaves(flows.whole_map)]}))
        _climb_tree(db, "map", flows.whole_map, numbers.whole_map)
    for end, tree, number in (
        ("o", flows.origins, numbers.origins),
        ("d", flows.destinations, numbers.destinations),
    ):
        tiles = leaf_codes(tree)
        in_texts = tiles.dtype.kind == "U"
        db.store(f"tile_{end}", pa.table({"tile": number[leaves(tree)]}))
        if tree.kind == "h3" and tiles.dtype == np.uint64:
            _climb_h3(db, end, tiles, tree.base_level)
        else:
            _climb_tree(db, end, tree, number)
        level, leveled = f"lowest + {tree.base_level}", ""
        if tree.levels is not None:
            # Where parts of zones are nodes, a level is not a number of steps.
            db.store(f"level_{end}", pa.table({"node": number, "level": tree.levels}))
            level, leveled = "level", f"JOIN level_{end} USING (node)"
        text, named = ("text", "JOIN code USING (node)") if in_texts else (_CELL_TEXT, "")
        counted = f"SELECT node, count(*) AS tiles, any_value(top - step) AS lowest FROM up_{end} GROUP BY node"
        db.create(
            f"seen_{end}", f"SELECT node, {text} AS text, tiles, {level} AS level FROM ({counted}) {named} {leveled}"
        )
        possible = _possible(f"seen_{end}", tiles, flows.whole_map)
        if tree.kind == "halves" and in_texts:
            possible = _possible_in_parts(f"seen_{end}", int(tree.level[leaves(tree)[0]]))
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


def _climb_h3(db: Database, end: str, tiles: Any, base_level: int) -> None:
    """``up``: every cell above a tile, from its bits: 3 for each resolution, all set below the cell's own."""
    finest = int(tiles[0]) >> 52 & 15
    top = finest - base_level
    parts = []
    for r in range(finest, max(base_level, 0) - 1, -1):
        kept, added = 0xFFFFFFFFFFFFFFFF ^ (15 << 52), (r << 52) | ((1 << 3 * (15 - r)) - 1)
        node = f"(tile & {kept}::UBIGINT) | {added}::UBIGINT"
        parts.append(
            f"SELECT tile, {node} AS node, {finest - r} AS step, {top} AS top FROM tile_{end} WHERE tile <> {_OUTSIDE}"
        )
    for step, above in enumerate((_OUTSIDE, 0)):
        parts.append(f"SELECT tile, {above}::UBIGINT, {step}, 1 FROM tile_{end} WHERE tile = {_OUTSIDE}")
    if base_level < 0:
        parts.append(f"SELECT tile, 0::UBIGINT, {top}, {top} FROM tile_{end} WHERE tile <> {_OUTSIDE}")
    db.create(f"up_{end}", " UNION ALL ".join(parts))


def _climb_tree(db: Database, end: str, tree: Hierarchy, number: Any) -> None:
    """``up``: every node above a tile, by following parents one step at a time."""
    import pyarrow as pa

    leaf = leaves(tree)
    tile, node, top = np.arange(len(leaf), dtype=np.int32), leaf, np.zeros(len(leaf), dtype=np.int32)
    tiles: list[Any] = []
    nodes: list[Any] = []
    while len(tile):
        # As many steps as lead to the root.
        top[tile] = len(tiles)
        tiles.append(tile)
        nodes.append(node)
        above = tree.parent[node]
        inner = above >= 0
        tile, node = (tile, above) if inner.all() else (tile[inner], above[inner])
    step = np.repeat(np.arange(len(tiles), dtype=np.int32), [len(part) for part in tiles])
    tile = np.concatenate(tiles)
    columns = {"tile": number[leaf][tile], "node": number[np.concatenate(nodes)], "step": step, "top": top[tile]}
    db.store(f"up_{end}", pa.table(columns))


def _possible_in_parts(seen: str, finest: int) -> str:
    """SQL: the same of each node of a tree of H3 cells and parts of them.

    A part holds as many children as it names digits. That of a pentagon's child 0 is a pentagon again.
    """
    hexagons, pentagons = _below_cells(finest)
    # Of the children of a cell: one step finer; below the finest there are no parts.
    finer = [f"{_listed([*n[1:], 0])}[level + 1]" for n in (hexagons, pentagons)]
    return (
        f"WITH named AS (SELECT node, ('0x' || split_part(text, '.', 1))::UBIGINT AS cell, "
        f"split_part(text, '.', 2) AS digits FROM {seen} WHERE text NOT IN ('all', 'outside')), "
        "leveled AS (SELECT *, ((cell >> 52) & 15)::INTEGER AS level FROM named), "
        f"told AS (SELECT *, {_is_pentagon('cell')} AS pentagon FROM leveled) "
        f"SELECT node, CASE WHEN digits = '' "
        f"THEN (CASE WHEN pentagon THEN {_listed(pentagons)} ELSE {_listed(hexagons)} END)[level + 1] "
        f"WHEN pentagon AND contains(digits, '0') THEN {finer[1]} + (length(digits) - 1) * {finer[0]} "
        f"ELSE length(digits) * {finer[0]} END AS n FROM told "
        f"UNION ALL SELECT node, CASE text WHEN 'all' THEN {2 + 120 * hexagons[0]} ELSE 1 END FROM {seen} "
        "WHERE text IN ('all', 'outside')"
    )


def _is_pentagon(cell: str) -> str:
    """SQL: whether a cell, whose resolution is its ``level``, is one of the twelve pentagons of its resolution."""
    return (
        f"((({cell} >> 45) & 127) IN {PENTAGONS} "
        f"AND ({cell} & ((1::UBIGINT << 45) - 1)) = ((1::UBIGINT << (3 * (15 - level))) - 1))"
    )


def _listed(numbers: list[int]) -> str:
    """SQL of a list, as a text that is cast: a list of many numbers is planned number by number."""
    return f"CAST('{numbers}' AS BIGINT[])"


def _below_cells(finest: int) -> tuple[list[int], list[int]]:
    """How many cells of the finest resolution there are below a hexagon, and below a pentagon, of each resolution."""
    hexagons = [7 ** (finest - r) for r in range(finest + 1)]
    return hexagons, [1 + 5 * (n - 1) // 6 for n in hexagons]


def _possible(seen: str, tiles: Any, whole_map: Hierarchy | None) -> str:
    """SQL: of each node, how many tiles (n) there are below it.

    Below an H3 cell there are seven times as many with each resolution; below a pentagon, a pentagon and five hexagons
    each time. Tiles of a map are counted on the whole map.
    """
    if tiles.dtype.kind == "U":
        counted = "SELECT node, count(*) AS n FROM up_map GROUP BY node"
        return counted if whole_map is not None else f"SELECT node, NULL::BIGINT AS n FROM {seen}"
    hexagons, pentagons = _below_cells(int(tiles[0]) >> 52 & 15)
    below = f"(CASE WHEN {_is_pentagon('node')} THEN {_listed(pentagons)} ELSE {_listed(hexagons)} END)[level + 1]"
    earth = 2 + 120 * hexagons[0]
    return f"SELECT node, CASE node WHEN 0 THEN {earth} WHEN {_OUTSIDE} THEN 1 ELSE {below} END AS n FROM {seen}"
