"""The measures of a report against the recount: each is what it says, and is withheld where it must be and only there.

The lists of measures here are this room's own: what decides to withhold has another, and a test says when they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowveil.verify.claims import TOLERANCE, Claims, mean_population
from flowveil.verify.database import Database, literal
from flowveil.verify.losses import Counted, Recounted, combined, recounted
from flowveil.verify.units import UNITS, UNSHOWN
from flowveil.verify.withholding import (
    count_pairs,
    list_suppressed,
    must_withhold_overall,
    withholding,
)

if TYPE_CHECKING:
    from flowveil.flows import Flows

Measures = Mapping[str, Mapping[str, Any]]
#: Of each slice, by basis: how much there is, and how much of it is suppressed.
Volumes = Mapping[int, Mapping[str, tuple[float, float]]]

#: Significant digits of published measures that are computed from tiles. Others are exact, but for a billionth.
DIGITS = {
    "mean_generalization_error": 4,
    "mean_time_width_h": 4,
    "reconstruction_loss": 4,
    "distribution_distance": 4,
    "floor_generalization_error": 3,
    "floor_ratio": 3,
    "generalization_distance_m": 3,
    "generalization_distance_std_m": 3,
    "generalization_distance_median_m": 2,
}
#: Measures that reveal the suppressed volume to whoever has the published cells.
REVEAL_SUPPRESSED = {
    "c_dm",
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "reconstruction_loss",
    "suppressed_share",
}
#: Measures that reveal how trips are spread inside a cell, where few cells cover more than one pair of tiles.
REVEAL_INSIDE = set(DIGITS) - {"mean_generalization_error", "mean_time_width_h"}
#: Measures that reveal how many tiles were seen in a zone, where few zones may hold more than one.
REVEAL_SEEN = {"floor_generalization_error", "floor_ratio", "mean_generalization_error"}
#: Measures with a term for each slice, from which that of one follows where the others are known.
REVEAL_TERMS = {"c_dm", "distribution_distance", "reconstruction_loss"}
#: Measures counted against the mean weight of all trips, where no population was given.
REVEAL_MEAN_WEIGHT = {"c_avg", "cells_under_k_population"}
#: The one measure that may be too much work to count anew, and what is said then.
FLOOR = "floor_generalization_error"
NOT_RECOUNTED = (
    "report.json: the floor of the generalisation error, and the error over it, were not recounted: there are too many "
    "flows and depths, or persons stay on a cluster."
)
#: So many cells or zones are few.
_FEWEST_MERGED = 10


def check_measures(db: Database, claims: Claims, flows: Flows, unread: list[str], *, sound: bool) -> Iterator[str]:
    """Hold the measures against the recount: those of each slice, and those of all finest slices together.

    Args:
        db: the tables of the recount.
        claims: the report.
        flows: everything that was read.
        unread: gets a line where the floor of the error is stated and not recounted.
        sound: whether tables and cells are those of a release; if not, losses of them mean nothing.
    """
    expected = ["trips"] if flows.weight is None else ["trips", "weight"]
    list_suppressed(db, claims, flows)
    secret: tuple[set[int], set[int]] = set(), set()
    if claims.kind == "sliced" or db.one("SELECT count(*) FROM together"):
        # Where nothing is suppressed, nothing of it is revealed.
        count_pairs(db, claims)
        secret = withholding(db, claims)
    volumes = _volumes(db, claims)
    yield from _check_notes(claims)
    if claims.kind != "sliced":
        (cells,) = _count_cells(db, claims).values()
        yield from _check_counts(claims, claims.measures, expected, cells, _shares(volumes), withhold=bool(secret[0]))
        few = cells.few_zones()
        yield from _check_error(claims.measures, secret=few)
        if sound:
            counted = recounted(db, claims, flows)
            unread += _floor_not_recounted(counted, [claims.measures])
            inside = _reveals_inside(claims, counted, [0])
            allowed = _may_be_null(claims, withhold=bool(secret[1]), inside=inside, few_zones=few)
            yield from _compare(claims.measures, _measures_of(claims, counted, 0), allowed, claims.withheld())
        return
    yield from _check_slices(db, claims, flows, expected, secret, volumes, unread, sound=sound)


def _check_slices(
    db: Database,
    claims: Claims,
    flows: Flows,
    expected: Sequence[str],
    withheld: tuple[set[int], set[int]],
    volumes: Volumes,
    unread: list[str],
    *,
    sound: bool,
) -> Iterator[str]:
    secret, may = withheld
    numbers = {tuple(key): s for *key, s in db.rows("SELECT * FROM slice")}
    parts = {numbers[key]: measures for key, measures in claims.slices if key in numbers}
    finest = db.numbers("SELECT s FROM finest")
    if len(finest) < len(numbers):
        # Beside coarser matrices a suppressed volume is one more number to subtract cells from: none may be published.
        absent = db.one("SELECT count(*) FROM raw_slice ANTI JOIN finest USING (m)")
        of_totals = bool(absent or db.one("SELECT count(*) FROM suppressed"))
        secret = set(numbers.values()) if of_totals else set()
    else:
        closed = {s for s, said in parts.items() if said["trips"]["suppressed_share"] is None}
        of_totals = must_withhold_overall(db, claims, flows, secret | closed)
    of_slice = _count_cells(db, claims, by_slice=True)
    if len(of_slice) < len(numbers):
        # No zone that the cells of a slice name is listed: nothing is counted there.
        of_slice = dict.fromkeys(numbers.values(), _count_cells(db, claims, where="false")[0]) | of_slice
    for s, said in parts.items():
        shares = _shares({s: volumes[s]} if s in volumes else {})
        yield from _check_counts(claims, said, expected, of_slice[s], shares, withhold=s in secret)
    # Each slice adds an equation between the numbers of tiles seen in the same zones.
    (everywhere,) = _count_cells(db, claims).values()
    few = everywhere.few_zones(errors=len(numbers)) or any(cells.few_zones() for cells in of_slice.values())
    for said in parts.values():
        yield from _check_error(said, secret=few)
    overall, among = everywhere, finest or set(of_slice)
    if among != set(of_slice):
        (overall,) = _count_cells(db, claims, where="s IN (SELECT s FROM finest)").values()
    few_overall = overall.few_zones()
    yield from _check_error(claims.measures, secret=few_overall)
    # What slices keep to themselves for having merged few cells must not follow from the losses of all.
    close = [cells for s, cells in of_slice.items() if s in among and cells.few_merged]
    overall = replace(overall, merged=sum(cells.merged for cells in close), coarse=sum(cells.coarse for cells in close))
    lost = {basis: _lost(db, basis) for basis in expected}
    shares = _shares({s: volumes[s] for s in among if s in volumes}, {basis: sum(lost[basis]) for basis in lost})
    yield from _check_counts(claims, claims.measures, expected, overall, shares, withhold=of_totals)
    if sound:
        counted = recounted(db, claims, flows)
        unread += _floor_not_recounted(counted, [claims.measures, *parts.values()])
        few_zones = few, few_overall
        yield from _check_losses(
            db, claims, flows, counted, parts, finest, (secret | may, of_totals), lost, few=few_zones
        )


def _floor_not_recounted(counted: Recounted, said: Sequence[Measures]) -> list[str]:
    """The line that says so, where the floor of the error is stated and was too much work to count anew."""
    stated = any(measures[basis].get(FLOOR) is not None for measures in said for basis in measures)
    return [NOT_RECOUNTED] if stated and counted.smallest is None else []


def _check_losses(
    db: Database,
    claims: Claims,
    flows: Flows,
    counted: Recounted,
    parts: Mapping[int, Measures],
    finest: set[int],
    withhold: tuple[set[int], bool],
    lost: Mapping[str, Sequence[float]],
    *,
    few: tuple[bool, bool],
) -> Iterator[str]:
    """The measures of slices that are computed from tiles.

    Args:
        db: the tables of the recount.
        claims: the report.
        flows: everything that was read.
        counted: the recount.
        parts: what is said of each slice, by number.
        finest: the numbers of the finest slices.
        withhold: the slices whose suppressed volume must or may be withheld, and whether that of all slices must be.
        lost: by basis, the volumes of the slices that are not published.
        few: whether so few zones may hold several tiles that errors would reveal how many were seen: the errors of the
            slices, and that of all.
    """
    secret, of_totals = withhold
    mean_weight = _may_be_null(claims, withhold=bool(secret or of_totals)) - REVEAL_SUPPRESSED
    of_slice, keys = {}, {s: tuple(key) for *key, s in db.rows("SELECT * FROM slice")}
    for s, said in parts.items():
        of_slice[s] = _measures_of(claims, counted, s)
        inside = _reveals_inside(claims, counted, [s])
        allowed = _may_be_null(claims, withhold=s in secret, inside=inside, few_zones=few[0])
        yield from _compare(said, of_slice[s], allowed | mean_weight, claims.withheld(keys[s]))
    measured = [s for s in of_slice if s in finest] or list(of_slice)
    inside = _reveals_inside(claims, counted, measured)
    allowed = _may_be_null(claims, withhold=of_totals, inside=inside, few_zones=few[1]) | mean_weight
    bases = list(counted.flow_volume)
    if secret or lost["trips"]:
        # Sums over all slices, from which those of single slices would follow.
        allowed |= REVEAL_TERMS
    mean = 0.0 if flows.weight is None else mean_population(flows.weight, flows.trips, claims.k)
    size_k = {"trips": claims.k, "weight": claims.threshold("population") or mean}
    overall = {
        basis: combined(
            counted, basis, [(s, of_slice[s][basis]) for s in measured], lost=lost[basis], size_k=size_k[basis]
        )
        for basis in bases
    }
    yield from _compare(claims.measures, overall, allowed, claims.withheld())


# ---- what is counted in tables -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cells:
    """What is counted of the published cells, of a slice or of several.

    Attributes:
        values: measures by name.
        merged: the cells that cover more than one pair of tiles.
        coarse: those that may, seen or not.
        zones: the zones of both ends that may hold several tiles.
    """

    values: Mapping[str, float | None]
    merged: int
    coarse: int
    zones: tuple[int, int]

    @property
    def few_merged(self) -> bool:
        """Whether so few cells are merged that losses would reveal what is inside one."""
        return self.coarse > 0 and self.merged < _FEWEST_MERGED

    def few_zones(self, *, errors: int = 1) -> bool:
        """Whether few zones of a role may hold several tiles: so many mean errors then reveal how many were seen."""
        return any(0 < n < _FEWEST_MERGED * errors for n in self.zones)


def _check_counts(
    claims: Claims,
    measures: Measures,
    expected: Sequence[str],
    cells: _Cells,
    shares: Mapping[str, float],
    *,
    withhold: bool,
) -> Iterator[str]:
    if sorted(measures) != expected:
        yield f"report.json: measures are not given by {' and by '.join(expected)}"
    counted = cells.values
    for basis in sorted(set(expected) & set(measures)):
        said = measures[basis]
        for name in (f"k_{unit}" for unit in UNSHOWN):
            if claims.overlapping and (said[name] or 0) > (counted[name] or 0):
                yield f"report.json: {name} by {basis} is more than lie in the boxes of a cell"
        for name, value in counted.items():
            if claims.overlapping and name.endswith(tuple(f"k_{unit}" for unit in UNSHOWN)):
                continue
            if not _agrees(said[name], value):
                yield f"report.json: {name} by {basis} contradicts the recount"
        share = said["suppressed_share"]
        if share is not None and not _agrees(share, shares[basis]):
            yield f"report.json: suppressed_share by {basis} contradicts the recount"
        if cells.few_merged and any(said.get(name) is not None for name in REVEAL_INSIDE):
            yield f"report.json: too few cells are merged to disclose losses and distances by {basis}; withhold them"
        disclosed = sorted(name for name in REVEAL_SUPPRESSED if said.get(name) is not None)
        if withhold and disclosed:
            yield f"report.json: what is suppressed would follow from {', '.join(disclosed)} by {basis}; withhold them"


def _count_cells(db: Database, claims: Claims, *, where: str = "true", by_slice: bool = False) -> dict[int, _Cells]:
    """What is counted of all published cells, by the number 0, or of those of each slice, by its own."""
    k = literal(claims.k)
    names = {
        "n_cells": "count(*)",
        "n_origin_zones": "count(DISTINCT origin_zone)",
        "n_destination_zones": "count(DISTINCT destination_zone)",
        **{f"k_{name}": f"min({unit.recounted})" for name, unit in UNITS.items()},
    }
    for name, unit in UNITS.items():
        if not unit.weighed:
            short = f"count(*) FILTER ({unit.recounted} < {k})"
            known = f"CASE WHEN count({unit.recounted}) > 0 THEN {short} END"
            names[f"cells_under_k_{name}"] = short if name == "trips" else known
    besides = (
        "count(*) FILTER (tiles_o * tiles_d * steps > 1)",
        "count(*) FILTER (coarse_o OR coarse_d OR steps > 1)",
        "count(DISTINCT origin_zone) FILTER (coarse_o)",
        "count(DISTINCT destination_zone) FILTER (coarse_d)",
    )
    rows = db.rows(
        f"SELECT {'s' if by_slice else '0'}, {', '.join((*names.values(), *besides))} FROM recount "
        f"WHERE {where}{' GROUP BY s' if by_slice else ''}"
    )
    return {
        s: _Cells(dict(zip(names, found, strict=False)), found[-4], found[-3], (found[-2], found[-1]))
        for s, *found in rows
    }


def _agrees(said: float | None, counted: float | None) -> bool:
    if said is None or counted is None:
        return said is None and counted is None
    return abs(said - counted) <= TOLERANCE * max(1.0, abs(counted))


def _volumes(db: Database, claims: Claims) -> Volumes:
    """Of each slice, by basis: how much there is, and how much of it is suppressed."""
    suppressed = "together" if claims.overlapping else "suppressed"
    rows = f"SELECT s, false AS gone, trips, weight FROM raw UNION ALL SELECT s, true, trips, weight FROM {suppressed}"
    sums = [
        f"coalesce(sum({basis}) FILTER ({test}), 0)::DOUBLE"
        for basis in ("trips", "weight")
        for test in ("NOT gone", "gone")
    ]
    found = db.rows(f"SELECT s, {', '.join(sums)} FROM ({rows}) GROUP BY s")
    return {s: {"trips": (all_trips, trips), "weight": (all, weight)} for s, all_trips, trips, all, weight in found}


def _shares(volumes: Volumes, beside: Mapping[str, float] | None = None) -> dict[str, float]:
    """By basis, the share of these slices that is suppressed; with what lies beside them all."""
    shares = {}
    for basis in ("trips", "weight"):
        outside = (beside or {}).get(basis, 0.0)
        whole = sum(of_slice[basis][0] for of_slice in volumes.values()) + outside
        part = sum(of_slice[basis][1] for of_slice in volumes.values()) + outside
        shares[basis] = float(part / whole) if whole else 0.0
    return shares


def _check_notes(claims: Claims) -> Iterator[str]:
    """A method's own numbers: of three digits, and none beside measures that are withheld, which may follow from it."""
    numbers = [v for v in claims.report["notes"].values() if not isinstance(v, str | bool | None)]
    longer = sum(isinstance(v, float) and v != float(f"{v:.3g}") for v in numbers)
    if longer:
        yield f"report.json: {longer} notes have more than three digits"
    if numbers and any(claims.withheld().values()):
        yield f"report.json: {len(numbers)} notes are numbers, although measures are withheld"


