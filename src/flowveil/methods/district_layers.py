"""LayerCut with districts and dimensions: places first, then values (docs/methods/layercut.md).

A unit is a pair of districts that is published whole, or a coarser cell. Its trips are divided
along the trees of the dimensions: an hour that reaches the threshold is published, of the rest two
hours, and so on, last the whole day. So every trip is in one cell, and a unit never loses a trip.

Every choice follows from the public map, except which node tuples reach their secret threshold in
which step. What is below the guarantee at the end of a unit is published with the last of its cells
in public order. Such a cell needs exactly the guarantee, like the cell of everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from flowveil.core.arrays import Floats, Ints, Mask, Positions, Words
from flowveil.core.dimensions import Dimension
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Cells, Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.secret_thresholds import LARGEST, SecretThresholds, node_words
from flowveil.methods.pair_divisions import PairTable
from flowveil.methods.paircut import FIRST_PRICE, NOTHING_SAFE
from flowveil.methods.safe_pairs import narrowest_on_map
from flowveil.release.plan import Plan
from flowveil.zoning.h3 import is_h3, resolution_of
from flowveil.zoning.public_map import tiles_of_nodes

#: From one price to the next, and the first price of cells that cost pairs of districts: no product
#: of whole numbers equals a price.
RATIO, FIRST_PRICE_OF_DISTRICTS = 4.0, 1.6
#: H3 resolution of unnamed districts.
USUAL_DISTRICTS = 7
#: Attributes with more values come before places: their trips are few, and readers ask for a value.
MOST_VALUES_AFTER_PLACES = 5
#: Doublings from one value to all, where the values are those of the trips.
DOUBLINGS_OF_FOUND_VALUES = 2
#: Layers are published as small whole numbers.
MOST_LAYERS = 127


def district_layers(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float,
    districts: int | None,
    secret: SecretThresholds | None,
) -> Plan:
    """Plans cells in layers, places first; InfeasibleError if that is impossible.

    ``districts`` is a level of the map. Without one, the usual level gives the units of times and
    attributes, and coarser cells cost tiles.
    """
    level = usual_level(flows) if districts is None else districts
    search = _Search.start(flows, guarantee, secret, level, wanted=districts is not None)
    for values in search.value_frames[:-1]:
        search.plan_units(values)
        search.plan_rest(values)
    search.plan_units(search.value_frames[-1])
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    search.plan_rest(search.value_frames[-1], budget)
    return search.to_plan()


def usual_level(flows: Flows) -> int:
    """Returns the level of the districts that no one named: a function of the map alone.

    H3 resolution 7, or that of the tiles if it is coarser. The lowest level of a map that groups
    tiles, or the tiles of a map that does not: a dendrogram has no levels that readers know.
    """
    tree = flows.whole_map or flows.origins
    if is_h3(tree):
        return min(USUAL_DISTRICTS, int(resolution_of(tree.code[tree.leaf_node[:1]])[0]))
    grouped = int(tree.level[tree.parent[tree.leaf_node]].max())
    has_levels = not tree.is_dendrogram and grouped > tree.level[0]
    return grouped if has_levels else int(tree.level.max())


def district_of_tiles(tree: Hierarchy, level: int) -> Ints:
    """Returns the district of each tile: the topmost node above it that is not coarser."""
    node = tree.leaf_node.copy()
    found = node.copy()
    for _ in range(tree.max_depth):
        node = tree.lift(node)
        found = np.where((tree.level[node] >= level) & (node > 0), node, found)
    return found.astype(np.int32)


@dataclass(frozen=True, eq=False)
class _Places:
    """One tree of places, its districts, and the tree below them.

    Attributes:
        narrowest: for each node, the deepest one with the same tiles of the public map.
        tiles, districts: of each node on the public map.
        district: of each tile.
        below: the districts and what is in them, below one root that is never a zone.
        node: of the tree, for each node of ``below``.
        largest: the tiles of the largest district of the public map.
    """

    tree: Hierarchy
    words: Words
    narrowest: Ints
    tiles: Floats
    districts: Floats
    district: Ints
    below: Hierarchy
    node: Ints
    largest: float

    @classmethod
    def from_tree(cls, tree: Hierarchy, whole_map: Hierarchy | None, level: int) -> _Places:
        tiles = tiles_of_nodes(tree, whole_map)
        narrowest = narrowest_on_map(tree, tiles)
        district = district_of_tiles(tree, level)
        tops = np.unique(district)
        inside = np.zeros(tree.n_nodes, dtype=np.bool_)
        for node in tops.tolist():
            inside[node : tree.stop[node]] = True
        kept = np.flatnonzero(inside)
        number = np.cumsum(inside, dtype=np.int32)
        parent = number[np.maximum(tree.parent[kept], 0)]
        parent[np.isin(kept, tops)] = 0
        below = Hierarchy(
            parent=np.concatenate(([-1], parent)).astype(np.int32),
            code=np.arange(len(kept) + 1, dtype=np.uint64),
        )
        node = np.concatenate(([0], kept)).astype(np.int32)
        return cls(
            tree,
            node_words(tree),
            narrowest,
            tiles,
            _districts_below(tree, whole_map, tiles, level),
            narrowest[district],
            below,
            node,
            _largest_district(tree, whole_map, level),
        )

    @property
    def tiles_below(self) -> Floats:
        """The tiles of each node of ``below``; its root differs from a single district."""
        tiles = self.tiles[self.node]
        tiles[0] += 1
        return tiles


def _largest_district(tree: Hierarchy, whole_map: Hierarchy | None, level: int) -> float:
    if is_h3(tree):
        finest = int(resolution_of(tree.code[tree.leaf_node[:1]])[0])
        return float(7.0 ** max(finest - level, 0))
    whole = tree if whole_map is None else whole_map
    return float(whole.size[district_of_tiles(whole, level)].max())


def _districts_below(
    tree: Hierarchy, whole_map: Hierarchy | None, tiles: Floats, level: int
) -> Floats:
    """Returns the districts of each node on the public map, at least 1."""
    if is_h3(tree):
        finest = int(resolution_of(tree.code[tree.leaf_node[:1]])[0])
        return np.asarray(np.maximum(np.rint(tiles / 7.0 ** (finest - level)), 1.0))
    whole = tree if whole_map is None else whole_map
    first = np.zeros(whole.n_tiles, dtype=np.int64)
    first[np.unique(district_of_tiles(whole, level), return_index=True)[1]] = 1
    count: Floats = np.maximum(whole.sum_over(first), 1).astype(np.float64)
    if whole is tree:
        return count
    place = whole.node_of_code
    codes = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
    return np.asarray(count[[place[code] for code in codes]])


Depths = tuple[int, ...]


def frames_of(dimensions: Sequence[Dimension]) -> list[Depths]:
    """Returns the depths of every dimension, the narrowest combination first, the roots last.

    By the doublings of the hours, or of the number of values, of a node. Hours without trips count.
    """
    widest = [[_doublings(one, depth) for depth in _depths(one.tree)] for one in dimensions]
    combinations = list(product(*(reversed(_depths(one.tree)) for one in dimensions)))

    def width(depths: Depths) -> tuple[int, Depths]:
        doublings = [own[depth] for own, depth in zip(widest, depths, strict=True)]
        return sum(doublings), tuple(-depth for depth in depths)

    return sorted(combinations, key=width)


def _doublings(one: Dimension, depth: int) -> int:
    if one.found:
        # The number of values of the trips would reveal that there are others than published ones.
        return DOUBLINGS_OF_FOUND_VALUES if depth == 0 else 0
    node, leaf = _at_depth(one.tree, depth), one.tree.leaf_node
    width = one.tree.size if one.every is None else one.width
    return int(np.ceil(np.log2(width[node].max() / width[leaf].min())))


def _depths(tree: Hierarchy) -> range:
    return range(tree.max_depth + 1)


def _at_depth(tree: Hierarchy, depth: int) -> Ints:
    """Returns the node of each leaf at a depth; the leaf where it is not as deep."""
    node = tree.leaf_node.copy()
    for _ in range(tree.max_depth - depth):
        node = np.where(tree.depth[node] > depth, tree.lift(node), node)
    return node.astype(np.int32)


@dataclass(eq=False)
class _Search:
    """Cells planned so far: the state of one run.

    Attributes:
        level: of the districts.
        has_units: cells lie in pairs of districts, or coarser cells, that are divided by values.
        first: positions of the dimensions that come before places.
        frames, value_frames: depths of the dimensions after places, and of those before them.
        words: `node_words` of every end.
        label: of each flow: the step that published it, in the order of layers; 0 for none.
        unit: of each published flow: the number of its unit, in public order.
        nodes: of each end, the node of the flow's cell.
        step: the number of steps until now, which follows from the map alone.
    """

    flows: Flows
    guarantee: Guarantee
    secret: SecretThresholds | None
    level: int
    places: tuple[_Places, _Places]
    has_units: bool
    first: tuple[int, ...]
    frames: list[Depths]
    value_frames: list[Depths]
    words: tuple[Words, ...]
    label: Positions
    unit: Positions
    nodes: list[Ints]
    step: int = 0

    @classmethod
    def start(
        cls,
        flows: Flows,
        guarantee: Guarantee,
        secret: SecretThresholds | None,
        level: int,
        *,
        wanted: bool,
    ) -> _Search:
        origins = _Places.from_tree(flows.origins, flows.whole_map, level)
        same = flows.destinations is flows.origins
        destinations = (
            origins if same else _Places.from_tree(flows.destinations, flows.whole_map, level)
        )
        first = tuple(n for n, fold in enumerate(flows.folds) if _comes_first(fold))
        return cls(
            flows,
            guarantee,
            secret,
            level,
            (origins, destinations),
            has_units=wanted or len(first) < len(flows.folds),
            first=first,
            frames=frames_of([f for n, f in enumerate(flows.folds) if n not in first]),
            value_frames=frames_of([flows.folds[n] for n in first]),
            words=(origins.words, destinations.words, *(node_words(f.tree) for f in flows.folds)),
            label=np.zeros(len(flows), dtype=np.int64),
            unit=np.full(len(flows), -1, dtype=np.int64),
            nodes=[tree.leaf_node[leaf].astype(np.int32) for tree, leaf in flows.ends],
        )

    # ---- whole pairs of districts ----------------------------------------------------------------

    def plan_units(self, values: Depths) -> None:
        """Publishes the pairs of districts that reach their threshold, whole."""
        if not self.has_units:
            return
        frames = [self._combined(values, depths) for depths in self.frames]
        rows = np.flatnonzero(self.label == 0)
        rows = rows[self._named(frames[-1])[rows]]
        pair = [place.district[leaf[rows]] for place, leaf in self._ends()]
        self.step += 1
        whole = self._reaching(rows, [*pair, *self._values(rows, frames[-1])])
        rows, pair = rows[whole], [own[whole] for own in pair]
        unit = _numbered([*pair, *self._values(rows, frames[-1])])
        frame = np.zeros(len(rows), dtype=np.int64)
        for number, depths in enumerate(frames[:-1], 1):
            self.step += 1
            open_ = np.flatnonzero((self.label[rows] == 0) & self._named(depths)[rows])
            own = [one[open_] for one in pair]
            held = self._reaching(rows[open_], [*own, *self._values(rows[open_], depths)])
            frame[open_[held]] = number
            self._divide(rows[open_[held]], [one[held] for one in own], depths)
        self._take_back(rows, unit, [frame, *(node[rows] for node in self.nodes[2:])])
        open_ = np.flatnonzero(self.label[rows] == 0)
        self._divide(rows[open_], [one[open_] for one in pair], frames[-1])
        self.unit[rows] = unit + self.unit.max() + 1

    def _divide(self, rows: Positions, pair: Sequence[Ints], depths: Depths) -> None:
        """Publishes all flows of pairs of districts in cells of these depths."""
        values = self._values(rows, depths)
        ladder = _Ladder(self, rows, values, inside=True)
        for price in self._prices_inside():
            self.step += 1
            ladder.publish(price, self.step, whole=False)
        self.step += 1
        done = ladder.step[rows]
        cells = [done, *(node[rows] for node in ladder.nodes)]
        self.label[rows] = done
        for own, node in zip(self.nodes, ladder.nodes, strict=False):
            own[rows] = node[rows]
        for own, value in zip(self.nodes[2:], values, strict=True):
            own[rows] = value
        self._take_back(rows, _numbered([*pair, *values]), cells)
        rest = self.label[rows] == 0
        self.label[rows[rest]] = self.step
        for own, node in zip(self.nodes, [*pair, *values], strict=True):
            own[rows[rest]] = node[rest]

    def _take_back(self, rows: Positions, unit: Positions, cells: Sequence[Any]) -> None:
        """Reopens the last cell of each unit whose open flows are below the guarantee.

        One is enough, because the guarantee is monotone. ``cells`` are the keys of the cell of
        each flow, in public order.
        """
        open_ = self.label[rows] == 0
        if not open_.any():
            return
        units, group = np.unique(unit[open_], return_inverse=True)
        short = units[~self.guarantee.safe(self._sums(rows[open_], group))]
        candidates = np.flatnonzero(~open_ & np.isin(unit, short))
        cell = _numbered([key[candidates] for key in cells])
        last = np.zeros(int(unit.max()) + 1, dtype=np.int64)
        np.maximum.at(last, unit[candidates], cell)
        self.label[rows[candidates[cell == last[unit[candidates]]]]] = 0

    def _prices_inside(self) -> Iterator[float]:
        """Yields the prices of cells inside a pair of districts."""
        most = sum(place.largest for place in self.places)
        price = FIRST_PRICE
        while price < most:
            yield price
            price *= RATIO
        if most > len(self.places):
            yield price

    # ---- all other flows -------------------------------------------------------------------------

    def plan_rest(self, values: Depths, budget: float | None = None) -> None:
        """Publishes flows outside whole pairs of districts in coarser cells, each a unit.

        With a budget, which the last call has, one cell of everything counts the rest.
        """
        frames = [self._combined(values, depths) for depths in self.frames]
        rows = np.flatnonzero(self.label == 0)
        rows = rows[self._named(frames[-1])[rows]]
        ladder = _Ladder(self, rows, self._values(rows, frames[-1]), inside=False)
        n_prices = 0
        for price in self._prices():
            self.step += 1
            n_prices += 1
            ladder.publish(price, self.step, whole=budget is None)
        first = self.step - n_prices
        if budget is not None:
            self._add_rest(ladder, budget)
        rows = np.flatnonzero((ladder.step > 0) & (self.label == 0))
        layer, ends = ladder.step[rows] - first - 1, [node[rows] for node in ladder.nodes]
        unit = _numbered([layer, *ends, *self._values(rows, frames[-1])])
        frame = np.zeros(len(rows), dtype=np.int64)
        for number, depths in enumerate(frames[:-1], 1):
            open_ = np.flatnonzero((self.label[rows] == 0) & self._named(depths)[rows])
            steps = self.step + layer[open_] * len(frames) + number
            keys = [*(end[open_] for end in ends), *self._values(rows[open_], depths)]
            held = self._reaching(rows[open_], keys, steps)
            frame[open_[held]] = number
            self._settle(rows[open_[held]], [key[held] for key in keys], steps[held])
        self._take_back(rows, unit, [frame, *(node[rows] for node in self.nodes[2:])])
        open_ = np.flatnonzero(self.label[rows] == 0)
        keys = [*(end[open_] for end in ends), *self._values(rows[open_], frames[-1])]
        self._settle(rows[open_], keys, self.step + (layer[open_] + 1) * len(frames))
        self.step += (n_prices + 1) * len(frames)
        self.unit[rows] = unit + self.unit.max() + 1

    def _add_rest(self, ladder: _Ladder, budget: float) -> None:
        """Adds a cell of everything that is left.

        Layers, then the last unit in public order, are taken back while it is below the guarantee
        and the rest over the budget.
        """
        volume = self.flows.volume(self.guarantee.basis)
        published = bool(np.any(self.label > 0) or np.any(ladder.step > 0))
        while True:
            rest = np.flatnonzero((self.label == 0) & (ladder.step == 0))
            if len(rest) == 0:
                return
            together = self._sums(rest, np.zeros(len(rest), dtype=np.int64))
            if self.guarantee.safe(together)[0] and self._named(self._roots())[rest].all():
                ladder.step[rest] = self.step + 1
                for node, place in zip(ladder.nodes, self.places, strict=True):
                    node[rest] = place.narrowest[0]
                return
            if published and float(np.sum(volume[rest])) <= budget:
                return
            published = False
            if np.any(ladder.step > 0):
                ladder.step[ladder.step == ladder.step.max()] = 0
            elif np.any(self.label > 0):
                back = self.unit == self.unit.max()
                self.label[back], self.unit[back] = 0, -1
            else:
                raise InfeasibleError(NOTHING_SAFE)

    def _prices(self) -> Iterator[float]:
        """Yields the prices of cells outside whole pairs of districts."""
        ends = [place.districts if self.has_units else place.tiles for place in self.places]
        most = 4.0 * float(self._cost(*(end[:1] for end in ends))[0])
        price = FIRST_PRICE_OF_DISTRICTS if self.has_units else FIRST_PRICE
        while price < most:
            yield price
            price *= RATIO
        yield price

    def _cost(self, origin: Floats, destination: Floats) -> Floats:
        """Returns the cost of a trip: pairs of districts, or tiles."""
        return origin * destination if self.has_units else origin + destination

    # ---- sums and thresholds ---------------------------------------------------------------------

    def _ends(self) -> Iterator[tuple[_Places, Ints]]:
        yield from zip(self.places, (self.flows.origin, self.flows.destination), strict=True)

    def _roots(self) -> Depths:
        return (0,) * len(self.flows.folds)

    def _combined(self, values: Depths, depths: Depths) -> Depths:
        """Returns the depths of all dimensions, in their order."""
        own, other = iter(values), iter(depths)
        return tuple(
            next(own) if n in self.first else next(other) for n in range(len(self.flows.folds))
        )

    def _values(self, rows: Positions, depths: Depths) -> list[Ints]:
        """Returns the nodes of the dimensions at these depths."""
        both = zip(self.flows.folds, self.flows.leaves, depths, strict=True)
        return [_at_depth(fold.tree, depth)[leaf[rows]] for fold, leaf, depth in both]

    def _named(self, depths: Depths) -> Mask:
        """Returns the flows whose values at these depths may be published: k people have them."""
        if self.flows.people is None or not depths:
            return np.ones(len(self.flows), dtype=np.bool_)
        every = np.arange(len(self.flows))
        group = _numbered(self._values(every, depths))
        people = self.flows.people.merge(group.astype(np.int32)).count(int(group.max()) + 1)
        return np.asarray((people >= self.guarantee.k)[group])

    def _sums(self, rows: Positions, group: Positions) -> Cells:
        """Returns the sums of groups of flows, numbered without gaps."""
        into = np.full(len(self.flows), -1, dtype=np.int32)
        into[rows] = group
        n_groups = int(group.max(initial=0)) + 1
        return self.flows.merge(into, np.minimum(into, 0), n_groups, 1).cells

    def _reaching(
        self, rows: Positions, nodes: Sequence[Ints], step: Positions | None = None
    ) -> Mask:
        """Returns which flows are in a tuple of nodes that reaches its threshold."""
        if len(rows) == 0:
            return np.zeros(0, dtype=np.bool_)
        steps = np.full(len(rows), self.step) if step is None else step
        group, first = _numbered([steps, *nodes], with_first=True)
        cells = self._sums(rows, group)
        reached = self.guarantee.safe(cells)
        if self.secret is not None:
            words = [word[node[first]] for word, node in zip(self.words, nodes, strict=True)]
            excess = self.guarantee.excess(cells, most=LARGEST)
            reached &= excess >= self.secret.amounts(steps[first], words)
        return np.asarray(reached[group])

    def _settle(self, rows: Positions, nodes: Sequence[Ints], steps: Positions) -> None:
        self.label[rows] = steps
        for own, node in zip(self.nodes, nodes, strict=True):
            own[rows] = node

    def to_plan(self) -> Plan:
        """Returns the plan, with layers numbered from 1."""
        kept = self.label > 0
        used = np.unique(self.label[kept])
        if len(used) > MOST_LAYERS:
            raise ParameterError(
                f"The cells need {len(used):,} layers; allowed are {MOST_LAYERS}. Hint: use fewer"
                " dimensions, or trees with fewer levels."
            )
        layer = np.where(kept, np.searchsorted(used, self.label) + 1, 0).astype(np.int8)
        leaves = (tree.leaf_node[leaf] for tree, leaf in self.flows.ends)
        nodes = [np.where(kept, own, leaf) for own, leaf in zip(self.nodes, leaves, strict=True)]
        notes = {"layers": len(used), **({"districts": self.level} if self.has_units else {})}
        plan = Plan.from_nodes(self.flows, nodes, kept, notes, layer=layer)
        return replace(plan, secret_thresholds=self.secret is not None)


def _comes_first(fold: Dimension) -> bool:
    """Whether readers ask for a value of this attribute before they ask for a place.

    Only a tree of the operator says how many values there are: the layers show the answer, and one
    trip with a rare value must not change it.
    """
    return fold.every is None and not fold.found and fold.tree.n_tiles > MOST_VALUES_AFTER_PLACES


@dataclass(eq=False)
class _Ladder:
    """Divisions of flows along their places, step after step, at fixed values.

    Attributes:
        rows: the flows. ``values`` are their nodes of the dimensions.
        inside: cells lie inside a pair of districts and cost tiles.
        step: of each flow of the run: the step that published it; 0 for none.
        nodes: of each end of places, the node of the flow's cell.
    """

    search: _Search
    rows: Positions
    values: Sequence[Ints]
    inside: bool

    def __post_init__(self) -> None:
        n = len(self.search.flows)
        self.step: Positions = np.zeros(n, dtype=np.int64)
        self.nodes = [node.copy() for node in self.search.nodes[:2]]
        self.group, first = _numbered(self.values, with_first=True, length=len(self.rows))
        self.value = [value[first] for value in self.values]
        self._table: tuple[PairTable, Positions, Positions] | None = None

    def publish(self, price: float, step: int, *, whole: bool) -> None:
        """Publishes the best division at a price of the flows that are left.

        ``whole``: a cell of all places may be published too.
        """
        search = self.search
        if self._table is None:
            self._table = self._pairs()
        if self._table is None:
            return
        table, rows, row = self._table
        trees = [place.node if self.inside else None for place in search.places]
        nodes = [
            node if full is None else full[node]
            for node, full in zip(table.node[:2], trees, strict=True)
        ]
        refused = np.zeros(len(table), dtype=np.bool_)
        if not whole:
            refused |= table.starts_at(self._top(table))
        if search.secret is not None:
            near = np.flatnonzero(table.excess < LARGEST)
            words = [word[node[near]] for word, node in zip(search.words, nodes, strict=False)]
            if len(table.node) > 2:
                # The groups are leaves of a tree with one root.
                at = table.node[2][near] - 1
                words += [
                    word[value[at]]
                    for word, value in zip(search.words[2:], self.value, strict=True)
                ]
            else:
                words += [
                    np.repeat(word[value[:1]], len(near))
                    for word, value in zip(search.words[2:], self.value, strict=True)
                ]
            refused[near] |= table.excess[near] < search.secret.amounts(step, words)
        allowed = replace(
            table, refused=refused, starts=table.starts_at(self._top(table)), evaluated={}
        )
        published = allowed.divide(price).published
        if len(published) == 0:
            return
        cell = allowed.flows_of(published, int(row.max()) + 1)[row]
        held = cell >= 0
        self.step[rows[held]] = step
        for own, node in zip(self.nodes, nodes, strict=True):
            own[rows[held]] = node[published[cell[held]]]
        self._table = None

    def _top(self, table: PairTable) -> tuple[int, ...]:
        """Returns the depths of the pairs that contain all others."""
        place = 1 if self.inside else 0
        return (place, place, 1)[: len(table.node)]

    def _pairs(self) -> tuple[PairTable, Positions, Positions] | None:
        """Returns the safe pairs of the flows that are left, these flows, and the place of each in
        the table.
        """
        search = self.search
        flows = search.flows
        open_ = np.flatnonzero(self.step[self.rows] == 0)
        if len(open_) == 0:
            return None
        rows, group = self.rows[open_], self.group[open_]
        keys = [flows.origin[rows], flows.destination[rows], group]
        row, first = _numbered(keys, with_first=True)
        cells = search._sums(rows, row)
        n_groups = int(self.group.max(initial=0)) + 1
        dimensions: tuple[Dimension, ...] = ()
        if n_groups > 1:
            dimensions = (Dimension.from_values("group", range_of_texts(n_groups)),)
            dimensions = (replace(dimensions[0], use="fold"),)
        places = search.places
        part = Flows(
            flows.origin[rows[first]],
            flows.destination[rows[first]],
            cells.trips,
            **cells.added(),
            people=cells.people,
            tiles=cells.tiles,
            origins=places[0].below if self.inside else flows.origins,
            destinations=places[1].below if self.inside else flows.destinations,
            dimensions=dimensions,
            leaves=(group[first].astype(np.int32),) if dimensions else (),
            l_places=flows.l_places,
        )
        sizes = [place.tiles_below if self.inside else place.tiles for place in places]
        table = PairTable.from_flows(
            part,
            search.guarantee,
            "error",
            weights=(0.0,) * len(dimensions),
            sizes=[*sizes, *(np.array([2.0, *[1.0] * n_groups]) for _ in dimensions)],
            fixed_folds=True,
        )
        if table is None:
            return None
        if not self.inside and search.has_units:
            worth = [place.districts[node] for place, node in zip(places, table.node, strict=False)]
            table = replace(table, cost=table.volume * search._cost(*worth))
        return table, rows, row


def range_of_texts(n: int) -> list[str]:
    """Returns n sorted texts."""
    width = len(str(n))
    return [f"{number:0{width}d}" for number in range(n)]


def _numbered(keys: Sequence[Any], *, with_first: bool = False, length: int = 0) -> Any:
    """Returns one number for each combination of keys, in their order.

    With ``with_first`` also the first position of each number.
    """
    if not keys or len(keys[0]) == 0:
        n = len(keys[0]) if keys else length
        number = np.zeros(n, dtype=np.int64)
        return (number, np.zeros(min(n, 1), dtype=np.int64)) if with_first else number
    number = np.asarray(keys[0], dtype=np.int64)
    for key in keys[1:]:
        span = int(np.max(key)) + 1
        if int(number.max()) >= 2**62 // max(span, 1):
            number = np.unique(number, return_inverse=True)[1]
        number = number * span + key
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return (number, first) if with_first else number
