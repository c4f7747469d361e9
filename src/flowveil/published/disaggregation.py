"""Estimates of the flows between a reader's areas, from published cells alone
(docs/reconstruct.md).

The estimate spreads each cell over the pairs of areas that it touches, in proportion to

    (share of area A in the origin zone) x (share of area B in the destination zone)
    x (trips that start in A x trips that end in B) ** ACTIVITY x (size of A x size of B) ** (1 -
    ACTIVITY) x decay(distance) x (share of A x B that no cell of an earlier layer covers) x (1 +
    trips of other cells between A and B) ** COVERED.

Trips by area and the decay are those of the estimate itself, updated `ROUNDS` times from an even
spread. A pair with many of a later layer's trips would have had an earlier cell: `_limited` holds
them below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, Positions
from flowveil.core.errors import ParameterError
from flowveil.published.zone_overlaps import Overlap, sum_by

#: The largest number of (cell, area, area) rows; ten million took 3 GB at the peak.
MOST_ROWS = 15_000_000
#: How strongly a cell follows the trips of its areas; the rest follows their sizes. This constant
#: and the next six were chosen on the public sets of `benchmarks/planner.py`
#: (docs/decisions/0004-reconstruct.md).
ACTIVITY = 0.8
#: A cell of a layer that touches n pairs of areas counts n ** -VAGUENESS times in the trips of its
#: areas.
VAGUENESS = 0.5
#: The exponent of the fitted decay.
DECAY = 0.85
#: Beyond the distance that this share of the trips stays below, the decay falls at least with the
#: square of distance.
NEAR = 0.995
#: The exponent of the trips that other cells have between two areas.
COVERED = -0.2
#: Upper bound for the trips of a later cell between two areas, as a share of the smallest published
#: cell.
LATER = 0.75
#: Updates of activities and decay.
ROUNDS = 6
#: The share of an area's trips that its size alone explains: areas in which nothing is known still
#: get some.
_UNSEEN = 1e-6
#: What stays possible where finer cells cover everything: a cell's trips have to be somewhere.
_LEFT = 1e-9
#: How many times as many pairs of areas as a cell can fill are tried.
_SPARE = 4.0
#: Rows of bounds that are computed at once.
_CHUNK = 2_000_000
_EARTH_KM = 6371.0
VOLUMES = ("trips", "weight")
#: Columns of bounds.
LOWER, UPPER = "trips_low", "trips_high"
#: Columns of bounds of each volume.
BOUNDS = {name: (f"{name}_low", f"{name}_high") for name in VOLUMES}
#: Rounding errors of sums of shares.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class DisaggregatedFlows:
    """Estimated flows between areas."""

    origin: Positions  # numbers of the areas of each pair, sorted
    destination: Positions
    values: dict[str, Floats]  # the estimated volumes of each pair, by name
    # Trips (and weight) of cells that lie wholly between the two areas, and of all cells that touch
    # the pair.
    bounds: dict[str, Floats]
    origins: NDArray[np.str_]  # codes of the areas
    destinations: NDArray[np.str_]

    def table(self, *, bounds: bool = False) -> pa.Table:
        """``origin``, ``destination`` and volumes, sorted by code.

        With bounds ``trips_low`` and ``trips_high``.
        """
        ends = {
            "origin": self.origins[self.origin].tolist(),
            "destination": self.destinations[self.destination].tolist(),
        }
        known = {name: self.bounds[name] for name in (LOWER, UPPER)} if bounds else {}
        columns: dict[str, Any] = {**ends, **self.values, **known}
        return (
            pa.table(columns)
            .sort_by([("origin", "ascending"), ("destination", "ascending")])
            .combine_chunks()
        )


def disaggregate(
    flows: pa.Table,
    origins: Overlap,
    destinations: Overlap,
    *,
    decay: bool = True,
    folded: bool = False,
    complete: bool = False,
    most_rows: int = MOST_ROWS,
    least: float = 0.0,
    ranges: bool = True,
) -> DisaggregatedFlows:
    """Estimates the flows of one matrix between areas.

    Decay with distance is fitted where the areas have centres. With ``least``, each cell is spread
    over as many pairs of areas, the likeliest, as get at least that many of its trips; the other
    pairs have none of it.

    ``flows`` are published cells: ``origin_zone``, ``destination_zone``, ``trips`` [, ``weight``]
    [, ``layer``]. ``folded`` says that they have times or groups of values as well, which are added
    up; ``complete`` that the areas are the districts of the release, of which a pair with a cell
    inside has no trips in other cells.
    """
    rows, share = spread_cells(
        flows,
        origins,
        destinations,
        decay=decay,
        folded=folded,
        complete=complete,
        most_rows=most_rows,
        least=least,
    )
    volumes = volumes_of(flows)
    values = {name: rows.sums(column[rows.cell] * share) for name, column in volumes.items()}
    bounds = rows.bounds(volumes)
    if least > 0 and ranges:
        bounds |= rows.upper_bounds(flows, volumes)
    return DisaggregatedFlows(*rows.pairs, values, bounds, origins.codes, destinations.codes)


def volumes_of(flows: pa.Table) -> dict[str, Floats]:
    """Returns the trips and, where known, the weight of each cell."""
    return {
        name: flows[name].to_numpy().astype(np.float64)
        for name in VOLUMES
        if name in flows.column_names
    }


def spread_cells(
    flows: pa.Table,
    origins: Overlap,
    destinations: Overlap,
    *,
    decay: bool,
    folded: bool,
    complete: bool,
    most_rows: int,
    least: float,
) -> tuple[Rows, Floats]:
    """Returns a row for each cell and pair of areas, and the share of the cell that it has."""
    rows = Rows.of(flows, origins, destinations, most_rows, least)
    bins = _distance_bins(rows, origins, destinations) if decay else None
    trips = volumes_of(flows)["trips"]
    # Cells of different times or groups may cover one pair, so that layers say nothing there.
    layered = "layer" in flows.column_names and not folded
    layers: NDArray[np.int8] | None = flows["layer"].to_numpy() if layered else None
    fixed = (
        rows.share_o * rows.share_d * ((1.0 if layers is None else rows.uncovered(layers)) + _LEFT)
    )
    if complete:
        fixed *= np.where(rows.in_complete_pairs(), _LEFT, 1.0)
    size = origins.size[rows.area_o] * destinations.size[rows.area_d]
    vagueness = 0.0 if layers is None else VAGUENESS
    certainty = rows.touched[rows.cell].astype(np.float64) ** -vagueness
    share = rows.normalized(fixed * size)
    for _ in range(ROUNDS):
        spread = np.maximum(trips, 0.0)[rows.cell] * share
        starts, ends = (
            np.bincount(area, spread * certainty, len(over.size)) + _UNSEEN * over.size
            for area, over in ((rows.area_o, origins), (rows.area_d, destinations))
        )
        weight = (starts[rows.area_o] * ends[rows.area_d]) ** ACTIVITY * size ** (1 - ACTIVITY)
        by_pair = np.bincount(rows.pair, spread, rows.n_pairs)
        if bins is not None:
            expected = np.bincount(bins, starts[rows.pairs[0]] * ends[rows.pairs[1]])
            weight *= _decay(np.bincount(bins, by_pair), expected)[bins][rows.pair]
        if layers is not None:
            weight *= (1 + np.maximum(by_pair[rows.pair] - spread, 0.0)) ** COVERED
        share = rows.normalized(fixed * weight)
        if layers is not None:
            share = _limited(rows, share, trips, layers)
    if least > 0:
        share = rows.normalized(np.where(rows.largest(share, trips, least), share, 0.0))
    return rows, share


def _decay(seen: NDArray[Any], expected: NDArray[Any]) -> Floats:
    """How much rarer trips are in each class of distance than activities alone would make them."""
    factor: Floats = (seen + _LEFT) / (expected + _LEFT)
    # A few trips in zones of thousands of kilometres would otherwise make the farthest class
    # likely.
    far = int(np.searchsorted(np.cumsum(seen), NEAR * seen.sum()))
    tail = factor[far] * 0.5 ** np.arange(len(factor) - far)
    factor[far:] = np.minimum(factor[far:], tail)
    return factor**DECAY


def _limited(rows: Rows, share: Floats, trips: Floats, layers: NDArray[np.int8]) -> Floats:
    """Shares with no more trips of a later cell between two areas than `LATER` allows, or a quarter
    above its mean.
    """
    mean = trips / np.maximum(np.bincount(rows.cell, minlength=rows.n_cells), 1)
    limit = np.maximum(LATER * trips.min(initial=np.inf), 1.25 * mean)
    limit[layers == 1] = np.inf
    for _ in range(3):
        share = rows.normalized(np.minimum(share, (limit / np.maximum(trips, _LEFT))[rows.cell]))
    return share


@dataclass(frozen=True, eq=False)
class Rows:
    """One row for each cell and pair of areas that it touches."""

    cell: Ints  # of each row
    area_o: Ints
    area_d: Ints
    share_o: Floats  # the share of the area inside the cell's zone
    share_d: Floats
    pair: Positions  # the pair of areas of each row, a place in ``pairs``
    pairs: tuple[Positions, Positions]  # the origin and the destination area of each pair, sorted
    n_pairs: int
    n_cells: int  # how many cells there are
    touched: Positions  # how many pairs of areas each cell touches, with a row or without
    whole: NDArray[np.bool_]  # which cells are completely inside one pair of areas
    origins: Overlap  # the overlaps
    destinations: Overlap

    @classmethod
    def of(
        cls,
        flows: pa.Table,
        origins: Overlap,
        destinations: Overlap,
        most_rows: int,
        least: float = 0.0,
    ) -> Rows:
        """Returns the rows of all cells, or with ``least`` those of the likeliest pairs."""
        zone_o = origins.numbers(flows["origin_zone"])
        zone_d = destinations.numbers(flows["destination_zone"])
        length_o, length_d = np.diff(origins.first)[zone_o], np.diff(destinations.first)[zone_d]
        touched = length_o * length_d
        whole = (touched == 1) & ~origins.partial[zone_o] & ~destinations.partial[zone_d]
        if least > 0:
            trips = flows["trips"].to_numpy().astype(np.float64)
            origins = _busiest_first(origins, zone_o, trips)
            destinations = _busiest_first(destinations, zone_d, trips)
            # The same part of the areas of both ends.
            part = np.sqrt(np.minimum(1.0, _SPARE * np.maximum(trips, 1.0) / (least * touched)))
            length_o = np.ceil(length_o * part).astype(np.int64)
            length_d = np.ceil(length_d * part).astype(np.int64)
        places = (zone_o, zone_d, length_o, length_d)
        cell, at_o, at_d = _products(origins, destinations, *places, most_rows)
        area_o, area_d = origins.area[at_o], destinations.area[at_d]
        keys, pair = np.unique(
            area_o.astype(np.int64) * len(destinations.codes) + area_d, return_inverse=True
        )
        pairs = keys // len(destinations.codes), keys % len(destinations.codes)
        share_o, share_d = (
            over.measure[at] / np.where(over.size > 0, over.size, 1.0)[area]
            for over, at, area in ((origins, at_o, area_o), (destinations, at_d, area_d))
        )
        return cls(
            cell=cell,
            area_o=area_o,
            area_d=area_d,
            share_o=share_o,
            share_d=share_d,
            pair=pair,
            pairs=pairs,
            n_pairs=len(keys),
            n_cells=len(touched),
            touched=touched,
            whole=whole,
            origins=origins,
            destinations=destinations,
        )

    def in_complete_pairs(self) -> NDArray[np.bool_]:
        """Which rows are of a coarser cell in a pair of areas that has a cell inside."""
        inside = self.whole[self.cell]
        has_cell = np.zeros(self.n_pairs, dtype=np.bool_)
        has_cell[self.pair[inside]] = True
        return np.asarray(~inside & has_cell[self.pair])

    def normalized(self, weight: Floats) -> Floats:
        """Weights as shares of each cell; even where a cell has no weight at all."""
        total = np.bincount(self.cell, weight, self.n_cells)
        length = np.bincount(self.cell, minlength=self.n_cells)
        none = total <= 0
        even = 1 / np.maximum(length, 1)
        return np.where(
            none[self.cell], even[self.cell], weight / np.where(none, 1.0, total)[self.cell]
        )

    def uncovered(self, layers: NDArray[np.int8]) -> Floats:
        """The share of each row's pair of areas that no cell of an earlier layer covers."""
        # Cells of one layer are disjoint, so their shares add up; layers are taken to be
        # independent.
        left = np.ones(len(self.cell))
        open_share = np.ones(self.n_pairs)
        layer_of_row = layers[self.cell]
        for layer in np.unique(layers):
            rows = np.flatnonzero(layer_of_row == layer)
            left[rows] = open_share[self.pair[rows]]
            covered = np.bincount(
                self.pair[rows], self.share_o[rows] * self.share_d[rows], self.n_pairs
            )
            open_share *= np.clip(1 - covered, 0.0, 1.0)
        return left

    def largest(self, share: Floats, trips: Floats, least: float) -> NDArray[np.bool_]:
        """Which rows a cell keeps: as many of its largest as have ``least`` trips each if they
        share all of the cell's; at least one.
        """
        order = np.lexsort((-share, self.cell))
        first = np.searchsorted(self.cell[order], np.arange(self.n_cells))
        reached = np.cumsum(share[order])
        before = np.append(0.0, reached)[first]
        together = reached - before[self.cell[order]]
        kept = np.zeros(len(share), dtype=np.bool_)
        kept[order] = trips[self.cell[order]] * share[order] >= least * together
        kept[order[first[first < len(order)]]] = True
        return kept

    def sums(self, values: Floats) -> Floats:
        """Sums of the rows of each pair."""
        return sum_by(self.pair, values, self.n_pairs)

    def bounds(self, volumes: Mapping[str, Floats]) -> dict[str, Floats]:
        """What cells wholly inside each pair have, and all cells that touch it."""
        bounds = {}
        for name, column in volumes.items():
            low, high = BOUNDS[name]
            bounds[low] = self.sums(np.where(self.whole, column, 0.0)[self.cell])
            bounds[high] = self.sums(column[self.cell])
        return bounds

    def upper_bounds(self, flows: pa.Table, volumes: Mapping[str, Floats]) -> dict[str, Floats]:
        """Upper bounds where cells have no row for some of the pairs that they touch."""
        bounds = {BOUNDS[name][1]: np.zeros(self.n_pairs) for name in volumes}
        for cell, pair in self.touching(flows):
            for name, column in volumes.items():
                bounds[BOUNDS[name][1]] += sum_by(pair, column[cell], self.n_pairs)
        return bounds

    def touching(self, flows: pa.Table) -> Iterator[tuple[Positions, Positions]]:
        """Yields, in batches, each cell with each pair of areas that has rows and that it
        touches.
        """
        keys = self.pairs[0] * len(self.destinations.codes) + self.pairs[1]
        is_complete = np.bincount(self.cell, minlength=self.n_cells) == self.touched
        own = is_complete[self.cell]
        yield self.cell[own].astype(np.int64), self.pair[own]
        rest = np.flatnonzero(~is_complete)
        zone_o = self.origins.numbers(flows["origin_zone"])
        zone_d = self.destinations.numbers(flows["destination_zone"])
        chunk = np.cumsum(self.touched[rest]) // _CHUNK
        for some in np.split(rest, np.flatnonzero(np.diff(chunk)) + 1):
            o, d = zone_o[some], zone_d[some]
            length_o, length_d = np.diff(self.origins.first)[o], np.diff(self.destinations.first)[d]
            cell, at_o, at_d = _products(
                self.origins, self.destinations, o, d, length_o, length_d, MOST_ROWS
            )
            key = self.origins.area[at_o].astype(np.int64) * len(self.destinations.codes)
            key += self.destinations.area[at_d]
            at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            found = keys[at] == key
            yield some[cell[found]], at[found]


