"""The check of a written noisy release: its form, and that it discloses nothing without noise.

Noisy counts cannot be recounted: whoever could separate the noise from the count would have broken the promise. What
can be checked is that the folder is the one that was written, that it has the form of its promise, that its report
discloses nothing that only the true counts could show, and, for whoever has the raw trips, that what was added to them
can be noise of the stated law (`flowveil.verify.law`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_cells
import numpy as np

from flowveil.slices import SlicedFlows
from flowveil.verify.database import Database
from flowveil.verify.divisions import check_divisions
from flowveil.verify.law import check_law
from flowveil.verify.noise_slices import check_noisy_slices, of_one_matrix
from flowveil.verify.noise_steps import check_steps, topmost
from flowveil.verify.tables import check_ends
from flowveil.verify.walk import check_walk

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: The measures that follow from the published table; any other number would reveal something about the true counts.
_DISCLOSED = {
    "n_cells": "count(*)",
    "n_origin_zones": "count(DISTINCT origin_zone)",
    "n_destination_zones": "count(DISTINCT destination_zone)",
    "published_trips": "coalesce(sum(trips), 0)",
}
#: Measures that mean something of noisy counts, but only the true ones could show.
OF_TRUE_COUNTS = {
    "distribution_distance",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "reconstruction_loss",
    "suppressed_share",
}
_TOLERANCE = 1e-9
#: More trips of one person, and more noise, than any release has; more zones than can be paired.
_LARGEST, _MOST_ZONES = 1 << 31, 10_000_000
#: With a larger ε hardly a count gets any noise.
_LARGEST_EPSILON = 20
#: Splits of a person's trips are tried up to this many; beyond, the two that can be worst.
_MOST_SPLITS = 100_000


def check_noise(
    db: Database, report: Mapping[str, Any], read: Flows | SlicedFlows, place: Path, *, law: bool = True
) -> list[str]:
    """Check the form of a noisy release, and whether its numbers can be noise on the raw counts.

    Args:
        db: with ``published_rows`` and ``zones``.
        report: the content of report.json.
        read: the flows, or the slices, it was made from.
        place: the folder.
        law: whether the numbers are looked at.

    Returns:
        One plain line for each contradiction.
    """
    flows = read.whole if isinstance(read, SlicedFlows) else read
    if isinstance(read, SlicedFlows) != ("slices" in report["parameters"] and "slices" in report):
        return ["report.json: has slices where the input has none, or none where it has some"]
    if report["guarantee"]["epsilon"] > _LARGEST_EPSILON:
        return [f"report.json: ε is above {_LARGEST_EPSILON}: noise that small hides nothing"]
    problems = list(_check_report(db, report))
    promise = of_one_matrix(report["guarantee"])
    report = {**report, "guarantee": promise, "layers": report["guarantee"].get("layers", 1)}
    problems += [*_check_promise(promise, flows), *_check_domain(promise["domain"], flows)]
    problems = problems or list(check_steps(report, in_cells=_in_cells(flows)))
    # Said also where the report is wrong: a row that may not be there must not hide behind a wrong sum.
    short = db.one(f"SELECT count(*) FROM published_rows WHERE trips < {promise['threshold'] or 1}")
    below = [f"flows.parquet: {short} rows have fewer trips than may be published"] if short else []
    if problems:
        return [*problems, *below]
    problems = below
    problems += check_ends(db, "published_rows")
    problems += _check_zones_said(promise, flows)
    problems += _check_region(
        promise, report["homogeneous"], {zone for (zone,) in db.rows("SELECT DISTINCT zone FROM zones")}
    )
    if report["homogeneous"] != (report["method"] != "privtree"):
        problems.append("report.json: says of its zones what they are not by this method")
    if problems:
        return problems

    def look(counted: Flows, counts: Database) -> Iterator[str]:
        if report["method"] == "privtree":
            return check_divisions(promise, counted, counts, law=law)
        if not law:
            return iter(())
        return check_walk(promise, counted, counts) if "steps" in promise else check_law(promise, counted, counts)

    if isinstance(read, SlicedFlows):
        whole = {**report, "guarantee": {**promise, "layers": report["layers"]}}
        return list(check_noisy_slices(db, whole, read, place, look))
    return list(look(flows, db))


def _check_promise(promise: Mapping[str, Any], flows: Flows) -> Iterator[str]:
    epsilon, delta, bound, scale = (promise[name] for name in ("epsilon", "delta", "bound", "scale"))
    in_range = epsilon > 0 and 0 <= delta < 1 and 1 <= bound <= _LARGEST and 0 < scale <= _LARGEST
    if not in_range or (promise["threshold"] or 0) > _LARGEST:
        yield "report.json: ε, δ, the bound or the scale of the noise is out of its range"
        return
    gaussian = "rho" in promise
    if not gaussian and epsilon * scale < bound * (1 - _TOLERANCE):
        yield "report.json: noise of this scale does not keep the ε that is promised"
    expected = "trip" if flows.people is None else "person"
    if promise["unit"] != expected:
        yield f"report.json: the unit is not '{expected}', which is what the input allows"
    if expected == "trip" and bound != 1:
        yield "report.json: the unit is a trip, but the bound is not 1"
    threshold = promise["threshold"]
    if gaussian:
        if threshold is not None:
            yield "report.json: has a threshold, though the noise is Gaussian"
    elif delta == 0:
        if threshold is not None:
            yield "report.json: has a threshold, though δ is 0"
    elif threshold is None:
        yield "report.json: δ is above 0, but the report has no threshold"
    elif _chance_of_showing(threshold, int(bound), scale) > delta * (1 + _TOLERANCE):
        yield "report.json: the threshold lets a person's pairs show more often than δ"


def _check_domain(domain: Mapping[str, Any], flows: Flows) -> Iterator[str]:
    """Whether level and region can be those of zones of the input."""
    level, tree = domain.get("level"), flows.origins
    cells = _in_cells(flows)
    if level is None or (cells and (level == "tiles" or level > tree.base_level + tree.max_depth)):
        yield "report.json: the input has no zones of this level"
    elif cells:
        steps = [level - _resolution(code) for code in domain.get("region", ())]
        if min(steps, default=0) < 0 or sum(7**step for step in steps) > _MOST_ZONES:
            yield "report.json: the zones cannot lie in this region"


def _check_zones_said(promise: Mapping[str, Any], flows: Flows) -> Iterator[str]:
    """Whether the number of zones is said where they are all listed beforehand, and only there."""
    domain, said = promise["domain"], promise["domain"].get("zones")
    listed = promise["threshold"] is None and not domain["zones_from_data"]
    if listed != (said is not None):
        yield "report.json: the number of zones is missing, or said where zones are not listed beforehand"
    elif listed and _in_cells(flows):
        places = topmost(domain.get("region", ()))
        if places and said != sum(h3_cells.cell_to_children_size(cell, domain["level"]) for cell in places):
            yield "report.json: the region does not have so many zones"


def _in_cells(flows: Flows) -> bool:
    """Whether zones are H3 cells."""
    return flows.origins.kind == "h3" and flows.origins.code.dtype == np.uint64


def _resolution(code: str) -> int:
    """The resolution of an H3 cell; more than any cell has, where a code is not a cell."""
    try:
        cell = int(code, 16)
        return h3_cells.get_resolution(cell) if h3_cells.is_valid_cell(cell) else 16
    except (ValueError, OverflowError):
        return 16


def _chance_of_showing(threshold: int, bound: int, scale: float) -> float:
    """The largest sum of P(c + X >= threshold) over pairs that one person can fill alone, split by split."""
    q = math.exp(-1 / scale)

    def tail(least: Any) -> Any:
        m = np.asarray(least, dtype=np.float64)
        up, down = q ** np.maximum(m, 1), q ** np.maximum(1 - m, 1)
        return np.where(m >= 1, up / (1 + q), 1 - down / (1 + q))

    pairs = np.arange(1, bound + 1) if bound <= _MOST_SPLITS else np.array([1, bound])
    return float(np.max((pairs - 1) * tail(threshold - 1) + tail(threshold - (bound - pairs + 1))))


def _check_region(promise: Mapping[str, Any], one_level: bool, zones: set[str]) -> Iterator[str]:
    """Whether H3 zones have the level and lie in the region that the report names."""
    region, level = promise["domain"].get("region"), promise["domain"].get("level")
    try:
        cells = [int(zone, 16) for zone in zones]
        places = {int(place, 16) for place in region or ()}
    except (TypeError, ValueError):
        return
    if not isinstance(level, int) or not places or not all(c >> 59 == 1 for c in places):
        return
    if any(c >> 52 & 15 > level or (one_level and c >> 52 & 15 != level) for c in cells):
        yield "zones.parquet: zones have another resolution than the report says"
        return
    steps = {place >> 52 & 15 for place in places}
    outside = sum(all(r > c >> 52 & 15 or _lifted(c, r) not in places for r in steps) for c in cells)
    if outside:
        yield f"zones.parquet: {outside} zones lie outside the region"


def _lifted(cell: int, resolution: int) -> int:
    """The cell's ancestor: its resolution replaced, and all digits below set."""
    return cell & ~(15 << 52) | resolution << 52 | (1 << 3 * (15 - resolution)) - 1


