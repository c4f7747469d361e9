"""A release that is tried and signed: its figures and the signed sentence.

Not for publication. Figures are those of report.json, so a number on the page equals the one in the
folder; the suppressed share and the planner's error are exact, for the operator only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowveil.core.times import TIME
from flowveil.core.unit_names import names_vehicles
from flowveil.published.about import period_in_words
from flowveil.published.report import distance_in_words
from flowveil.release.facets import Facets

_STEPS = {
    "hour": "hour of the day",
    "weekday": "day of the week",
    "weekday-hour": "hour of the week",
}


def release_figures(
    report: Mapping[str, Any], trips: int, error: float | None = None
) -> list[dict[str, Any]]:
    """Returns the figures of a release, those of report.json and two for the operator only.

    These are the share of the ``trips`` of the input that is suppressed, and the planner's
    ``error`` if it is known.
    """
    published = report["published"]
    suppressed = max(0.0, 1 - published["trips"] / trips) if trips else 0.0
    radius, both = published["typical_radius_m"], published["both_ends_within_m"]["1000"]
    known = "not known" if radius is None else distance_in_words(radius)
    within = "" if both is None else f"; both ends within 1 km for {percent(both)} of the trips"
    zones = published["origin_zones"], published["destination_zones"]
    noisy = Facets.from_report(report).is_noisy
    smallest = published["smallest_cell"]
    rows = [
        ("Cells published", f"{published['cells']:,}", "rows of the table", published["cells"]),
        ("Zones", f"{zones[0]:,} × {zones[1]:,}", "origins × destinations", sum(zones)),
        (
            "One end known to about",
            known,
            f"radius of the zone of a typical trip end{within}",
            radius,
        ),
        ("Trips suppressed", percent(suppressed), "in no published cell", suppressed),
        (
            "Smallest cell",
            f"{smallest or 0:,}",
            "trips, noise included" if noisy else "trips",
            smallest,
        ),
    ]
    if error is not None:
        rows.append(("Trips misplaced", percent(error), "by a planner who reads the page", error))
    return [dict(zip(("name", "value", "meaning", "number"), row, strict=True)) for row in rows]


def percent(share: float) -> str:
    """Returns a share as text with at most one decimal."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def sign_off_sentence(
    report: Mapping[str, Any],
    audit: Mapping[str, Any],
    *,
    place: str | None = None,
    signer: str | None = None,
) -> str:
    """Returns what is signed: which release, who is protected, which hours, tiles and cells, what
    was compared, and who signs.

    Every number is that of report.json. There is no signer before it is signed.
    """
    published, statement = report["published"], report["statement"]
    resolution = report["parameters"].get("resolution")
    tiles = (
        "zones of your map"
        if report["parameters"].get("zones")
        else f"H3 cells of resolution {resolution}"
    )
    parts = [
        f"{_named(statement, place)}.",
        f"{_protection(report)}.",
        (
            f"It has {published['cells']:,} cells with {published['trips']:,} trips,"
            f" {_slices(report)}."
        ),
        f"The finest places are {tiles}.",
        _comparison(audit),
        *([] if signer is None else [f"Signed by {signer}."]),
    ]
    return " ".join(parts)


def _named(statement: Mapping[str, Any], place: str | None) -> str:
    """Returns title, place and period of a release."""
    about = statement.get("about") or {}
    name = f"‘{about['title']}’" if about.get("title") else "A release without a title"
    where = "" if place is None else f", {place}"
    when = f", {period_in_words(about['period'])}" if about.get("period") else ", no period stated"
    return f"{name}{where}{when}"


def _protection(report: Mapping[str, Any]) -> str:
    stated = report["guarantee"]
    if Facets.from_report(report).is_noisy:
        return f"Noise protects this release: {stated.get('rule') or report['method']}"
    values = {
        unit: f"{stated.get(unit) or stated['k']:,}" for unit in stated.get("protect") or ["trips"]
    }
    rule = "" if stated.get("population") else " mean weights of a trip"
    person = str((report["parameters"].get("columns") or {}).get("person", ""))
    texts = [
        f"a population of {v}{rule}" if unit == "population" else f"{v} {unit_name(unit, person)}"
        for unit, v in values.items()
    ]
    return f"Every cell of this release covers at least {' and '.join(texts)}"


def unit_name(unit: str, person: str) -> str:
    """Returns what a unit is called: the column of the person may identify vehicles."""
    return "vehicles" if unit == "people" and names_vehicles(person) else unit


def _slices(report: Mapping[str, Any]) -> str:
    statement, how = report["statement"], report["parameters"].get("slices") or {}
    every, by = how.get("every"), how.get("by") or []
    step = [] if not every else [_STEPS.get(every, f"steps of {every}")]
    groups = by.split(",") if isinstance(by, str) else list(by)
    names = " and ".join([*(name for name in groups if name != TIME), *step])
    zone = f" in {statement['timezone']} time" if statement["timezone"] else ""
    if statement["slice_columns"]:
        names = names or " and ".join(statement["slice_columns"])
        return f"in {len(report['published']['slices']):,} slices by {names}{zone}"
    if Facets.from_report(report).folds:
        return f"by {names or 'groups'}{zone}, joined where cells would be too small"
    return "for all times together"


def _comparison(audit: Mapping[str, Any]) -> str:
    missing = list(audit["not_compared"])
    # A release that could not be compared is not among those that were.
    compared = [name for name in audit["compared"] if not any(name in line for line in missing)]
    if audit.get("ledger"):
        number = audit["ledger"]
        compared.append(f"{number} release{'s' if number > 1 else ''} of the ledger")
    if not compared and not missing:
        return "It was compared with no earlier release."
    parts = [f"It was compared with {', '.join(compared)}."] if compared else []
    if audit.get("failures"):
        parts.append(f"Accepted although the comparison found: {'; '.join(audit['failures'])}")
    if missing:
        parts.append(f"Accepted although this was not compared: {'; '.join(missing)}")
    return " ".join(parts)
