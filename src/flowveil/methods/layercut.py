"""LayerCut: PairCut in layers, so that almost nothing is suppressed (docs/methods/layercut.md).

Each layer runs PairCut's recurrence, at one price of a public ladder, on the flows that the layers before did not
publish. So cells of different layers count disjoint sets of trips, and nothing can be subtracted. Cells that break a
`CellRule`, determine the counts of their parts (`_determined`) or reveal a refused part (`_unexplained`) are left to
the next layer. Guaranteed: at most ``max_suppressed`` of the volume appears nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.methods.pair_divisions import Division, PairTable
from flowveil.methods.paircut import fold_weights, settle_price, weight_notes
from flowveil.methods.pruning import dual_multiplier
from flowveil.release.plan import CellRule, Plan

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: The price of the first layer: below it lie only cells of one tile at each end.
FIRST_PRICE = 2.5
#: From one price to the next. Measured: 2 gives more layers and no better matrix; larger ones were not tried.
RATIO = 4.0
#: The share that the default weight of folds is taken from, as PairCut's default.
USUAL_SHARE = 0.1
#: Below this k a part has one trip or none, and the rule on determined counts would refuse every cell.
LEAST_K_OF_RULE = 3
#: Divisions of a layer around refused cells, without a cell rule and with one. Refused cells of the last are left out.
MAX_DIVISIONS, MAX_DIVISIONS_WITH_RULE = 4, 40
#: A price at which every division that publishes more saves more.
HIGHEST_PRICE = 1e15


def layercut(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.01,
    time_weight: float | None = None,
    fold_weight: float | None = None,
    cell_rule: CellRule | None = None,
) -> Plan:
    """Plans cells in layers that together publish nearly all flows; InfeasibleError if that is impossible.

    Args:
        max_suppressed: largest share of the volume in no layer; never exceeded, and usually far from reached.
        time_weight, fold_weight: as for PairCut.
        cell_rule: refuses cells although they satisfy the guarantee; not an option of users.
    """
    given = {"time_weight": time_weight, "fold_weight": fold_weight}
    weights = fold_weights(flows, guarantee, USUAL_SHARE, "error", given)
    volume = flows.volume(guarantee.basis)
    budget = max_suppressed * float(np.sum(volume))
    leaves = tuple(tree.leaf_node[tile] for tree, tile in flows.ends)
    layers = _Layers(flows, guarantee, weights, cell_rule, np.zeros(len(flows), dtype=np.int8), leaves)
    for price in _prices(flows, weights):
        layers = layers.add(price)
    if layers.left > budget:
        layers = _within(layers, budget)
    notes = {"layers": int(layers.number.max(initial=0)), **weight_notes(flows, weights)}
    return Plan.from_nodes(flows, layers.nodes, layers.number > 0, notes, layer=layers.number)


def _prices(flows: Flows, weights: Sequence[float]) -> Iterator[float]:
    """Yields the prices, up to the first at which a cell of everything is worth `RATIO` times its cost."""
    most = RATIO * (flows.origins.n_tiles + flows.destinations.n_tiles)
    for fold, weight in zip(flows.folds, weights, strict=True):
        most += RATIO * weight * float(fold.width[0])
    price = FIRST_PRICE
    while price < most:
        yield price
        price *= RATIO
    yield price


def _within(layers: _Layers, budget: float) -> _Layers:
    """Returns as many of the layers as a last layer within the budget can follow."""
    for kept in range(max(int(layers.number.max(initial=0)) - 1, 0), -1, -1):
        found = layers.first(kept).add_within(budget)
        if found is not None:
            return found
    raise InfeasibleError(
        "No cell can be published within max_suppressed: even one cell of everything is below the guarantee. "
        "Hint: lower k, or bring more data."
    )


@dataclass(frozen=True, eq=False)
class _Layers:
    """Layers planned so far.

    ``number`` is the layer of each flow, from 1; 0 for none. ``nodes`` are, for each end (origin, destination, folds),
    the nodes of the flows' cells; leaves for flows in no layer.
    """

    flows: Flows
    guarantee: Guarantee
    weights: tuple[float, ...]
    cell_rule: CellRule | None
    number: NDArray[np.int8]
    nodes: tuple[Ints, ...]

    @property
    def left(self) -> float:
        """Volume that is in no layer."""
        return float(np.sum(self.flows.volume(self.guarantee.basis)[self.number == 0]))

    def first(self, count: int) -> _Layers:
        """Returns the first layers, up to a count."""
        gone = self.number > count
        nodes = (
            np.where(gone, tree.leaf_node[tile], node)
            for (tree, tile), node in zip(self.flows.ends, self.nodes, strict=True)
        )
        return replace(self, number=np.where(gone, np.int8(0), self.number), nodes=tuple(nodes))

    def add(self, price: float) -> _Layers:
        """Adds a layer with the best division at a price; the same layers if it has no cell."""
        rows, table = self._left_pairs()
        return self if table is None else self._add(rows, table, lambda pairs: pairs.divide(price), lenient=False)

    def add_within(self, budget: float) -> _Layers | None:
        """Adds a layer that leaves at most a volume, or None; if it is the only one, counts may be determined."""
        rows, table = self._left_pairs()
        if table is None:
            return None
        found = self._add(rows, table, lambda pairs: _divide_within(pairs, budget), lenient=not self.number.any())
        return found if found.left <= budget else None

    def _left_pairs(self) -> tuple[Positions, PairTable | None]:
        """Returns the flows in no layer, and their safe pairs; None without such a pair."""
        rows, part = np.arange(len(self.flows)), self.flows
        if self.number.any():
            rows, part = flows_in(self.flows, self.number == 0)
        if not len(part):
            return rows, None
        return rows, PairTable.from_flows(part, self.guarantee, "error", weights=self.weights)

    def _add(
        self, rows: Positions, table: PairTable, divide: Callable[[PairTable], Division | None], *, lenient: bool
    ) -> _Layers:
        """Adds a layer without refused cells (none: no change); ``lenient`` cells may determine counts of parts."""
        last = (MAX_DIVISIONS if self.cell_rule is None else MAX_DIVISIONS_WITH_RULE) - 1
        for number in range(last + 1):
            division = divide(table)
            if division is None or len(division.published) == 0:
                return self
            cell = table.flows_of(division.published, len(rows))
            pair = division.published[np.maximum(cell, 0)]
            nodes = [node[pair] for node in table.node]
            refused = self._refused(rows, cell, nodes, lenient=lenient)
            if not refused.any() or number == last:
                break
            # Not worth publishing at any price: the next division goes around them. A copy would double the memory.
            table.cost[pair[refused]] = np.inf
            table.evaluated.clear()
        inside = (cell >= 0) & ~refused
        if not inside.any():
            return self
        layer, all_nodes = self.number.copy(), [node.copy() for node in self.nodes]
        layer[rows[inside]] = self.number.max() + 1
        for into, node in zip(all_nodes, nodes, strict=True):
            into[rows[inside]] = node[inside]
        return replace(self, number=layer, nodes=tuple(all_nodes))

    def _refused(self, rows: Positions, cell: Positions, nodes: Sequence[Ints], *, lenient: bool) -> Mask:
        """Returns the flows whose cells may not be published, although they satisfy the guarantee."""
        refused: Mask = np.zeros(len(cell), dtype=np.bool_) if lenient else self._determined(rows, cell, nodes)
        if self.cell_rule is None:
            return refused
        refused |= (cell >= 0) & np.append(self.cell_rule(rows, cell, nodes), False)[cell]
        if not lenient and set(self.guarantee.thresholds) == {"trips"}:
            refused |= self._unexplained(rows, cell)
        return refused

    def _unexplained(self, rows: Positions, cell: Positions) -> Mask:
        """Returns the flows of cells with more than k - 1 trips for each of several flows.

        Without a rule a flow that is left by an earlier layer has fewer than k trips, so such a cell would reveal that
        the rule refused a part of it.
        """
        kept = np.flatnonzero(cell >= 0)
        unexplained = np.zeros(len(cell), dtype=np.bool_)
        n_flows = np.bincount(cell[kept])
        trips = np.bincount(cell[kept], self.flows.trips[rows[kept]])
        unexplained[kept] = ((n_flows > 1) & (trips > (self.guarantee.k - 1) * n_flows))[cell[kept]]
        return unexplained

    def _determined(self, rows: Positions, cell: Positions, nodes: Sequence[Ints]) -> Mask:
        """Returns the flows of cells with k - 1 trips for each part: no part reaches k, so each has exactly k - 1."""
        largest = self.guarantee.k - 1
        determined = np.zeros(len(cell), dtype=np.bool_)
        if self.guarantee.k < LEAST_K_OF_RULE or not np.any(cell >= 0):
            return determined
        kept = np.flatnonzero(cell >= 0)
        trips = np.bincount(cell[kept], self.flows.trips[rows[kept]]).astype(np.int64)
        # Few cells can be: their trips are a multiple of k - 1.
        kept = kept[(trips[cell[kept]] % largest == 0) & (trips[cell[kept]] > largest)]
        within, at = cell[kept], rows[kept]
        wanted = trips // largest
        refused = wanted == np.bincount(within, minlength=len(trips))
        for (tree, tile), node in zip(self.flows.ends, nodes, strict=True):
            for members in (tile[at], _children_above(tree, node[kept], tile[at])):
                refused |= wanted == _distinct(within, members, len(trips))
        determined[kept] = refused[within]
        return determined


def _divide_within(table: PairTable, budget: float) -> Division | None:
    """Returns the best division that suppresses at most a volume; None if no division is possible."""
    # With infinite costs of refused pairs, no price may be high enough.
    if np.isinf(table.cost).any() and table.divide(HIGHEST_PRICE).suppressed > budget:
        return None
    price = dual_multiplier(table, budget)
    return None if price is None else settle_price(table, price)[1]


def flows_in(flows: Flows, mask: Mask) -> tuple[Positions, Flows]:
    """Returns the positions of the flows of a mask, and these flows on the same trees."""
    rows = np.flatnonzero(mask)
    cells = flows.select(mask)
    columns = {"people": cells.people, "tiles": cells.tiles, **cells.added()}
    leaves = tuple(leaf[rows] for leaf in flows.leaves)
    return rows, replace(
        flows, origin=cells.origin, destination=cells.destination, trips=cells.trips, leaves=leaves, **columns
    )


def _distinct(cell: Positions, member: Ints, n_cells: int) -> Positions:
    """Returns the number of distinct members of each cell."""
    wide = int(member.max(initial=0)) + 1
    return np.bincount(np.unique(cell * wide + member) // wide, minlength=n_cells)


def _children_above(tree: Hierarchy, node: Ints, tile: Ints) -> Ints:
    """Returns the child of each node that contains a tile below it; the node itself if it is that tile."""
    child = tree.leaf_node[tile]
    while True:
        above = tree.parent[child]
        rising = (child != node) & (above != node)
        if not rising.any():
            return child
        child = np.where(rising, above, child)
