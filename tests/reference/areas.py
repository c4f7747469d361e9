"""The planner's error by its definition, and an even spread over every pair of possible H3 tiles,
without grouping."""

from __future__ import annotations

from collections import defaultdict

import h3


def even_spread(release, level: int, resolution: int) -> dict[tuple[str, str], float]:
    """Trips of each pair of areas if cells are spread evenly."""
    cells_of = {
        (role, row["zone"]): row["h3_cells"]
        for row in release.zones.to_pylist()
        for role in (("origin", "destination") if row["role"] == "both" else (row["role"],))
    }

    def areas(role: str, zone: str) -> dict[str, float]:
        tiles = [t for cell in cells_of[role, zone] for t in h3.cell_to_children(cell, resolution)]
        found = defaultdict(float)
        for tile in tiles:
            found[h3.cell_to_parent(tile, level)] += 1 / len(tiles)
        return found

    estimate = defaultdict(float)
    for row in release.flows.to_pylist():
        for a, share_a in areas("origin", row["origin_zone"]).items():
            for b, share_b in areas("destination", row["destination_zone"]).items():
                estimate[a, b] += row["trips"] * share_a * share_b
    return estimate


def area_errors(
    flows, level: int, estimate: dict[tuple[str, str], float]
) -> tuple[float, float, float, float]:
    """Share of the trips misplaced and missing between areas, and missing where they begin and end."""
    codes = [
        tree.code_text(tree.leaf_node).tolist() for tree in (flows.origins, flows.destinations)
    ]
    true = defaultdict(float)
    for o, d, trips in zip(
        flows.origin.tolist(), flows.destination.tolist(), flows.trips.tolist(), strict=True
    ):
        true[h3.cell_to_parent(codes[0][o], level), h3.cell_to_parent(codes[1][d], level)] += trips
    total = sum(true.values())
    missing = [sum(max(v - estimate.get(pair, 0.0), 0.0) for pair, v in true.items())]
    for end in (0, 1):
        here, there = defaultdict(float), defaultdict(float)
        for table, sums in ((true, here), (estimate, there)):
            for pair, volume in table.items():
                sums[pair[end]] += volume
        missing.append(sum(max(v - there[area], 0.0) for area, v in here.items()))
    pairs = {*true, *estimate}
    differences = sum(abs(true.get(pair, 0.0) - estimate.get(pair, 0.0)) for pair in pairs)
    return differences / 2 / total, *(one / total for one in missing)
