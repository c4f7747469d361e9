"""`flowveil analyze`: every private measure of a published release, recomputed from its folder and
its input.
"""

from __future__ import annotations

import json
import math
import warnings
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from flowveil.analysis.areas import (
    AreaAccuracy,
    area_accuracy,
    default_levels,
    finest_parts,
    main_accuracy,
    main_level,
    misplaced_text,
    planner_values,
)
from flowveil.analysis.attach import Attached, attach
from flowveil.analysis.closeness import closeness
from flowveil.analysis.measures import Values, combine, measure
from flowveil.core.errors import InfeasibleError
from flowveil.core.guarantee import SmallKWarning
from flowveil.core.times import TIME
from flowveil.methods.twincut import frontier, twincut
from flowveil.methods.twincut_same_zones import twincut_same_zones
from flowveil.publishing.anonymization import anonymize
from flowveil.publishing.release import Release
from flowveil.release.facets import Facets
from flowveil.request.keywords import ReadingKeywords
from flowveil.system.output import (
    Content,
    make_private_folder,
    refuse_inside_release,
    write_private_files,
)
from flowveil.system.paths import named_path

WARNING = "Not for publication: computed from raw trips."
#: The files of `Analysis.write`.
MEASURES, PAGE, PROFILE = "measures.json", "before-after.html", "profile.svg"
ENDS = ("origin", "destination")
#: An end has collapsed if it has less than this share of the zones that another limit gives; the
#: largest limit tried.
_COLLAPSED, _MOST_SUPPRESSED = 0.01, 0.5
#: The measures that sentences show.
SUMMARY = ("suppressed_share", "mean_generalization_error", "generalization_distance_m", "k_people")


@dataclass(frozen=True, eq=False)
class Analysis:
    """The private measures of a release. None of it is for publication."""

    release: Attached  # with its raw trips
    # By basis, exact; the planner's errors at one level first. Of slices, of the finest ones
    # together.
    measures: dict[str, Values]
    areas: tuple[AreaAccuracy, ...]  # the planner's errors, by basis and areas
    shares: dict[
        str, Any
    ]  # of input rows that were not used, by reason, and of suppressed volume, by basis
    slices: tuple[
        dict[str, Any], ...
    ] = ()  # the values of the slice columns and the measures of each matrix
    closeness: dict[str, Any] | None = (
        None  # distance of zones from the whole (t-closeness), by end; None of overlaps
    )
    notes: tuple[str, ...] = ()  # what could not be computed, and why

    def __repr__(self) -> str:
        # No measure: they are private, and a repr ends up in logs.
        return f"<Analysis of {self.release!r}, private>"

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

    def write(
        self, directory: str | PathLike[str], *, release: str | PathLike[str] | None = None
    ) -> Path:
        """Write measures.json, and the page before-after.html or, of slices by time, the chart
        profile.svg.

        The folder is private: created with mode 0700, its files with mode 0600. Raises OutputError
        if it lies inside ``release`` or another release, or cannot be written.
        """
        from flowveil.analysis.pages.before_after import (
            largest_profiles,
            profile_chart,
            render_internal,
        )

        refuse_inside_release(directory, release=release)
        files: dict[str, Content] = {
            MEASURES: json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        }
        made: Any = self.release
        if not made.slice_columns:
            files[PAGE] = render_internal(made, areas=self.areas)
        elif not made.facets.is_noisy and TIME in made.slice_columns:
            files[PROFILE] = profile_chart(largest_profiles(made))
        folder = make_private_folder(directory, release=release)
        write_private_files(folder, files)
        return folder


