"""The smallest safe cell of every flow, counted anew: what the floor of the generalisation error is the mean of.

Shares nothing with the methods or with `flowveil.measures`, which find safe pairs by sorting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.verify.raw import leaves
from flowveil.verify.units import UNITS

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Members = Mapping[str, tuple[Any, Any]]

#: Flows and their members times pairs of depths beyond which the floor is not recounted: it would take minutes.
MOST_WORK = 2_000_000_000
#: How many times the members that a pair must have are looked at before all of its members are.
_ENOUGH = 8


def smallest_safe(
    flows: Flows, raw: Mapping[str, Any], guarantee: Mapping[str, Any], members: Members
) -> Floats | None:
    """For each flow the fewest tiles |o| + |d| over pairs of nodes that hold it and whose cell is safe.

    From the roots down, one pair of depths at a time: a pair can only be safe inside a safe pair, so only flows of
    pairs that were safe one step up at either end are counted again.

    Args:
        flows: their two trees.
        raw: slice (s), tiles (o, d), trips and weight of each flow; slices are counted apart.
        guarantee: the thresholds.
        members: by protected unit whose members are counted once: flow and member, one row for each of a flow.
    """
    above_o, above_d = _ancestors(flows.origins, raw["o"]), _ancestors(flows.destinations, raw["d"])
    rows = len(raw["s"]) + sum(len(flow) for flow, _ in members.values())
    if rows * len(above_o) * len(above_d) > MOST_WORK:
        return None
    all_o, all_d = _sizes(flows.origins), _sizes(flows.destinations)
    smallest = np.full(len(raw["s"]), np.inf)
    # Nodes of one depth by rank, so that few nodes have small numbers.
    (rank_o, size_o), (rank_d, size_d) = _ranked(above_o, all_o), _ranked(above_d, all_d)
    by_flow = {name: _by_flow(*rows, len(raw["s"])) for name, rows in members.items()}
    ways = [np.ones(len(raw["s"]), dtype=np.bool_)] * len(above_d)
    for node_o, tiles_o in zip(rank_o, size_o, strict=True):
        safe = np.ones(len(raw["s"]), dtype=np.bool_)
        for j, (node_d, tiles_d) in enumerate(zip(rank_d, size_d, strict=True)):
            safe = ways[j] = _safe(raw, (node_o, node_d), safe & ways[j], by_flow, guarantee)
            if not safe.any():
                ways[j:] = [safe] * (len(rank_d) - j)
                break
            smallest[safe] = np.minimum(smallest[safe], (tiles_o + tiles_d)[safe])
    return smallest


def _by_flow(flow: Any, member: Any, n_flows: int) -> tuple[Places, Any]:
    """The members, those of a flow together, and where those of each flow begin (the end included)."""
    first = np.concatenate(([0], np.cumsum(np.bincount(flow, minlength=n_flows))))
    return first, member[np.argsort(flow, kind="stable")]


def _ranked(above: list[Places], size: Floats) -> tuple[list[Places], list[Floats]]:
    """For each depth, the rank of each flow's node among those of the depth, and its tiles."""
    used = [np.cumsum(np.bincount(nodes) > 0) - 1 for nodes in above]
    return [rank[nodes] for rank, nodes in zip(used, above, strict=True)], [size[nodes] for nodes in above]


def _ancestors(tree: Hierarchy, tile: Any) -> list[Places]:
    """The node above each tile at every depth from the root down; its own where it is less deep."""
    leaf = leaves(tree)
    at = leaf.astype(np.int64)
    paths = [at]
    while (at > 0).any():
        at = np.maximum(tree.parent[at], 0)
        paths.append(at)
    # paths[u] is u steps up, the root from then on; a leaf of depth h is at depth t after max(h - t, 0) steps.
    steps = np.stack(paths)
    height = np.argmax(steps == 0, axis=0)
    depth = [np.maximum(height - t, 0) for t in range(len(paths))]
    where = np.arange(len(leaf))
    return [steps[d, where][tile.astype(np.int64)] for d in depth]


def _sizes(tree: Hierarchy) -> Floats:
    """Tiles below each node."""
    size = np.zeros(len(tree.parent))
    at = leaves(tree).astype(np.int64)
    while True:
        np.add.at(size, at, 1.0)
        at = tree.parent[at[at > 0]].astype(np.int64)
        if len(at) == 0:
            return size


