"""Dimensions that fold, as readers of a release have them: hours, purposes, groups of ages.

A cell of such a release has an interval of the day, or a group of values. A reader's matrix of one
hour, or one value, is an estimate: `spread_over_values` spreads what each cell has between two
areas over the values of the cell, in proportion to

    (share of pair and value that no narrower cell covers)
    x (trips of the value that start in the origin area, and `PRIOR` trips of the mean profile).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Positions
from flowveil.core.errors import ParameterError
from flowveil.core.times import DAYS, TIME, TIME_COLUMNS, Every
from flowveil.published.disaggregation import (
    BOUNDS,
    LATER,
    LOWER,
    ROUNDS,
    UPPER,
    Rows,
    spread_cells,
    volumes_of,
)
from flowveil.published.zone_overlaps import Overlap, sum_by
from flowveil.zoning.files import read_tree

#: How many trips of the mean profile over values each origin area starts with.
PRIOR = 50.0
#: The fewest trips of a cell that are listed between two areas.
LEAST = 0.25
#: Rounding errors of sums of shares.
_LEFT = 1e-9
_HOURS = 24
#: Steps of time with a fixed number of values.
_CLOCKS = {"hour": 1, "weekday-hour": 7}


@dataclass(frozen=True, eq=False)
class Fold:
    """A dimension that folds, with the values that each cell may be of."""

    name: str  # of the column that an estimate has
    labels: list[str]  # the finest values, as slices write them
    first: Positions  # the values of a cell are the range ``first:stop`` of the labels
    stop: Positions
    groups: Mapping[str, tuple[int, int]]  # the values of each group; empty for the time

    def values_of(self, text: str) -> tuple[int, int] | None:
        """Returns the range of labels of a value, a group, or for the time FROM/TO; None for other
        text.
        """
        first, is_interval, last = text.partition("/")
        if self.name != TIME or not is_interval:
            own = self.labels.index(text) if text in self.labels else None
            return self.groups.get(text) if own is None else (own, own + 1)
        if first not in self.labels:
            return None
        ends = [*self.labels[1:], "24:00"]
        return (
            (self.labels.index(first), ends.index(last) + 1)
            if last in ends[self.labels.index(first) :]
            else None
        )


def folds_of(flows: pa.Table, parameters: Mapping[str, Any]) -> list[Fold]:
    """Returns the dimensions that fold, of the columns of the cells and what the report states.

    Attributes come first, in the order of the report, then the time.
    """
    folds = []
    for name, parents in (parameters.get("fold") or {}).items():
        if name not in flows.column_names:
            continue
        tree = read_tree(parents)
        encoded = flows[name].combine_chunks().dictionary_encode()
        nodes = [tree.node_of_code[code] for code in encoded.dictionary.to_pylist()]
        node = np.array(nodes, dtype=np.int64)[encoded.indices.to_numpy()]
        labels = tree.code_text(tree.leaf_node).tolist()
        ends = [at.astype(np.int64) for at in (tree.leaf_start, tree.leaf_stop)]
        codes = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
        groups = dict(zip(codes, zip(*(at.tolist() for at in ends), strict=True), strict=True))
        folds.append(Fold(name, labels, ends[0][node], ends[1][node], groups))
    if TIME_COLUMNS[0] in flows.column_names:
        every = str((parameters.get("slices") or {}).get("every"))
        folds.append(_times(flows, Every.parse(every)))
    return folds


def _times(flows: pa.Table, every: Every) -> Fold:
    """Returns the time, with all steps from the first to the last interval as values."""
    texts, number = [], []
    for name in TIME_COLUMNS:
        encoded = flows[name].combine_chunks().dictionary_encode()
        texts.append(encoded.dictionary.to_pylist())
        number.append(encoded.indices.to_numpy())
    if every.name in _CLOCKS:
        edges = [np.array([_clock(text) for text in part], dtype=np.int64) for part in texts]
        hours = [f"{hour:02d}:00" for hour in range(_HOURS)]
        days = [f"{day} " for day in DAYS] if every.name == "weekday-hour" else [""]
        labels = [day + hour for day in days for hour in hours]
    else:
        unit, step = {"month": "M", "day": "D"}.get(every.name, "m"), every.minutes or 1
        moments = [np.array(part, f"datetime64[{unit}]").astype(np.int64) for part in texts]
        start, end = moments[0].min(), moments[1].max()
        edges = [(part - start) // step for part in moments]
        steps = np.arange(start, end, step).astype(f"datetime64[{unit}]")
        labels = np.datetime_as_string(steps).tolist()
    first, stop = (edge[at] for edge, at in zip(edges, number, strict=True))
    return Fold(TIME, labels, first, stop, {})


def _clock(text: str) -> int:
    """Returns the hours since the beginning of the day, or of the week: "1 Mon 08:00"."""
    day = int(text[0]) - 1 if len(text) > len("08:00") else 0
    return day * _HOURS + int(text[-5:-3])


@dataclass(frozen=True, eq=False)
class ValueEstimate:
    """Estimated flows between areas, for each combination of values."""

    origin: Positions  # numbers of the areas of each row
    destination: Positions
    of: list[Positions]  # the value of each row in each fold
    values: dict[str, Floats]  # the estimated volumes
    bounds: dict[
        str, Floats
    ]  # what the cells prove, and the most that they allow; empty if unasked
    origins: NDArray[np.str_]  # codes of the areas
    destinations: NDArray[np.str_]
    folds: Sequence[Fold]

    def table(self) -> pa.Table:
        """``origin``, ``destination``, a column for each fold, volumes, and trips of the bounds."""
        ends = {
            "origin": self.origins[self.origin].tolist(),
            "destination": self.destinations[self.destination].tolist(),
        }
        of_folds = {
            fold.name: pa.array(fold.labels, pa.string()).take(pa.array(at))
            for fold, at in zip(self.folds, self.of, strict=True)
        }
        known = {name: self.bounds[name] for name in (LOWER, UPPER) if name in self.bounds}
        made = pa.table({**ends, **of_folds, **self.values, **known})
        return made.filter(pc.greater(made["trips"], 0))


def spread_over_values(
    flows: pa.Table,
    origins: Overlap,
    destinations: Overlap,
    folds: Sequence[Fold],
    *,
    decay: bool = True,
    complete: bool = False,
    most_rows: int,
    least: float = LEAST,
    ranges: bool = True,
) -> ValueEstimate:
    """Estimates the flows between areas for each combination of values of the folds.

    Folds that are not given are added up. ``complete`` as in `disaggregate`. ParameterError if more
    than ``most_rows`` rows are needed. Sums over values are the estimate of
    `flowveil.published.disaggregation.disaggregate`.
    """
    rows, share = spread_cells(
        flows,
        origins,
        destinations,
        decay=decay,
        folded=True,
        complete=complete,
        most_rows=most_rows,
        least=least,
    )
    volumes = volumes_of(flows)
    ranges_of_values = _Ranges.of(folds, len(flows))
    # Cells of equal values between two areas are one unit.
    kind = ranges_of_values.kind
    key, unit = np.unique(
        rows.pair.astype(np.int64) * ranges_of_values.n_kinds + kind[rows.cell],
        return_inverse=True,
    )
    pair, kind_of_unit = np.divmod(key, ranges_of_values.n_kinds)
    part = {
        name: sum_by(unit, column[rows.cell] * share, len(key)) for name, column in volumes.items()
    }
    covered = np.minimum(sum_by(unit, rows.share_o * rows.share_d, len(key)), 1.0)
    if complete:
        # A pair of districts with a cell inside has all trips of its values there.
        covered[unit[rows.whole[rows.cell]]] = 1.0
    of_unit, slot = ranges_of_values.slots(kind_of_unit, most_rows)
    spots, spot = np.unique(pair[of_unit] * ranges_of_values.n_slots + slot, return_inverse=True)
    left = _uncovered(
        ranges_of_values.length[kind_of_unit][of_unit], covered[of_unit], spot, len(spots)
    )
    smallest = float(volumes["trips"].min(initial=np.inf))
    fraction = _fractions(
        part["trips"],
        of_unit,
        left,
        origin=rows.pairs[0][pair][of_unit],
        slot=slot,
        n_slots=ranges_of_values.n_slots,
        smallest=smallest,
    )
    values = {
        name: sum_by(spot, volume[of_unit] * fraction, len(spots)) for name, volume in part.items()
    }
    pair_of_spot, slot_of_spot = np.divmod(spots, ranges_of_values.n_slots)
    bounds = _bounds(rows, flows, volumes, ranges_of_values, spots, most_rows) if ranges else {}
    return ValueEstimate(
        rows.pairs[0][pair_of_spot],
        rows.pairs[1][pair_of_spot],
        ranges_of_values.values(slot_of_spot),
        values,
        bounds,
        origins.codes,
        destinations.codes,
        folds,
    )


def _uncovered(length: Positions, covered: Floats, spot: Positions, n_spots: int) -> Floats:
    """Returns the share of each row's pair and value that no cell of fewer values covers."""
    left, free = np.ones(len(length)), np.ones(n_spots)
    for size in np.unique(length):
        at = np.flatnonzero(length == size)
        left[at] = free[spot[at]]
        free *= np.clip(1 - sum_by(spot[at], covered[at], n_spots), 0.0, 1.0)
    return left


