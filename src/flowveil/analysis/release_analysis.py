"""`flowveil analyze`: every private measure of a published release, recomputed from its folder and its input."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from flowveil.analysis.areas import (
    PLANNER,
    AreaAccuracy,
    area_accuracy,
    default_levels,
    finest_parts,
    main_accuracy,
    main_level,
)
from flowveil.analysis.attach import Attached, attach
from flowveil.analysis.closeness import closeness
from flowveil.analysis.measures import Values, combine, measure
from flowveil.output import Content, make_private_folder, refuse_inside_release, write_private_files
from flowveil.paths import named_path
from flowveil.release.release import Release
from flowveil.release.statement import INEXACT
from flowveil.times import TIME

WARNING = "Not for publication: computed from raw trips."
#: The files of `Analysis.write`.
MEASURES, PAGE, PROFILE = "measures.json", "before-after.html", "profile.svg"
ENDS = ("origin", "destination")
#: The measures that sentences show.
SUMMARY = ("suppressed_share", "mean_generalization_error", "generalization_distance_m", "k_people")


@dataclass(frozen=True, eq=False)
class Analysis:
    """The private measures of a release. None of it is for publication."""

    release: Attached  # with its raw trips
    # By basis, exact; the planner's errors at one level first. Of slices, of the finest ones together.
    measures: dict[str, Values]
    areas: tuple[AreaAccuracy, ...]  # the planner's errors, by basis and areas
    shares: dict[str, Any]  # of input rows that were not used, by reason, and of suppressed volume, by basis
    slices: tuple[dict[str, Any], ...] = ()  # the values of the slice columns and the measures of each matrix
    closeness: dict[str, Any] | None = None  # distance of zones from the whole (t-closeness), by end; None of overlaps
    notes: tuple[str, ...] = ()  # what could not be computed, and why

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data. ``private`` says that it is not for publication."""
        return {
            "private": WARNING,
            "measures": self.measures,
            "areas": [asdict(one) for one in self.areas],
            "shares": self.shares,
            **({"slices": list(self.slices)} if self.slices else {}),
            "closeness": self.closeness,
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Returns the important measures as sentences."""
        return [WARNING, *_lines(self.release, self.measures, self.areas), *self.notes]

    def write(self, directory: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> Path:
        """Write measures.json, and the page before-after.html or, of slices by time, the chart profile.svg.

        The folder is private: created with mode 0700, its files with mode 0600. Raises OutputError if it lies inside
        ``release`` or another release, or cannot be written.
        """
        from flowveil.analysis.pages.before_after import largest_profiles, profile_chart, render_internal

        refuse_inside_release(directory, release=release)
        files: dict[str, Content] = {MEASURES: json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"}
        made: Any = self.release
        if not made.slice_columns:
            files[PAGE] = render_internal(made, areas=self.areas)
        elif made.kind == "sliced" and TIME in made.slice_columns:
            files[PROFILE] = profile_chart(largest_profiles(made))
        folder = make_private_folder(directory, release=release)
        write_private_files(folder, files)
        return folder


def analyze(folder: str | PathLike[str], *, against: Any, districts: Any = None, **reading: Any) -> Analysis:
    """Compute every measure of a published release from its folder and its input. Private.

    Args:
        folder: a release folder of any kind.
        against: the trips it was made from, in any form `flowveil.read_trips` takes.
        districts: polygons of the user between which errors are computed too: a file, a table, or a ZoneMap.
        **reading: how to read the trips, where it differs from the report; ``zones`` for a release on the user's own
            map, ``within`` for a study area from a file; ``engine``, ``progress``.

    Raises:
        ParameterError: the folder cannot be read, or was not made from these trips.
    """
    from flowveil.zoning.files import ZoneMap, read_zones

    release = attach(named_path(folder, what="the release"), against, **reading)
    areas = districts if districts is None or isinstance(districts, ZoneMap) else read_zones(districts)
    return analyze_release(release, districts=areas)


def analyze_release(release: Attached, *, districts: Any = None) -> Analysis:
    """Compute the same for a release with its trips in memory."""
    measures = _measures(release)
    slices = tuple(
        {"slice": dict(zip(release.slice_columns, key, strict=True)), "measures": part.metrics()}
        for key, part in (release.parts if release.slice_columns else ())
    )
    areas = [one for basis in measures for one in area_accuracy(release, districts=districts, basis=basis)]
    for basis, values in measures.items():
        first = main_accuracy([one for one in areas if one.basis == basis])
        if first is not None:
            measures[basis] = {name: getattr(first, name) for name in PLANNER} | values
    ambiguous = release.kind == "boxed" and release.plan.cells_may_overlap and not (release.cell_of_flow >= 0).any()
    notes = []
    if ambiguous:
        notes.append(
            "Boxes overlap, so the folder does not say in which box a trip was counted: distances moved and numbers of "
            "people are unknown."
        )
    if not areas:
        notes.append("Errors between areas are unknown: the zones have no places, or too many pairs to spread over.")
    summary = release.input.intake
    shares = {
        "rows": summary.rows,
        "rows_dropped": {reason: n / summary.rows for reason, n in sorted(summary.left_out.items()) if summary.rows},
        "suppressed": {basis: values.get("suppressed_share") for basis, values in measures.items()},
    }
    found = closeness(release)
    close = None if found is None else {end: one.summary() for end, one in found.items()}
    return Analysis(release, measures, tuple(areas), shares, slices, close, tuple(notes))


def _measures(release: Any, keys: Collection[str] = ()) -> dict[str, Values]:
    """Returns all measures of a release, or some; of slices, of the finest ones together."""
    if not release.slice_columns:
        return measure(release, keys) if keys else release.metrics()
    parts, absent = finest_parts(release)
    if not parts:
        return {}
    return combine([part for _, part in parts], absent, release.input.whole, release.guarantee, keys)


def summary_lines(release: Any) -> list[str]:
    """Returns the few measures that the operator should see after a run, as sentences. Private."""
    measures = _measures(release, SUMMARY)
    parts, _ = finest_parts(release)
    levels = default_levels(parts[0][0]) if parts else []
    first = main_level(levels)
    shown = [] if first is None else [first, *(level for level in levels if level < first)][:2]
    return _lines(release, measures, area_accuracy(release, levels=shown))


def _lines(release: Any, measures: dict[str, Values], areas: Sequence[AreaAccuracy]) -> list[str]:
    shown = [one for one in areas if one.basis == "trips"]
    first = main_accuracy(shown)
    coarser = [one for one in shown if one is not first][:1]
    lines = [
        f"Between areas ({one.areas}): a reader misses or misplaces {one.area_error:.1%} of all trips; "
        f"{one.production_error:.1%} where they begin, {one.attraction_error:.1%} where they end."
        for one in ([] if first is None else [first, *coarser])
    ]
    if first is not None and first.trip_length_ratio is not None:
        lines.append(f"Trip lengths: {first.trip_length_ratio:.3f} times those of the input, on average.")
    if first is not None and first.accessibility_error is not None:
        lines.append(f"Accessibility of areas: {first.accessibility_error:.1%} off, on average.")
    published = "Published counts, noise included, sum to" if release.kind in INEXACT else "Published:"
    shares = {basis: values.get("suppressed_share") for basis, values in measures.items()}
    lines += [f"{published} {1 - share:.2%} of the {basis}." for basis, share in shares.items() if share is not None]
    trips = measures.get("trips", {})
    error, moved = trips.get("mean_generalization_error"), trips.get("generalization_distance_m")
    if error is not None:
        lines.append(f"Mean generalisation error: {error:,.1f} tiles (2 means that nothing was generalised).")
    if moved is not None:
        exact = "Accuracy: exact to the input tile."
        lines.append(f"Trip ends moved by {moved:,.0f} m on average." if moved else exact)
    people = trips.get("k_people")
    if people is not None and "people" not in getattr(release.guarantee, "units", ("people",)):
        lines.append(f"Smallest number of people in a cell: {people:,}. People are not protected.")
    return lines


def collapse_lines(release: Release) -> list[str]:
    """Returns what to say of a release with an end that has collapsed into one zone."""
    cells, flows = release.cells, release.input
    tiles = {"origin": flows.origins.n_tiles, "destination": flows.destinations.n_tiles}
    one = [end for end, n in tiles.items() if n > 1 and len(np.unique(getattr(cells, end))) == 1]
    lines = [f"The map has collapsed: 1 {end} zone of {tiles[end]:,} tiles." for end in one]
    hint = "A larger --max-suppressed gives finer zones; --method layercut needs no such limit."
    return [*lines, hint] if lines and release.plan.homogeneous else lines
