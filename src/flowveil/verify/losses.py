"""The measures of a release, counted anew: losses, sizes, distances and floors.

Shares nothing with `analysis` or with the methods: the formulas are those of the documentation, over the raw
flows, the published cells and the pairs (flow, cell that covers it) of the recount, and tiles are those seen in the
input, never those that zones.parquet says. Everything is done for all slices at once in whole columns.

Where boxes share flows, the files do not say in which cell a flow is counted. Then the distances that trip ends moved
can be bounded only: the mean cell by cell between the nearest and the farthest flow in its boxes, the median between
the nearest and the farthest of all, the standard deviation by half of what is between. All other measures are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.verify.claims import Claims, mean_population
from flowveil.verify.database import Database
from flowveil.verify.floor import is_affordable, smallest_safe
from flowveil.verify.l_places import places_by_number
from flowveil.verify.raw import leaves
from flowveil.verify.units import AMOUNTS, COUNTED_ONCE

if TYPE_CHECKING:
    from flowveil.flows import Flows

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

_TOLERANCE = 1e-9
#: A table of all pairs of zones may have so many entries for each row that is looked up in it.
_TABLE_PER_ROW = 16
#: JSON knows whole numbers of any length, numpy does not; no measure comes near this.
_LARGEST = 1e300


@dataclass(frozen=True)
class Between:
    """A measure that lies between two numbers; both None where it does not exist."""

    low: float | None
    high: float | None

    def agrees(self, said: Any, digits: int | None) -> bool:
        """Whether a published number is one of these, rounded to so many significant digits."""
        if said is None or self.low is None or self.high is None:
            return said is None and self.low is None
        if isinstance(said, bool) or not isinstance(said, int | float) or not -_LARGEST < said < _LARGEST:
            return False
        slack = _TOLERANCE * max(1.0, abs(self.low), abs(self.high))
        if digits is not None:
            if float(f"{said:.{digits}g}") != said:
                return False
            # Half of the last digit that is published.
            slack += 0.5 * 10.0 ** (np.floor(np.log10(abs(said))) - digits + 1) if said else 0.0
        return bool(self.low - slack <= said <= self.high + slack)


Counted = dict[str, Between]


def _exactly(value: float | None) -> Between:
    return Between(value, value)


@dataclass(frozen=True, eq=False)
class _Parts:
    """The rows of each slice, found by sorting once: there may be thousands of slices."""

    order: Places
    number: Places

    @classmethod
    def of_numbers(cls, number: Places) -> _Parts:
        order = np.argsort(number, kind="stable")
        return cls(order, number[order])

    def of(self, s: int) -> Places:
        """The rows of a slice, in increasing order."""
        first, last = np.searchsorted(self.number, (s, s + 1))
        return self.order[first:last]


@dataclass(frozen=True, eq=False)
class Recounted:
    """The raw flows, the published cells, and what covers what.

    Attributes:
        flow_slice: of each raw flow, its slice.
        flow_volume, cell_volume: by basis.
        cell_slice, size_o, size_d: of each published cell: its slice, and the tiles of the input in its zones.
        coarse: of each published cell, whether its zones may hold more than one pair of tiles.
        covering: (flow, cell) for every published cell that holds both ends of a flow, counted there or not.
        assigned: (flow, cell) where the flow is counted; where boxes share flows, where it may be.
        metres: for both ends of ``assigned``, how far a tile is from the centre of a zone, and which of these each is;
            None without a map.
        smallest: of each flow, the fewest tiles of a safe cell that could hold it; None where that is too much work.
        overlapping: boxes share flows.
        steps: of each published cell, the steps of time in its interval; 1 where time is not folded.
        hours: how long that interval is; None where time is not folded.
    """

    flow_slice: Places
    flow_volume: Mapping[str, Floats]
    cell_volume: Mapping[str, Floats]
    cell_slice: Places
    size_o: Floats
    size_d: Floats
    coarse: NDArray[np.bool_]
    covering: tuple[Places, Places]
    assigned: tuple[Places, Places]
    metres: tuple[tuple[Floats, Places], tuple[Floats, Places]] | None
    smallest: Floats | None
    overlapping: bool
    steps: Floats
    hours: Floats | None

    def measures(self, s: int, basis: str, *, k: float, population: float | None, allowed: float) -> Counted:
        """The measures of one slice.

        Args:
            s: its number.
            basis: trips or weight.
            k: of the guarantee.
            population: its threshold of the population, if that is protected.
            allowed: the share that may be suppressed.
        """
        mine, cell = self._flows_of(s), self._cells_of(s)
        volume, v = self.flow_volume[basis][mine], self.cell_volume[basis][cell]
        total, published = float(volume.sum()), float(v.sum())
        size = (self.size_o + self.size_d)[cell]
        error = float(np.sum(v * size) / published) if published else None
        size_k = k if basis == "trips" else population or self._mean_weights(mine, k)
        gone = 1 - published / total if total else 0.0
        return {
            "c_dm": _exactly(float(np.sum(v**2) + total * (total - published))),
            "c_avg": _exactly(published / len(v) / size_k if published else None),
            "mean_generalization_error": _exactly(error),
            "reconstruction_loss": _exactly(self._loss(s, basis, total, total) if total else None),
            "distribution_distance": _exactly(self._loss(s, basis, total, published) if total and published else None),
            **self._widths(v, cell),
            **self._floors(mine, volume, max(gone, allowed), error),
            **self._distances(s, basis),
            **self._short(mine, cell, k, population),
        }

    def _widths(self, volume: Floats, cell: Places) -> Counted:
        if self.hours is None:
            return {}
        wide = float(np.sum(volume * self.hours[cell]) / volume.sum()) if volume.sum() else None
        return {"mean_time_width_h": _exactly(wide)}

    def volume(self, s: int, basis: str) -> tuple[float, float]:
        """The raw and the published volume of a slice."""
        whole = self.flow_volume[basis][self._flows_of(s)].sum()
        return float(whole), float(self.cell_volume[basis][self._cells_of(s)].sum())

    @cached_property
    def _parts(self) -> dict[str, _Parts]:
        return {
            "flows": _Parts.of_numbers(self.flow_slice),
            "cells": _Parts.of_numbers(self.cell_slice),
            "covering": _Parts.of_numbers(self.cell_slice[self.covering[1]]),
            "assigned": _Parts.of_numbers(self.cell_slice[self.assigned[1]]),
        }

    def _flows_of(self, s: int) -> Places:
        return self._parts["flows"].of(s)

    def _cells_of(self, s: int) -> Places:
        return self._parts["cells"].of(s)

    def n_merged(self, s: int) -> int:
        """How many cells of a slice cover more than one pair of tiles, or more than one step of time."""
        cells = self._cells_of(s)
        return int(np.sum(self.size_o[cells] * self.size_d[cells] * self.steps[cells] > 1))

    def may_merge(self, s: int) -> bool:
        """Whether some cell of a slice may cover more than one pair of tiles, seen or not."""
        cells = self._cells_of(s)
        return bool((self.coarse[cells] | (self.steps[cells] > 1)).any())

    def misplaced(self, s: int) -> float:
        """Trips of a slice that spreading its cells evenly puts into wrong pairs of tiles."""
        total, published = self.volume(s, "trips")
        return self._loss(s, "trips", total, total) * total - (total - published)

    def _mean_weights(self, flows: Any, k: float) -> float:
        if "weight" not in self.flow_volume:
            return 0.0
        return mean_population(self.flow_volume["weight"][flows], self.flow_volume["trips"][flows], k)

    def _short(self, flows: Any, cells: Any, k: float, population: float | None) -> Counted:
        if "weight" not in self.cell_volume:
            return {"cells_under_k_population": _exactly(None)}
        least = population or self._mean_weights(flows, k)
        return {"cells_under_k_population": _exactly(float(np.sum(self.cell_volume["weight"][cells] < least)))}

    @cached_property
    def _losses(self) -> dict[tuple[int, str, float, float], float]:
        return {}

    def _loss(self, s: int, basis: str, total: float, scale: float) -> float:
        """Sum over all pairs of tiles of abs(reconstructed - original); asked for more than once, counted once."""
        asked = (s, basis, total, scale)
        if asked not in self._losses:
            self._losses[asked] = self._count_loss(*asked)
        return self._losses[asked]

    def _count_loss(self, s: int, basis: str, total: float, scale: float) -> float:
        mine, cell = self._flows_of(s), self._cells_of(s)
        pairs = self.size_o[cell] * self.size_d[cell] * self.steps[cell]
        each = self.cell_volume[basis][cell] / scale / pairs
        rows = self._parts["covering"].of(s)
        flow, at = _places_in(mine, self.covering[0][rows]), _places_in(cell, self.covering[1][rows])
        rebuilt = np.bincount(flow, weights=each[at], minlength=len(mine))
        on_flows = np.abs(rebuilt - self.flow_volume[basis][mine] / total).sum()
        on_empty = ((pairs - np.bincount(at, minlength=len(cell))) * each).sum()
        return float(on_flows + on_empty)

    def _floors(self, flows: Any, volume: Floats, share: float, error: float | None) -> Counted:
        if self.smallest is None:
            return {}
        floor = self._floor(self.smallest[flows], volume, share)
        ratio = None if floor is None or error is None else error / floor
        return {"floor_generalization_error": _exactly(floor), "floor_ratio": _exactly(ratio)}

    @staticmethod
    def _floor(size: Floats, volume: Floats, share: float) -> float | None:
        """The mean size, the costliest share of the volume left out."""
        order = np.argsort(size, kind="stable")
        size, volume = size[order], volume[order]
        kept = np.clip(volume.sum() * (1 - share) - (np.cumsum(volume) - volume), 0.0, volume)
        used = kept > 0
        if not used.any() or not np.isfinite(size[used]).all():
            return None
        return float(np.sum(size[used] * kept[used]) / kept.sum())

    def _distances(self, s: int, basis: str) -> Counted:
        names = ("generalization_distance_m", "generalization_distance_median_m", "generalization_distance_std_m")
        mine = self._parts["assigned"].of(s)
        flow, cell = self.assigned[0][mine], self.assigned[1][mine]
        weight = self.flow_volume[basis][flow]
        if self.metres is None or weight.sum() == 0:
            return dict.fromkeys(names, _exactly(None))
        if self.overlapping:
            one, other = (values[which[mine]] for values, which in self.metres)
            return dict(zip(names, self._bounds(basis, cell, one, other), strict=True))
        ends = [_weighed(values, which[mine], weight) for values, which in self.metres]
        metres, weight = (np.concatenate(both) for both in zip(*ends, strict=True))
        # Ends outside the area have no place, and did not move.
        metres, weight = metres[~np.isnan(metres)], weight[~np.isnan(metres)]
        if weight.sum() == 0:
            return dict.fromkeys(names, _exactly(None))
        mean = float(np.average(metres, weights=weight))
        spread = float(np.average((metres - mean) ** 2, weights=weight)) ** 0.5
        order = np.argsort(metres, kind="stable")
        reached = np.cumsum(weight[order])
        half = reached[-1] / 2
        # Sums of weights are rounded: where half is reached to the last digit, either side is the median.
        exact = basis == "trips"
        at = [np.searchsorted(reached, half * (1 + sign * (0 if exact else _TOLERANCE))) for sign in (-1, 1)]
        median = [float(metres[order][min(i, len(order) - 1)]) for i in at]
        return dict(zip(names, (_exactly(mean), Between(median[0], median[1]), _exactly(spread)), strict=True))

    def _bounds(self, basis: str, cell: Places, one: Floats, other: Floats) -> tuple[Between, Between, Between]:
        n, v = len(self.cell_slice), self.cell_volume[basis]
        low, high = np.zeros(n), np.zeros(n)
        for metres in (one, other):
            least, most = np.full(n, np.inf), np.zeros(n)
            np.minimum.at(least, cell, metres)
            np.maximum.at(most, cell, metres)
            low, high = low + np.where(np.isfinite(least), least, 0.0) / 2, high + most / 2
        ends = np.concatenate((one, other))
        nearest, farthest = float(ends.min()), float(ends.max())
        mean = Between(float(np.average(low, weights=v)), float(np.average(high, weights=v)))
        return mean, Between(nearest, farthest), Between(0.0, (farthest - nearest) / 2)


def combined(
    recounted: Recounted, basis: str, parts: Sequence[tuple[int, Counted]], *, lost: Sequence[float], size_k: float
) -> Counted:
    """The measures of several slices together.

    Args:
        recounted: what they were counted from.
        basis: trips or weight.
        parts: number and measures of each slice.
        lost: the volume of each slice that is not published.
        size_k: the k of this basis.
    """
    volumes = np.array([recounted.volume(s, basis) for s, _ in parts]).reshape(-1, 2)
    whole, shown = volumes.T
    total, published = float(whole.sum() + sum(lost)), float(shown.sum())
    cells = int(np.isin(recounted.cell_slice, [s for s, _ in parts]).sum())

    def values(name: str, side: str = "low") -> Floats:
        return np.array([getattr(counted[name], side) for _, counted in parts], dtype=np.float64)

    def mean(name: str, side: str = "low") -> float | None:
        value = values(name, side)
        known = ~np.isnan(value) & (shown > 0)
        return float(np.average(value[known], weights=shown[known])) if known.any() else None

    out = {
        "c_dm": _exactly(float(values("c_dm").sum() + np.square(lost).sum())),
        "c_avg": _exactly(published / cells / size_k if published else None),
        "mean_generalization_error": _exactly(mean("mean_generalization_error")),
        "distribution_distance": _exactly(mean("distribution_distance")),
        "generalization_distance_median_m": _exactly(None),
    }
    losses = values("reconstruction_loss")
    unknown = not total or np.isnan(losses).any()
    out["reconstruction_loss"] = _exactly(None if unknown else float((losses @ whole + sum(lost)) / total))
    middle = mean("generalization_distance_m")
    out["generalization_distance_m"] = _exactly(middle)
    spread = None
    if middle is not None:
        square = np.square(values("generalization_distance_m")) + np.square(values("generalization_distance_std_m"))
        known = ~np.isnan(square) & (shown > 0)
        spread = float(max(np.average(square[known], weights=shown[known]) - middle**2, 0.0) ** 0.5)
    out["generalization_distance_std_m"] = _exactly(spread)
    short = [values("cells_under_k_population", side) for side in ("low", "high")]
    out["cells_under_k_population"] = Between(*(None if np.isnan(n).any() else float(n.sum()) for n in short))
    return out


# ---- from the database of the recount ------------------------------------------------------------------------


def recounted(db: Database, claims: Claims, flows: Flows) -> Recounted:
    """What the measures are of, from the tables of the recount."""
    guarantee: Mapping[str, Any] = claims.guarantee
    raw = db.columns(
        f"SELECT flow, s, no.n AS o, nd.n AS d, {AMOUNTS} FROM raw JOIN "
        "(SELECT tile, row_number() OVER () - 1 AS n FROM tile_o) no ON raw.o = no.tile JOIN "
        "(SELECT tile, row_number() OVER () - 1 AS n FROM tile_d) nd ON raw.d = nd.tile ORDER BY flow",
    )
    if flows.l_places is not None:
        raw = {**raw, **places_by_number(db)}
    weighted = flows.weight is not None
    folded = claims.kind == "folded"
    hours, interval = ("hours", "JOIN interval t ON r.i = t.i ") if folded else ("NULL::DOUBLE", "")
    cells = db.columns(
        f"SELECT r.s AS s, r.steps AS steps, {hours} AS hours, r.a AS a, r.b AS b, r.trips AS trips, "
        f"{'r.weight' if weighted else '0'} AS weight, o.tiles AS size_o, d.tiles AS size_d, "
        "coarse_o OR coarse_d AS coarse, lo.lat AS lat_o, lo.lon AS lon_o, ld.lat AS lat_d, ld.lon AS lon_d "
        f"FROM recount r {interval}JOIN zone_o o ON r.a = o.z JOIN zone_d d ON r.b = d.z "
        "JOIN zones lo ON lo.zone = o.zone AND lo.role <> 'destination' "
        "JOIN zones ld ON ld.zone = d.zone AND ld.role <> 'origin' ORDER BY r.a, r.b",
    )
    where = db.columns("SELECT flow, a, b FROM assigned")
    assigned = _pairs(raw, cells, where)
    covering = assigned
    if claims.levels is not None and claims.kind != "boxed":
        # Flows that were taken out before cells were counted may lie in published cells.
        query = (
            "SELECT flow, mo.z AS a, md.z AS b FROM raw JOIN member_o mo ON raw.o = mo.tile AND raw.s = mo.s "
            "JOIN member_d md ON raw.d = md.tile AND raw.s = md.s SEMI JOIN cells c ON c.a = mo.z AND c.b = md.z"
        )
        covering = _pairs(raw, cells, db.columns(query))
    origin, destination = raw["o"].astype(np.int64), raw["d"].astype(np.int64)
    bases = ("trips", "weight") if weighted else ("trips",)
    return Recounted(
        flow_slice=raw["s"].astype(np.int64),
        flow_volume={basis: raw[basis].astype(np.float64) for basis in bases},
        cell_volume={basis: cells[basis].astype(np.float64) for basis in bases},
        cell_slice=cells["s"].astype(np.int64),
        size_o=cells["size_o"].astype(np.float64),
        size_d=cells["size_d"].astype(np.float64),
        coarse=cells["coarse"].astype(np.bool_),
        covering=covering,
        assigned=assigned,
        metres=_metres(flows, origin, destination, cells, assigned),
        smallest=_smallest(db, flows, raw, guarantee),
        overlapping=claims.overlapping,
        steps=cells["steps"].astype(np.float64),
        hours=cells["hours"].astype(np.float64) if folded else None,
    )


def _smallest(db: Database, flows: Flows, raw: Mapping[str, Any], guarantee: Mapping[str, Any]) -> Floats | None:
    """The smallest safe cell of every flow; None where that is too much work, which is known before rows are read."""
    protected = [unit for unit in COUNTED_ONCE if guarantee.get(unit) is not None]
    # A question for each pair of depths is too much to ask of a cluster.
    if any(unit in db.elsewhere for unit in protected):
        return None
    n_rows = sum(int(db.one(f"SELECT count(*) FROM {unit}_flow")) for unit in protected)
    if not is_affordable(flows, len(raw["flow"]) + n_rows):
        return None
    members = {}
    for unit in protected:
        found = db.columns(f"SELECT flow, member FROM {unit}_flow ORDER BY flow")
        members[unit] = _places_in(raw["flow"], found["flow"]), found["member"].astype(np.int64)
    return smallest_safe(flows, raw, guarantee, members)


def _places_in(numbers: Any, wanted: Any) -> Places:
    """The place of each number among some that are distinct and in order: itself, where those are all from 0 on."""
    if len(numbers) and numbers[0] == 0 and numbers[-1] == len(numbers) - 1:
        return np.asarray(wanted, dtype=np.int64)
    return np.asarray(np.searchsorted(numbers, wanted), dtype=np.int64)


def _pairs(raw: Mapping[str, Any], cells: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[Places, Places]:
    """The places of flows and cells that belong together."""
    flow = _places_in(raw["flow"], found["flow"])
    wide = int(max(cells["b"].max(initial=0), found["b"].max(initial=0))) + 1
    key = cells["a"].astype(np.int64) * wide + cells["b"]
    asked = found["a"].astype(np.int64) * wide + found["b"]
    if len(key) == 0 or int(key[-1]) >= _TABLE_PER_ROW * (len(key) + len(asked)):
        return flow, np.searchsorted(key, asked)
    # Every pair of zones has an entry: looked up, and not searched for.
    place = np.zeros(max(int(key[-1]), int(asked.max(initial=0))) + 1, dtype=np.int32)
    place[key[::-1]] = np.arange(len(key), dtype=np.int32)[::-1]
    return flow, place[asked].astype(np.int64)


def _metres(
    flows: Flows, origin: Places, destination: Places, cells: Mapping[str, Any], assigned: tuple[Places, Places]
) -> tuple[tuple[Floats, Places], tuple[Floats, Places]] | None:
    """See `Recounted`: measured once for each tile and zone, because many flows share them."""
    from pyproj import Geod

    flow, cell = assigned
    out = []
    for tree, tile, end in ((flows.origins, origin, "o"), (flows.destinations, destination, "d")):
        if tree.geography is None:
            return None
        lat, lon = tree.geography.centers(leaves(tree))
        # Tiles have places and zones do not. Where all ends are outside the area, neither do.
        if np.isnan(cells[f"lat_{end}"].astype(np.float64)).all() and not np.isnan(lat[tile[flow]]).all():
            return None
        zone = _first_of_zone(cells["a" if end == "o" else "b"])[cell]
        t, c, number = _distinct_pairs(tile[flow], zone, len(cells["s"]))
        _, _, metres = Geod(ellps="WGS84").inv(lon[t], lat[t], cells[f"lon_{end}"][c], cells[f"lat_{end}"][c])
        out.append((np.asarray(metres, dtype=np.float64), number))
    return out[0], out[1]


def _distinct_pairs(tile: Places, zone: Places, n_zones: int) -> tuple[Places, Places, Places]:
    """The tiles and zones that occur together, and which of these pairs each row is."""
    zone_of = np.full(int(tile.max(initial=-1)) + 1, -1, dtype=np.int64)
    zone_of[tile] = zone
    if np.array_equal(zone_of[tile], zone):
        # Each tile is in one zone, as on every homogeneous map: nothing has to be sorted.
        distinct = np.flatnonzero(zone_of >= 0)
        return distinct, zone_of[distinct], (np.cumsum(zone_of >= 0) - 1)[tile]
    pairs, number = np.unique(tile * n_zones + zone, return_inverse=True)
    return pairs // n_zones, pairs % n_zones, number


def _weighed(values: Floats, which: Places, weight: Floats) -> tuple[Floats, Floats]:
    """Values and weights of rows that each have one of some values: added up by value where there are more rows."""
    if len(which) <= len(values):
        return values[which], weight
    return values, np.asarray(np.bincount(which, weights=weight, minlength=len(values)), dtype=np.float64)


def _first_of_zone(zone: Any) -> Places:
    """For each cell, a cell that stands for its zone."""
    _, first, number = np.unique(zone, return_index=True, return_inverse=True)
    return np.asarray(first[number], dtype=np.int64)
