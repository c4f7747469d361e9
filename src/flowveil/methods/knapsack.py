"""The best cut of one tree within a budget, exactly.

A price on suppressed units finds only the cuts on the lower convex hull of cost and suppression;
the optimum within a budget is usually slightly above the hull. A cut that beats the best known one
can lose only a bounded amount at the price, so few nodes have a choice: those that can be reached
and flipped within that loss. All their combinations are enumerated bottom-up, without those that
lose too much or are dominated in cost and suppression.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Positions
from flowveil.methods.twin_trees import Costs, Half, TwinAxis

#: Combinations kept at a node. Beyond, only the best of each suppression bucket is kept and the
#: optimum may be missed.
MOST_COMBINATIONS = 512


def near_ties(costs: Costs, price: float, most: float) -> tuple[Positions, Floats]:
    """Returns the nodes that can be reached and flipped at a loss of at most ``most``, and a bound
    of each loss.
    """
    saving = costs.saving(price)
    _, best, divided = costs.axis.best(saving)
    otherwise = _loss_to_reach(costs.axis, best - divided) + np.abs(saving - divided)
    nodes = np.flatnonzero(otherwise <= most)
    return nodes, otherwise[nodes]


def flipped(costs: Costs, price: float, nodes: Positions) -> Positions:
    """Returns the best cut at the price in which these nodes are flipped, and reached unless one
    above is undivided.
    """
    axis = costs.axis
    saving = costs.saving(price)
    split = axis.best(saving)[2] > saving
    split[nodes] = ~split[nodes]
    above = axis.parent[nodes]
    other = np.zeros(len(axis), dtype=np.bool_)
    other[nodes] = True
    while np.any(above >= 0):
        above = above[above >= 0]
        split[above[~other[above]]] = True
        above = axis.parent[above]
    return axis.reached(split)


def _loss_to_reach(axis: TwinAxis, loss: Floats) -> Floats:
    """Returns the loss of dividing all ancestors of each node, from the loss of dividing each."""
    reach = np.zeros(len(axis))
    for nodes, above, _, _ in axis.layers:
        reach[nodes] = reach[above] + loss[above]
    return reach


class _Set(NamedTuple):
    """Combinations below a node: loss and suppression relative to the best cut.

    Combined sets, and positions in them.

    ``whole`` marks the combinations that leave ``node`` undivided.
    """

    loss: Floats
    suppressed: Floats
    parts: tuple[tuple[_Set, Positions], ...] = ()
    node: int = -1
    whole: NDArray[np.bool_] | None = None


_NOTHING = _Set(np.zeros(1), np.zeros(1))


#: Work of a search: combined sets created, and combinations seen.
Work = tuple[int, int]


def best_within(
    costs: Costs, half: Half, budget: float, known: float, *, most_choices: int | None = None
) -> tuple[tuple[Positions, float, float] | None, Work]:
    """Returns the cut with the smallest score within the budget, its cost and suppressed volume,
    and the work.

    None if no cut beats the known score. ``half`` is the best cut at a price of at least the
    objective's least price for that score. With ``most_choices`` only that many nodes, nearest to a
    tie, may be flipped.
    """
    objective = costs.objective
    gap = objective.price_within(known, half.price, budget) - (
        half.cost + half.price * half.suppressed
    )
    if not gap > 0:
        return None, (0, 0)
    nodes, loss = near_ties(costs, half.price, gap)
    nodes = np.sort(nodes[np.argsort(loss, kind="stable")[:most_choices]])
    saving = costs.saving(half.price)
    _, saved, divided = costs.axis.best(saving)
    combined, work = _combine(costs, half.price, nodes, gap, (saving, saved, divided))
    suppressed = half.suppressed + combined.suppressed
    cost = half.cost + combined.loss - half.price * combined.suppressed
    score = np.where(suppressed > budget, np.inf, objective.scores(cost, suppressed))
    best = int(np.argmin(score))
    if not score[best] < known:
        return None, work
    split = divided > saving
    _decide(combined, best, split)
    cut = costs.axis.reached(split)
    return (cut, *costs.totals(cut)), work


def _combine(
    costs: Costs, price: float, nodes: Positions, gap: float, savings: tuple[Floats, Floats, Floats]
) -> tuple[_Set, Work]:
    """Returns all combinations of decisions at these nodes that lose at most the gap, and the
    work.
    """
    axis = costs.axis
    # Of each node: as a zone, the largest in its subtree, and that if the node is divided.
    saving, best, divided = savings
    published, below = costs.volume.copy(), np.zeros(len(axis))
    for layer, _, siblings, above in reversed(axis.layers):
        below[above] = np.add.reduceat(published[layer], siblings)
        published[above] = np.where(divided[above] > saving[above], below[above], published[above])
    reach = _loss_to_reach(axis, best - divided)
    chosen = np.zeros(len(axis), dtype=np.bool_)
    chosen[nodes] = True
    relevant = chosen.copy()
    for layer, _, siblings, above in reversed(axis.layers):
        relevant[above] |= np.logical_or.reduceat(relevant[layer], siblings)
    # In reverse node order, children come before their parents.
    backwards = np.flatnonzero(relevant)[::-1]
    above_it = axis.parent[backwards]
    columns = (
        chosen[backwards],
        gap - reach[backwards],
        gap - reach[np.maximum(above_it, 0)],
        (best - saving)[backwards],
        (published - costs.volume)[backwards],
        (best - divided)[backwards],
        (published - below)[backwards],
    )
    sets_below: dict[int, _Set] = {}
    sets = looked_at = 0
    for node, parent, choice, room, room_above, *decided in zip(
        backwards.tolist(), above_it.tolist(), *(column.tolist() for column in columns), strict=True
    ):
        found = sets_below.pop(node, _NOTHING)
        if choice:
            sets, looked_at = sets + 1, looked_at + len(found.loss) + 1
            found = _choose(
                found, node, (decided[0], decided[1]), (decided[2], decided[3]), price, room
            )
        if parent < 0:
            return found, (sets, looked_at)
        if parent in sets_below:
            sets, looked_at = sets + 1, looked_at + len(sets_below[parent].loss) * len(found.loss)
            found = _both(sets_below[parent], found, price, room_above)
        sets_below[parent] = found
    return _NOTHING, (sets, looked_at)


def _choose(
    divided: _Set,
    node: int,
    whole: tuple[float, float],
    apart: tuple[float, float],
    price: float,
    room: float,
) -> _Set:
    """Returns the combinations with the node undivided, or divided with any combination below."""
    loss = np.concatenate(([whole[0]], divided.loss + apart[0]))
    suppressed = np.concatenate(([whole[1]], divided.suppressed + apart[1]))
    kept = _undominated(loss, suppressed, price, room)
    position = np.maximum(kept - 1, 0)
    return _Set(loss[kept], suppressed[kept], ((divided, position),), node, kept == 0)


def _both(one: _Set, other: _Set, price: float, room: float) -> _Set:
    """Returns every combination of one set with every combination of the other."""
    loss = (one.loss[:, None] + other.loss[None, :]).ravel()
    suppressed = (one.suppressed[:, None] + other.suppressed[None, :]).ravel()
    kept = _undominated(loss, suppressed, price, room)
    width = len(other.loss)
    return _Set(loss[kept], suppressed[kept], ((one, kept // width), (other, kept % width)))


def _undominated(loss: Floats, suppressed: Floats, price: float, room: float) -> Positions:
    """Returns the combinations with a loss of at most ``room`` that no other beats in cost and
    suppression.
    """
    inside = np.flatnonzero(loss <= room)
    cost = loss[inside] - price * suppressed[inside]
    order = np.lexsort((cost, suppressed[inside]))
    cost = cost[order]
    # In order of suppression, keep what costs less than everything before.
    before = np.concatenate(([np.inf], np.minimum.accumulate(cost)[:-1]))
    kept: Positions = inside[order[cost < before]]
    if len(kept) > MOST_COMBINATIONS:
        step = np.linspace(suppressed[kept[0]], suppressed[kept[-1]], MOST_COMBINATIONS // 2)
        bucket = np.searchsorted(step, suppressed[kept])
        by_loss = np.lexsort((loss[kept], bucket))
        first = np.concatenate(([True], bucket[by_loss][1:] != bucket[by_loss][:-1]))
        kept = np.sort(kept[by_loss[first]])
    return kept


def _decide(combined: _Set, position: int, split: NDArray[np.bool_]) -> None:
    """Writes the decisions of one combination into the mask of divided nodes."""
    todo = [(combined, position)]
    while todo:
        found, at = todo.pop()
        if found.node >= 0 and found.whole is not None:
            split[found.node] = not found.whole[at]
            if found.whole[at]:
                continue
        todo += [(part, int(where[at])) for part, where in found.parts]
