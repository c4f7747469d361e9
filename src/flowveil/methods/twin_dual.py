"""How good can a homogeneous map be: a bound by Lagrangian decomposition.

Choosing two cuts at once is hard; choosing one cut, and for each of its zones a cut of the other tree of its own, is
not: a pass over the safe pairs solves it. Let the savings of the safe pairs be shared out between two such problems,
one that gives every origin zone its own destination cut and one that gives every destination zone its own origin cut.
Every pair of cuts solves both, so the two optima together are at least what the best pair of cuts saves, however the
savings are shared. The best way of sharing them is looked for by the subgradient method: where the two problems
disagree about a pair, the one that takes it gets less for it.

What the bound proves: no pair of cuts of these trees that suppresses at most the budget has a smaller mean error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Floats
from flowveil.methods.twin_trees import Positions, TwinAxis, TwinTrees

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PairForest:
    """The safe pairs of one tree's nodes with the other tree's, a tree of pairs for each node.

    Attributes:
        axis: the tree whose nodes are chosen once.
        node: the node of each pair, in the order of ``axis.other``.
        divisible: whether the other end of a pair can be divided.
        tops: the pairs with the root of the other tree.
        layers: for each depth of the other tree below its root: the pairs, where siblings begin, the pair above each,
            and the pair above once for all siblings.
    """

    axis: TwinAxis
    node: Positions
    divisible: Mask
    tops: Positions
    layers: tuple[tuple[Positions, Positions, Positions, Positions], ...]

    @classmethod
    def from_axes(cls, axis: TwinAxis, others: TwinAxis) -> PairForest:
        """Lay out the pairs; a pair's parent is safe, so it is there."""
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
        """The largest saving of one cut with a cut of the other tree for each of its nodes, and the pairs it takes."""
        together = np.zeros(len(saving))
        best = saving.copy()
        for pairs, first, _, parents in reversed(self.layers):
            best[pairs] = np.where(self.divisible[pairs], np.maximum(saving[pairs], together[pairs]), saving[pairs])
            together[parents] = np.add.reduceat(best[pairs], first)
        tops = self.tops
        best[tops] = np.where(self.divisible[tops], np.maximum(saving[tops], together[tops]), saving[tops])
        of_node = np.zeros(len(self.axis))
        of_node[self.node[tops]] = best[tops]
        cut = self.axis.best_cut(of_node)
        chosen = np.zeros(len(self.axis), dtype=np.bool_)
        chosen[cut] = True
        split = self.divisible & (together > saving)
        reached = np.zeros(len(saving), dtype=np.bool_)
        reached[tops] = chosen[self.node[tops]]
        for pairs, _, up, _ in self.layers:
            reached[pairs] = reached[up] & split[up]
        return float(of_node[cut].sum()), reached & ~split


def proven_score(
    trees: TwinTrees, budget: float, *, price: float, known_cost: float, known_suppressed: float, iterations: int = 100
) -> float:
    """A mean that no pair of cuts within the budget can be below.

    At a price m, cost + m * suppressed >= m * total - saving for every pair of cuts; so the mean of one that suppresses
    s is at least m - saving / (total - s), which is smallest at the budget (at 0 where even the best saving is a loss).

    Args:
        trees: the problem; its objective must be a mean.
        budget: volume that may be suppressed, less than the total.
        price: price of a suppressed unit. Any price is valid; the bound is tightest near the one at which the best
            cuts just spend the budget.
        known_cost, known_suppressed: a solution, to choose step lengths by.
        iterations: how long to look for the best way of sharing savings.
    """
    forests = (
        PairForest.from_axes(trees.origins, trees.destinations),
        PairForest.from_axes(trees.destinations, trees.origins),
    )
    # The pairs of the second forest, by their place in the first.
    place = np.lexsort((forests[1].node, forests[1].axis.other))
    total = trees.objective.total
    saving = price * trees.origins.volume - trees.cost()
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
