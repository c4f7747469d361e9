"""Safe pairs: every pair of an origin node and a destination node whose cell may be published.

Whatever cuts are chosen, a published cell is one of these pairs, and safe only inside safe pairs.
The search descends from the roots: for every origin depth (and every combination of depths of
folds) the flows are sorted once by origin node and destination tile. A pair is then a run of rows,
and its sums differences of prefix sums. Only safe runs divide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Ints, Mask, Positions
from flowveil.core.flows import Cells, Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.remote_people import RemotePeople
from flowveil.core.secret_thresholds import LARGEST
from flowveil.methods.remote_pairs import with_enough

#: Bits of a combined key.
_BITS = 63


@dataclass(frozen=True, eq=False)
class Sketch:
    """A hierarchy reduced to the nodes that a good cut may need.

    Its leaves represent one or several tiles.

    ``node`` and ``size`` are the node of the full hierarchy and its tiles, ``leaf_of_tile`` is the
    leaf that represents each tile. ``thinned``: nodes that a good cut may need are missing, because
    the tree is very deep.
    """

    tree: Hierarchy
    node: Ints
    size: Ints
    leaf_of_tile: Ints
    thinned: bool = False

    @classmethod
    def from_divisible(
        cls, full: Hierarchy, divisible: NDArray[np.bool_], size: NDArray[Any] | None = None
    ) -> Sketch:
        """Keeps the divisible nodes, and as leaves the topmost nodes without a divisible one
        inside.

        ``size`` as in `sketch`.
        """
        before = np.concatenate(([0], np.cumsum(divisible)))
        some_inside = before[full.stop] > before[:-1]
        leaf = ~some_inside
        leaf[1:] &= some_inside[full.parent[1:]]
        kept = divisible | leaf
        number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        above = np.where(kept, number, np.int32(-1))
        for depth in range(1, full.max_depth + 1):
            nodes = full.nodes_at_depth(depth)
            above[nodes] = np.where(kept[nodes], number[nodes], above[full.parent[nodes]])
        node = np.flatnonzero(kept)
        parent = np.where(node > 0, above[np.maximum(full.parent[node], 0)], np.int32(-1))
        parent[0] = -1
        tree = Hierarchy(parent=parent, code=np.arange(len(node), dtype=np.uint64))
        leaf_of_tile = tree.leaf_start[above[full.leaf_node]]
        if size is not None:
            return cls(tree, narrowest_on_map(full, size)[node], size[node], leaf_of_tile)
        return cls(tree, full.narrowest[node], full.size[node], leaf_of_tile)


def sketch(
    full: Hierarchy,
    tile: Ints,
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_depth: int | None = None,
    size: NDArray[Any] | None = None,
) -> Sketch:
    """Returns the hierarchy without chains, and without the descendants of nodes that are below the
    threshold alone.

    No better cut is lost: along a chain the tiles are the same, and a node that is below the
    threshold with all of the other end suppresses everything, divided or not. Trees deeper than
    ``max_depth`` are thinned: of nodes of similar size on a path, the topmost is kept.

    ``size`` has the tiles of each node on the public map. Then only chains of that map go, because
    which nodes have a single child with trips is not public.
    """
    trips = full.sum_over(np.bincount(tile, weights=flows.trips, minlength=full.n_tiles))
    inner = full.n_children > 1 if size is None else ~full.is_leaf & ~_same_on_map(full, size)
    divisible = inner & (trips >= max(guarantee.trips or 0, guarantee.people or 0))
    for column, least in guarantee.of_columns.items():
        held = np.bincount(tile, weights=flows.volume(column), minlength=full.n_tiles)
        divisible &= full.sum_over(held) >= least
    if guarantee.locations is not None and flows.l_places is None:
        divisible &= (
            full.sum_over(np.bincount(tile, minlength=full.n_tiles) > 0) >= guarantee.locations
        )
    reduced = Sketch.from_divisible(full, divisible, size)
    growth = 1.0
    while max_depth is not None and reduced.tree.max_depth > max_depth:
        growth += 0.05
        step = np.floor(np.log(full.size if size is None else size) / np.log(growth))
        same = np.zeros(full.n_nodes, dtype=np.bool_)
        same[1:] = step[1:] == step[full.parent[1:]]
        reduced = replace(Sketch.from_divisible(full, divisible & ~same, size), thinned=True)
    return reduced


def narrowest_on_map(full: Hierarchy, size: NDArray[Any]) -> Ints:
    """Returns for each node the deepest one with all its tiles of the public map."""
    deepest = np.where(_same_on_map(full, size), full.n_nodes, np.arange(full.n_nodes))
    return np.minimum.accumulate(deepest[::-1])[::-1].astype(np.int32)


def _same_on_map(full: Hierarchy, size: NDArray[Any]) -> Mask:
    """Returns which nodes have a child with all their tiles."""
    first_child = np.minimum(np.arange(full.n_nodes) + 1, full.n_nodes - 1)
    return np.asarray(~full.is_leaf & (size[first_child] == size))


@dataclass(frozen=True, eq=False)
class Level:
    """The safe pairs of one depth at every end.

    ``node`` has the nodes of the sketches: origin, destination, folds.

    ``order`` are the flows sorted by folds, origin node, then destination leaf, one array for all
    levels that differ in the depth of the destination alone; the flows of a pair are its slice
    ``start:stop``. ``excess`` is that of `Guarantee.excess`, at most `LARGEST`.
    """

    node: tuple[Ints, ...]
    volume: NDArray[Any]
    order: NDArray[Any]
    start: NDArray[Any]
    stop: NDArray[Any]
    excess: NDArray[np.int8]

    @property
    def origin(self) -> Ints:
        """The origin node of each pair."""
        return self.node[0]

    @property
    def destination(self) -> Ints:
        """The destination node of each pair."""
        return self.node[1]

    def rows(self) -> tuple[Positions, Positions]:
        """Returns the flows of all pairs, and the pair of each."""
        length = self.stop - self.start
        end = np.cumsum(length)
        position = np.repeat(self.start - (end - length), length) + np.arange(end[-1])
        return self.order[position], np.repeat(np.arange(len(length)), length)


def safe_levels(
    flows: Flows,
    guarantee: Guarantee,
    origins: Sketch,
    destinations: Sketch,
    *folds: Sketch,
    fixed_folds: bool = False,
) -> Iterator[Level]:
    """Yields the safe pairs by depths of folds, origin depth, and destination depth from the root
    down.

    Nodes of folds that too few people have together (`_nameable`) have no safe pairs. Persons on a
    cluster are counted there, in pairs that satisfy everything else: no pair has more persons than
    trips. With ``fixed_folds`` only leaves of folds have pairs, and who has them is not checked.
    """
    if guarantee.people is not None and isinstance(flows.people, RemotePeople):
        weaker = replace(guarantee, people=None, trips=max(guarantee.trips or 0, guarantee.people))
        candidates = safe_levels(
            flows, weaker, origins, destinations, *folds, fixed_folds=fixed_folds
        )
        common = AncestorDepth(destinations.tree)
        yield from with_enough(
            candidates, flows, flows.people, guarantee.people, destinations, common
        )
        return
    search = _Search(flows, guarantee, origins, destinations)
    leaves = [
        fold.leaf_of_tile[leaf] for fold, leaf in zip(folds, flows.leaves, strict=bool(folds))
    ]
    along = (_upwards(fold.tree) for fold in folds)
    for depths in product(*(islice(one, 1 if fixed_folds else None) for one in along)):
        nodes = tuple(node[leaf] for (node, _), leaf in zip(depths, leaves, strict=True))
        deep = np.ones(len(flows), dtype=np.bool_)
        for (_, is_deep), leaf in zip(depths, leaves, strict=True):
            deep &= is_deep[leaf]
        group = _numbered(nodes, [fold.tree.n_nodes for fold in folds])
        named = deep
        if folds and not fixed_folds:
            named = deep & _nameable(flows, guarantee, group, deep)
        order = np.flatnonzero(named)
        yield from search.levels(order, group, nodes)


def _numbered(nodes: Sequence[Ints], sizes: Sequence[int]) -> Positions:
    """Returns one number for each combination of nodes, in their order."""
    number = np.zeros(len(nodes[0]) if nodes else 0, dtype=np.int64)
    for node, size in zip(nodes, sizes, strict=True):
        number = number * size + node
    return np.unique(number, return_inverse=True)[1]


def _nameable(
    flows: Flows, guarantee: Guarantee, group: Positions, deep: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Returns the flows whose nodes of folds may be published.

    Those with k travellers, if persons are known.

    As with slices, a time or purpose of few people would reveal theirs. The rule is monotone like
    every unit.
    """
    if flows.people is None:
        return deep
    count = flows.people.merge(np.where(deep, group, -1).astype(np.int32)).count(
        int(group.max(initial=-1)) + 1
    )
    return count[group] >= guarantee.k