def _safe(
    raw: Mapping[str, Any],
    node: tuple[Places, Places],
    tried: NDArray[np.bool_],
    members: Mapping[str, tuple[Places, Any]],
    guarantee: Mapping[str, Any],
) -> NDArray[np.bool_]:
    """Which of the tried flows lie in a safe pair of these nodes; members as `_by_flow` has them."""
    out = np.zeros(len(tried), dtype=np.bool_)
    at = np.flatnonzero(tried)
    if len(at) == 0:
        return out
    number, n = _numbered(raw["s"][at], node[0][at], node[1][at])
    good = np.ones(n, dtype=np.bool_)
    for name, unit in UNITS.items():
        if unit.members is None and guarantee.get(name) is not None:
            value = raw[unit.column][at].astype(np.float64)
            if unit.weighed:
                # In millionths, whose sums are exact.
                value = np.rint(value * 1e6)
            total = np.bincount(number, weights=value, minlength=n)
            good &= (total / 1e6 if unit.weighed else total) >= guarantee[name]
    if guarantee.get("locations") is not None:
        # The tiles in which the trips of the pair begin, and those in which they end.
        for end in ("o", "d"):
            tile = raw[end][at]
            wide = int(tile.max()) + 1
            distinct = np.unique(number * wide + tile.astype(np.int64))
            # Where listed places are counted, a tile counts as often as it holds one.
            each = raw[f"places_{end}"][distinct % wide] if f"places_{end}" in raw else None
            good &= np.bincount(distinct // wide, weights=each, minlength=n) >= guarantee["locations"]
    for name, (first, member) in members.items():
        each = (first[1:] - first[:-1])[at]
        # A pair has at least as many as one of its flows, and at most as many as all of them: only those in between
        # have to be sorted.
        largest = np.zeros(n, dtype=each.dtype)
        np.maximum.at(largest, number, each)
        good &= np.bincount(number, weights=each, minlength=n) >= guarantee[name]
        doubtful = good & (largest < guarantee[name])
        # Some flows of a large pair often have enough already; where they have not, all of them are sorted.
        most = _ENOUGH * guarantee[name]
        asked = np.flatnonzero(doubtful[number])
        if each[asked].sum() > 2 * most * doubtful.sum():
            asked = _first_flows(number, each, asked, most)
            doubtful &= _distinct(number, at, asked, first, member, n) < guarantee[name]
            asked = np.flatnonzero(doubtful[number])
        good &= ~doubtful | (_distinct(number, at, asked, first, member, n) >= guarantee[name])
    out[at] = good[number]
    return out


def _first_flows(number: Places, each: Any, asked: Places, most: float) -> Places:
    """Of the flows that are asked for, the first of each pair, until they have so many members."""
    asked = asked[np.argsort(number[asked], kind="stable")]
    pair, length = number[asked], each[asked]
    before = np.cumsum(length) - length
    begins = np.concatenate(([True], pair[1:] != pair[:-1]))
    kept: Places = asked[before - before[begins][np.cumsum(begins) - 1] < most]
    return kept


def _distinct(number: Places, at: Places, asked: Places, first: Places, member: Any, n: int) -> Places:
    """How many distinct members the flows that are asked for have in each pair."""
    length = (first[1:] - first[:-1])[at[asked]]
    row = np.repeat(first[at[asked]] - (np.cumsum(length) - length), length) + np.arange(length.sum())
    wide = int(member.max(initial=0)) + 1
    # numpy.unique looks each value up in a table, which takes longer than sorting.
    key = np.sort(np.repeat(number[asked], length) * wide + member[row])
    is_new = np.concatenate((np.ones(min(len(key), 1), dtype=np.bool_), key[1:] != key[:-1]))
    return np.bincount(key[is_new] // wide, minlength=n)


def _numbered(*columns: Any) -> tuple[Places, int]:
    """Numbers for distinct rows: near the roots there are few possible ones, and nothing has to be sorted."""
    key: Places = np.zeros(len(columns[0]), dtype=np.int64)
    n = 1
    for column in columns:
        low = int(column.min())
        wide = int(column.max()) - low + 1
        key, n = key * wide + (column.astype(np.int64) - low), n * wide
    if n > 2 * len(key) + 1000:
        _, key = np.unique(key, return_inverse=True)
        n = int(key.max()) + 1
    return key, n
