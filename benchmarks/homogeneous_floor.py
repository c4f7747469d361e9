"""A lower bound for the mean error of homogeneous maps, by Lagrangian decomposition.

Choosing two cuts at once is hard. Choosing one cut, plus a separate cut of the other tree for each
of its zones, is one pass over the safe pairs. Split the savings of the safe pairs between two such
problems: one chooses the origin cut first, the other the destination cut. Every pair of cuts is
feasible for both, so the sum of the two optima is an upper bound for the saving of the best pair of
cuts, for any split. The subgradient method searches the best split: where the two problems disagree
about a pair, the one that takes it gets a smaller saving for it.

The bound proves that no pair of cuts within the budget has a smaller mean error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Positions
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.methods.twin_trees import TwinAxis, TwinTrees
from flowveil.methods.twincut import Search, starting_cuts

Mask = NDArray[np.bool_]

#: Prices that are tried, as multiples of the one that known maps suggest.
PRICES = 8.0 ** np.arange(5)


def homogeneous_floor(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1, iterations: int = 150
) -> float | None:
    """Returns a mean generalisation error that no homogeneous release within the suppression limit
    is below.

    More iterations raise it towards its limit. None if nothing can be published within the limit,
    or if the trees are too deep to hold all their nodes.
    """
    flows, guarantee = guarantee.to_fixed_point(flows)
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    trees = TwinTrees.from_flows(flows, guarantee)
    if trees is None or trees.thinned or trees.given(0, np.zeros(1, np.int64)).lost > budget:
        return None
    search = Search(trees, budget)
    search.alternate_from(list(starting_cuts(trees)))
    points = np.array(sorted(set(search.points)))

    def proven(price: float, iterations: int) -> float:
        suppressed, cost = points[int(np.argmin(points[:, 1] + price * points[:, 0]))]
        return proven_score(
            trees,
            budget,
            price=price,
            known_cost=float(cost),
            known_suppressed=float(suppressed),
            iterations=iterations,
        )

    # With a small budget few maps are known, and a far higher price may prove more.
    prices = _tightest_price(search, points) * PRICES
    best = prices[int(np.argmax([proven(float(price), iterations // 10) for price in prices]))]
    return proven(float(best), iterations)


def _tightest_price(search: Search, points: Floats) -> float:
    """Returns the price at which the lower bound from the known solutions is largest at the budget.

    At each price, the cheapest known solution is a line over suppression. Its height at the budget
    is an upper limit for any proof at this price.
    """
    prices = search.fair_price() * np.exp2(np.arange(-48, 49) / 24)
    priced = points[None, :, 1] + prices[:, None] * (points[None, :, 0] - search.budget)
    return float(prices[int(np.argmax(priced.min(axis=1)))])


@dataclass(frozen=True, eq=False)
class PairForest:
    """The safe pairs between the nodes of one tree and the other tree, as one tree of pairs for
    each node.

    Attributes:
        axis: the tree with a single cut.
        node: the node of each pair, in the order of ``axis.other``.
        divisible: whether the other end of a pair can be divided.
        tops: the pairs with the root of the other tree.
        layers: for each depth of the other tree below its root: pairs, start of each sibling group,
            parent pair of each, parent pair of each group.
    """

    axis: TwinAxis
    node: Positions
    divisible: Mask
    tops: Positions
    layers: tuple[tuple[Positions, Positions, Positions, Positions], ...]

    @classmethod
    def from_axes(cls, axis: TwinAxis, others: TwinAxis) -> PairForest:
        """Lays out the pairs. The parent of a safe pair is safe, so it is present."""
        node = np.repeat(np.arange(len(axis)), np.diff(axis.first))
        key = node * len(others) + axis.other
        above = np.searchsorted(key, node * len(others) + np.maximum(others.parent[axis.other], 0))
        depth = others.sketch.tree.depth[others.nodes][axis.other]
        layers = []
        for d in range(1, int(depth.max(initial=0)) + 1):
            pairs = np.flatnonzero(depth == d)
            up = above[pairs]
            first = np.flatnonzero(np.concatenate(([True], up[1:] != up[:-1])))
            layers.append((pairs, first, up, up[first]))
        leaf = others.sketch.tree.is_leaf[others.nodes][axis.other]
        return cls(axis, node, ~leaf, np.flatnonzero(depth == 0), tuple(layers))

    def solve(self, saving: Floats) -> tuple[float, Mask]:
        """Returns the largest saving of one cut with separate cuts of the other tree, and the pairs
        it takes."""
        together = np.zeros(len(saving))
        best = saving.copy()
        for pairs, first, _, parents in reversed(self.layers):
            best[pairs] = np.where(
                self.divisible[pairs], np.maximum(saving[pairs], together[pairs]), saving[pairs]
            )
            together[parents] = np.add.reduceat(best[pairs], first)
        tops = self.tops
        best[tops] = np.where(
            self.divisible[tops], np.maximum(saving[tops], together[tops]), saving[tops]
        )
        of_node = np.zeros(len(self.axis))
        of_node[self.node[tops]] = best[tops]
        cut, _, _ = self.axis.best(of_node)
        chosen = np.zeros(len(self.axis), dtype=np.bool_)
        chosen[cut] = True
        split = self.divisible & (together > saving)
        reached = np.zeros(len(saving), dtype=np.bool_)
        reached[tops] = chosen[self.node[tops]]
        for pairs, _, up, _ in self.layers:
            reached[pairs] = reached[up] & split[up]
        return float(of_node[cut].sum()), reached & ~split


def proven_score(
    trees: TwinTrees,
    budget: float,
    *,
    price: float,
    known_cost: float,
    known_suppressed: float,
    iterations: int = 100,
) -> float:
    """Returns a lower bound for the mean of any pair of cuts within the budget.

    At a price m, cost + m * suppressed >= m * total - saving for every pair of cuts. So the mean of
    one that suppresses s is at least m - saving / (total - s). This is smallest at the budget (at 0
    if even the best saving is a loss).

    Args:
        trees: the problem; its objective must be a mean.
        budget: volume that may be suppressed, less than the total.
        price: price of a suppressed unit. Any price is valid; the bound is tightest near the price
            that spends the budget.
        known_cost, known_suppressed: a feasible solution, used for step lengths.
        iterations: number of subgradient steps.
    """
    forests = (
        PairForest.from_axes(trees.origins, trees.destinations),
        PairForest.from_axes(trees.destinations, trees.origins),
    )
    # Position in the second forest of each pair of the first.
    place = np.lexsort((forests[1].node, forests[1].axis.other))
    total = trees.objective.total
    sizes = trees.origins.size[forests[0].node] + trees.destinations.size[trees.origins.other]
    saving = price * trees.origins.volume - trees.origins.volume * sizes
    target = price * (total - known_suppressed) - known_cost
    shared = saving / 2
    best, best_shared = np.inf, shared
    step, in_vain = 1.0, 0
    for _ in range(iterations):
        rest = np.empty_like(saving)
        rest[place] = saving - shared
        one, taken = forests[0].solve(shared)
        other, taken_too = forests[1].solve(rest)
        bound = one + other
        if bound < best:
            in_vain = 0 if bound < best - 1e-7 * abs(best) else in_vain + 1
            best, best_shared = bound, shared
        else:
            in_vain += 1
        disagreement = taken.astype(np.float64) - taken_too[place]
        length = float(np.sum(np.abs(disagreement)))
        if length == 0 or best <= target:
            break
        if in_vain >= 10:
            step, in_vain, shared = step * 0.6, 0, best_shared
        shared = shared - step * max(bound - target, 0.0) / length * disagreement
    return price - best / (total - (budget if best > 0 else 0.0))