def _products(
    origins: Overlap,
    destinations: Overlap,
    zone_o: Positions,
    zone_d: Positions,
    length_o: Positions,
    length_d: Positions,
    most_rows: int,
) -> tuple[Ints, Positions, Positions]:
    """Returns the cell of each row, and its place among the overlaps of the origins and of the
    destinations: the first areas of the one zone with the first of the other.
    """
    length = length_o * length_d
    total = int(length.sum())
    if total > most_rows:
        raise ParameterError(
            f"The areas are too fine for these cells: {total:,} rows would be needed, allowed"
            f" are {most_rows:,}. Hint: use larger areas."
        )
    cell = np.repeat(np.arange(len(length), dtype=np.int32), length)
    # Whole numbers of 32 bits: divisions take most of the time.
    place = np.arange(total, dtype=np.int32)
    place -= np.repeat((np.cumsum(length) - length).astype(np.int32), length)
    row_o, row_d = np.divmod(place, length_d.astype(np.int32)[cell])
    return cell, origins.first[zone_o][cell] + row_o, destinations.first[zone_d][cell] + row_d


def _busiest_first(over: Overlap, zone: Positions, trips: Floats) -> Overlap:
    """Returns the overlap with the areas of each zone in the order of their trips, which are fitted
    on this end alone.
    """
    n_zones = len(over.zones)
    length = np.diff(over.first)
    owner = np.repeat(np.arange(n_zones), length)
    volume = sum_by(zone, np.maximum(trips, 0.0), n_zones)
    certainty = np.maximum(length, 1).astype(np.float64) ** -VAGUENESS
    weight = over.measure
    for _ in range(ROUNDS):
        share = weight / np.maximum(sum_by(owner, weight, n_zones), _LEFT)[owner]
        activity = sum_by(over.area, (volume * certainty)[owner] * share, len(over.size))
        activity += _UNSEEN * over.size
        weight = over.measure * activity[over.area] ** ACTIVITY
    order = np.lexsort((over.area, -weight, owner))
    return replace(over, area=over.area[order], measure=over.measure[order])


