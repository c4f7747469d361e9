"""Flows and cells: the sparse OD table, at tile level and at any coarser level.

`Cells` is a table of (origin, destination) pairs with their trips, weight and people. `Flows` is
the same table at tile level, with its two hierarchies. `Cells.merge` renames both ends and adds up
equal pairs. People and tiles do not add up, so they are kept as distinct (cell, person) and (cell,
tile) rows. `SUM_COLUMNS` lists the summed columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, repr_of_sizes
from flowveil.core.dimensions import Dimension, Use
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.hierarchy import Hierarchy, PlaceCounts
from flowveil.core.read_summary import ReadSummary
from flowveil.core.slices import Key, refuse_many_combinations
from flowveil.core.times import TIME, Every, fold_times, time_dimension
from flowveil.core.values import RecordValues, merged_values

#: A dense table of counts is used up to this many entries for each row that is counted into it.
#: Below, one `bincount` is cheaper than a sort; above, clearing and scanning the table costs more
#: than it saves.
DENSE_ENTRIES_PER_ROW = 4
#: Columns that add up are counted as whole millionths.
MILLION = 1_000_000
#: The largest total of such a column: just below 2**53 millionths. The earth has fewer inhabitants.
LARGEST_SUM = 2**33
#: By how much, as a share of their sum, its values may change when they are rounded to millionths.
ROUNDING_ALLOWED = 1e-6


@dataclass(frozen=True)
class SumColumn:
    """A column of numbers that are summed: its names and limits, from the file to a cell.

    Numbers that are negative, infinite or above `LARGEST_SUM` are refused. Sums are in whole
    millionths. `Cells`, `flowveil.reading.columns.ColumnMap` and `flowveil.reading.Reading` have a
    field of its name.
    """

    name: str
    one: str  # word for a number, in messages
    many: str
    usual: tuple[
        str, ...
    ] = ()  # names of such columns, without case, blanks and signs; for hints only

    @property
    def missing(self) -> str:
        """The reason for which a row without a value is dropped."""
        return f"missing {self.one}"

    def wrong(self, values: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
        """Returns masks of rows with invalid numbers, by what is wrong."""
        return {
            f"a negative {self.one}": values < 0,
            f"an infinite {self.one}, or one above {LARGEST_SUM:,}": values > LARGEST_SUM,
        }

    def round_fixed_point(self, values: NDArray[Any]) -> Floats:
        """Returns the doubles nearest to whole millionths, whose sums are exact and the same in any
        order.
        """
        values = np.asarray(values, dtype=np.float64)
        total = float(np.sum(values))
        if total > LARGEST_SUM:
            raise DataError(
                f"The {self.many} are too large: they are counted in millionths, up to a total of"
                f" {LARGEST_SUM:,}. Hint: scale them, for example from persons to thousands."
            )
        whole = to_fixed_point(values)
        rounded = whole / MILLION
        if (
            np.any((whole == 0) & (values > 0))
            or float(np.sum(np.abs(values - rounded))) > ROUNDING_ALLOWED * total
        ):
            raise DataError(
                f"The {self.many} are too fine: they are counted in millionths, and rounding to"
                " that would change their sum or leave nothing of some. Hint: scale them, for"
                " example to a mean of 1."
            )
        rounded.flags.writeable = False
        return rounded


#: The columns that are summed in addition to the trips, by name.
SUM_COLUMNS: dict[str, SumColumn] = {
    column.name: column
    for column in (
        SumColumn(
            "weight",
            one="weight",
            many="weights",
            usual=(
                "weight",
                "weights",
                "w",
                "weightindiv",
                "tripweight",
                "weighttrip",
                "personweight",
                "sampleweight",
                "samplingweight",
                "expansionfactor",
                "expfactor",
                "expf",
                "factor",
                "wgt",
                "wttrdfin",
            ),
        ),
    )
}


@dataclass(frozen=True, eq=False, repr=False)
class People:
    """Who is behind each cell: distinct (cell, person) rows, sorted by cell.

    Persons are numbers given by the engine; their names never leave it. ``trips`` says how many
    trips of the cell are this person's; None where nothing needs them, or trips have fractions.
    """

    __repr__ = repr_of_sizes

    cell: Ints
    person: Ints
    trips: NDArray[np.int64] | None = None

    @classmethod
    def aggregate(cls, cell: Ints, person: Ints, trips: NDArray[np.int64]) -> People:
        """Rows in any order, those of the same cell and person added up."""
        if len(cell) == 0:
            return cls(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))
        n_people = int(person.max()) + 1
        key = cell.astype(np.int64) * n_people + person
        order = np.argsort(key, kind="stable")
        start = np.flatnonzero(_first_of_runs(key[order]))
        cells, persons = np.divmod(key[order[start]], n_people)
        return cls(
            cells.astype(np.int32), persons.astype(np.int32), np.add.reduceat(trips[order], start)
        )

    @classmethod
    def concat(cls, parts: Sequence[People], n_cells: Sequence[int]) -> People:
        """Returns the people of tables that are concatenated.

        ``n_cells`` has the length of each.
        """
        trips = [part.trips for part in parts if part.trips is not None]
        return cls(
            *_concat([(part.cell, part.person) for part in parts], n_cells),
            np.concatenate(trips) if len(trips) == len(parts) else None,
        )

    @property
    def n_rows(self) -> int:
        """Rows that are held in memory."""
        return len(self.cell)

    def between(self, first: int, stop: int) -> People:
        """Returns the people of a range of cells, which are numbered from 0 then."""
        rows = slice(*np.searchsorted(self.cell, (first, stop)))
        trips = None if self.trips is None else self.trips[rows]
        return People(self.cell[rows] - np.int32(first), self.person[rows], trips)

    def without_trips(self) -> People:
        """Returns the same people without their numbers of trips, which merges faster."""
        return self if self.trips is None else People(self.cell, self.person)

    def count(self, n_cells: int) -> NDArray[np.int64]:
        """Distinct people of each cell."""
        return np.bincount(self.cell, minlength=n_cells)

    def total(self) -> int:
        """Distinct people of all cells together."""
        return int(np.count_nonzero(np.bincount(self.person)))

    def largest(
        self, group: NDArray[Any], n_groups: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the trips of the persons with the most and second most in each group of cells
        (-1: no group).
        """
        assert self.trips is not None
        rows = np.flatnonzero(group[self.cell] >= 0)
        merged = People.aggregate(group[self.cell[rows]], self.person[rows], self.trips[rows])
        assert merged.trips is not None
        trips = np.append(merged.trips[np.lexsort((-merged.trips, merged.cell))], (0, 0))
        start = np.searchsorted(merged.cell, np.arange(n_groups + 1))
        n, first = np.diff(start), start[:-1]
        return np.where(n > 0, trips[first], 0), np.where(n > 1, trips[first + 1], 0)

    def merge(self, new_cell: Ints) -> People:
        """Moves every row to its new cell (-1: leaves it out) and makes the rows distinct again."""
        if self.trips is None:
            return People(*_moved(self.cell, self.person, new_cell))
        cell = new_cell[self.cell]
        kept = cell >= 0
        return People.aggregate(cell[kept], self.person[kept], self.trips[kept])

    def renumber(self, place: Ints) -> People:
        """Returns the same people of cells that have other numbers, each its own.

        The number of trips stays known.
        """
        cell = place[self.cell].astype(np.int32)
        # One key sorts faster than two. Rows are distinct, so the sort need not be stable.
        order = np.argsort(
            cell.astype(np.int64) * (int(self.person.max(initial=0)) + 1) + self.person
        )
        return People(
            cell[order], self.person[order], None if self.trips is None else self.trips[order]
        )