def _check_report(db: Database, report: Mapping[str, Any]) -> Iterator[str]:
    said, promise = report["measures"]["trips"], report["guarantee"]
    row = db.rows(f"SELECT {', '.join(_DISCLOSED.values())} FROM published_rows")[0]
    for name, counted in zip(_DISCLOSED, row, strict=True):
        if said[name] != counted:
            yield f"report.json: {name} contradicts the published table"
    disclosed = sorted(name for name, value in said.items() if value is not None and name not in _DISCLOSED)
    if disclosed:
        yield f"report.json: {', '.join(disclosed)} would reveal true counts; withhold them"
    if promise["domain"]["zones_from_data"] and "zones" in promise["domain"]:
        yield "report.json: discloses the number of zones with trips, which is a count without noise"
    if report["notes"]:
        yield "report.json: has notes, which may depend on the true counts"
    yield from _check_sum(promise, report["parameters"].get("ledger"))
    if report["parameters"].get("options", {}).get("unsafe_seed_for_tests") is not None:
        yield "report.json: the noise was drawn from a seed and hides nothing"


def _check_sum(promise: Mapping[str, Any], budget: Mapping[str, Any] | None) -> Iterator[str]:
    """Whether what all noisy releases of a ledger come to holds this one, and stays within the total."""
    if budget is None:
        return
    own = [promise[name] for name in ("epsilon", "delta")]
    said = [budget[name] for name in ("epsilon", "delta")]
    least = [value * (1 - _TOLERANCE) for value in own]
    alone = budget["releases"] == 0 and any(abs(a - b) > _TOLERANCE for a, b in zip(own, said, strict=True))
    if alone or any(value < low for value, low in zip(said, least, strict=True)):
        yield "report.json: the sum of ε or δ over the ledger is not that of this release and earlier ones"
    if budget["epsilon_total"] is not None and budget["epsilon"] > budget["epsilon_total"] * (1 + _TOLERANCE):
        yield "report.json: ε of the ledger is above the total that was set for it"