def _upwards(tree: Hierarchy) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
    """Yields, for each depth from the deepest up, the node above every leaf and which leaves are
    that deep.
    """
    depth_of_leaf = tree.depth[tree.leaf_node]
    node = tree.leaf_node.copy()
    for depth in range(tree.max_depth, -1, -1):
        deep = depth_of_leaf >= depth
        yield node, deep
        node = np.where(deep, tree.lift(node), node)


class _Search:
    """The search for safe pairs."""

    def __init__(
        self, flows: Flows, guarantee: Guarantee, origins: Sketch, destinations: Sketch
    ) -> None:
        self.flows, self.guarantee = flows, guarantee
        self.origins, self.tree = origins.tree, destinations.tree
        self.leaf_o = origins.leaf_of_tile[flows.origin]
        self.leaf_d = destinations.leaf_of_tile[flows.destination]
        self.common = AncestorDepth(self.tree)
        self.ancestors = [node for node, _ in _upwards(self.tree)][::-1]

    def levels(self, order: Positions, group: Positions, nodes: Sequence[Ints]) -> Iterator[Level]:
        """Yields the safe pairs of these flows.

        ``group`` numbers their nodes of folds; empty without folds.
        """
        members = self._members(order, group)
        in_one_node: list[Level] = []
        # From the deepest up: each order then consists of few sorted runs of the next.
        for number, (node, deep) in enumerate(_upwards(self.origins)):
            if in_one_node:
                # Above the node that contains all origins, the pairs have the same flows.
                for level in in_one_node:
                    above = np.full(len(level.start), node[0], dtype=np.int32)
                    yield replace(level, node=(above, *level.node[1:]))
                continue
            key = node.astype(np.int64)[self.leaf_o[order]]
            key *= self.tree.n_tiles
            key += self.leaf_d[order]
            if nodes:
                key += group[order] * (self.origins.n_nodes * self.tree.n_tiles)
            order = order[np.argsort(key, kind="stable")]
            here = order[deep[self.leaf_o[order]]]
            if len(here):
                depth = self.origins.max_depth - number
                ends = (node[self.leaf_o[here]], *(own[here] for own in nodes))
                found = self._descend(here, ends, members, depth)
                if np.all(node == node[0]):
                    in_one_node = list(found)
                yield from in_one_node or found

    def _members(self, order: Positions, group: Positions) -> dict[str, Repeats]:
        """Returns the people and tiles that must be counted once in each pair."""
        rows: dict[str, tuple[Ints, Ints, int]] = {}
        if self.guarantee.people is not None and self.flows.people is not None:
            # Counted exactly up to the largest secret threshold.
            most = self.guarantee.people + LARGEST
            rows["people"] = self.flows.people.cell, self.flows.people.person, most
        if self.guarantee.locations is not None:
            tiles = self.guarantee.prepare(self.flows).tiles
            assert tiles is not None, "locations are counted"
            locations = self.guarantee.locations
            rows |= {"begin": (*tiles.begin, locations), "end": (*tiles.end, locations)}
        common = AncestorDepth(self.origins)
        return {
            name: Repeats(columns, order, self.leaf_o, group, common)
            for name, columns in rows.items()
        }

    def _descend(
        self, order: Positions, ends: Sequence[Ints], members: dict[str, Repeats], depth_o: int
    ) -> Iterator[Level]:
        """Yields the safe pairs of one depth of origins and folds (``ends``), by destination
        depth.
        """
        leaf, n = self.leaf_d[order], len(order)
        # The destination depth from which a row is in another pair than the row before it.
        parts = np.zeros(n, dtype=np.int16)
        parts[1:] = self.common.depth(leaf[:-1], leaf[1:]) + 1
        for node in ends:
            parts[1:][node[1:] != node[:-1]] = 0
        by_part = np.argsort(parts, kind="stable")
        count = np.concatenate(
            ([0], np.cumsum(np.bincount(parts, minlength=self.tree.max_depth + 2)))
        )
        guarantee, basis = self.guarantee, self.guarantee.basis
        names = {basis, *guarantee.of_columns} | (
            {"trips"} if guarantee.trips is not None else set()
        )
        sums = {name: prefix(self.flows.volume(name)[order]) for name in names}
        distinct = {
            name: DistinctAlong(rows, depth_o, order, leaf, self.common)
            for name, rows in members.items()
        }
        deepest = self.tree.depth[self.tree.leaf_node][leaf]
        start, stop = np.zeros(1, np.int64), np.full(1, n)
        for depth in range(self.tree.max_depth + 1):
            start, stop = _divide(start, stop, by_part[count[depth] : count[depth + 1]])
            kept = np.flatnonzero(deepest[start] >= depth)
            start, stop = start[kept], stop[kept]
            held = {name: along[stop] - along[start] for name, along in sums.items()}
            nowhere = np.zeros(len(start), dtype=np.int32)
            columns = {name: held[name] for name in guarantee.of_columns}
            counted = {name: along.within(start, stop, depth) for name, along in distinct.items()}
            cells = _Runs(
                nowhere,
                nowhere,
                held.get("trips", nowhere.astype(np.int64)),
                **columns,
                counted=counted,
            )
            safe = np.flatnonzero(guarantee.safe(cells))
            excess = guarantee.excess(cells, most=LARGEST)[safe]
            start, stop = start[safe], stop[safe]
            if len(start) == 0:
                return
            yield Level(
                node=(
                    ends[0][start],
                    self.ancestors[depth][leaf[start]],
                    *(node[start] for node in ends[1:]),
                ),
                volume=held[basis][safe],
                order=order,
                start=start,
                stop=stop,
                excess=excess,
            )


