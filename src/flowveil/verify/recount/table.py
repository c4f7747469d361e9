"""The raw trips that a release is recounted from, as flat columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
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
        unit: what one trip is counted as: 1, or 1,000,000 where the input has fractions of trips.
        rows: input rows that represent trips; None if that is not known.
        dropped: how many of them could not be read.
        outside: how many have an end outside the study area.
        unread: trips and weight of the dropped rows and of those outside, by basis; None if unknown.
        rows_are_trips: whether every row is one trip.
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
    unit: int = 1
    rows: int | None = None
    dropped: int = 0
    outside: int = 0
    unread: Mapping[str, tuple[Fraction, Fraction]] | None = None
    rows_are_trips: bool = False
    stricter: Places | None = None
    l_places: Places | None = None
    read_by: str = "recount"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.origin)

    def unread_volume(self, basis: str) -> tuple[Fraction, Fraction] | None:
        """Volume of the dropped rows and of those outside; None if it is unknown."""
        if self.unread is not None:
            return self.unread[basis]
        known = (self.rows_are_trips and basis == "trips") or not (self.dropped or self.outside)
        return (Fraction(self.dropped), Fraction(self.outside)) if known else None

    def of_slice(self) -> Any:
        """The slice of each row."""
        return np.zeros(len(self), dtype=np.int32) if self.slice is None else self.slice


def far_from_all(origin: Any, destination: Any, trips: Counts, t: float) -> NDArray[np.bool_]:
    """Which cells are of an origin or destination zone whose trips are farther than t from all trips.

    The distance of a zone is half the sum, over all zones of the other end, of the absolute difference between the
    share of its trips and the share of all trips there.
    """
    far = np.zeros(len(trips), dtype=np.bool_)
    for own, other in ((origin, destination), (destination, origin)):
        _, zone = np.unique(own, return_inverse=True)
        _, there = np.unique(other, return_inverse=True)
        of_all = np.bincount(there, weights=trips) / max(trips.sum(), 1e-300)
        share = trips / np.maximum(np.bincount(zone, weights=trips), 1e-300)[zone]
        # Where a zone has no trips, all have their share.
        present, absent = np.abs(share - of_all[there]), 1 - np.bincount(zone, weights=of_all[there])
        distance = (np.bincount(zone, weights=present) + absent) / 2
        far |= distance[zone] > t + 1e-9
    return far
