"""What releases confine together, by listing all integer solutions: slow and obvious.

Unknowns are pairs of regions; a region is the tiles that the same zones hold. Every assignment of
whole numbers that gives the published tables is tried, and the smallest and largest value of a set
of unknowns are read off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

Tiles = frozenset[str]
Pair = tuple[str, str]
#: More assignments than that are not tried.
MOST = 400_000


@dataclass
class Table:
    """One release: what is published of which pair of zones, and the most in a pair of listed zones
    that is not."""

    cells: Mapping[Pair, int]
    most_unlisted: int | None

    @property
    def pairs(self) -> dict[Pair, tuple[int, int | None]]:
        """Smallest and largest value of each pair of listed zones."""
        origins, destinations = {o for o, _ in self.cells}, {d for _, d in self.cells}
        return {
            p: (self.cells[p], self.cells[p]) if p in self.cells else (0, self.most_unlisted)
            for p in product(sorted(origins), sorted(destinations))
        }


class Solutions:
    """All integer solutions of several tables of the same trips."""

    def __init__(self, tables: Sequence[Table], tiles: Callable[[str], Tiles]) -> None:
        self.tables, self.tiles = tables, tiles
        self.unknowns = [
            u
            for u in product(self._regions(0), self._regions(1))
            if any(self._in(p, u) for t in tables for p in t.cells)
        ]
        sizes = [self._most(u) + 1 for u in self.unknowns]
        self.too_many = int(np.prod(sizes, dtype=float)) > MOST
        if self.too_many:
            return
        grid = np.indices(sizes).reshape(len(sizes), -1)
        good = np.ones(grid.shape[1], bool)
        for table in tables:
            for pair, (low, high) in table.pairs.items():
                held = grid[self._rows(pair)].sum(axis=0)
                good &= held >= low
                if high is not None:
                    good &= held <= high
        self.values = grid[:, good]

    def _regions(self, end: int) -> list[Tiles]:
        zones = {p[end] for t in self.tables for p in t.cells}
        of_tile: dict[str, frozenset[str]] = {}
        for zone in zones:
            for tile in self.tiles(zone):
                of_tile[tile] = of_tile.get(tile, frozenset()) | {zone}
        alike: dict[frozenset[str], set[str]] = {}
        for tile, held_by in of_tile.items():
            alike.setdefault(held_by, set()).add(tile)
        return sorted((frozenset(t) for t in alike.values()), key=sorted)

    def _in(self, pair: Pair, unknown: tuple[Tiles, Tiles]) -> bool:
        return unknown[0] <= self.tiles(pair[0]) and unknown[1] <= self.tiles(pair[1])

    def _most(self, unknown: tuple[Tiles, Tiles]) -> int:
        held = [
            high
            for t in self.tables
            for p, (_, high) in t.pairs.items()
            if high is not None and self._in(p, unknown)
        ]
        return min(held)

    def _rows(self, pair: Pair) -> list[int]:
        return [i for i, u in enumerate(self.unknowns) if self._in(pair, u)]

    def bounds(self, rows: set[int]) -> tuple[int, int]:
        """Smallest and largest sum of these unknowns."""
        held = self.values[sorted(rows)].sum(axis=0)
        return int(held.min()), int(held.max())

    def inside(self, pair: Pair) -> set[int]:
        """The unknowns of a pair of zones, listed or not; ("", "") for none."""
        return set(self._rows(pair)) if pair != ("", "") else set()

    def outside(self, table: int) -> set[int]:
        """The unknowns that no pair of listed zones of a table holds."""
        return set(range(len(self.unknowns))) - {
            i for p in self.tables[table].pairs for i in self._rows(p)
        }

    def unpublished(self, table: int) -> set[int]:
        """The unknowns that no published cell of a table holds."""
        return set(range(len(self.unknowns))) - {
            i for p in self.tables[table].cells for i in self._rows(p)
        }

    def whole(self, pair: Pair) -> bool:
        """Whether all regions of this pair are unknowns here.

        Else it reaches where nothing is published.
        """
        size = sum(len(a) * len(b) for a, b in (self.unknowns[i] for i in self._rows(pair)))
        return size == len(self.tiles(pair[0])) * len(self.tiles(pair[1]))
