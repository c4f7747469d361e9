"""LayerCut, step by step: recursion over all pairs of nodes, layer after layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.secret_thresholds import SecretThresholds, node_words
from reference.paircut import may_be_named, width
from reference.trees import children, is_safe, persons_by_flow, tiles_below, volume

RATIO, FIRST_PRICE = 4.0, 2.6
#: What a pair of nodes must have above k in a step.
Amount = Callable[[int, tuple[int, ...]], int]


class Cell(NamedTuple):
    """A published cell: its layer, the node of each end, and its flows."""

    layer: int
    nodes: tuple[int, ...]
    rows: frozenset[int]


def layercut(
    flows: Flows,
    guarantee: Guarantee,
    share: float,
    weights: tuple[float, ...] = (),
    breaks: Callable[[Sequence[int]], bool] | None = None,
    amount: Amount = lambda step, nodes: 0,  # noqa: ARG005
) -> list[Cell] | None:
    """The cells; None if nothing can be published within the share.

    ``breaks`` is a rule on the flows of a cell.
    """
    cells: list[Cell] = []
    left = frozenset(range(len(flows)))
    for step, price in enumerate(prices(flows, weights)):
        found = one_layer(flows, guarantee, left, price, weights, breaks, amount, step)
        if found:
            number = 1 + max((cell.layer for cell in cells), default=0)
            cells += [Cell(number, nodes, rows) for nodes, rows in found]
            left -= frozenset().union(*(rows for _, rows in found))
    return with_rest(flows, guarantee, share, cells, breaks)


def with_rest(flows, guarantee, share, cells, breaks):
    """The cells and one of everything else; last layers are taken back until that is possible."""
    last = max((cell.layer for cell in cells), default=0)
    total = sum(volume(flows, f, guarantee) for f in range(len(flows)))
    roots = (0,) * len(flows.ends)
    for kept in range(last, -1, -1):
        shown = [cell for cell in cells if cell.layer <= kept]
        rest = set(range(len(flows))) - {f for cell in shown for f in cell.rows}
        if not rest:
            return shown
        named = may_be_named(flows, guarantee, roots[2:], rest)
        if is_safe(flows, sorted(rest), guarantee) and named and not (breaks and breaks(rest)):
            places = narrowed(flows, 0, 0), narrowed(flows, 1, 0)
            return [*shown, Cell(kept + 1, (*places, *roots[2:]), frozenset(rest))]
        suppressed = sum(volume(flows, f, guarantee) for f in rest)
        if kept == last > 0 and suppressed <= share * total:
            return shown
    return None


def prices(flows: Flows, weights: tuple[float, ...]) -> list[float]:
    sizes = [on_map(flows, end, 0) for end in (0, 1)]
    most = 4.0 * (sum(sizes) + width(flows, (0,) * len(weights), weights))
    found = [FIRST_PRICE]
    while found[-1] < most:
        found.append(found[-1] * RATIO)
    return found


def on_map(flows: Flows, end: int, node: int) -> int:
    """The tiles of a node on the map, with or without trips."""
    tree = flows.ends[end][0]
    if flows.whole_map is not None:
        node = flows.whole_map.code.tolist().index(tree.code[node])
        tree = flows.whole_map
    return len(tiles_below(tree, node))


def narrowed(flows: Flows, end: int, node: int) -> int:
    """The deepest node with the same tiles of the map."""
    below = children(flows.ends[end][0], node)
    while len(below) == 1 and on_map(flows, end, below[0]) == on_map(flows, end, node):
        (node,) = below
        below = children(flows.ends[end][0], node)
    return node


def amounts_of(flows: Flows, secret: SecretThresholds) -> Amount:
    """What a run draws, pair by pair."""

    def amount(step: int, nodes: tuple[int, ...]) -> int:
        words = [
            node_words(tree)[[node]] for (tree, _), node in zip(flows.ends, nodes, strict=True)
        ]
        return int(secret.amounts(step, words)[0])

    return amount


def reaches(flows: Flows, guarantee: Guarantee, rows: Sequence[int], amount: int) -> bool:
    """Whether every unit of a cell exceeds its threshold by so many units of k."""
    who, k = persons_by_flow(flows), guarantee.k
    held = {"trips": sum(int(flows.trips[f]) for f in rows)}
    held["people"] = len(set().union(*(who[f] for f in rows)))
    if guarantee.population is not None:
        held["population"] = sum(flows.weight[f] for f in rows)
    return all(
        np.floor((held[unit] - least) * k / least) >= amount
        for unit in guarantee.units
        for least in [getattr(guarantee, unit)]
    )


def one_layer(flows, guarantee, left, price, weights, breaks, amount, step):
    """The best division of the flows that are left, around cells that break the rule."""
    banned: set = set()
    for _ in range(40):
        cells = best_division(
            flows, guarantee, left, price, weights, frozenset(banned), amount, step
        )
        refused = [cell for cell in cells if breaks is not None and breaks(cell[1])]
        if not refused:
            break
        banned |= {nodes for nodes, _ in refused}
    return [cell for cell in cells if cell not in refused]


def best_division(flows, guarantee, left, price, weights, banned, amount, step):
    trees, ends = [tree for tree, _ in flows.ends], [leaf for _, leaf in flows.ends]

    @cache
    def best(*nodes):
        nodes = (narrowed(flows, 0, nodes[0]), narrowed(flows, 1, nodes[1]), *nodes[2:])
        below = [tiles_below(tree, node) for tree, node in zip(trees, nodes, strict=True)]
        rows = [
            f for f in left if all(end[f] in tiles for end, tiles in zip(ends, below, strict=True))
        ]
        if (
            not rows
            or not is_safe(flows, rows, guarantee)
            or not may_be_named(flows, guarantee, nodes[2:], left)
        ):
            return 0.0, ()
        v = sum(volume(flows, f, guarantee) for f in rows)
        size = on_map(flows, 0, nodes[0]) + on_map(flows, 1, nodes[1])
        worth = v * price - v * (size + width(flows, nodes[2:], weights))
        cells = ((nodes, frozenset(rows)),)
        allowed = nodes != roots and nodes not in banned
        if worth < 0 or not allowed or not reaches(flows, guarantee, rows, amount(step, nodes)):
            worth, cells = 0.0, ()
        for end, tree in enumerate(trees):
            parts = [best(*nodes[:end], c, *nodes[end + 1 :]) for c in children(tree, nodes[end])]
            if sum(w for w, _ in parts) > worth:
                worth, cells = sum(w for w, _ in parts), tuple(cell for _, c in parts for cell in c)
        return worth, cells

    roots = (narrowed(flows, 0, 0), narrowed(flows, 1, 0), *([0] * (len(trees) - 2)))
    return best(*([0] * len(trees)))[1]


def cell_of_flow(cells: list[Cell], flows: Flows, row: int) -> Cell | None:
    """What a reader does: of the cells around a flow, the one with the lowest layer."""
    around = [
        cell
        for cell in cells
        if all(
            leaf[row] in tiles_below(tree, node)
            for (tree, leaf), node in zip(flows.ends, cell.nodes, strict=True)
        )
    ]
    return min(around, key=lambda cell: cell.layer, default=None)