def _fractions(
    trips: Floats,
    unit: Positions,
    left: Floats,
    *,
    origin: Positions,
    slot: Positions,
    n_slots: int,
    smallest: float,
) -> Floats:
    """Returns the share of its unit that each row has."""
    n = len(trips)
    starts, start = np.unique(origin * n_slots + slot, return_inverse=True)
    left = np.where(left > _LEFT, left, 0.0)
    free = sum_by(unit, left, n)
    # A cell's trips have to be somewhere, also where narrower cells cover all of its values.
    fixed = np.where(free[unit] > 0, left, 1.0)
    length = np.bincount(unit, minlength=n)
    # A value with many of these trips would have had a narrower cell.
    most = np.maximum(LATER * smallest, 1.25 * trips / np.maximum(free, 1.0))
    limit = np.where(length > 1, most / np.maximum(trips, _LEFT), np.inf)[unit]

    def normalized(weight: Floats) -> Floats:
        return np.asarray(weight / np.maximum(sum_by(unit, weight, n), 1e-300)[unit])

    share = normalized(fixed)
    for _ in range(ROUNDS):
        volume = trips[unit] * share
        mean = sum_by(slot, volume, n_slots)
        mean *= PRIOR / max(mean.sum(), _LEFT)
        profile = sum_by(start, volume, len(starts))[start] + mean[slot]
        share = normalized(fixed * profile)
        for _ in range(3):
            share = normalized(np.minimum(share, limit))
    return share


