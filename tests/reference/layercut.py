"""LayerCut, step by step: recursion over all pairs of nodes, layer after layer."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from reference.paircut import may_be_named, width
from reference.trees import children, is_safe, tiles_below, volume

RATIO, FIRST_PRICE = 4.0, 2.5


class Cell(NamedTuple):
    """A published cell: its layer, the tiles of each end, and its flows."""

    layer: int
    tiles: tuple[frozenset[int], ...]
    rows: frozenset[int]


def layers(flows: Flows, guarantee: Guarantee, weights: tuple[float, ...] = (), breaks=None) -> list[Cell]:
    """The cells of the ladder, without a limit on what is left; with a rule on the flows of a cell."""
    found: list[Cell] = []
    left, number = frozenset(range(len(flows))), 0
    for price in prices(flows, weights):
        cells = one_layer(flows, guarantee, left, price, weights, breaks)
        if cells:
            number += 1
            found += [Cell(number, tiles, rows) for tiles, rows in cells]
            left -= frozenset().union(*(rows for _, rows in cells))
    return found


def prices(flows: Flows, weights: tuple[float, ...]) -> list[float]:
    most = RATIO * (flows.origins.n_tiles + flows.destinations.n_tiles + width(flows, (0,) * len(weights), weights))
    found = [FIRST_PRICE]
    while found[-1] < most:
        found.append(found[-1] * RATIO)
    return found


def ends_of(flows: Flows):
    return [tree for tree, _ in flows.ends], [leaf for _, leaf in flows.ends]


def one_layer(flows, guarantee, left, price, weights, breaks):
    """The best division of the flows that are left, around refused cells."""
    banned: set = set()
    divisions = 4 if breaks is None else 40
    for trial in range(divisions):
        cells = best_division(flows, guarantee, left, price, weights, frozenset(banned))
        refused = [cell for cell in cells if is_refused(flows, guarantee, *cell, breaks)]
        if not refused or trial == divisions - 1:
            return [cell for cell in cells if cell not in refused]
        banned |= {tiles for tiles, _ in refused}
    raise AssertionError


def best_division(flows, guarantee, left, price, weights, banned):
    trees, ends = ends_of(flows)

    @cache
    def best(*nodes):
        below = tuple(frozenset(tiles_below(tree, node)) for tree, node in zip(trees, nodes, strict=True))
        rows = [f for f in left if all(end[f] in tiles for end, tiles in zip(ends, below, strict=True))]
        if not rows or not is_safe(flows, rows, guarantee) or not may_be_named(flows, guarantee, nodes[2:], left):
            return 0.0, ()
        v = sum(volume(flows, f, guarantee) for f in rows)
        worth = v * price - v * (len(below[0]) + len(below[1]) + width(flows, nodes[2:], weights))
        cells = ((below, frozenset(rows)),)
        if worth < 0 or below in banned:
            worth, cells = 0.0, ()
        for end, tree in enumerate(trees):
            parts = [best(*nodes[:end], c, *nodes[end + 1 :]) for c in children(tree, nodes[end])]
            if sum(w for w, _ in parts) > worth:
                worth, cells = sum(w for w, _ in parts), tuple(cell for _, c in parts for cell in c)
        return worth, cells

    return best(*([0] * len(trees)))[1]


def is_refused(flows, guarantee, tiles, rows, breaks) -> bool:
    """Whether a cell determines counts, breaks the rule, or shows that the rule refused a part of it."""
    if is_determined(flows, guarantee, tiles, rows):
        return True
    if breaks is None:
        return False
    trips = sum(int(flows.trips[f]) for f in rows)
    only_trips = guarantee.trips is not None and guarantee.units == ("trips",) and guarantee.locations is None
    return breaks(rows) or (only_trips and len(rows) > 1 and trips > (guarantee.k - 1) * len(rows))


def is_determined(flows, guarantee, tiles, rows) -> bool:
    """Whether the trips of a cell are k - 1 times its flows, its tiles at an end, or its child zones at an end."""
    trees, ends = ends_of(flows)
    trips, most = sum(int(flows.trips[f]) for f in rows), guarantee.k - 1
    parts = [len(rows)]
    for tree, end, own in zip(trees, ends, tiles, strict=True):
        node = max(v for v in range(tree.n_nodes) if frozenset(tiles_below(tree, v)) == own)
        seen = {int(end[f]) for f in rows}
        inner = [tiles_below(tree, child) for child in children(tree, node)] or [own]
        parts += [len(seen), sum(bool(seen & set(child)) for child in inner)]
    return guarantee.k >= 3 and trips > most and any(trips == n * most for n in parts)


def cell_of_flow(cells: list[Cell], flows: Flows, row: int) -> Cell | None:
    """What a reader does: of the cells around a flow, the one with the lowest layer."""
    _, ends = ends_of(flows)
    around = [cell for cell in cells if all(end[row] in own for end, own in zip(ends, cell.tiles, strict=True))]
    return min(around, key=lambda cell: cell.layer, default=None)
