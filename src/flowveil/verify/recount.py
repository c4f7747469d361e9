"""The order in which a folder is checked: a step runs only on what the steps before it have made sure of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.reading.limits import threads
from flowveil.slices import SlicedFlows
from flowveil.verify.areas import check_areas
from flowveil.verify.audits import check_audit
from flowveil.verify.binaries import Tables, binary_exports, check_binaries
from flowveil.verify.boxes import load_boxes
from flowveil.verify.carriers import check_carriers
from flowveil.verify.cells import assign_flows, check_cells, load_flows
from flowveil.verify.claims import Claims, check_expected, check_guarantee, read_report
from flowveil.verify.closeness import check_closeness
from flowveil.verify.database import Database, opened
from flowveil.verify.differences import check_differences
from flowveil.verify.dominance import check_dominated, load_dominated
from flowveil.verify.exports import EXPORTS, check_exports
from flowveil.verify.files import check_folder
from flowveil.verify.frozen import check_frozen
from flowveil.verify.halves import on_halves
from flowveil.verify.l_places import load_members
from flowveil.verify.lookup import check_lookup, check_names, has_names
from flowveil.verify.measures import check_measures
from flowveil.verify.noise import check_noise
from flowveil.verify.outlines import check_outlines, made_of_cells
from flowveil.verify.overlaps import check_overlaps
from flowveil.verify.parameters import check_reading
from flowveil.verify.parquet import check_layouts, check_rewriting, read_layout, whole_table
from flowveil.verify.raw import Raw, load_codes, load_map, load_rows
from flowveil.verify.rendering import check_rendering
from flowveil.verify.revision import check_revision
from flowveil.verify.slices import check_slices, load_slices
from flowveil.verify.stricter import check_stricter, load_stricter, missing_cells
from flowveil.verify.tables import NAMES, load_tables
from flowveil.verify.times import TIME_COLUMNS, check_intervals, load_intervals
from flowveil.verify.withholding import check_listed
from flowveil.verify.zones import check_zones, list_cells, load_zones
from flowveil.workers import run_in_background
from flowveil.zoning.top import to_the_top

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.zoning.places import Places


@dataclass(frozen=True)
class Holder:
    """What only the data holder has, and a report does not: each None where it is not at hand.

    Attributes:
        zones_of: the earlier release whose zones these are.
        stricter: the list of places around which more is asked.
        revision: the releases that this one revises.
    """

    zones_of: Any
    stricter: Places | None
    revision: Any

    @property
    def earlier(self) -> Any:
        """The releases that this one revises, as a list of folders."""
        return [self.revision] if isinstance(self.revision, str | Path) else self.revision


def recount(
    place: Path,
    flows: Flows | SlicedFlows,
    expect: Mapping[str, Any],
    unread: list[str],
    *,
    law: bool,
    holder: Holder,
) -> list[str]:
    """One plain line for each contradiction; see `flowveil.verify.verify_release`."""
    if not place.is_dir():
        return ["there is no such folder"]
    # Until every file is known to be a regular one that the manifest lists and hashes, none is parsed.
    findings = check_folder(place, exports=EXPORTS)
    if findings:
        return findings
    report, findings = read_report(place)
    if report is None:
        return findings
    noisy = report["kind"] == "noisy"
    findings = list(check_reading(report, flows))
    if findings:
        return findings
    on_trees = _on_trees(flows, report["parameters"])
    if on_trees is None:
        return ["report.json: says that its zones are parts of zones, but the map of the input has none"]
    flows = on_trees
    raw = Raw.of(flows)
    findings = check_layouts(place, most_rows=None if noisy else raw.most_rows)
    if findings:
        return findings
    if tuple(report.get("slice_columns", ())) != raw.columns or (report["kind"] == "folded") != raw.folded:
        return ["report.json: its slice columns are not those of the input as it was read"]
    further = TIME_COLUMNS if raw.folded else raw.columns
    with opened(place) as db:
        in_cells = report["kind"] != "boxed" and made_of_cells(raw.whole)
        readable, findings = load_tables(
            db,
            place,
            raw.whole,
            further,
            noisy=noisy,
            in_cells=in_cells,
            named=has_names(raw.whole, report["kind"]),
            revised="revision_of" in report["parameters"],
            folded=raw.folded,
        )
        zones = whole_table(db, place / NAMES[1]) if readable else None
        if readable and zones is None:
            findings.append(f"{NAMES[1]}: cannot be read")
        if zones is None:
            return findings
        if noisy:
            missing = [name for name, value in expect.items() if value]
            if missing:
                promise = f"a noisy release promises no smallest cell, so {', '.join(missing)} cannot hold"
                findings.append(f"report.json: {promise}")
            findings += check_noise(db, report, flows, place, law=law and not findings)
            if findings:
                return findings
        findings += check_carriers(place, report)
        findings += check_exports(place, db, slice_columns=further)
        findings += _check_bytes(db, place, zones, unread, report["about"])
        told: list[str] = []
        with run_in_background(
            lambda: [*check_outlines(zones, raw.whole, report["kind"])], threads=threads()
        ) as outlines:
            counted = [] if noisy else _count(db, zones, report, flows, (expect, holder, told))
            findings += outlines()
        findings += check_names(zones, raw.whole, report["kind"])
        findings += check_lookup(place, zones, raw.whole, report["kind"])
        if holder.earlier is not None and "revision_of" not in report["parameters"]:
            findings.append("report.json: does not say that it is a revision")
        findings += check_frozen(db, zones, report, raw.whole, holder.zones_of, unread)
        if not findings:
            # Outlines that are none could not be compared.
            findings += check_overlaps(db, zones, report, in_cells=in_cells)
        unread += told
        if not noisy:
            sound = not findings and not counted
            findings += [*counted, *_check_counted(db, report, flows, holder, unread, sound=sound)]
    # Last, and only where all else holds: what is rendered is then sound.
    return findings or list(check_rendering(place, report, unread))


def _on_trees(flows: Flows | SlicedFlows, parameters: Mapping[str, Any]) -> Flows | SlicedFlows | None:
    """The flows on the trees that a release says it was made on; None where their map has none."""
    if parameters.get("hierarchy") == "halves":
        return on_halves(flows, to_the_top="zones_of" in parameters)
    # Zones of other data may lie above everything that this input has.
    return to_the_top(flows) if "zones_of" in parameters else flows


def _check_bytes(db: Database, place: Path, zones: Any, unread: list[str], about: Mapping[str, str]) -> Iterator[str]:
    """Whether the tables, and the exports that are not text, are to the last byte what their rows make."""
    yield from check_rewriting(db, place, zones, unread)
    if binary_exports(place):
        flows = whole_table(db, place / NAMES[0])
        if flows is None:
            yield f"{NAMES[0]}: cannot be read"
            return
        written_by = read_layout(place / NAMES[0]).written_by
        tables = Tables(flows=flows, zones=zones, written_by=written_by, unread=unread, about=about)
        yield from check_binaries(place, tables)


def _count(
    db: Database,
    zones: Any,
    report: Mapping[str, Any],
    flows: Flows | SlicedFlows,
    held_against: tuple[Mapping[str, Any], Holder, list[str]],
) -> list[str]:
    """What is counted whatever outlines look like: the guarantee, slices, zones and cells."""
    expect, holder, unread = held_against
    raw = Raw.of(flows)
    whole, claims = raw.whole, Claims.of(report, raw.whole)
    findings = [*check_guarantee(claims, whole), *check_expected(claims, expect, whole)]
    findings += load_slices(db, claims, raw)
    numbers = load_codes(db, whole)
    load_rows(db, raw, numbers)
    load_map(db, whole, numbers)
    if isinstance(flows, SlicedFlows):
        findings += check_slices(db, claims, flows)
    if raw.folded:
        load_intervals(db, whole)
        findings += check_intervals(db, claims, whole)
    if claims.kind == "boxed":
        findings += load_boxes(db, zones, claims, whole)
    else:
        load_zones(db)
    list_cells(db)
    load_flows(db, claims)
    findings += load_members(db, claims, whole)
    findings += check_zones(db, claims)
    assign_flows(db, claims, whole)
    findings += load_dominated(db, claims, whole)
    findings += check_dominated(db, claims)
    findings += load_stricter(db, claims, whole, holder.stricter, unread)
    findings += check_cells(db, claims, whole, missing_cells=missing_cells(claims, holder.stricter))
    findings += check_stricter(db, claims)
    findings += check_audit(db, claims)
    return findings


def _check_counted(
    db: Database,
    report: Mapping[str, Any],
    flows: Flows | SlicedFlows,
    holder: Holder,
    unread: list[str],
    *,
    sound: bool,
) -> list[str]:
    """What follows from the counts: the measures, or what a revision has kept; nothing follows from what is wrong."""
    whole = Raw.of(flows).whole
    claims = Claims.of(report, whole)
    if claims.revised:
        return list(check_revision(db, claims, whole, holder.earlier, unread))
    findings = list(check_measures(db, claims, whole, unread, sound=sound))
    # Before what is withheld together with the share is asked about.
    findings += check_listed(report)
    if claims.kind == "plain" and sound and not findings:
        findings += check_closeness(db, claims, whole)
    if claims.kind in ("plain", "sliced") and sound and not findings:
        findings += check_areas(db, claims, whole)
    if claims.kind == "sliced" and not claims.shared:
        findings += check_differences(db, claims, whole)
    return findings
