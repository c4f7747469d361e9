"""Slices: one matrix for each segment of people and each time step, over common hierarchies.

A slice is a combination of values of the slice columns: sex, age, hour. The engine computes slices in the same pass as
flows. All slices share two trees, so their zones nest: slices are comparable, and differences between them can be
checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import numpy as np

from flowveil.errors import DataError, ParameterError, option, switched_on
from flowveil.flows import Cells, Flows, concat_cells
from flowveil.folds import Fold
from flowveil.hierarchy import Hierarchy
from flowveil.read_summary import ReadSummary
from flowveil.record_keys import merged_keys
from flowveil.record_values import merged_values
from flowveil.times import DAYS, TIME, TIME_COLUMNS, Every, fold_times

#: Columns of a published matrix; a slice column cannot have one of these names.
TAKEN = ("origin_zone", "destination_zone", "trips", "weight", "layer", "revised", "estimate")
#: Largest number of slices; more suggest that a column is an identifier.
MOST_SLICES = 20_000
#: Largest number of values of a slice column, and fewest rows per value, unless the user confirms more.
MOST_VALUES = 50
ROWS_PER_VALUE = 100

#: Values of the slice columns, in order; None means all values of that column.
Key = tuple[str | None, ...]


@dataclass(frozen=True, eq=False, repr=False)
class SlicedFlows:
    """The flows of every slice, over common hierarchies.

    Attributes:
        columns: names of the slice columns, attributes in the requested order, then `TIME`.
        keys: the values of each slice, sorted, none missing.
        slices: the flows of each slice; every slice has some.
        every: the time step, if there is one.

    Persons have the same number in all slices, so that people are counted once over several.
    """

    columns: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    slices: tuple[Flows, ...]
    every: Every | None = None

    def __post_init__(self) -> None:
        if not self.keys or len(self.keys) != len(self.slices):
            raise DataError(f"{len(self.keys)} slice keys for {len(self.slices)} slices; each slice needs one.")
        if list(self.keys) != sorted(set(self.keys)):
            raise DataError("Slice keys must be distinct and sorted.")
        first = self.slices[0]
        if any(s.origins is not first.origins or s.destinations is not first.destinations for s in self.slices):
            raise DataError("All slices must share their two hierarchies.")

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Flows]]:
        return iter(zip(self.keys, self.slices, strict=True))

    @property
    def origins(self) -> Hierarchy:
        """The tree over the origins of all slices."""
        return self.slices[0].origins

    @property
    def destinations(self) -> Hierarchy:
        """The tree over the destinations of all slices."""
        return self.slices[0].destinations

    @property
    def intake(self) -> ReadSummary:
        """Counters and settings of the read."""
        return self.slices[0].intake

    @cached_property
    def whole(self) -> Flows:
        """All slices together."""
        return self.together(range(len(self)))

    def together(self, members: Sequence[int]) -> Flows:
        """Returns some slices as one: trips and weights are summed, people deduplicated."""
        if len(members) == 1:
            return self.slices[members[0]]
        return self.added_up([self.slices[m] for m in members])

    def added_up(self, parts: Sequence[Cells]) -> Flows:
        """Returns parts of slices as one: trips and weights are summed, people deduplicated."""
        rows = concat_cells(parts)
        merged = rows.merge(rows.origin, rows.destination, self.origins.n_tiles, self.destinations.n_tiles)
        keys = merged_keys(parts, merged.row, len(merged.cells))
        return self._flows(merged.cells, **keys, **merged_values(parts, merged.row))

    def _flows(self, cells: Cells, **how: Any) -> Flows:
        """Returns cells as flows over the trees of the slices."""
        common = {name: getattr(self.slices[0], name) for name in ("origins", "destinations", "intake", "whole_map")}
        return Flows.of_cells(cells, **common, **how)

    def folded(self, trees: Mapping[str, Hierarchy] | None = None) -> Flows:
        """Returns all slices as one table whose slice columns are ends like the places, so that values can be merged.

        ``trees`` has the tree of each attribute (`flowveil.read_tree`). Raises ParameterError if one is missing or
        steps of time cannot be folded, DataError if an attribute has values that its tree does not list.
        """
        refuse_many_combinations(self)
        given = dict(trees or {})
        if set(self.columns) - {TIME} != given.keys() or (TIME in self.columns) != (self.every is not None):
            raise ParameterError(
                f"Each slice column needs a tree to fold; found the columns {', '.join(self.columns)} and trees of "
                f"{', '.join(given) or 'none'}. Hint: --fold NAME=FILE for each attribute and no --by; --fold-time for "
                "the time."
            )
        rows, of_rows = concat_cells(self.slices), [len(part) for part in self.slices]
        folds, leaves = [], []
        for name, labels in zip(self.columns, zip(*self.keys, strict=True), strict=True):
            fold = Fold.from_tree(name, given[name]) if name in given else None
            if fold is None:
                assert self.every is not None
                fold = fold_times(self.every.name, self.every.minutes, labels)
            folds.append(fold)
            leaves.append(np.repeat(fold.leaves(labels), of_rows))
        order = np.lexsort((*leaves[::-1], rows.destination, rows.origin))
        values = merged_values(self.slices, np.argsort(order))
        of_flows = tuple(leaf[order] for leaf in leaves)
        return self._flows(rows.ordered(order), folds=tuple(folds), leaves=of_flows, **values)

    def coarser_keys(self, every: Sequence[Every] = (), *, total: bool = False) -> list[Key]:
        """Returns the keys of unions of slices, coarsest first: everything, or all steps within a longer time step."""
        keys: list[Key] = [(None,) * len(self.columns)] if total else []
        for step in sorted(every, key=lambda e: e.label_length):
            if self.every is None or not step.holds(self.every):
                finest = "not set" if self.every is None else f"it is {self.every.name}"
                raise ParameterError(
                    f"--every {step.name} is not made of whole steps of the finest --every ({finest}); "
                    "allowed: month and day with minutes or hours, weekday with weekday-hour."
                )
            keys += sorted({(*key[:-1], key[-1][: step.label_length]) for key in self.keys})
        return keys

    def members(self, key: Key) -> list[int]:
        """Returns the slices of a key."""
        if key in self._number:
            return [self._number[key]]
        return [m for m, other in enumerate(self.keys) if holds(key, other, columns=self.columns)]

    @cached_property
    def _number(self) -> dict[Key, int]:
        return {key: m for m, key in enumerate(self.keys)}

    def __repr__(self) -> str:
        return f"<SlicedFlows: {len(self):,} slices by {', '.join(self.columns)}>"


def holds(key: Key, other: Key, *, columns: Sequence[str]) -> bool:
    """Returns whether one key contains another."""
    return all(
        wide is None or wide == narrow or (column == TIME and narrow is not None and narrow.startswith(wide))
        for wide, narrow, column in zip(key, other, columns, strict=True)
    )


def check_slice_columns(by: Sequence[str], *, time: str | None, every: str | Every | None) -> None:
    """Checks the slice columns."""
    if (time is None) != (every is None):
        given, lacking = ("time", "every") if every is None else ("every", "time")
        raise ParameterError(
            f"'{given}' is given without '{lacking}'. Hint: --time names the column, --every the step (1h, day, "
            "weekday-hour)."
        )
    names = [*by, *([TIME] if every else [])]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"'{name}' would be a slice column twice; each can be used once.")
    for name in by:
        if name.lower() in (*TAKEN, TIME, *TIME_COLUMNS) or "," in name:
            raise ParameterError(
                f"'{name}' cannot be the name of a slice column: {', '.join((*TAKEN, *TIME_COLUMNS))} and {TIME} have "
                "a meaning in the published matrix, and commas separate names. Hint: rename the column."
            )
    if not names:
        raise ParameterError(
            "No slices are requested. Hint: name attributes with --by, or a time with --time, --every."
        )


def declared_values(
    columns: Sequence[str], every: Every | None, given: Mapping[str, Sequence[str] | str]
) -> dict[str, list[str]]:
    """Returns the public values of the slice columns: sorted and distinct.

    Hours of the day and days of the week are public. Other time steps follow from a period such as
    ``2024-01-01/2024-03-31``, other values from a list that the publisher has from another source.
    """
    unknown = [name for name in given if name not in columns]
    if unknown:
        raise ParameterError(f"Values are given of '{unknown[0]}', which is not a slice column: {', '.join(columns)}.")
    found = {}
    for name in columns:
        values = given.get(name)
        if name == TIME and every is not None and (values is None or isinstance(values, str)):
            values = _labels_of(every, values)
        listed = [] if values is None or isinstance(values, str) else [str(value) for value in values]
        if not listed or len(set(listed)) < len(listed) or any(v != v.strip() or not v or "," in v for v in listed):
            calendar = option(f"values['{TIME}']", flag="--period")
            raise ParameterError(
                f"The values of '{name}' must be listed: with noise, a value that is published because it occurs would "
                f"reveal that it does. Hint: list them with {option('values')}; for days, months and other steps of "
                f"time a period FIRST/LAST is enough ({calendar}); no value may have a comma."
            )
        found[name] = sorted(listed)
    return found


def _labels_of(every: Every, period: str | None) -> list[str] | None:
    """Returns all labels of a periodic step, or of a period; None if a required period is missing."""
    hours = [f"{hour:02d}:00" for hour in range(24)]
    if every.is_periodic:
        of_week = [f"{day} {hour}" for day in DAYS for hour in hours]
        return {"hour": hours, "weekday": list(DAYS), "weekday-hour": of_week}[every.name]
    try:
        ends = [date.fromisoformat(day) for day in (period or "").split("/")]
    except ValueError:
        return None
    first, last = ends[0], ends[-1]
    n = (last - first).days + 1
    if not 0 < n <= MOST_SLICES:
        return None
    labels = [(first + timedelta(days=i)).isoformat() for i in range(n)]
    if every.name == "month":
        return sorted({label[:7] for label in labels})
    if every.minutes is None:
        return labels
    steps = range(0, 24 * 60, every.minutes)
    return [f"{label}T{step // 60:02d}:{step % 60:02d}" for label in labels for step in steps]


def refuse_many_values(values: Mapping[str, int], *, rows: int) -> None:
    """Refuses attributes with so many values that they look like identifiers: one matrix per contributor.

    Without a person column no other check would notice: k trips of one taxi are k trips.
    """
    many = {name: n for name, n in values.items() if n > MOST_VALUES or n * ROWS_PER_VALUE > rows}
    if many:
        found = "; ".join(f"'{name}' has {n:,} values in {rows:,} rows" for name, n in many.items())
        raise _too_many("values", f"{found}. Allowed are {MOST_VALUES} values, and one")


def refuse_many_combinations(flows: SlicedFlows) -> None:
    """Refuses combinations of attributes that are as numerous as identifiers.

    Two columns of forty values each look like classes and together identify every contributor. Reading checks only
    single columns (`refuse_many_values`), because a study slices by single ones. Flows made by the caller have no rows
    to check.
    """
    intake = flows.intake
    rows = intake.used_rows
    attributes = [at for at, name in enumerate(flows.columns) if name != TIME]
    n = len({tuple(key[at] for at in attributes) for key in flows.keys})
    if len(attributes) > 1 and intake.rows and not intake.by_many and n * ROWS_PER_VALUE > rows:
        names = ", ".join(f"'{flows.columns[at]}'" for at in attributes)
        raise _too_many("combinations", f"{names} have {n:,} in {rows:,} rows. Allowed is one")


def _too_many(what: str, found: str) -> DataError:
    return DataError(
        f"Too many {what} to make a matrix of each: {found} for {ROWS_PER_VALUE} rows: {what} of few rows make matrices"
        " of one contributor each, published under its name. Hint: use fewer columns or classes that many people share;"
        f" or confirm with {switched_on('by_many')} that none represents one person, vehicle or household."
    )