def analyze(
    folder: str | PathLike[str],
    *,
    against: Any,
    districts: Any = None,
    **reading: Unpack[ReadingKeywords],
) -> Analysis:
    """Compute every measure of a published release from its folder and its input. Private.

    Args:
        folder: a release folder of any kind.
        against: the trips it was made from, in any form `flowveil.read_trips` takes.
        districts: polygons of the user between which errors are computed too: a file, a table, or a
            ZoneMap.
        **reading: how to read the trips, where it differs from the report; ``zones`` for a release
            on the user's own map, ``within`` for a study area from a file; ``engine``,
            ``progress``.

    Raises:
        ParameterError: the folder cannot be read, or was not made from these trips.

    Examples:
        >>> flowveil.analyze("release", against="trips.csv")
        <Analysis of <Release twincut: 18 cells, at least 10 people in each>, private>
    """
    from flowveil.zoning.files import ZoneMap, read_zones

    release = attach(named_path(folder, what="the release"), against, **reading)
    areas = (
        districts if districts is None or isinstance(districts, ZoneMap) else read_zones(districts)
    )
    return analyze_release(release, districts=areas)


def analyze_release(release: Attached, *, districts: Any = None) -> Analysis:
    """Compute the same for a release with its trips in memory."""
    measures = _measures(release)
    slices = tuple(
        {"slice": dict(zip(release.slice_columns, key, strict=True)), "measures": part.metrics()}
        for key, part in (release.parts if release.slice_columns else ())
    )
    areas = [
        one
        for basis in measures
        for one in area_accuracy(release, districts=districts, basis=basis)
    ]
    for basis, values in measures.items():
        first = main_accuracy([one for one in areas if one.basis == basis])
        if first is not None:
            measures[basis] = planner_values(first) | values
    ambiguous = (
        isinstance(release, Release)
        and release.facets.has_boxes
        and release.plan.cells_may_overlap
        and not (release.cell_of_flow >= 0).any()
    )
    notes = []
    if ambiguous:
        notes.append(
            "Boxes overlap, so the folder does not say in which box a trip was counted: distances"
            " moved and numbers of people are unknown."
        )
    if not areas:
        notes.append(
            "Errors between areas are unknown: the zones have no places, or too many pairs to"
            " spread over."
        )
    summary = release.input.intake
    shares = {
        "rows": summary.rows,
        "rows_dropped": {
            reason: n / summary.rows
            for reason, n in sorted(summary.left_out.items())
            if summary.rows
        },
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
    return combine(
        [part for _, part in parts], absent, release.input.whole, release.guarantee, keys
    )


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
        f"Between areas ({one.areas}): {misplaced_text(one)}, and misses"
        f" {one.area_error:.1%}; {one.production_error:.1%} where they begin,"
        f" {one.attraction_error:.1%} where they end."
        for one in ([] if first is None else [first, *coarser])
    ]
    if first is not None and first.trip_length_ratio is not None:
        lines.append(
            f"Trip lengths: {first.trip_length_ratio:.3f} times those of the input, on average."
        )
    if first is not None and first.accessibility_error is not None:
        lines.append(f"Accessibility of areas: {first.accessibility_error:.1%} off, on average.")
    published = (
        "Published counts, noise included, sum to" if release.facets.is_noisy else "Published:"
    )
    shares = {basis: values.get("suppressed_share") for basis, values in measures.items()}
    lines += [
        f"{published} {1 - share:.2%} of the {basis}."
        for basis, share in shares.items()
        if share is not None
    ]
    trips = measures.get("trips", {})
    error, moved = trips.get("mean_generalization_error"), trips.get("generalization_distance_m")
    if error is not None:
        lines.append(
            f"Mean generalisation error: {error:,.1f} tiles (2 means that nothing was generalised)."
        )
    if moved is not None:
        exact = "Accuracy: exact to the input tile."
        lines.append(f"Trip ends moved by {moved:,.0f} m on average." if moved else exact)
    people = trips.get("k_people")
    if people is not None and "people" not in getattr(release.guarantee, "units", ("people",)):
        lines.append(f"Smallest number of people in a cell: {people:,}. People are not protected.")
    return lines


