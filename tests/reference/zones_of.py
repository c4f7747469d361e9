"""The zones of an earlier release on new trips, as the documentation defines them.

Paths of codes, tile by tile.
"""

from __future__ import annotations

from collections import Counter

import h3.api.basic_str as h3

from reference.halves import cells_of, climb

TOP = "all"


def way_up(code: str, *, halves: bool) -> list[str]:
    """The codes from a zone or tile to the top, itself first."""
    if code == TOP:
        return [TOP]
    if not halves:
        return [*(h3.cell_to_parent(code, r) for r in range(h3.get_resolution(code), -1, -1)), TOP]
    way = climb(min(cells_of(code)))
    return [*way[way.index(code) :], TOP]


def zone_of(tile: str, zones: set[str], *, halves: bool) -> str:
    """The zone that holds a tile; else the coarsest node above it that overlaps none."""
    way = way_up(tile, halves=halves)
    held = [code for code in way if code in zones]
    if held:
        (zone,) = held
        return zone
    holding = {code for zone in zones for code in way_up(zone, halves=halves)}
    return [code for code in way if code not in holding][-1]


def recounted(
    trips: list[tuple[str, str]], origins: set[str], destinations: set[str], *, k: int, halves: bool
) -> dict:
    """The cells of at least k trips between zones that do not overlap."""
    cells = Counter(
        (zone_of(o, origins, halves=halves), zone_of(d, destinations, halves=halves))
        for o, d in trips
    )
    return {cell: n for cell, n in cells.items() if n >= k}


def recounted_layers(
    trips: list[tuple[str, str]], cells: set[tuple[str, str, int]], *, k: int, halves: bool
) -> dict[tuple[str, str, int], int]:
    """The earlier cells that hold at least k of the trips which no published cell of an earlier
    layer holds.

    A cell whose trips were all left by n earlier cells is not published with n (k - 1) trips.
    """
    found: dict[tuple[str, str, int], int] = {}
    left: list[tuple[str, str, object]] = [(o, d, None) for o, d in trips]
    for layer in sorted({cell[2] for cell in cells}):
        held: dict[tuple[str, str, int], list[tuple[str, str, object]]] = {}
        rest = []
        for o, d, by in left:
            above = (
                (a, b, layer) for a in way_up(o, halves=halves) for b in way_up(d, halves=halves)
            )
            around = [cell for cell in above if cell in cells]
            assert len(around) < 2
            (held.setdefault(around[0], []) if around else rest).append((o, d, by))
        for cell, own in held.items():
            parts = {by for _, _, by in own}
            determined = k >= 3 and None not in parts and len(own) == len(parts) * (k - 1)
            if len(own) >= k and not determined:
                found[cell] = len(own)
            else:
                rest += [(o, d, cell) for o, d, _ in own]
        left = rest
    return found
