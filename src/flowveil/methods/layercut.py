"""LayerCut: PairCut in layers, so that almost nothing is suppressed (docs/methods/layercut.md).

Each layer runs PairCut's recurrence, at one price of a public ladder, on the flows that the layers
before did not publish. So cells of different layers count disjoint sets of trips. A pair of nodes
is a cell only if it reaches k plus a secret amount and breaks no `CellRule`. What the ladder leaves
is one cell of everything if it satisfies the guarantee. Guaranteed: at most ``max_suppressed`` of
the volume, and nothing that satisfies the guarantee together, appears nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowveil.core.arrays import Int8s, Ints, Mask, Positions, Words
from flowveil.core.errors import InfeasibleError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.secret_thresholds import SecretThresholds, node_words
from flowveil.methods.district_layers import district_layers
from flowveil.methods.pair_divisions import PairTable
from flowveil.methods.paircut import (
    FIRST_PRICE,
    NOTHING_SAFE,
    fold_weights,
    prices,
    weight_notes,
)
from flowveil.release.plan import CellRule, Plan

#: From one price to the next. Measured: 2 gives more layers and no better matrix; larger ones were
#: not tried.
RATIO = 4.0
#: Divisions of a layer around cells that break a rule. Such cells of the last are left out.
MAX_DIVISIONS = 40


def layercut(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.01,
    districts: int | None = None,
    time_weight: float | None = None,
    fold_weight: float | None = None,
    cell_rule: CellRule | None = None,
    secret: SecretThresholds | None = None,
) -> Plan:
    """Plans cells in layers that together publish nearly all flows.

    InfeasibleError if that is impossible.

    Args:
        max_suppressed: largest share of the volume in no layer; never exceeded, and usually far
            from reached.
        districts: level of the map (the resolution, for H3). Pairs of its zones that reach the
            threshold are published whole. Without it, the usual level is used for times and
            attributes.
        time_weight, fold_weight: as for PairCut. If one is given, places and values are weighed
            against each other in one search; otherwise places come first.
        cell_rule: refuses cells although they satisfy the guarantee; not an option of users.
        secret: draws what a cell must have above k; None for thresholds of exactly k. Not an
            option of users.
    """
    given = {"time_weight": time_weight, "fold_weight": fold_weight}
    if districts is not None or (flows.folds and not any(v is not None for v in given.values())):
        return district_layers(
            flows, guarantee, max_suppressed=max_suppressed, districts=districts, secret=secret
        )
    weights = fold_weights(flows, "error", given)
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    layers = _Layers(
        flows,
        guarantee,
        weights,
        cell_rule,
        secret,
        words=tuple(node_words(tree) for tree, _ in flows.ends) if secret is not None else (),
        number=np.zeros(len(flows), dtype=np.int8),
        nodes=tuple(tree.leaf_node[tile] for tree, tile in flows.ends),
    )
    for step, price in enumerate(prices(flows, weights, first=FIRST_PRICE, ratio=RATIO)):
        layers = layers.add(price, step)
    layers = _with_rest(layers, budget)
    notes = {"layers": int(layers.number.max(initial=0)), **weight_notes(flows, weights)}
    plan = Plan.from_nodes(flows, layers.nodes, layers.number > 0, notes, layer=layers.number)
    return replace(plan, secret_thresholds=secret is not None)


def _with_rest(layers: _Layers, budget: float) -> _Layers:
    """Returns the layers with a last cell of everything that they leave.

    Layers are taken back while the rest is below the guarantee and over the budget.
    """
    last = int(layers.number.max(initial=0))
    for kept in range(last, -1, -1):
        found = layers.first(kept)
        if np.all(found.number > 0):
            return found
        whole = found.add_everything()
        if whole is not None:
            return whole
        if kept == last > 0 and found.left <= budget:
            return found
    raise InfeasibleError(NOTHING_SAFE)


@dataclass(frozen=True, eq=False)
class _Layers:
    """Layers planned so far.

    ``number`` is the layer of each flow, from 1; 0 for none. ``nodes`` are, for each end (origin,
    destination, folds), the nodes of the flows' cells; leaves for flows in no layer.
    """

    flows: Flows
    guarantee: Guarantee
    weights: tuple[float, ...]
    cell_rule: CellRule | None
    secret: SecretThresholds | None
    words: tuple[Words, ...]
    number: Int8s
    nodes: tuple[Ints, ...]

    @property
    def left(self) -> float:
        """Volume that is in no layer."""
        return float(np.sum(self.flows.volume(self.guarantee.basis)[self.number == 0]))

    def first(self, count: int) -> _Layers:
        """Returns the first layers, up to a count."""
        gone = self.number > count
        if not gone.any():
            return self
        nodes = (
            np.where(gone, tree.leaf_node[tile], node)
            for (tree, tile), node in zip(self.flows.ends, self.nodes, strict=True)
        )
        return replace(self, number=np.where(gone, np.int8(0), self.number), nodes=tuple(nodes))

    @cached_property
    def left_pairs(self) -> tuple[Positions, PairTable | None]:
        """The flows in no layer, and their safe pairs; None without such a pair."""
        rows, part = np.arange(len(self.flows)), self.flows
        if self.number.any():
            rows, part = flows_in(self.flows, self.number == 0)
        if not len(part):
            return rows, None
        table = PairTable.from_flows(
            part, self.guarantee, "error", weights=self.weights, on_map=True
        )
        return rows, table

    def add(self, price: float, step: int) -> _Layers:
        """Adds a layer with the best division at a price; the same layers if it has no cell."""
        rows, table = self.left_pairs
        if table is None:
            return self
        refused = table.refused_by(self.secret, self.words, step)
        for _ in range(MAX_DIVISIONS):
            division = table.refuse(refused).divide(price)
            if len(division.published) == 0:
                return self
            cell, nodes, breaks = self._cells(rows, table, division.published)
            if not breaks.any():
                break
            refused[division.published[breaks]] = True
        return self._with_cells(rows, np.where(breaks[cell], -1, cell), nodes)

    def add_everything(self) -> _Layers | None:
        """Adds one cell of all flows that are left, or returns None."""
        rows, table = self.left_pairs
        if table is None:
            return None
        cell, nodes, breaks = self._cells(rows, table, np.zeros(1, dtype=np.int64))
        return None if breaks.any() else self._with_cells(rows, cell, nodes)

    def _cells(
        self, rows: Positions, table: PairTable, pairs: Positions
    ) -> tuple[Positions, list[Ints], Mask]:
        """Returns the cell of each flow (-1 for none), its nodes, and the cells that break the
        rule.
        """
        cell = table.flows_of(pairs, len(rows))
        nodes = [node[pairs[np.maximum(cell, 0)]] for node in table.node]
        if self.cell_rule is None:
            return cell, nodes, np.zeros(len(pairs), dtype=np.bool_)
        return cell, nodes, self.cell_rule(rows, cell, nodes)

    def _with_cells(self, rows: Positions, cell: Positions, nodes: Sequence[Ints]) -> _Layers:
        """Returns the layers and one more with these cells."""
        inside = cell >= 0
        if not inside.any():
            return self
        number, all_nodes = self.number.copy(), [node.copy() for node in self.nodes]
        number[rows[inside]] = self.number.max() + 1
        for into, node in zip(all_nodes, nodes, strict=True):
            into[rows[inside]] = node[inside]
        return replace(self, number=number, nodes=tuple(all_nodes))


def flows_in(flows: Flows, mask: Mask) -> tuple[Positions, Flows]:
    """Returns the positions of the flows of a mask, and these flows on the same trees."""
    rows = np.flatnonzero(mask)
    cells = flows.select(mask)
    columns = {"people": cells.people, "tiles": cells.tiles, **cells.added()}
    leaves = tuple(leaf[rows] for leaf in flows.leaves)
    return rows, replace(
        flows,
        origin=cells.origin,
        destination=cells.destination,
        trips=cells.trips,
        leaves=leaves,
        **columns,
    )
