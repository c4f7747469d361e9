"""One cut for both ends, merge by merge or cut by cut: short, obvious and slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from reference.odkanon import Axis, prefilter
from reference.oigh import cuts
from reference.prunings import all_cuts
from reference.trees import ancestors, is_safe, leaf_nodes, volume


def _cells(flows: Flows, rows: list[int], zone: dict[int, int]) -> dict[tuple[int, int], list[int]]:
    cells = defaultdict(list)
    for f in rows:
        cells[zone[int(flows.origin[f])], zone[int(flows.destination[f])]].append(f)
    return cells


def odkanon(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float, budget: str, levels: int = 3
) -> tuple[dict[int, tuple[int, int]], int]:
    """Merge the group with the smallest total of both ends, until few enough trips are in short
    cells."""
    rows, allowed = list(range(len(flows))), 0.0
    if budget == "rows":
        gone = prefilter(flows, guarantee, levels, max_suppressed)
        rows = [f for f in rows if f not in gone]
    else:
        allowed = max_suppressed * sum(volume(flows, f, guarantee) for f in rows)
    totals: dict[int, float] = defaultdict(float)
    for f in rows:
        totals[int(flows.origin[f])] += volume(flows, f, guarantee)
        totals[int(flows.destination[f])] += volume(flows, f, guarantee)
    axis, step = Axis(flows.origins, totals), 0
    while True:
        cells = _cells(flows, rows, {t: axis.zone_of(t) for t in totals})
        short = {cell: fs for cell, fs in cells.items() if not is_safe(flows, fs, guarantee)}
        lost = sum(volume(flows, f, guarantee) for fs in short.values() for f in fs)
        group = axis.best()
        if not short or (budget == "volume" and lost <= allowed) or group is None:
            return {f: cell for cell, fs in cells.items() if cell not in short for f in fs}, step
        axis.merge(group)
        step += 1


def oigh(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float
) -> tuple[dict[int, tuple[int, int]], int]:
    """The lowest of all levels at which few enough trips are in short cells."""
    rows = list(range(len(flows)))
    allowed = max_suppressed * sum(volume(flows, f, guarantee) for f in rows)
    for level, zones in enumerate(cuts(flows.origins)):
        cells = _cells(flows, rows, dict(enumerate(zones)))
        kept = {f: cell for cell, fs in cells.items() if is_safe(flows, fs, guarantee) for f in fs}
        if sum(volume(flows, f, guarantee) for f in rows if f not in kept) <= allowed:
            return kept, level
    return kept, level


def all_scores(
    flows: Flows, guarantee: Guarantee
) -> Iterator[tuple[tuple[int, ...], float, float]]:
    """Every cut, its mean generalisation error (infinite where nothing is published) and what it
    suppresses."""
    tree, leaves = flows.origins, leaf_nodes(flows.origins)
    for cut in all_cuts(tree):
        zone = {
            t: next(v for v in ancestors(tree, leaf) if v in cut) for t, leaf in enumerate(leaves)
        }
        cost = published = lost = 0.0
        for (a, b), fs in _cells(flows, list(range(len(flows))), zone).items():
            total = sum(volume(flows, f, guarantee) for f in fs)
            if is_safe(flows, fs, guarantee):
                published, cost = (
                    published + total,
                    cost + total * float(tree.size[a] + tree.size[b]),
                )
            else:
                lost += total
        yield cut, cost / published if published else float("inf"), lost