def _distance_bins(rows: Rows, origins: Overlap, destinations: Overlap) -> Positions | None:
    """A class of distance for each pair of areas, two for every doubling from 1 km on.

    None without centres.
    """
    if (
        origins.lat is None
        or origins.lon is None
        or destinations.lat is None
        or destinations.lon is None
    ):
        return None
    a, b = rows.pairs
    lat_a, lat_b = np.radians(origins.lat)[a], np.radians(destinations.lat)[b]
    lon = np.radians(destinations.lon)[b] - np.radians(origins.lon)[a]
    half = np.sin((lat_b - lat_a) / 2) ** 2 + np.cos(lat_a) * np.cos(lat_b) * np.sin(lon / 2) ** 2
    km = 2 * _EARTH_KM * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    # An area without a place, such as everything outside, has the first class.
    return np.asarray(np.floor(2 * np.log2(np.maximum(np.nan_to_num(km), 1.0))), dtype=np.int64)


def rounded(table: pa.Table, *, keys: Sequence[str] = ()) -> pa.Table:
    """The table with whole trips (and weights).

    Origin totals rounded, and the sum of all of them kept.

    Origin totals are rounded along the order of the origins, so that their sum stays within a half;
    within each origin the pairs with the largest remainders are rounded up. Every value is rounded
    to one of its two neighbours, and bounds are rounded outwards: a value within its bounds stays
    within them. The table is sorted by origin; each combination of the slice columns ``keys`` is
    rounded separately.
    """
    group = np.zeros(len(table), dtype=np.int64)
    for name in (*keys, "origin"):
        values = (
            table[name]
            .combine_chunks()
            .dictionary_encode()
            .indices.fill_null(-1)
            .to_numpy()
            .astype(np.int64)
            + 1
        )
        group = group * (int(values.max(initial=0)) + 1) + values
    _, group = np.unique(group, return_inverse=True)
    rounding = {
        **dict.fromkeys(VOLUMES, lambda values: _whole(values, group)),
        LOWER: _whole_below,
        UPPER: lambda values: -_whole_below(-values),
    }
    table = with_columns(
        table, {name: rounding[name] for name in rounding if name in table.column_names}
    )
    return table.filter(pc.not_equal(table["trips"], 0)).combine_chunks()