def _check_error(measures: Measures, *, secret: bool) -> Iterator[str]:
    """The mean generalisation error counts tiles that were seen: four digits, and nothing of it where zones are few."""
    for basis, said in sorted(measures.items()):
        disclosed = sorted(name for name in REVEAL_SEEN if said.get(name) is not None)
        if secret and disclosed:
            yield (
                f"report.json: too few zones may hold more than one tile to disclose {', '.join(disclosed)} by {basis}"
                "; withhold them"
            )
        error = said["mean_generalization_error"]
        if error is not None and error != float(f"{error:.4g}"):
            yield f"report.json: the mean generalisation error by {basis} has more than four digits"


# ---- what is computed from tiles ---------------------------------------------------------------------------------


def _measures_of(claims: Claims, counted: Recounted, s: int) -> dict[str, Counted]:
    allowed, k, population = claims.parameters.get("max_suppressed") or 0.0, claims.k, claims.threshold("population")
    return {
        basis: counted.measures(s, basis, k=k, population=population, allowed=allowed) for basis in counted.flow_volume
    }


def _lost(db: Database, basis: str) -> list[float]:
    """The volumes of the slices that are not published."""
    query = f"SELECT sum({basis})::DOUBLE FROM rows ANTI JOIN finest USING (m) GROUP BY m ORDER BY m"
    return [volume for (volume,) in db.rows(query)]


