"""Pairs of cuts by exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from reference.prunings import all_cuts
from reference.trees import is_safe, tiles_below, volume

Cut = tuple[int, ...]


def cost_and_suppressed(
    flows: Flows, guarantee: Guarantee, origin: Cut, destination: Cut
) -> tuple[float, float]:
    """Sum of v(|o| + |d|) over safe cells, and the volume of the others."""
    cost = suppressed = 0.0
    for o in origin:
        tiles_o = tiles_below(flows.origins, o)
        for d in destination:
            tiles_d = tiles_below(flows.destinations, d)
            rows = [
                f
                for f in range(len(flows))
                if flows.origin[f] in tiles_o and flows.destination[f] in tiles_d
            ]
            v = sum(volume(flows, f, guarantee) for f in rows)
            if rows and is_safe(flows, rows, guarantee):
                cost += v * (len(tiles_o) + len(tiles_d))
            else:
                suppressed += v
    return cost, suppressed


def all_pairs_of_cuts(
    flows: Flows, guarantee: Guarantee
) -> Iterator[tuple[Cut, Cut, float, float]]:
    """Every homogeneous map: its cuts, cost and suppressed volume."""
    destinations = list(all_cuts(flows.destinations))
    for origin in all_cuts(flows.origins):
        for destination in destinations:
            yield origin, destination, *cost_and_suppressed(flows, guarantee, origin, destination)


def best_mean(points: list[tuple[float, float]], total: float, budget: float) -> float | None:
    """Smallest cost / published volume within the budget.

    None where nothing is published within it.
    """
    means = [cost / (total - gone) for cost, gone in points if gone <= budget and total - gone > 0]
    return min(means, default=None)


def smallest_safe_size(flows: Flows, guarantee: Guarantee, flow: int) -> float:
    """Smallest |o| + |d| over pairs of nodes that hold the flow's tiles and whose cell is safe."""
    best = float("inf")
    for o in range(flows.origins.n_nodes):
        tiles_o = tiles_below(flows.origins, o)
        if flows.origin[flow] not in tiles_o:
            continue
        for d in range(flows.destinations.n_nodes):
            tiles_d = tiles_below(flows.destinations, d)
            if flows.destination[flow] not in tiles_d or len(tiles_o) + len(tiles_d) >= best:
                continue
            rows = [
                f
                for f in range(len(flows))
                if flows.origin[f] in tiles_o and flows.destination[f] in tiles_d
            ]
            if is_safe(flows, rows, guarantee):
                best = len(tiles_o) + len(tiles_d)
    return best