def collapse_lines(release: Release) -> list[str]:
    """Returns what to say of a release with an end of one zone, or of far fewer than another limit
    would give.

    Costs a few runs of TwinCut without local search, but only if an end has one zone or less than 1
    % of its tiles.
    """
    zones = [len(np.unique(number)) for number in (release.cells.origin, release.cells.destination)]
    tiles = [release.input.origins.n_tiles, release.input.destinations.n_tiles]
    few = [end for end in (0, 1) if tiles[end] > 1 and zones[end] < max(_COLLAPSED * tiles[end], 2)]
    if not few:
        return []
    limit, better = (
        _next_limit(release, zones, few)
        if release.plan.homogeneous and release.facets == Facets()
        else (1, [])
    )
    if not better:
        return [f"There is only one {ENDS[end]} zone." for end in few if zones[end] == 1]
    return [
        *(
            f"The map has collapsed: {zones[end]:,} {ENDS[end]} zones, {better[end]:,} are"
            " possible."
            for end in few
        ),
        (
            f"TwinCut with --max-suppressed {limit:g} has about {better[0]:,} x {better[1]:,}"
            " zones; --method layercut needs no such limit."
        ),
    ]


def _next_limit(
    release: Release, zones: Sequence[int], few: Sequence[int]
) -> tuple[float, list[int]]:
    """Returns the next point of TwinCut's frontier at which no end has collapsed.

    Share, rounded up, and zones.
    """
    flows, guarantee = release.guarantee.to_fixed_point(release.input)
    volume = flows.volume(guarantee.basis).astype(np.float64)
    suppressed = float(volume[release.cell_of_flow < 0].sum() / volume.sum())
    points = [p.suppressed_share for p in frontier(flows, guarantee, up_to=_MOST_SUPPRESSED)]
    shares = sorted({math.ceil(1000 * share) / 1000 for share in points if share > suppressed})
    counted: dict[float, list[int]] = {}

    def suffices(share: float) -> bool:
        plan_map = twincut_same_zones if flows.same_zones else twincut
        try:
            plan = plan_map(flows, guarantee, max_suppressed=share, effort=0.0)
        except InfeasibleError:
            return False
        counted[share] = n = [
            len(np.unique(of[plan.kept])) for of in (plan.origin_zone, plan.destination_zone)
        ]
        return all(zones[end] < max(_COLLAPSED * n[end], 2) and n[end] > 1 for end in few)

    # More suppression gives more zones, so the first point is found by bisection.
    limit = next(iter(shares[bisect_left(shares, True, key=suffices) :]), 1.0)
    return (limit, counted[limit]) if limit <= _MOST_SUPPRESSED else (limit, [])


def loss_against_best(release: Release) -> tuple[float, float] | None:
    """Returns the mean generalisation errors of kept zones and of the best map of the same trips,
    in tiles.

    The best map is TwinCut's, or PairCut's if zones overlap, with no more suppressed. None without
    such a map.
    """
    guarantee, basis = release.guarantee, release.guarantee.basis
    volume = release.input.volume(basis)
    suppressed = float(np.sum(volume[release.cell_of_flow < 0])) / float(np.sum(volume))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallKWarning)
            best = anonymize(
                release.input,
                "twincut" if release.plan.homogeneous else "paircut",
                k=guarantee.k,
                protect=guarantee.units,
                max_suppressed=min(suppressed, np.nextafter(1, 0)),
                k_population=guarantee.population if guarantee.population_is_given else None,
                l=guarantee.locations,
                hierarchy=release.parameters["hierarchy"],
                allow_small_k=True,
                population_only=True,
            )
    except InfeasibleError:
        return None
    error, least = (made.metrics()[basis]["mean_generalization_error"] for made in (release, best))
    return None if error is None or not least else (float(error), float(least))


def loss_lines(error: float, best: float, new_map_at: float = 0.5) -> list[str]:
    """Returns what kept zones cost, and advises a new map from a loss on."""
    loss = error / best - 1
    lines = [
        f"Kept zones: mean generalisation error {error:,.1f} tiles; the best map of these trips has"
        f" {best:,.1f} ({abs(loss):.0%} {'more' if loss >= 0 else 'less'} for the same zones)."
    ]
    advice = (
        f"Advice: the loss is at least {new_map_at:.0%}; consider a new map (leave --zones-of out),"
        " and audit it against the earlier releases."
    )
    return [*lines, advice] if loss >= new_map_at else lines