@dataclass(frozen=True, eq=False, repr=False)
class _Runs(Cells):
    """Cells that are runs of sorted flows; people and tiles are counted, not listed."""

    counted: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def n_people(self) -> NDArray[np.int64] | None:
        return self.counted.get("people")

    def n_tiles(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        return (self.counted["begin"], self.counted["end"]) if "begin" in self.counted else None


def _divide(start: Positions, stop: Positions, fresh: Positions) -> tuple[Positions, Positions]:
    """Divides ascending, disjoint runs at the fresh starts inside them."""
    run = np.searchsorted(start, fresh, side="right") - 1
    inside = np.flatnonzero((fresh < stop[run]) & (fresh > start[run]))
    fresh, run = fresh[inside], run[inside]
    starts, ends = np.insert(start, run + 1, fresh), np.insert(stop, run + 1, stop[run])
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    return starts, ends


def prefix(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the prefix sums of the values, starting with 0; int32 if they fit."""
    narrow = values.dtype.kind in "iu" and int(values.sum(dtype=np.int64)) < 2**31
    before: NDArray[Any] = np.zeros(len(values) + 1, dtype=np.int32 if narrow else values.dtype)
    np.cumsum(values, dtype=before.dtype, out=before[1:])
    return before


class AncestorDepth:
    """The depth of the lowest common ancestor of two leaves.

    A minimum over the leaves between them.

    The common ancestor of a leaf and the one before it is the parent of the topmost node that
    starts at the leaf. ``least[i, j]`` is the minimum of these depths over the ``2**i`` leaves from
    j on, so a query takes two look-ups.
    """

    def __init__(self, tree: Hierarchy) -> None:
        self.deepest = tree.max_depth
        depth = np.full(tree.n_tiles, tree.max_depth, dtype=np.int16)
        np.minimum.at(depth, tree.leaf_start, tree.depth - np.int16(1))
        self.least = np.tile(depth, (max(tree.n_tiles - 1, 1).bit_length(), 1))
        for i in range(1, len(self.least)):
            half = 1 << (i - 1)
            self.least[i, :-half] = np.minimum(self.least[i - 1, :-half], self.least[i - 1, half:])

    def depth(self, left: Ints, right: Ints) -> NDArray[np.int16]:
        """Returns the depth of the lowest common ancestor.

        The largest depth for a leaf and itself.
        """
        low, high = np.minimum(left, right), np.maximum(left, right)
        i = np.frexp(np.maximum(high - low, 1))[1] - 1
        found = np.minimum(self.least[i, low + (high > low)], self.least[i, high + 1 - (1 << i)])
        return np.where(high > low, found, np.int16(self.deepest))


class Repeats:
    """Rows of (flow, member) whose member (a person or tile) has several rows, sorted by member and
    origin.

    The distinct members of a pair are the sum over its flows minus the repeats. A repeated member
    has two rows with origins in one node: `met` is the depth of the common ancestor of these
    origins, for a row and the one before it. Flows with enough members are excluded: counts of
    pairs that contain one are upper bounds, at least that number.
    """

    def __init__(
        self,
        rows: tuple[Ints, Ints, int],
        order: Positions,
        leaf_o: Ints,
        group: Positions,
        common: AncestorDepth,
    ) -> None:
        (flow, member, least), n = rows, len(leaf_o)
        self.each = np.bincount(flow, minlength=n)
        used = np.zeros(n, dtype=np.bool_)
        used[order] = self.each[order] < least
        kept = np.flatnonzero(used[flow])
        flow, member = flow[kept], member[kept]
        by_origin = np.argsort(leaf_o, kind="stable")
        place = np.empty(n, dtype=np.int64)
        place[by_origin] = np.arange(n)
        # One combined key (member, position) sorts faster than two. Members of different groups are
        # distinct.
        bits = n.bit_length()
        key = member.astype(np.int64)
        if len(group):
            key = key * (int(group.max()) + 1) + group[flow]
            if int(key.max(initial=0)).bit_length() + bits > _BITS:
                key = np.unique(key, return_inverse=True)[1]
        key = np.sort(key << bits | place[flow])
        again = np.zeros(len(key), dtype=np.bool_)
        np.equal(key[1:] >> bits, key[:-1] >> bits, out=again[1:])
        several = again.copy()
        several[:-1] |= again[1:]
        self.flow = by_origin[key[several] & ((1 << bits) - 1)].astype(np.int32)
        leaf = leaf_o[self.flow]
        self.met = np.full(len(leaf), -1, dtype=np.int16)
        at = np.flatnonzero(again[several])
        self.met[at] = common.depth(leaf[at - 1], leaf[at])


class DistinctAlong:
    """Distinct members of runs of sorted flows at one origin depth, from destination depth to
    destination depth.

    A row adds to the count of a run unless the same member has an earlier row in that run. A run
    consists of the leaves below one node. So a row counts from the depth below the common ancestor
    of its leaf and the member's previous leaf.
    """

    def __init__(
        self, rows: Repeats, depth_o: int, order: Positions, leaf: Ints, common: AncestorDepth
    ) -> None:
        n = len(order)
        together = rows.met >= depth_o
        shared = together.copy()
        shared[:-1] |= together[1:]
        position = np.full(len(rows.each), -1, dtype=np.int32)
        position[order] = np.arange(n, dtype=np.int32)
        # By member and origin node, then position. A leaf shares a node with itself even below its
        # depth.
        bits = n.bit_length()
        place = position[rows.flow[shared]]
        key = np.cumsum(~together[shared], dtype=np.int64) << bits | place
        key = np.sort(key[place >= 0])
        twice = np.flatnonzero(key[1:] >> bits == key[:-1] >> bits)
        before, at = (key[rows] & ((1 << bits) - 1) for rows in (twice, twice + 1))
        met = common.depth(leaf[before], leaf[at])
        self._at = at[np.argsort(met, kind="stable")]
        self._known_by = np.concatenate(
            ([0], np.cumsum(np.bincount(met, minlength=common.deepest + 1)))
        )
        self._counted = np.append(rows.each[order] - np.bincount(at, minlength=n), 0)
        self._done = 0

    def within(self, start: Positions, stop: Positions, depth: int) -> NDArray[np.int64]:
        """Returns the members of these runs at this destination depth, which must not decrease
        between calls.
        """
        upto = int(self._known_by[depth])
        np.add.at(self._counted, self._at[self._done : upto], 1)
        self._done = upto
        counted: NDArray[np.int64] = np.add.reduceat(
            self._counted, np.column_stack((start, stop)).ravel()
        )[::2]
        return counted
