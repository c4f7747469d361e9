"""The estimate of a matrix between H3 cells, tile pair by tile pair."""

from __future__ import annotations

from collections import defaultdict

import h3


def even_estimate(cells, level: int, resolution: int) -> dict[tuple[str, str], float]:
    """Cells (origin cells, destination cells, trips, layer) spread evenly over pairs of tiles, area
    by area.

    Later layers go where no earlier layer has a cell, each pair of areas by the share that is left
    of it.
    """
    found: dict[tuple[str, str], float] = defaultdict(float)
    left: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    whole = 7.0 ** (resolution - level)
    for layer in sorted({cell[3] for cell in cells}):
        covered: dict[tuple[str, str], float] = defaultdict(float)
        for origins, destinations, trips, number in cells:
            if number != layer:
                continue
            tiles = [tiles_by_area(zone, level, resolution) for zone in (origins, destinations)]
            weight = {
                (a, b): m * n * left[a, b] for a, m in tiles[0].items() for b, n in tiles[1].items()
            }
            total = sum(weight.values())
            for (a, b), w in weight.items():
                found[a, b] += trips * w / total
                covered[a, b] += tiles[0][a] / whole * tiles[1][b] / whole
        for pair, share in covered.items():
            left[pair] *= max(1 - share, 0.0)
    return dict(found)


def tiles_by_area(cells, level: int, resolution: int) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for cell in cells:
        for tile in h3.cell_to_children(cell, resolution):
            found[h3.cell_to_parent(tile, level)] += 1
    return dict(found)


def by_value(units, n_values: int, smallest: float, *, prior: float, later: float, rounds: int):
    """Units (pair, origin, first, stop, trips, covered) spread over values, value by value.

    Returns the trips of each (pair, value).
    """
    free: dict[tuple[int, int], float] = {}
    left: list[dict[int, float]] = [{} for _ in units]
    widths = sorted({stop - first for _, _, first, stop, _, _ in units})
    for width in widths:
        own = [n for n, unit in enumerate(units) if unit[3] - unit[2] == width]
        for n in own:
            pair, _, first, stop, _, _ = units[n]
            left[n] = {v: free.get((pair, v), 1.0) for v in range(first, stop)}
        taken: dict[tuple[int, int], float] = defaultdict(float)
        for n in own:
            pair, _, first, stop, _, covered = units[n]
            for v in range(first, stop):
                taken[pair, v] += covered
        for spot, share in taken.items():
            free[spot] = free.get(spot, 1.0) * max(1 - share, 0.0)
    share = []
    for open_values in left:
        none = sum(open_values.values()) <= 0
        fixed = {v: 1.0 if none else f for v, f in open_values.items()}
        share.append({v: f / sum(fixed.values()) for v, f in fixed.items()})
    start = [dict(one) for one in share]
    for _ in range(rounds):
        mean, of_origin = [0.0] * n_values, defaultdict(float)
        for (_, origin, _, _, trips, _), one in zip(units, share, strict=True):
            for v, part in one.items():
                mean[v] += trips * part
                of_origin[origin, v] += trips * part
        scale = prior / sum(mean)
        for n, (_, origin, first, stop, trips, _) in enumerate(units):
            weight = {v: f * (of_origin[origin, v] + scale * mean[v]) for v, f in start[n].items()}
            most = max(later * smallest, 1.25 * trips / max(sum(left[n].values()), 1.0)) / trips
            for step in range(4):
                total = sum(weight.values())
                weight = {v: w / total for v, w in weight.items()}
                if step < 3 and stop - first > 1:
                    weight = {v: min(w, most) for v, w in weight.items()}
            share[n] = weight
    found: dict[tuple[int, int], float] = defaultdict(float)
    for (pair, _, _, _, trips, _), one in zip(units, share, strict=True):
        for v, part in one.items():
            found[pair, v] += trips * part
    return dict(found)