def _reveals_inside(claims: Claims, counted: Recounted, slices: Sequence[int]) -> bool:
    """Whether losses would reveal what is inside cells: few cells are merged, or hardly a trip is misplaced."""
    few = []
    for s in slices:
        merged = counted.n_merged(s)
        few += [merged] if merged < _FEWEST_MERGED and counted.may_merge(s) else []
        if merged and counted.misplaced(s) < max(merged, claims.k) * (1 + TOLERANCE):
            return True
    return bool(few) and sum(few) < _FEWEST_MERGED


def _may_be_null(claims: Claims, *, withhold: bool, inside: bool = False, few_zones: bool = False) -> set[str]:
    """The measures that the rules allow to withhold."""
    names = set(REVEAL_SEEN) if few_zones else set()
    if withhold:
        names |= REVEAL_SUPPRESSED
        if not claims.population_is_given:
            # Counted against the mean weight of all trips, the suppressed ones included.
            names |= REVEAL_MEAN_WEIGHT
    return names | REVEAL_INSIDE if inside else names


def _compare(
    said: Measures, counted: Mapping[str, Counted], may_be_null: set[str], listed: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Hold measures against the recount; one that has no value must be withheld by right, and listed as withheld."""
    for basis in sorted(set(said) & set(counted)):
        for name, value in counted[basis].items():
            stated = said[basis].get(name)
            # Trips have no mean weight: what is withheld for its sake is withheld by weight.
            withheld = name in may_be_null and (name, basis) != ("c_avg", "trips")
            # One slice that withholds its volume hides the mean weight everywhere, also where nothing else is withheld.
            named = name in listed.get(basis, ()) or name in REVEAL_MEAN_WEIGHT
            if stated is None and (value.low is None or (withheld and named)):
                continue
            if stated is None:
                yield f"report.json: {name} by {basis} is withheld without a reason"
            elif not value.agrees(stated, DIGITS.get(name)):
                yield f"report.json: {name} by {basis} contradicts the recount"
