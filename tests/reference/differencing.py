"""Attacks by subtraction, tried one by one: every pair of nodes, every choice of finer matrices."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations

from flowveil.flows import Flows
from flowveil.release.release import Release


def records(flows: Flows, slice_number: int) -> set[tuple[int, int, int]]:
    return {(slice_number, o, d) for o, d in zip(flows.origin.tolist(), flows.destination.tolist(), strict=True)}


def cells_of(release: Release, numbers: Iterable[int], parts: list[Flows]) -> list[tuple[set, set, set]]:
    """Each published cell: its origin tiles, its destination tiles, and the records it counts."""
    flows, plan = release.input, release.plan
    found = []
    for cell, (zone_o, zone_d) in enumerate(zip(release.cells.origin, release.cells.destination, strict=True)):
        node_o, node_d = plan.origin_zones.nodes[zone_o], plan.destination_zones.nodes[zone_d]
        tiles_o = set(range(flows.origins.leaf_start[node_o], flows.origins.leaf_stop[node_o]))
        tiles_d = set(range(flows.destinations.leaf_start[node_d], flows.destinations.leaf_stop[node_d]))
        pairs = {(int(flows.origin[f]), int(flows.destination[f])) for f in (release.cell_of_flow == cell).nonzero()[0]}
        counted = {r for n in numbers for r in records(parts[n], n) if r[1:] in pairs}
        found.append((tiles_o, tiles_d, counted))
    return found


def attacks(
    coarse: Release, parts: list[Flows], finer: list[tuple[list[int], Release]], k: int, *, people: bool
) -> bool:
    """Whether some difference that a reader can compute is above zero and hides fewer than k.

    Args:
        coarse: the coarser matrix, of all parts.
        parts: the flows of the finest slices.
        finer: each finer matrix that is published, with the numbers of its parts.
        k: the threshold.
        people: whether people are counted, not trips.
    """
    totals = cells_of(coarse, range(len(parts)), parts)
    segments = [(set(numbers), cells_of(release, numbers, parts)) for numbers, release in finer]
    everything = set().union(*(records(flows, i) for i, flows in enumerate(parts)))
    published = set().union(*(counted for _, _, counted in totals))
    regions = [(o, d, True) for o, d, _ in totals]
    trees = coarse.input.origins, coarse.input.destinations
    nodes = [[set(range(t.leaf_start[v], t.leaf_stop[v])) for v in range(t.n_nodes)] for t in trees]
    regions += [(o, d, False) for o in nodes[0] for d in nodes[1]]
    choices = [
        [cells for _, cells in chosen]
        for chosen in chain.from_iterable(combinations(segments, n) for n in range(1, len(segments) + 1))
        # Matrices that hold the same trips cannot both be subtracted.
        if sum(len(numbers) for numbers, _ in chosen) == len(set().union(*(numbers for numbers, _ in chosen)))
    ]
    for tiles_o, tiles_d, is_cell in regions:
        inside = {r for r in everything if r[1] in tiles_o and r[2] in tiles_d}
        if not is_cell and (inside - published or any(c & inside and not c <= inside for _, _, c in totals)):
            continue
        if not is_cell and any(c & inside and not (o <= tiles_o and d <= tiles_d) for o, d, c in totals):
            continue
        known = inside & published
        for chosen in choices:
            nested = [c for cells in chosen for o, d, c in cells if o <= tiles_o and d <= tiles_d]
            left = known - set().union(*nested) if nested else known
            if left and size(left, parts, people=people) < k:
                return True
    return False


def size(left: set, parts: list[Flows], *, people: bool) -> int:
    persons, trips = set(), 0
    for number, flows in enumerate(parts):
        for f, pair in enumerate(zip(flows.origin.tolist(), flows.destination.tolist(), strict=True)):
            if (number, *pair) in left:
                trips += int(flows.trips[f])
                if people:
                    persons |= set(flows.people.person[flows.people.cell == f].tolist())
    return len(persons) if people else trips
