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