@dataclass(frozen=True, eq=False, repr=False)
class Tiles:
    """Where the trips of each cell begin and end.

    Two tables of distinct (cell, tile) rows, sorted by cell.

    Present only if locations are protected (`Flows.with_tile_members`). Merging never lowers the
    number of tiles. ``begin`` has the cell and the tile of each row for the tiles in which trips
    begin, ``end`` for the others.
    """

    __repr__ = repr_of_sizes

    begin: tuple[Ints, Ints]
    end: tuple[Ints, Ints]

    @classmethod
    def concat(cls, parts: Sequence[Tiles], n_cells: Sequence[int]) -> Tiles:
        """Returns the tiles of tables that are concatenated; ``n_cells`` has the length of each."""
        return cls(
            _concat([p.begin for p in parts], n_cells), _concat([p.end for p in parts], n_cells)
        )

    def between(self, first: int, stop: int) -> Tiles:
        """Returns the tiles of a range of cells, which are numbered from 0 then."""
        ends = []
        for cell, tile in (self.begin, self.end):
            rows = slice(*np.searchsorted(cell, (first, stop)))
            ends.append((cell[rows] - np.int32(first), tile[rows]))
        return Tiles(*ends)

    def count(self, n_cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct tiles of each cell, in which its trips begin and in which they end."""
        return np.bincount(self.begin[0], minlength=n_cells), np.bincount(
            self.end[0], minlength=n_cells
        )

    def merge(self, new_cell: Ints) -> Tiles:
        """Move every row to its new cell (-1: leave it out) and make the rows distinct again."""
        return Tiles(_moved(*self.begin, new_cell), _moved(*self.end, new_cell))


def _concat(parts: Sequence[tuple[Ints, Ints]], n_cells: Sequence[int]) -> tuple[Ints, Ints]:
    """Returns the (cell, member) rows of concatenated tables."""
    first = np.cumsum([0, *n_cells[:-1]]).astype(np.int32)
    cells = [cell + start for (cell, _), start in zip(parts, first, strict=True)]
    return np.concatenate(cells), np.concatenate([member for _, member in parts])


def _moved(cell: Ints, member: Ints, new_cell: Ints) -> tuple[Ints, Ints]:
    """The distinct (cell, member) rows after every row has gone to its new cell (-1.

    It is left out).
    """
    key = new_cell[cell].astype(np.int64)
    kept = np.flatnonzero(key >= 0)
    if len(kept) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    if len(kept) < len(key):
        key, member = key[kept], member[kept]
    del kept
    # One number sorts much faster than two, and bits are taken apart faster than a product.
    bits = int(member.max()).bit_length()
    key <<= bits
    key |= member
    key.sort()
    key = np.compress(_first_of_runs(key), key)
    members = key.astype(np.int32)
    members &= np.int32((1 << bits) - 1)
    key >>= bits
    return key.astype(np.int32), members


@dataclass(frozen=True, eq=False, repr=False)
class Cells:
    """A sparse OD table: one row for each pair that has trips.

    Columns of `SUM_COLUMNS` are None if the input does not have them. float64 values are the
    doubles nearest to whole millionths; methods use int64 millionths (`Guarantee.to_fixed_point`).
    """

    __repr__ = repr_of_sizes

    origin: Ints  # number of the end: a tile, a zone of a cut, or a node
    destination: Ints
    trips: NDArray[np.int64]  # at least 1; or float64, above 0, if the input has fractions of trips
    weight: NDArray[Any] | None = None
    people: People | None = None  # None if the input has no persons
    tiles: Tiles | None = (
        None  # in which the trips of each row begin and end (`Flows.with_tile_members`)
    )

    def __len__(self) -> int:
        return len(self.origin)

    def volume(self, basis: str) -> NDArray[Any]:
        """The trips, or the column of `SUM_COLUMNS` that has the name of the basis."""
        if basis == "trips":
            return self.trips
        values: NDArray[Any] | None = getattr(self, SUM_COLUMNS[basis].name)
        if values is None:
            raise DataError(
                f"The input has no {SUM_COLUMNS[basis].many}, so nothing can be counted by"
                f" {SUM_COLUMNS[basis].one}."
            )
        return values

    def total(self, basis: str) -> float:
        """The sum of all trips or weights, exact."""
        values = self.volume(basis)
        return float(
            np.sum(values) if is_fixed_point(values) else np.sum(to_fixed_point(values)) / MILLION
        )

    def added(
        self, change: Callable[[NDArray[Any]], NDArray[Any]] = lambda values: values
    ) -> dict[str, Any]:
        """The columns that add up, by name, each as a change leaves it.

        None where the input does not have it.
        """
        columns = {name: getattr(self, name) for name in SUM_COLUMNS}
        return {
            name: None if values is None else change(values) for name, values in columns.items()
        }

    def n_people(self) -> NDArray[np.int64] | None:
        """Distinct people of each row, or None where the input has no persons."""
        return None if self.people is None else self.people.count(len(self))

    def n_tiles(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Distinct tiles in which the trips of each row begin, and end, or None where they are not
        carried.
        """
        return None if self.tiles is None else self.tiles.count(len(self))

    def select(self, kept: NDArray[np.bool_]) -> Cells:
        """The rows of a mask, in the same order."""
        number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        others = self._members_of(number) | self.added(lambda values: values[kept])
        return Cells(self.origin[kept], self.destination[kept], self.trips[kept], **others)

    def renamed(self, origin: Ints, destination: Ints) -> Cells:
        """The same rows with other ends; they need not be distinct or sorted any more."""
        return Cells(
            origin, destination, self.trips, people=self.people, tiles=self.tiles, **self.added()
        )

    def ordered(self, order: NDArray[np.int64]) -> Cells:
        """The same rows in another order."""
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        others = self._members_of(place) | self.added(lambda values: values[order])
        return Cells(self.origin[order], self.destination[order], self.trips[order], **others)

    def merge(self, origin: Ints, destination: Ints, n_origins: int, n_destinations: int) -> Merged:
        """Gives every row new ends below these bounds (-1 removes it) and adds up equal ones.

        The result is sorted.
        """
        group = group_pairs(origin, destination, n_origins, n_destinations)
        others = self._members_of(group.row) | self.added(group.sum_exactly)
        cells = Cells(group.origin, group.destination, group.sum_exactly(self.trips), **others)
        return Merged(cells=cells, row=group.row)

    def _members_of(self, row: Ints) -> dict[str, Any]:
        """People and tiles once every row has gone to another (-1: nowhere)."""
        members = {"people": self.people, "tiles": self.tiles}
        return {name: None if own is None else own.merge(row) for name, own in members.items()}


def concat_cells(parts: Sequence[Cells]) -> Cells:
    """The rows of all parts, one after the other."""
    found: dict[str, Any] = {}
    for name in ("origin", "destination", "trips", *SUM_COLUMNS, "people", "tiles"):
        values: list[Any] = [getattr(part, name) for part in parts]
        if all(value is not None for value in values):
            is_array = isinstance(values[0], np.ndarray)
            found[name] = (
                np.concatenate(values)
                if is_array
                else values[0].concat(values, list(map(len, parts)))
            )
    return Cells(**found)


@dataclass(frozen=True, eq=False, repr=False)
class Merged:
    """Cells after a merge, and where each old row went (-1: nowhere)."""

    __repr__ = repr_of_sizes

    cells: Cells
    row: Ints


@dataclass(frozen=True, eq=False, repr=False)
class Groups:
    """Distinct pairs, sorted, and the number of the pair of every row (-1: none)."""

    __repr__ = repr_of_sizes

    origin: Ints
    destination: Ints
    row: Ints

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Add up a value of the rows over each pair; integers stay exact integers below 2**53."""
        kept = self.row >= 0
        row, weights = (self.row, values) if kept.all() else (self.row[kept], values[kept])
        return np.bincount(row, weights=weights, minlength=len(self.origin)).astype(values.dtype)

    def sum_exactly(self, values: NDArray[Any]) -> NDArray[Any]:
        """Adds up trips or a column of `SUM_COLUMNS`: integers directly, doubles in millionths."""
        return (
            self.sum(values)
            if is_fixed_point(values)
            else self.sum(to_fixed_point(values)) / MILLION
        )


def to_fixed_point(values: NDArray[Any]) -> NDArray[np.int64]:
    """Values as whole millionths: exactly those they were made from, up to a total of
    `LARGEST_SUM`.
    """
    whole: NDArray[np.int64] = np.rint(values * MILLION).astype(np.int64)
    return whole


def plain_amount(amount: int) -> float:
    """Returns an amount in millionths as a number: whole if it is."""
    return amount // MILLION if amount % MILLION == 0 else amount / MILLION


def is_fixed_point(values: NDArray[Any]) -> bool:
    """Whether a column that adds up holds whole millionths, as methods count them."""
    return values.dtype == np.int64


def group_pairs(origin: Ints, destination: Ints, n_origins: int, n_destinations: int) -> Groups:
    """Number the distinct pairs in sorted order, in one dense pass where they are few, else by one
    sort.
    """
    left_out = (origin < 0) | (destination < 0)
    if left_out.any():
        inside = group_pairs(origin[~left_out], destination[~left_out], n_origins, n_destinations)
        row = np.full(len(origin), -1, dtype=np.int32)
        row[~left_out] = inside.row
        return Groups(inside.origin, inside.destination, row)
    key = origin.astype(np.int64) * n_destinations + destination
    if n_origins * n_destinations <= DENSE_ENTRIES_PER_ROW * len(key):
        present = np.zeros(n_origins * n_destinations, dtype=np.bool_)
        present[key] = True
        distinct = np.flatnonzero(present)
        row = np.cumsum(present, dtype=np.int32)[key] - np.int32(1)
    else:
        # Flows come sorted by tile, so keys of zones are a few long runs, which a stable sort
        # merges.
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        first = _first_of_runs(ordered)
        distinct = ordered[first]
        row = np.empty(len(key), dtype=np.int32)
        row[order] = np.cumsum(first, dtype=np.int32) - np.int32(1)
    origins, destinations = np.divmod(distinct, n_destinations)
    return Groups(origins.astype(np.int32), destinations.astype(np.int32), row)


def _first_of_runs(ordered: NDArray[Any]) -> NDArray[np.bool_]:
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


@dataclass(frozen=True, eq=False, repr=False)
class Flows(Cells):
    """The OD table at tile level: one row for each pair of tiles and value of every dimension.

    Rows are distinct and sorted: by the separate dimensions, by origin, by destination, by the
    dimensions that fold. So the rows of a matrix that is planned alone are neighbours (`split`).

    Attributes:
        origins, destinations: the trees over the tiles of each end; ``origin`` and ``destination``
            number their leaves.
        intake: counters and settings of the read.
        whole_map: the tree of the map that the tiles were taken from, with the tiles where nothing
            was seen; None for H3, which covers the earth, and where there was no map. It does not
            depend on the trips.
        dimensions: further columns of the trips with their trees (`flowveil.core.dimensions`).
        leaves: for each dimension, the leaf of each flow.
        l_places: number of listed places in each tile, if locations are counted by places; else
            None.
        values: values of the records of each flow, if numbers beyond counts are published; else
            None.
    """

    _: KW_ONLY
    origins: Hierarchy
    destinations: Hierarchy
    intake: ReadSummary = field(default_factory=ReadSummary)
    whole_map: Hierarchy | None = None
    dimensions: tuple[Dimension, ...] = ()
    leaves: tuple[Ints, ...] = ()
    l_places: PlaceCounts | None = None
    values: RecordValues | None = None

    def __post_init__(self) -> None:
        n = len(self.origin)
        if self.intake.same_zones and self.origins is not self.destinations:
            raise DataError("Flows with the same zones at both ends need one tree for both.")
        added = {name: values for name, values in self.added().items() if values is not None}
        if any(len(c) != n for c in (self.origin, self.destination, self.trips, *added.values())):
            raise DataError("The columns of the flows have different lengths.")
        if n and self.trips.min() < (1 if self.trips.dtype == np.int64 else 1 / MILLION):
            raise DataError("A flow has no trips; leave such rows out.")
        for name, values in added.items():
            if n and not (np.isfinite(values).all() and values.min() >= 0):
                raise DataError(f"A flow has a negative or infinite {SUM_COLUMNS[name].one}.")
            if not is_fixed_point(values):
                object.__setattr__(self, name, SUM_COLUMNS[name].round_fixed_point(values))
        if [len(leaf) for leaf in self.leaves] != [n] * len(self.dimensions):
            raise DataError("Each dimension needs a leaf for every flow.")
        later, same = (
            np.zeros(max(n - 1, 0), dtype=np.bool_),
            np.ones(max(n - 1, 0), dtype=np.bool_),
        )
        for tree, leaf in (*self._ends_of("separate"), *self.ends):
            if n and not 0 <= leaf.min() <= leaf.max() < tree.n_tiles:
                raise DataError(
                    f"A flow has an end outside the hierarchy of its {tree.n_tiles} tiles or"
                    " values."
                )
            later |= same & (leaf[1:] > leaf[:-1])
            same &= leaf[1:] == leaf[:-1]
        if not np.all(later):
            raise DataError(
                "Flows must be distinct, sorted by separate dimensions, origin, destination, folds."
            )
        for column in (
            self.origin,
            self.destination,
            self.trips,
            *self.added().values(),
            *self.leaves,
        ):
            if column is not None:
                column.flags.writeable = False

    @classmethod
    def of_cells(cls, cells: Cells, **how: Any) -> Flows:
        """Returns cells whose zones are tiles as flows; ``how`` has the other fields."""
        own = {"people": cells.people, "tiles": cells.tiles, **cells.added()}
        return cls(cells.origin, cells.destination, cells.trips, **own, **how)

    @classmethod
    def from_pairs(
        cls,
        origin: NDArray[Any],
        destination: NDArray[Any],
        trips: NDArray[Any] | None = None,
        *,
        origins: Hierarchy,
        destinations: Hierarchy,
        person: NDArray[Any] | None = None,
        intake: ReadSummary | None = None,
        whole_map: Hierarchy | None = None,
        **added: NDArray[Any] | None,
    ) -> Flows:
        """Build from rows in any order; rows of the same pair are added up.

        Args:
            origin, destination: tile numbers of each row.
            trips: trips of each row, 1 by default. Fractions make the trips of the flows float64.
            origins, destinations: the two hierarchies.
            person: number of the person of each row, -1 where unknown.
            intake: counters and settings of the read.
            whole_map: see the class.
            **added: columns of `SUM_COLUMNS`, such as ``weight``: that of each row, of all its
                trips together.
        """
        o = np.asarray(origin, dtype=np.int32)
        d = np.asarray(destination, dtype=np.int32)
        t: Any = np.ones(len(o)) if trips is None else np.asarray(trips)
        has_fractions = t.dtype.kind == "f" and bool(np.any(t != np.rint(t)))
        t = to_fixed_point(t) / MILLION if has_fractions else t.astype(np.int64)
        # Rounded before they are added up, so that the order of the rows leaves no trace.
        columns: dict[str, Any] = {
            name: SUM_COLUMNS[name].round_fixed_point(v)
            for name, v in added.items()
            if v is not None
        }
        merged = Cells(o, d, t, **columns).merge(o, d, origins.n_tiles, destinations.n_tiles)
        people = None
        if person is not None:
            who = np.asarray(person, dtype=np.int32)
            known = who >= 0
            people = People.aggregate(merged.row[known], who[known], t[known])
            if has_fractions:
                people = replace(people, trips=None)
        read = intake or ReadSummary(rows=len(o), input_trips=float(np.sum(t)))
        how = {
            "origins": origins,
            "destinations": destinations,
            "intake": read,
            "whole_map": whole_map,
        }
        return cls.of_cells(replace(merged.cells, people=people), **how)

    @property
    def ends(self) -> tuple[tuple[Hierarchy, Ints], ...]:
        """The tree and the leaves of each end: origin, destination, and what folds."""
        places = (self.origins, self.origin), (self.destinations, self.destination)
        return *places, *self._ends_of("fold")

    def _ends_of(self, use: Use) -> list[tuple[Hierarchy, Ints]]:
        both = zip(self.dimensions, self.leaves, strict=True)
        return [(dimension.tree, leaf) for dimension, leaf in both if dimension.use == use]

    @property
    def folds(self) -> tuple[Dimension, ...]:
        """The dimensions that fold."""
        return tuple(one for one in self.dimensions if one.use == "fold")

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the separate dimensions, by whose values matrices are planned one by one."""
        return tuple(one.name for one in self.dimensions if one.use == "separate")

    @property
    def every(self) -> Every | None:
        """The step of time, if time is a dimension."""
        steps = [one.every for one in self.dimensions if one.every is not None]
        return Every.parse(steps[0]) if steps else None

    # ---- separate dimensions ---------------------------------------------------------------------

    @cached_property
    def _start_of_slices(self) -> NDArray[np.int64]:
        """The first row of each slice, and the number of rows."""
        first = np.zeros(len(self), np.bool_)
        first[:1] = True
        for _, leaf in self._ends_of("separate"):
            first[1:] |= leaf[1:] != leaf[:-1]
        return np.append(np.flatnonzero(first), len(self))

    @cached_property
    def slice_keys(self) -> tuple[Key, ...]:
        """The values of the separate dimensions that have flows, sorted; ``((),)`` without any.

        ``(("F",), ("M",))`` for trips that were read with ``by="sex"``.
        """
        at = self._start_of_slices[:-1]
        both = zip(self.dimensions, self.leaves, strict=True)
        columns = [one.labels[leaf[at]].tolist() for one, leaf in both if one.use == "separate"]
        return tuple(zip(*columns, strict=True)) if columns else ((),)

    @cached_property
    def slices(self) -> tuple[Flows, ...]:
        """The flows of each of `slice_keys`, without their separate dimensions."""
        if not self.slice_columns:
            return (self,)
        return tuple(self._rows(a, b) for a, b in pairwise(self._start_of_slices.tolist()))

    def split(self) -> tuple[tuple[Key, Flows], ...]:
        """Returns the values of the separate dimensions with the flows of each."""
        return tuple(zip(self.slice_keys, self.slices, strict=True))

    def _rows(self, first: int, stop: int) -> Flows:
        """Returns a range of rows of one slice as flows. Arrays are views."""
        rows = slice(first, stop)
        folded = [n for n, one in enumerate(self.dimensions) if one.use == "fold"]
        return replace(
            self,
            origin=self.origin[rows],
            destination=self.destination[rows],
            trips=self.trips[rows],
            **self.added(lambda values: values[rows]),
            people=None if self.people is None else self.people.between(first, stop),
            tiles=None if self.tiles is None else self.tiles.between(first, stop),
            dimensions=tuple(self.dimensions[n] for n in folded),
            leaves=tuple(self.leaves[n][rows] for n in folded),
            values=None if self.values is None else self.values.rows(first, stop),
        )

    @cached_property
    def whole(self) -> Flows:
        """All slices together, without the separate dimensions.

        Trips and weights are summed, people deduplicated.
        """
        if not self.slice_columns:
            return self
        ends = self.ends
        shape = [tree.n_tiles for tree, _ in ends]
        if len(ends) == 2:
            merged = self.merge(self.origin, self.destination, *shape)
            leaves: tuple[Ints, ...] = (merged.cells.origin, merged.cells.destination)
        else:
            tuples = np.ravel_multi_index(tuple(leaf for _, leaf in ends), shape)
            distinct, row = np.unique(tuples, return_inverse=True)
            merged = self.merge(row.astype(np.int32), np.zeros_like(self.origin), len(distinct), 1)
            leaves = tuple(leaf.astype(np.int32) for leaf in np.unravel_index(distinct, shape))
        return Flows.of_cells(
            merged.cells.renamed(leaves[0], leaves[1]),
            origins=self.origins,
            destinations=self.destinations,
            intake=self.intake,
            whole_map=self.whole_map,
            dimensions=self.folds,
            leaves=leaves[2:],
            l_places=self.l_places,
            values=None if self.values is None else self.values.renumber(merged.row),
        )

    def together(self, members: Sequence[int]) -> Flows:
        """Returns some slices, by number, as one."""
        keys = [self.slice_keys[m] for m in members]
        slices = [self.slices[m] for m in members]
        if len(slices) == 1:
            return slices[0]
        return Flows.from_slices(self.slice_columns, keys, slices, self.every).whole

    def folded(self, trees: Mapping[str, Hierarchy] | None = None) -> Flows:
        """Returns the same flows with all dimensions as ends, along which methods divide cells.

        ``trees`` has the trees of attributes (`flowveil.read_tree`); others have their values
        below one root. Raises ParameterError if steps of time cannot be folded, DataError if an
        attribute has values that its tree does not list.
        """
        refuse_many_combinations(self)
        given = dict(trees or {})
        names = [one.name for one in self.dimensions]
        if not given.keys() <= set(names) - {TIME} or (TIME in names) != (self.every is not None):
            raise ParameterError(
                f"Trees of {', '.join(given) or 'none'} were given for the columns"
                f" {', '.join(names)}. Hint: --fold NAME=FILE for attributes, --every for the time."
            )
        dimensions, leaves = [], []
        for own, leaf in zip(self.dimensions, self.leaves, strict=True):
            seen = np.unique(leaf)
            labels = own.labels[seen].tolist()
            if own.name in given:
                fold = Dimension.from_tree(own.name, given[own.name])
            elif own.name != TIME:
                fold = Dimension.from_found(own.name, labels)
            else:
                assert self.every is not None
                fold = fold_times(self.every.name, self.every.minutes, labels)
            number = np.full(own.tree.n_tiles, -1, np.int32)
            number[seen] = fold.leaves(labels)
            dimensions.append(fold)
            leaves.append(number[leaf])
        order = np.lexsort((*leaves[::-1], self.destination, self.origin))
        return self.reordered(
            order, dimensions=tuple(dimensions), leaves=tuple(leaf[order] for leaf in leaves)
        )

    def reordered(self, order: NDArray[np.int64], **changes: Any) -> Flows:
        """Returns the same rows in another order; ``changes`` are other fields in that order."""
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        moved: dict[str, Any] = {
            "origin": self.origin[order],
            "destination": self.destination[order],
            "trips": self.trips[order],
            **self.added(lambda values: values[order]),
            "people": None if self.people is None else self.people.renumber(place),
            "tiles": None if self.tiles is None else self.tiles.merge(place),
            "leaves": tuple(leaf[order] for leaf in self.leaves),
            "values": None if self.values is None else self.values.renumber(place),
        }
        return replace(self, **{**moved, **changes})

    @classmethod
    def from_slices(
        cls,
        columns: Sequence[str],
        keys: Sequence[Key],
        slices: Sequence[Flows],
        every: Every | None = None,
    ) -> Flows:
        """Returns the flows of several matrices as one table with separate dimensions.

        Args:
            columns: names of the dimensions; that of time is ``time``.
            keys: their values for each matrix, sorted.
            slices: the flows of each, over the same two trees.
            every: the step of the time.
        """
        if not keys or len(keys) != len(slices):
            raise DataError(
                f"{len(keys)} slice keys for {len(slices)} slices; each slice needs one."
            )
        if list(keys) != sorted(set(keys)):
            raise DataError("Slice keys must be distinct and sorted.")
        first = slices[0]
        if any(
            s.origins is not first.origins or s.destinations is not first.destinations
            for s in slices
        ):
            raise DataError("All slices must share their two hierarchies.")
        lengths = [len(part) for part in slices]
        dimensions = separate_dimensions(columns, keys, every)
        leaves = [
            np.repeat(one.leaves([key[n] for key in keys]), lengths)
            for n, one in enumerate(dimensions)
        ]
        return cls.of_cells(
            concat_cells(slices),
            origins=first.origins,
            destinations=first.destinations,
            intake=first.intake,
            whole_map=first.whole_map,
            dimensions=dimensions,
            leaves=tuple(leaves),
            **merged_values(slices, np.arange(sum(lengths), dtype=np.int32)),
        )

    @property
    def same_zones(self) -> bool:
        """Whether one cut of one tree is to serve both ends; asked for when the trips are read."""
        return self.intake.same_zones

    def with_tile_members(self, *, most: int = 1) -> Flows:
        """Returns flows that carry the tiles they begin and end in, or at most ``most`` listed
        places of each.
        """
        if self.tiles is not None:
            return self
        row = np.arange(len(self), dtype=np.int32)
        begin, end = (row, self.origin), (row, self.destination)
        if self.l_places is not None:
            begin = self.l_places.rows(self.origins, self.origin, most)
            end = self.l_places.rows(self.destinations, self.destination, most)
        return replace(self, tiles=Tiles(begin, end))

    def __getstate__(self) -> dict[str, Any]:
        # Slices and their sum are computed again where they are needed.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __repr__(self) -> str:
        # Never the rows: a repr ends up in logs and tracebacks.
        by = "".join(f", {one.name} ({one.tree.n_tiles:,})" for one in self.dimensions)
        return (
            f"<Flows: {len(self):,} flows between {self.origins.n_tiles:,} origin and "
            f"{self.destinations.n_tiles:,} destination tiles{by}>"
        )


def separate_dimensions(
    columns: Sequence[str], keys: Sequence[Key], every: Every | None
) -> tuple[Dimension, ...]:
    """Returns the separate dimensions with the values of these keys."""
    values = [sorted(set(column)) for column in zip(*keys, strict=True)]
    return tuple(
        time_dimension(every, labels)
        if name == TIME and every is not None
        else Dimension.from_values(name, labels)
        for name, labels in zip(columns, values, strict=True)
    )
