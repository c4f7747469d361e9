"""The measures of a release, counted anew: losses, sizes, distances and floors.

Shares nothing with `flowveil.measures` or with the methods: the formulas are those of the documentation, over the raw
flows, the published cells and the pairs (flow, cell that covers it) of the recount, and tiles are those seen in the
input, never those that zones.parquet says. Everything is done for all slices at once in whole columns.

Where boxes share flows, the files do not say in which cell a flow is counted. Then the distances that trip ends moved
can be bounded only: the mean cell by cell between the nearest and the farthest flow in its boxes, the median between
the nearest and the farthest of all, the standard deviation by half of what is between. All other measures are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.verify.floor import leaves, smallest_safe

if TYPE_CHECKING:
    from flowveil.flows import Flows

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

#: Significant digits of published measures that are computed from tiles. Others are exact, but for a billionth.
DIGITS = {
    "mean_generalization_error": 4,
    "reconstruction_loss": 4,
    "distribution_distance": 4,
    "floor_generalization_error": 3,
    "floor_ratio": 3,
    "generalization_distance_m": 3,
    "generalization_distance_std_m": 3,
    "generalization_distance_median_m": 2,
}
_TOLERANCE = 1e-9
#: Measures that tell the suppressed volume to whoever has the published cells.
_TELL_SUPPRESSED = (
    "c_dm",
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "reconstruction_loss",
    "suppressed_share",
)
#: With fewer cells that cover more than one pair of tiles, losses tell what is inside one.
_FEWEST_MERGED = 10


@dataclass(frozen=True)
class Between:
    """A measure that lies between two numbers; both None where it does not exist."""

    low: float | None
    high: float | None

    def agrees(self, said: Any, digits: int | None) -> bool:
        """Whether a published number is one of these, rounded to so many significant digits."""
        if said is None or self.low is None or self.high is None:
            return said is None and self.low is None
        if isinstance(said, bool) or not isinstance(said, int | float) or not np.isfinite(said):
            return False
        slack = _TOLERANCE * max(1.0, abs(self.low), abs(self.high))
        if digits is not None:
            if float(f"{said:.{digits}g}") != said:
                return False
            # Half of the last digit that is told.
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
        metres: of each of ``assigned``, how far its two ends are from the centres of the zones; None without a map.
        smallest: of each flow, the fewest tiles of a safe cell that could hold it; None where that is too much work.
        overlapping: boxes share flows.
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
    metres: tuple[Floats, Floats] | None
    smallest: Floats | None
    overlapping: bool

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
        size_k = k if basis == "trips" else population or self._mean_weight(mine) * k
        gone = 1 - published / total if total else 0.0
        return {
            "c_dm": _exactly(float(np.sum(v**2) + total * (total - published))),
            "c_avg": _exactly(published / len(v) / size_k if published else None),
            "mean_generalization_error": _exactly(error),
            "reconstruction_loss": _exactly(self._loss(s, basis, total, total) if total else None),
            "distribution_distance": _exactly(self._loss(s, basis, total, published) if total and published else None),
            **self._floors(mine, volume, max(gone, allowed), error),
            **self._distances(s, basis),
            **self._short(mine, cell, k, population),
        }

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
        """How many cells of a slice cover more than one pair of tiles."""
        cells = self._cells_of(s)
        return int(np.sum(self.size_o[cells] * self.size_d[cells] > 1))

    def may_merge(self, s: int) -> bool:
        """Whether some cell of a slice may cover more than one pair of tiles, seen or not."""
        return bool(self.coarse[self._cells_of(s)].any())

    def misplaced(self, s: int) -> float:
        """Trips of a slice that spreading its cells evenly puts into wrong pairs of tiles."""
        total, published = self.volume(s, "trips")
        return self._loss(s, "trips", total, total) * total - (total - published)

    def _mean_weight(self, flows: Any) -> float:
        if "weight" not in self.flow_volume:
            return 0.0
        return float(self.flow_volume["weight"][flows].sum() / self.flow_volume["trips"][flows].sum())

    def _short(self, flows: Any, cells: Any, k: float, population: float | None) -> Counted:
        if "weight" not in self.cell_volume:
            return {"cells_under_k_population": _exactly(None)}
        least = population or k * self._mean_weight(flows)
        weight = self.cell_volume["weight"][cells]
        low, high = (float(np.sum(weight < least * (1 + sign * _TOLERANCE))) for sign in (-1, 1))
        return {"cells_under_k_population": Between(low, high)}

    def _loss(self, s: int, basis: str, total: float, scale: float) -> float:
        """Sum over all pairs of tiles of abs(reconstructed - original)."""
        mine, cell = self._flows_of(s), self._cells_of(s)
        pairs = self.size_o[cell] * self.size_d[cell]
        each = self.cell_volume[basis][cell] / scale / pairs
        rows = self._parts["covering"].of(s)
        flow, at = np.searchsorted(mine, self.covering[0][rows]), np.searchsorted(cell, self.covering[1][rows])
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
        one, other = self.metres[0][mine], self.metres[1][mine]
        if self.overlapping:
            return dict(zip(names, self._bounds(basis, cell, one, other), strict=True))
        metres, weight = np.concatenate((one, other)), np.concatenate((weight, weight))
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


def _combined(
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


def _recounted(db: Any, claims: Any, flows: Flows) -> Recounted:
    """What the measures are of, from the tables of the recount."""
    guarantee: Mapping[str, Any] = claims.guarantee
    raw = _numbers(
        db,
        "SELECT flow, s, no.n AS o, nd.n AS d, trips, weight FROM raw JOIN "
        "(SELECT tile, row_number() OVER () - 1 AS n FROM tile_o) no ON raw.o = no.tile JOIN "
        "(SELECT tile, row_number() OVER () - 1 AS n FROM tile_d) nd ON raw.d = nd.tile ORDER BY flow",
    )
    weighted = flows.weight is not None
    who = None
    if guarantee.get("people") is not None:
        found = _numbers(db, "SELECT flow, person FROM who ORDER BY flow")
        who = np.searchsorted(raw["flow"], found["flow"]), found["person"].astype(np.int64)
    cells = _numbers(
        db,
        "SELECT r.s AS s, r.a AS a, r.b AS b, r.trips AS trips, "
        f"{'r.weight' if weighted else '0'} AS weight, o.tiles AS size_o, d.tiles AS size_d, "
        "coarse_o OR coarse_d AS coarse, lo.lat AS lat_o, lo.lon AS lon_o, ld.lat AS lat_d, ld.lon AS lon_d "
        "FROM recount r JOIN zone_o o ON r.a = o.z JOIN zone_d d ON r.b = d.z "
        "JOIN zones lo ON lo.zone = o.zone AND lo.role <> 'destination' "
        "JOIN zones ld ON ld.zone = d.zone AND ld.role <> 'origin' ORDER BY r.a, r.b",
    )
    where = _numbers(db, "SELECT flow, a, b FROM assigned")
    assigned = _pairs(raw, cells, where)
    covering = assigned
    if claims.suppression["rule"] == "hopeless flows" and claims.boxes is None:
        # Flows that were taken out before cells were counted may lie in published cells.
        query = (
            "SELECT flow, mo.z AS a, md.z AS b FROM raw JOIN member_o mo ON raw.o = mo.tile AND raw.s = mo.s "
            "JOIN member_d md ON raw.d = md.tile AND raw.s = md.s SEMI JOIN cells c ON c.a = mo.z AND c.b = md.z"
        )
        covering = _pairs(raw, cells, _numbers(db, query))
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
        smallest=smallest_safe(flows, raw, guarantee, who),
        overlapping=claims.overlapping,
    )


def _numbers(db: Any, query: str) -> dict[str, Any]:
    columns = db.execute(query).fetchnumpy()
    return {
        name: np.ma.filled(column.astype(np.float64), np.nan) if np.ma.is_masked(column) else np.ma.getdata(column)
        for name, column in columns.items()
    }


def _pairs(raw: Mapping[str, Any], cells: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[Places, Places]:
    """The places of flows and cells that belong together."""
    flow = np.searchsorted(raw["flow"], found["flow"])
    wide = int(max(cells["b"].max(initial=0), found["b"].max(initial=0))) + 1
    key = cells["a"].astype(np.int64) * wide + cells["b"]
    cell = np.searchsorted(key, found["a"].astype(np.int64) * wide + found["b"])
    return flow.astype(np.int64), cell.astype(np.int64)


def _metres(
    flows: Flows, origin: Places, destination: Places, cells: Mapping[str, Any], assigned: tuple[Places, Places]
) -> tuple[Floats, Floats] | None:
    from pyproj import Geod

    flow, cell = assigned
    out = []
    for tree, tile, end in ((flows.origins, origin, "o"), (flows.destinations, destination, "d")):
        if tree.geography is None or np.isnan(cells[f"lat_{end}"].astype(np.float64)).any():
            return None
        lat, lon = tree.geography.centers(leaves(tree))
        # Once for each tile and zone: many flows share them.
        pair = tile[flow] * len(cells["s"]) + _first_of_zone(cells["a" if end == "o" else "b"])[cell]
        distinct, number = np.unique(pair, return_inverse=True)
        t, c = distinct // len(cells["s"]), distinct % len(cells["s"])
        _, _, metres = Geod(ellps="WGS84").inv(lon[t], lat[t], cells[f"lon_{end}"][c], cells[f"lat_{end}"][c])
        out.append(np.asarray(metres, dtype=np.float64)[number])
    return out[0], out[1]


def _first_of_zone(zone: Any) -> Places:
    """For each cell, a cell that stands for its zone."""
    _, first, number = np.unique(zone, return_index=True, return_inverse=True)
    return np.asarray(first[number], dtype=np.int64)


# ---- against the report --------------------------------------------------------------------------------------


def check_measures(
    db: Any,
    claims: Any,
    flows: Flows,
    *,
    secret: set[int],
    of_totals: bool,
    few_zones: tuple[bool, bool],
    numbers: Mapping[tuple[str | None, ...], int] | None = None,
) -> Iterator[str]:
    """Hold the measures of a report against the recount; a value that is withheld for no reason is a finding too.

    Args:
        db: the database of the recount, with ``raw``, ``who``, ``recount``, ``assigned``, ``member_*``, ``zone_*``.
        claims: what the report claims; see `flowveil.verify.release`.
        flows: everything that was read.
        secret: the slices whose suppressed volume must be withheld.
        of_totals: whether that of all slices must be; for one matrix, the same.
        few_zones: whether so few zones may hold several tiles that errors would tell how many were seen: the errors of
            the slices, and that of all.
        numbers: for a family, the number of each slice.
    """
    recounted = _recounted(db, claims, flows)
    secret = secret | _may_be_few(db, claims, recounted)
    bases = list(recounted.flow_volume)
    if numbers is None:
        counted = _measures_of(claims, recounted, 0, bases)
        inside = _tell_inside(claims, recounted, [0])
        allowed = _may_withhold(claims, withhold=bool(secret), inside=inside, few_zones=few_zones[1])
        yield from _compare(claims.measures, counted, allowed)
        return
    of_slice = {}
    mean_weight = _may_withhold(claims, withhold=bool(secret or of_totals)) - set(_TELL_SUPPRESSED)
    for part in claims.slices:
        s = numbers[part.key]
        of_slice[s] = _measures_of(claims, recounted, s, bases)
        inside = _tell_inside(claims, recounted, [s])
        allowed = _may_withhold(claims, withhold=s in secret, inside=inside, few_zones=few_zones[0]) | mean_weight
        yield from _compare(part.measures, of_slice[s], allowed)
    finest = {s for (s,) in db.execute("SELECT s FROM finest").fetchall()}
    measured = [s for s in of_slice if s in finest] or list(of_slice)
    inside = _tell_inside(claims, recounted, measured)
    allowed = _may_withhold(claims, withhold=of_totals, inside=inside, few_zones=few_zones[1]) | mean_weight
    lost = {basis: _lost(db, basis) for basis in bases}
    if secret or lost["trips"]:
        # Sums over all slices, from which those of single slices would follow.
        allowed |= {"c_dm", "distribution_distance", "reconstruction_loss"}
    k = claims.k
    mean = 0.0 if flows.weight is None else float(np.sum(flows.weight)) / float(np.sum(flows.trips))
    size_k = {"trips": k, "weight": claims.threshold("population") or k * mean}
    overall = {
        basis: _combined(
            recounted, basis, [(s, of_slice[s][basis]) for s in measured], lost=lost[basis], size_k=size_k[basis]
        )
        for basis in bases
    }
    yield from _compare(claims.measures, overall, allowed)


def _may_be_few(db: Any, claims: Any, recounted: Recounted) -> set[int]:
    """The slices of which nobody can tell from the files how many cells are suppressed, or could be.

    The zones of a suppressed cell are known only where zones do not overlap and other cells show them.
    """
    if claims.overlapping:
        total, published = recounted.volume(0, "trips")
        return {0} if published < total else set()
    if claims.suppression["rule"] != "short cells":
        return set()
    if not claims.homogeneous:
        return {s for (s,) in db.execute("SELECT DISTINCT s FROM suppressed").fetchall()}
    query = (
        "SELECT u.s FROM suppressed u LEFT JOIN member_o mo ON o = mo.tile AND u.s = mo.s "
        "LEFT JOIN member_d md ON d = md.tile AND u.s = md.s GROUP BY u.s "
        "HAVING bool_or(mo.z IS NULL OR md.z IS NULL) OR count(DISTINCT (mo.z, md.z)) < 3"
    )
    return {s for (s,) in db.execute(query).fetchall()}


def _measures_of(claims: Any, recounted: Recounted, s: int, bases: Sequence[str]) -> dict[str, Counted]:
    allowed = claims.parameters.get("max_suppressed")
    allowed = float(allowed) if isinstance(allowed, int | float) else 0.0
    k, population = claims.k, claims.threshold("population")
    return {basis: recounted.measures(s, basis, k=k, population=population, allowed=allowed) for basis in bases}


def _lost(db: Any, basis: str) -> list[float]:
    """The volumes of the slices that are not published."""
    query = f"SELECT sum({basis})::DOUBLE FROM rows ANTI JOIN finest USING (m) GROUP BY m ORDER BY m"
    return [volume for (volume,) in db.execute(query).fetchall()]


def _tell_inside(claims: Any, recounted: Recounted, slices: Sequence[int]) -> bool:
    """Whether losses would tell what is inside cells: few cells are merged, or hardly a trip is misplaced."""
    few = []
    for s in slices:
        merged = recounted.n_merged(s)
        few += [merged] if merged < _FEWEST_MERGED and recounted.may_merge(s) else []
        if merged and recounted.misplaced(s) < max(merged, claims.k) * (1 + _TOLERANCE):
            return True
    return bool(few) and sum(few) < _FEWEST_MERGED


def _may_withhold(claims: Any, *, withhold: bool, inside: bool = False, few_zones: bool = False) -> set[str]:
    """The measures that the rules allow to withhold."""
    names = {"floor_ratio", "mean_generalization_error"} if few_zones else set()
    if withhold:
        names |= set(_TELL_SUPPRESSED)
        if claims.parameters.get("k_population") is None:
            # Counted against the mean weight of all trips, the suppressed ones included.
            names |= {"c_avg", "cells_under_k_population"}
    return names | set(DIGITS) - {"mean_generalization_error"} if inside else names


def _compare(
    said: Mapping[str, Mapping[str, Any]], counted: Mapping[str, Counted], may_be_null: set[str]
) -> Iterator[str]:
    for basis in sorted(set(said) & set(counted)):
        for name, value in counted[basis].items():
            told = said[basis].get(name)
            # Trips have no mean weight: what is withheld for its sake is withheld by weight.
            withheld = name in may_be_null and (name, basis) != ("c_avg", "trips")
            if told is None and (value.low is None or withheld):
                continue
            if told is None:
                yield f"report.json: {name} by {basis} is withheld without a reason"
            elif not value.agrees(told, DIGITS.get(name)):
                yield f"report.json: {name} by {basis} contradicts the recount"
