"""The measures of a report against the recount: each is what it says, and is withheld where it must be and only there.

The lists of measures here are this room's own: what decides to withhold has another, and a test says when they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowveil.verify.claims import TOLERANCE, Claims, mean_population
from flowveil.verify.database import Database, literal
from flowveil.verify.losses import Counted, Recounted, combined, recounted
from flowveil.verify.units import COUNTED_ONCE, UNITS
from flowveil.verify.withholding import (
    count_pairs,
    list_suppressed,
    may_withhold,
    must_withhold,
    must_withhold_overall,
)

if TYPE_CHECKING:
    from flowveil.flows import Flows

Measures = Mapping[str, Mapping[str, Any]]

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
    count_pairs(db, claims)
    secret = must_withhold(db, claims)
    yield from _check_notes(claims)
    if claims.kind != "sliced":
        yield from _check_counts(db, claims, claims.measures, expected, where="true", withhold=bool(secret))
        few = _few_coarse_zones(db, "true")
        yield from _check_error(claims.measures, secret=few)
        if sound:
            counted = recounted(db, claims, flows)
            unread += _floor_not_recounted(counted, [claims.measures])
            may = bool(may_withhold(db, claims))
            allowed = _may_be_null(claims, withhold=may, inside=_reveals_inside(claims, counted, [0]), few_zones=few)
            yield from _compare(claims.measures, _measures_of(claims, counted, 0), allowed, claims.withheld())
        return
    yield from _check_slices(db, claims, flows, expected, secret, unread, sound=sound)


def _check_slices(
    db: Database,
    claims: Claims,
    flows: Flows,
    expected: Sequence[str],
    secret: set[int],
    unread: list[str],
    *,
    sound: bool,
) -> Iterator[str]:
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
    for s, said in parts.items():
        yield from _check_counts(db, claims, said, expected, where=f"s = {s}", withhold=s in secret)
    # Each slice adds an equation between the numbers of tiles seen in the same zones.
    few = any(_few_coarse_zones(db, f"s = {s}") for s in numbers.values())
    few = few or _few_coarse_zones(db, "true", errors=len(numbers))
    for said in parts.values():
        yield from _check_error(said, secret=few)
    where = "s IN (SELECT s FROM finest)" if finest else "true"
    few_overall = _few_coarse_zones(db, where)
    yield from _check_error(claims.measures, secret=few_overall)
    # What slices keep to themselves for having merged few cells must not follow from the losses of all.
    db.create(
        "few_merged",
        "SELECT s FROM recount GROUP BY s HAVING bool_or(coarse_o OR coarse_d) "
        f"AND count(*) FILTER (tiles_o * tiles_d > 1) < {_FEWEST_MERGED}",
    )
    yield from _check_counts(
        db,
        claims,
        claims.measures,
        expected,
        where=where,
        withhold=of_totals,
        among=f"{where} AND s IN (SELECT s FROM few_merged)",
        unpublished="SELECT trips, weight FROM rows ANTI JOIN finest USING (m)",
    )
    if sound:
        counted = recounted(db, claims, flows)
        unread += _floor_not_recounted(counted, [claims.measures, *parts.values()])
        yield from _check_losses(db, claims, flows, counted, parts, finest, secret, of_totals, few=(few, few_overall))


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
    secret: set[int],
    of_totals: bool,
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
        secret: the slices whose suppressed volume must be withheld.
        of_totals: whether that of all slices must be.
        few: whether so few zones may hold several tiles that errors would reveal how many were seen: the errors of the
            slices, and that of all.
    """
    secret = secret | may_withhold(db, claims)
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
    lost = {basis: _lost(db, basis) for basis in bases}
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


def _check_counts(
    db: Database,
    claims: Claims,
    measures: Measures,
    expected: Sequence[str],
    *,
    where: str,
    withhold: bool,
    among: str | None = None,
    unpublished: str = "SELECT 0 AS trips, 0 AS weight WHERE false",
) -> Iterator[str]:
    if sorted(measures) != expected:
        yield f"report.json: measures are not given by {' and by '.join(expected)}"
    counted = _counts(db, claims, where)
    merged, coarse = db.rows(
        "SELECT count(*) FILTER (tiles_o * tiles_d * steps > 1), "
        "count(*) FILTER (coarse_o OR coarse_d OR steps > 1) FROM recount "
        f"WHERE {among or where}"
    )[0]
    few_merged = coarse > 0 and merged < _FEWEST_MERGED
    for basis in sorted(set(expected) & set(measures)):
        said = measures[basis]
        for name in (f"k_{unit}" for unit in COUNTED_ONCE):
            if claims.overlapping and (said[name] or 0) > (counted[name] or 0):
                yield f"report.json: {name} by {basis} is more than lie in the boxes of a cell"
        for name, value in counted.items():
            if claims.overlapping and name.endswith(tuple(f"k_{unit}" for unit in COUNTED_ONCE)):
                continue
            if not _agrees(said[name], value):
                yield f"report.json: {name} by {basis} contradicts the recount"
        share = said["suppressed_share"]
        if share is not None and not _agrees(share, _suppressed_share(db, claims, basis, where, unpublished)):
            yield f"report.json: suppressed_share by {basis} contradicts the recount"
        if few_merged and any(said.get(name) is not None for name in REVEAL_INSIDE):
            yield f"report.json: too few cells are merged to disclose losses and distances by {basis}; withhold them"
        disclosed = sorted(name for name in REVEAL_SUPPRESSED if said.get(name) is not None)
        if withhold and disclosed:
            yield f"report.json: what is suppressed would follow from {', '.join(disclosed)} by {basis}; withhold them"


def _counts(db: Database, claims: Claims, where: str) -> dict[str, float | None]:
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
            names[f"cells_under_k_{name}"] = known if unit.members else short
    row = db.rows(f"SELECT {', '.join(names.values())} FROM recount WHERE {where}")[0]
    return dict(zip(names, row, strict=True))


def _agrees(said: float | None, counted: float | None) -> bool:
    if said is None or counted is None:
        return said is None and counted is None
    return abs(said - counted) <= TOLERANCE * max(1.0, abs(counted))


def _suppressed_share(db: Database, claims: Claims, basis: str, where: str, unpublished: str) -> float:
    gone = "together" if claims.overlapping else "suppressed"
    outside = db.one(f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM ({unpublished})")
    whole = db.one(f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM raw WHERE {where}") + outside
    part = db.one(f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM {gone} WHERE {where}") + outside
    return float(part / whole) if whole else 0.0


def _few_coarse_zones(db: Database, where: str, *, errors: int = 1) -> bool:
    """Whether few zones of a role may hold several tiles: then so many mean errors would reveal how many were seen."""
    found = db.rows(
        "SELECT count(DISTINCT origin_zone) FILTER (coarse_o), count(DISTINCT destination_zone) FILTER (coarse_d) "
        f"FROM recount WHERE {where}"
    )[0]
    return any(0 < n < _FEWEST_MERGED * errors for n in found)


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
