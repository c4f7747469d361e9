"""How far TwinCut is from the best homogeneous map, on instances small enough to try all pairs of
cuts.

Trees of 27 tiles in threes and of 16 tiles in twos (730 and 677 cuts each), random flows that thin
out with distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

import flowveil
from benchmarks.homogeneous_floor import homogeneous_floor
from flowveil.methods.twin_trees import TwinTrees

SHARES = (0.0, 0.01, 0.05, 0.1)
INSTANCES = 60


def regular_tree(width: int, depth: int) -> flowveil.Hierarchy:
    """A tree in depth-first order whose inner nodes all have as many children."""
    parent: list[int] = []

    def grow(above: int, left: int) -> None:
        me = len(parent)
        parent.append(above)
        for _ in range(width if left else 0):
            grow(me, left - 1)

    grow(-1, depth)
    return flowveil.Hierarchy(
        parent=np.array(parent, np.int32), code=np.arange(len(parent), dtype=np.uint64)
    )


def cuts_of(tree: flowveil.Hierarchy, node: int = 0) -> Iterator[tuple[int, ...]]:
    """All cuts of the tree below a node."""
    yield (node,)
    children = np.flatnonzero(tree.parent == node).tolist()
    if children:
        for parts in product(*(list(cuts_of(tree, child)) for child in children)):
            yield tuple(n for part in parts for n in part)


def random_flows(tree: flowveil.Hierarchy, rng: np.random.Generator) -> flowveil.Flows:
    """Trips between tiles of uneven importance, fewer between distant ones."""
    n = tree.n_tiles
    weight = rng.pareto(1.2, n) + 0.2
    near = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / n * 3)
    trips = rng.poisson(np.outer(weight, rng.permutation(weight)) * near * 2).astype(np.int64)
    origin, destination = np.nonzero(trips)
    return flowveil.Flows.from_pairs(
        origin, destination, trips[origin, destination], origins=tree, destinations=tree
    )


def best_errors(flows: flowveil.Flows, guarantee: flowveil.Guarantee) -> dict[float, float]:
    """The smallest mean generalisation error within each share, over all pairs of cuts."""
    trees = TwinTrees.from_flows(flows, guarantee)
    if trees is None:
        return {}
    axes = (trees.origins, trees.destinations)
    positions = [
        [axis.from_full(np.array(sorted(cut), np.int32)) for cut in cuts_of(axis.full)]
        for axis in axes
    ]
    chosen = np.zeros((len(positions[1]), len(axes[1])))
    for row, cut in enumerate(positions[1]):
        chosen[row, cut] = 1.0
    total = trees.objective.total
    best = dict.fromkeys(SHARES, np.inf)
    for cut in positions[0]:
        costs = trees.given(0, cut)
        published = chosen @ costs.volume
        cost = chosen @ costs.cost
        for share in SHARES:
            allowed = (total - published <= share * total) & (published > 0)
            if allowed.any():
                best[share] = min(best[share], float((cost[allowed] / published[allowed]).min()))
    return best


def main(instances: int = INSTANCES) -> None:
    rng = np.random.default_rng(7)
    trees = (regular_tree(3, 3), regular_tree(2, 4))
    gaps: dict[float, list[float]] = {share: [] for share in SHARES}
    plain: dict[float, list[float]] = {share: [] for share in SHARES}
    proven: dict[float, list[float]] = {share: [] for share in SHARES}
    for number in range(instances):
        flows = random_flows(trees[number % 2], rng)
        guarantee = flowveil.Guarantee.resolve(flows, k=(5, 10, 20)[number % 3])
        for share, best in best_errors(flows, guarantee).items():
            if not np.isfinite(best):
                continue
            for effort, kept in ((1.0, gaps), (0.0, plain)):
                release = flowveil.anonymize(
                    flows,
                    "twincut",
                    guarantee.k,
                    max_suppressed=share,
                    effort=effort,
                    hierarchy="h3",
                )
                error = release.metrics()["trips"]["mean_generalization_error"]
                kept[share].append(float(error or np.inf) / best - 1)
            floor = homogeneous_floor(flows, guarantee, max_suppressed=share)
            proven[share].append(1 - (floor or 0.0) / best)
    print(
        "| at most suppressed | instances | optimal | mean gap | 90 % below | worst "
        "| without local search: optimal, worst | proven floor below the optimum, median |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for share in SHARES:
        gap, rough = np.array(gaps[share]), np.array(plain[share])
        print(
            f"| {share:.0%} | {len(gap)} | {np.mean(gap < 1e-9):.0%} | {gap.mean():.2%} |"
            f" {np.quantile(gap, 0.9):.2%} | {gap.max():.2%} | {np.mean(rough < 1e-9):.0%},"
            f" {rough.max():.1%} | {np.median(proven[share]):.1%} |"
        )


if __name__ == "__main__":
    main()
