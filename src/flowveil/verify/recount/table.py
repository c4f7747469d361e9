"""The raw trips that a release is recounted from, as flat columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .tree import Codes, Ints, ZoneMap

Counts = NDArray[np.int64]


class Persons(Protocol):
    """Who is behind each row: all that a recount needs is how many persons are in a group of rows."""

    def count(self, group: Ints, n: int) -> Counts:
        """Distinct persons of each of n groups; ``group`` has the group of each row, -1 for none."""
        ...


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Distinct (row, person) pairs in memory.

    Attributes:
        row: row of the trips.
        person: number of the person.
        trips: how many trips of the row this person made; None if unknown.
    """

    row: Ints
    person: Ints
    trips: Counts | None

    def count(self, group: Ints, n: int) -> Counts:
        """Distinct persons of each group, by sorting (group, person)."""
        key, _, bits = self._keys(group)
        key.sort()
        first = np.append(True, key[1:] != key[:-1])[: len(key)]
        return np.bincount(key[first] >> bits, minlength=n)

    def members(self, group: Ints) -> tuple[NDArray[np.int64], Counts]:
        """The group of each distinct (group, person) pair, and the trips of the pair (1 if unknown)."""
        key, kept, bits = self._keys(group)
        made = np.ones(len(key), dtype=np.int64) if self.trips is None else self.trips[kept]
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        sums = np.add.reduceat(made[order], first) if len(first) else made[:0]
        return key[first] >> bits, sums

    def _keys(self, group: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        of_row = group[self.row]
        kept = np.flatnonzero(of_row >= 0)
        bits = int(self.person.max(initial=0)).bit_length()
        return (of_row[kept].astype(np.int64) << bits) | self.person[kept], kept, bits


@dataclass(frozen=True, eq=False)
class Places:
    """Listed places by tile: those around which cells must reach more, or those that locations are counted by.

    Attributes:
        tile: code of the tile of each place.
        k, l: thresholds around the place, 0 for none.
    """

    tile: Codes
    k: Counts
    l: Counts  # noqa: E741  # the letter of the papers


@dataclass(frozen=True, eq=False)
class Trips:
    """Raw trips: one row for each (slice, origin tile, destination tile), or finer.

    Attributes:
        origin, destination: number of the tile in ``origins`` and ``destinations``.
        trips: at least 1.
        weight: whole millionths; None without weights.
        persons: None if the input has none.
        origins, destinations: codes of the tiles seen at each end, all different: H3 cells (uint64) or text.
        origin_map, destination_map: the map that codes are taken from; None for H3.
        slice_columns: names of the columns by which trips are cut, ``time`` last.
        slices: values of each slice; one empty tuple if trips are not cut.
        slice: number of the slice of each row.
        every: step of time; None without time.
        dropped: how many input rows could not be read; rows of 0 trips are none of them.
        outside: how many have an end outside the study area.
        stricter: places around which cells must reach more, if the operator gave the list.
        l_places: places that locations are counted by, if the operator gave the list.
        read_by: who read the input: ``recount`` or ``engine``.
        notes: what a reader of the result should know about the reading.
    """

    origin: Ints
    destination: Ints
    trips: Counts
    weight: Counts | None
    persons: Persons | None
    origins: Codes
    destinations: Codes
    origin_map: ZoneMap | None = None
    destination_map: ZoneMap | None = None
    slice_columns: tuple[str, ...] = ()
    slices: Sequence[tuple[str, ...]] = ((),)
    slice: Ints | None = None
    every: str | None = None
    dropped: int = 0
    outside: int = 0
    stricter: Places | None = None
    l_places: Places | None = None
    read_by: str = "recount"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.origin)

    def of_slice(self) -> Any:
        """The slice of each row."""
        return np.zeros(len(self), dtype=np.int32) if self.slice is None else self.slice