@dataclass(frozen=True, eq=False)
class _Ranges:
    """The combinations of ranges of values that cells have; each is a kind of cell."""

    folds: Sequence[Fold]
    kind: Positions  # of each cell
    first: NDArray[np.int64]  # the first value of each kind, for each fold
    size: NDArray[np.int64]  # how many values each kind has, for each fold

    @classmethod
    def of(cls, folds: Sequence[Fold], n_cells: int) -> _Ranges:
        ends = [end for fold in folds for end in (fold.first, fold.stop)]
        table = np.stack(ends, axis=1) if ends else np.zeros((n_cells, 0), np.int64)
        distinct, kind = np.unique(table, axis=0, return_inverse=True)
        first, stop = distinct[:, 0::2], distinct[:, 1::2]
        return cls(folds, kind.reshape(-1), first, stop - first)

    @property
    def n_kinds(self) -> int:
        return len(self.first)

    @property
    def n_slots(self) -> int:
        """How many combinations of values there are."""
        return int(np.prod([len(fold.labels) for fold in self.folds], dtype=np.int64))

    @property
    def length(self) -> Positions:
        """How many combinations of values each kind has."""
        return np.asarray(np.prod(self.size, axis=1, dtype=np.int64))

    def slots(self, kind: Positions, most_rows: int) -> tuple[Positions, Positions]:
        """Returns each combination of values of each unit: the number of the unit, and the
        combination.
        """
        length = self.length[kind]
        total = int(length.sum())
        if total > most_rows:
            raise ParameterError(
                f"The values are too many for these cells: {total:,} rows would be needed, allowed"
                f" are {most_rows:,}. Hint: use larger areas, or add up values with --sum."
            )
        unit = np.repeat(np.arange(len(kind)), length)
        place = np.arange(total) - np.repeat(np.cumsum(length) - length, length)
        slot = np.zeros(total, dtype=np.int64)
        scale = 1
        for number in range(len(self.folds) - 1, -1, -1):
            place, value = np.divmod(place, self.size[kind, number][unit])
            slot += scale * (self.first[kind, number][unit] + value)
            scale *= len(self.folds[number].labels)
        return unit, slot

    def values(self, slot: Positions) -> list[Positions]:
        """Returns the value of each combination, for each fold."""
        found = []
        for fold in reversed(self.folds):
            slot, value = np.divmod(slot, len(fold.labels))
            found.append(value)
        return found[::-1]


def _bounds(
    rows: Rows,
    flows: pa.Table,
    volumes: Mapping[str, Floats],
    ranges: _Ranges,
    spots: Positions,
    most_rows: int,
) -> dict[str, Floats]:
    """Returns what cells of one pair and value prove, and all cells that touch both."""
    single = rows.whole & (ranges.length[ranges.kind] == 1)
    bounds = {end: np.zeros(len(spots)) for name in volumes for end in BOUNDS[name]}
    held = {
        name: {LOWER: np.where(single, column, 0.0), UPPER: column}
        for name, column in volumes.items()
    }
    for cell, pair in rows.touching(flows):
        key, group = np.unique(pair * ranges.n_kinds + ranges.kind[cell], return_inverse=True)
        pairs, kinds = np.divmod(key, ranges.n_kinds)
        unit, slot = ranges.slots(kinds, most_rows)
        spot = pairs[unit] * ranges.n_slots + slot
        at = np.minimum(np.searchsorted(spots, spot), len(spots) - 1)
        found = spots[at] == spot
        for name in volumes:
            for bound, end in zip(BOUNDS[name], (LOWER, UPPER), strict=True):
                of_group = sum_by(group, held[name][end][cell], len(key))
                bounds[bound] += sum_by(at[found], of_group[unit[found]], len(spots))
    return bounds
