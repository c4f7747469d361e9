"""Safe pairs: every pair of an origin node and a destination node whose cell may be published.

Whatever cuts are chosen, a published cell is one of these pairs. There are few of them: pairs of one depth at each end
are disjoint, so each depth pair has at most volume / k, and a pair can only be safe inside safe pairs. They are found
by walking down from the roots: for every origin depth the flows are sorted once by (origin node, destination tile); a
pair is then a run of rows, its children are runs inside it, and sums are differences of prefix sums. Only safe runs
are divided.

Where time is a third end, a pair is a triple with a node of the tree of times, and the same is done at every depth of
that tree, the flows sorted by (node of times, origin node, destination tile).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.flows import Cells, Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.methods.distinct_along import DistinctAlong, Repeats, prefix
from flowveil.methods.lowest_common_ancestor import AncestorDepth
from flowveil.methods.remote_pairs import with_enough
from flowveil.reading.limits import threads
from flowveil.remote_people import RemotePeople
from flowveil.workers import prefetch

Positions = NDArray[np.int64]

#: Number of flows below which threads cost more than they save.
FLOWS_ALONE = 50_000


@dataclass(frozen=True, eq=False)
class Sketch:
    """A hierarchy reduced to the nodes that a good cut may need; its leaves represent one or several tiles.

    Attributes:
        tree: the reduced hierarchy.
        node: the node of the full hierarchy that each of its nodes is.
        size: tiles of the full hierarchy below each node.
        leaf_of_tile: the leaf that represents each tile of the full hierarchy.
        thinned: nodes that a good cut may need were left out, because the tree is very deep.
    """

    tree: Hierarchy
    node: Ints
    size: Ints
    leaf_of_tile: Ints
    thinned: bool = False

    @classmethod
    def of(cls, full: Hierarchy, divisible: NDArray[np.bool_]) -> Sketch:
        """Keep the divisible nodes, and as leaves the topmost nodes that have no divisible one inside.

        Args:
            full: the hierarchy.
            divisible: which nodes a cut may divide. The topmost one must hold all others.
        """
        before = np.concatenate(([0], np.cumsum(divisible)))
        some_inside = before[full.stop] > before[:-1]
        leaf = ~some_inside
        leaf[1:] &= some_inside[full.parent[1:]]
        kept = divisible | leaf
        number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        above = np.where(kept, number, np.int32(-1))
        # A parent stands before its children, so the nearest kept ancestor comes down depth by depth.
        for depth in range(1, full.max_depth + 1):
            nodes = full.nodes_at_depth(depth)
            above[nodes] = np.where(kept[nodes], number[nodes], above[full.parent[nodes]])
        node = np.flatnonzero(kept)
        parent = np.where(node > 0, above[np.maximum(full.parent[node], 0)], np.int32(-1))
        parent[0] = -1
        tree = Hierarchy(parent=parent, code=np.arange(len(node), dtype=np.uint64))
        leaf_of_tile = tree.leaf_start[above[full.leaf_node]]
        return cls(tree=tree, node=full.narrowest[node], size=full.size[node], leaf_of_tile=leaf_of_tile)


def sketch(full: Hierarchy, tile: Ints, flows: Flows, guarantee: Guarantee, *, max_depth: int | None = None) -> Sketch:
    """The hierarchy without chains, and without what lies below nodes that are short whatever the other end is.

    No cut is lost that would be better than all those left: along a chain the tiles are the same, and a node that is
    short with everything at the other end suppresses all it holds, divided or not.

    Args:
        full: the hierarchy.
        tile: the tile of each flow.
        flows: the flows.
        guarantee: what is short.
        max_depth: deeper trees are thinned until they are no deeper: of every path only nodes that are a good deal
            larger than the next one below are kept.
    """
    trips = full.sum_over(np.bincount(tile, weights=flows.trips, minlength=full.n_tiles))
    divisible = (full.n_children > 1) & (trips >= max(guarantee.trips or 0, guarantee.people or 0))
    for column, least in guarantee.of_columns.items():
        held = np.bincount(tile, weights=flows.volume(column), minlength=full.n_tiles)
        divisible &= full.sum_over(held) >= least
    if guarantee.locations is not None and flows.l_places is None:
        divisible &= full.sum_over(np.bincount(tile, minlength=full.n_tiles) > 0) >= guarantee.locations
    reduced = Sketch.of(full, divisible)
    growth = 1.0
    while max_depth is not None and reduced.tree.max_depth > max_depth:
        growth += 0.05
        step = np.floor(np.log(full.size) / np.log(growth))
        same = np.zeros(full.n_nodes, dtype=np.bool_)
        same[1:] = step[1:] == step[full.parent[1:]]
        # Of a run of nodes of about one size on a path, the topmost.
        reduced = replace(Sketch.of(full, divisible & ~same), thinned=True)
    return reduced


@dataclass(frozen=True, eq=False)
class Level:
    """The safe pairs of one origin depth and one destination depth.

    Attributes:
        depth: the origin depth.
        destination: nodes of the sketch of the destinations.
        volume: trips or weights of each pair.
        order: the flows sorted by origin node, then destination leaf.
        nodes: the origin node of each of them.
        start, stop: the flows of each pair are that slice of ``order``.
        time: nodes of the sketch of times, where time is an end; else None.
    """

    depth: int
    destination: Ints
    volume: NDArray[Any]
    order: Positions
    nodes: Ints
    start: Positions
    stop: Positions
    time: Ints | None = None

    @cached_property
    def origin(self) -> Ints:
        """Nodes of the sketch of the origins; computed on demand."""
        return self.nodes[self.start]

    def positions(self) -> tuple[Positions, Positions]:
        """The positions in ``order`` of the flows of all pairs, and the pair of each."""
        length = self.stop - self.start
        end = np.cumsum(length)
        position = np.repeat(self.start - (end - length), length) + np.arange(end[-1])
        return position, np.repeat(np.arange(len(length)), length)

    def rows(self) -> tuple[Positions, Positions]:
        """The flows of all pairs, and the pair of each."""
        position, pair = self.positions()
        return self.order[position], pair


def safe_levels(
    flows: Flows, guarantee: Guarantee, origins: Sketch, destinations: Sketch, times: Sketch | None = None
) -> Iterator[Level]:
    """Walk over all depth pairs that have safe pairs, destination depths downwards within each origin depth.

    With a sketch of times, the walk is repeated at each of its depths. Nodes of times that may not be named
    (`nameable`) have no safe pairs. Persons that stay on a cluster are counted there, in pairs that have enough of
    everything else: no pair has more persons than trips.
    """
    if guarantee.people is not None and isinstance(flows.people, RemotePeople):
        weaker = replace(guarantee, people=None, trips=max(guarantee.trips or 0, guarantee.people))
        candidates = safe_levels(flows, weaker, origins, destinations, times)
        yield from with_enough(candidates, flows, flows.people, guarantee.people, destinations)
        return
    walk = _Walk(flows, guarantee, destinations)
    everything = np.arange(len(flows))
    if times is None:
        yield from _down_origins(walk, origins, everything, None)
        return
    assert flows.time is not None
    named = nameable(flows, guarantee, times)
    for node, deep in _upwards(times.tree):
        of_flow = node[times.leaf_of_tile[flows.time]]
        yield from _down_origins(
            walk, origins, everything[(deep[times.leaf_of_tile[flows.time]]) & named[of_flow]], of_flow
        )


def at_a_time(n_flows: int) -> int:
    """The number of threads for a number of flows: at most two, because each takes memory."""
    return min(threads(), 2) if n_flows >= FLOWS_ALONE else 1


def nameable(flows: Flows, guarantee: Guarantee, times: Sketch) -> NDArray[np.bool_]:
    """Which nodes of times may be published: where persons are known, k of them travelled then, whatever is protected.

    The same holds for a slice: a time of few people would reveal when they travelled. It is monotone like every
    unit: a node that holds one that may be published may be published too.
    """
    named = np.ones(times.tree.n_nodes, dtype=np.bool_)
    if flows.people is None or flows.time is None:
        return named
    leaf = times.leaf_of_tile[flows.time]
    for node, deep in _upwards(times.tree):
        count = flows.people.merge(np.where(deep[leaf], node[leaf], np.int32(-1))).count(len(named))
        here = np.unique(node[deep])
        named[here] = count[here] >= guarantee.k
    return named


def _upwards(tree: Hierarchy) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
    """For each depth from the deepest up: the node above every leaf, and which leaves are so deep."""
    depth_of_leaf = tree.depth[tree.leaf_node]
    node = tree.leaf_node.copy()
    for depth in range(tree.max_depth, -1, -1):
        deep = depth_of_leaf >= depth
        yield node, deep
        node = np.where(deep, tree.lift(node), node)


def _down_origins(walk: _Walk, origins: Sketch, order: Positions, time: Ints | None) -> Iterator[Level]:
    """The safe pairs of these flows, by origin depth; within the node of times of each flow.

    Depths do not need each other: while one is handed out, another thread is at the next. No more than that, because
    each takes memory.
    """
    with closing(prefetch(_depths(walk, origins, order, time), threads=at_a_time(len(order)))) as depths:
        for levels in depths:
            yield from levels


def _depths(walk: _Walk, origins: Sketch, order: Positions, time: Ints | None) -> Iterator[Callable[[], list[Level]]]:
    """The walks of all origin depths."""
    leaf_o = origins.leaf_of_tile[walk.flows.origin]
    repeats = walk.repeats(order, leaf_o, time, AncestorDepth.from_tree(origins.tree))
    depth = origins.tree.max_depth
    # From the deepest up: every order is then a few sorted runs away from the next.
    for node, deep in _upwards(origins.tree):
        key = node.astype(np.int64)[leaf_o[order]]
        key *= walk.tree.n_tiles
        key += walk.leaf_d[order]
        if time is not None:
            key += time[order].astype(np.int64) * (origins.tree.n_nodes * walk.tree.n_tiles)
        if _falls(key):
            order = order[np.argsort(key, kind="stable")]
        here = order if deep.all() else order[deep[leaf_o[order]]]
        yield partial(
            list[Level], walk.down(here, node[leaf_o[here]], None if time is None else time[here], repeats, depth)
        )
        depth -= 1


def _falls(values: NDArray[Any]) -> bool:
    return bool(np.any(values[1:] < values[:-1]))


class _Walk:
    """What every origin depth needs: prefix sums are taken along its order, lowest common ancestors looked up."""

    def __init__(self, flows: Flows, guarantee: Guarantee, destinations: Sketch) -> None:
        self.flows = flows
        self.guarantee = guarantee
        self.tree = destinations.tree
        self.leaf_d = destinations.leaf_of_tile[flows.destination]
        self.meet = AncestorDepth.from_tree(self.tree)
        self.ancestors = leaf_ancestors(self.tree)

    def repeats(self, order: Positions, leaf_o: Ints, time: Ints | None, meet: AncestorDepth) -> dict[str, Repeats]:
        """Who and what must be counted once in pairs of these flows, and where each comes again."""
        rows: dict[str, tuple[Ints, Ints, int]] = {}
        if self.guarantee.people is not None and self.flows.people is not None:
            rows["people"] = self.flows.people.cell, self.flows.people.person, self.guarantee.people
        if self.guarantee.locations is not None:
            tiles = self.guarantee.prepare(self.flows).tiles
            assert tiles is not None, "locations are counted"
            rows |= {
                "begin": (*tiles.begin, self.guarantee.locations),
                "end": (*tiles.end, self.guarantee.locations),
            }
        return {name: Repeats(*counted, order, leaf_o, time, meet) for name, counted in rows.items()}

    def down(
        self, order: Positions, node_o: Ints, node_t: Ints | None, repeats: dict[str, Repeats], depth_o: int
    ) -> Iterator[Level]:
        """The safe pairs of one origin depth, and one depth of times, by destination depth."""
        flows = self.flows
        leaf = self.leaf_d[order]
        n = len(order)
        if n == 0:
            return
        new_o = np.ones(n, dtype=np.bool_)
        new_o[1:] = node_o[1:] != node_o[:-1]
        if node_t is not None:
            new_o[1:] |= node_t[1:] != node_t[:-1]
        # From which destination depth on a row is in another pair than the row before it.
        # Small numbers are sorted by counting.
        ways = [word[leaf] for word in self.meet.words]
        parts = np.zeros(n, dtype=np.int16)
        parts[1:] = self.meet.between([way[:-1] for way in ways], [way[1:] for way in ways]) + 1
        parts[new_o] = 0
        by_part = np.argsort(parts, kind="stable")
        count = np.concatenate(([0], np.cumsum(np.bincount(parts, minlength=self.tree.max_depth + 2))))
        asked = {name: prefix(flows.volume(name)[order]) for name in self.guarantee.of_columns}
        basis = self.guarantee.basis
        volume = asked[basis] if basis in asked else prefix(flows.volume(basis)[order])
        trips = None if self.guarantee.trips is None else volume if basis == "trips" else prefix(flows.trips[order])
        members = {name: DistinctAlong(rows, depth_o, order, ways, self.meet) for name, rows in repeats.items()}
        del ways
        deepest = self.tree.depth[self.tree.leaf_node][leaf]
        start, stop = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for depth in range(self.tree.max_depth + 1):
            fresh = by_part[count[depth] : count[depth + 1]]
            if depth == 0:
                start = np.sort(fresh)
                stop = np.append(start[1:], n)
            else:
                start, stop = _divide(start, stop, fresh)
                start, stop = _selected(deepest[start] >= depth, start, stop)
            # What is safe does not depend on the ends: they are looked up for the few that are.
            nowhere, no_trips = np.zeros(len(start), dtype=np.int32), np.zeros(len(start), dtype=np.int64)
            cells = _Runs(
                nowhere,
                nowhere,
                no_trips if trips is None else trips[stop] - trips[start],
                **{name: sums[stop] - sums[start] for name, sums in asked.items()},
                counted={name: along.within(start, stop, depth) for name, along in members.items()},
            )
            start, stop = _selected(self.guarantee.safe(cells), start, stop)
            if len(start) == 0:
                return
            yield Level(
                depth=depth_o,
                destination=self.ancestors[depth][leaf[start]],
                volume=volume[stop] - volume[start],
                order=order,
                nodes=node_o,
                start=start,
                stop=stop,
                time=None if node_t is None else node_t[start],
            )


def _selected(which: NDArray[np.bool_], start: Positions, stop: Positions) -> tuple[Positions, Positions]:
    """Some of the runs. Where they are is looked for once: a mask is slow to be used again and again."""
    at = np.flatnonzero(which)
    return (start, stop) if len(at) == len(start) else (start[at], stop[at])


@dataclass(frozen=True, eq=False, repr=False)
class _Runs(Cells):
    """Cells that are runs of sorted flows; people and tiles are counted, not listed."""

    counted: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def n_people(self) -> NDArray[np.int64] | None:
        return self.counted.get("people")

    def n_tiles(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        return (self.counted["begin"], self.counted["end"]) if "begin" in self.counted else None


def _divide(start: Positions, stop: Positions, fresh: Positions) -> tuple[Positions, Positions]:
    """Divide runs at the fresh starts that lie inside them; other fresh starts are in runs that were dropped.

    Both are ascending and disjoint, so the run that contains a fresh start determines its position.
    """
    run = np.searchsorted(start, fresh, side="right") - 1
    inside = np.flatnonzero((run >= 0) & (fresh < stop[run]))
    fresh, run = fresh[inside], run[inside]
    more = np.bincount(run, minlength=len(start))
    last = np.cumsum(more)
    last += np.arange(len(start))
    starts = np.empty(len(start) + len(fresh), dtype=np.int64)
    run += 1
    run += np.arange(len(run))
    starts[run] = fresh
    starts[last - more] = start
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[last] = stop
    return starts, stops


def leaf_ancestors(tree: Hierarchy) -> list[Ints]:
    """Returns, for each depth, the ancestor of each leaf; the leaf itself if it is above that depth."""
    depths = tree.depth[tree.leaf_node]
    columns = []
    node = tree.leaf_node
    for depth in range(tree.max_depth, -1, -1):
        columns.append(node)
        node = np.where(depths >= depth, tree.lift(node), node)
    columns.reverse()
    return columns