def with_columns(
    table: pa.Table, changes: Mapping[str, Callable[[Floats], NDArray[Any]]]
) -> pa.Table:
    """Returns the table with some columns changed."""
    for name, change in changes.items():
        values = pa.array(change(table[name].to_numpy()))
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


def _whole_below(values: Floats) -> Positions:
    """Returns the largest whole number not above a value.

    Sums of shares may be off by a rounding error.
    """
    return np.asarray(np.floor(values + _ROUNDING), dtype=np.int64)


def _whole(values: Floats, group: Positions) -> Positions:
    """Values rounded up or down, so that the sums of groups are rounded too, along their order."""
    low = _whole_below(values).astype(np.float64)
    # Half up, not to even: a group with a whole total then keeps it.
    reached: Floats = np.cumsum(sum_by(group, values, int(group.max(initial=-1)) + 1)) + 0.5
    target = np.diff(_whole_below(reached).astype(np.float64), prepend=0.0)
    missing = (target - np.bincount(group, low)).astype(np.int64)
    order = np.lexsort((np.arange(len(values)), low - values, group))
    first = np.cumsum(np.bincount(group)) - np.bincount(group)
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values)) - first[group[order]]
    return np.asarray(low + (rank < missing[group]), dtype=np.int64)


def calibrated(
    table: pa.Table, totals: pa.Table, *, rounds: int = 100, tolerance: float = 1e-6
) -> pa.Table:
    """The table of one matrix scaled to known totals by iterative proportional fitting.

    ``totals`` has ``area`` and ``origins`` or ``destinations`` (or both): trips that start, and
    end, in each area. Areas that are not listed keep their estimate. Stops at the largest relative
    difference ``tolerance``.
    """
    ends = {"origin": "origins", "destination": "destinations"}
    present = [end for end, name in ends.items() if name in totals.column_names]
    if "area" not in totals.column_names or not present:
        raise ParameterError(
            "Known totals need the column 'area' and 'origins' or 'destinations' (or both)."
        )
    codes = totals["area"].cast(pa.string())
    wanted, areas = {}, {}
    for end in present:
        column = totals[ends[end]].cast(pa.float64()).to_numpy()
        if not np.all(np.isfinite(column)) or np.any(column < 0):
            raise ParameterError(f"Known totals in '{ends[end]}' must be numbers of at least 0.")
        wanted[end] = column
        found = pc.index_in(table[end], value_set=codes.combine_chunks())
        areas[end] = found.fill_null(-1).to_numpy().astype(np.int64)
    values = table["trips"].to_numpy().astype(np.float64).copy()
    for _ in range(rounds):
        change = 0.0
        for end in present:
            at = areas[end]
            held = np.bincount(at[at >= 0], values[at >= 0], len(wanted[end]))
            factor = np.divide(wanted[end], held, out=np.ones_like(held), where=held > 0)
            change = max(change, float(np.abs(factor[held > 0] - 1).max(initial=0.0)))
            values = np.where(at >= 0, values * factor[np.maximum(at, 0)], values)
        if change <= tolerance:
            break
    return with_columns(table, {"trips": lambda _: values})
