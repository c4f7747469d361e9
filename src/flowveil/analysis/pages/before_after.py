"""The page "before and after" of `flowveil analyze`, and profiles over time.

Private: both disclose raw counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.analysis.areas import (
    AreaAccuracy,
    Zoning,
    area_accuracy,
    estimated_pairs,
    true_pairs,
    zoning_at,
)
from flowveil.analysis.measures import MEASURES
from flowveil.analysis.pages.trade_offs import frontier_part, marks_of, rounded_points
from flowveil.core.arrays import Floats
from flowveil.core.errors import ParameterError
from flowveil.core.times import TIME
from flowveil.published.charts import Shape, bar_chart, polyline, shape, size_histogram
from flowveil.published.document import Figure, PagePart, fill, number, page
from flowveil.published.html import promise, short_promise
from flowveil.published.maps import MAX_ZONES, further_layer, look, map_of_release
from flowveil.published.report import summed
from flowveil.published.sentences import is_noisy, sentence
from flowveil.release.folder import zones_in
from flowveil.release.statement import Statement

if TYPE_CHECKING:
    from markupsafe import Markup

    from flowveil.core.arrays import Ints
    from flowveil.core.flows import Cells
    from flowveil.core.hierarchy import Hierarchy
    from flowveil.publishing.release import NoisyRelease, Release
    from flowveil.release.counts import Family

WARNING = "this page discloses raw counts, suppressed ones too. It is for the data holder alone."
WARNING_OF_NOISE = "this page discloses true counts without noise. It is for the data holder alone."
#: The default zoning of profiles is the coarsest level with at least this number of origins.
_FEWEST_AREAS = 12
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 860, 150, 60, 64, 46


def render_internal(
    release: Release | NoisyRelease, *, areas: Sequence[AreaAccuracy] | None = None
) -> str:
    """Returns the page: the published report, the input, and what was suppressed and where."""
    report = release.summary()
    noisy = is_noisy(report)
    flows = summed(release.flows, Statement.from_report(report))
    basis = getattr(release.guarantee, "basis", "trips")
    data = map_of_release(flows, zones_in(flows, release.zones), basis=basis)
    before = _before_part(release, data, noisy=noisy)
    found = area_accuracy(release) if areas is None else areas
    inside = [_counted_part(release)] if noisy else [_raw_part(release), _frontier_part(release)]
    return page(
        title=f"INTERNAL: {report['method']}, {short_promise(report)}",
        heading=f"Before and after, {promise(report)}",
        lead=sentence(report),
        parts=[*([_areas_part(found)] if found else []), before, *inside, _measures_part(release)],
        footer="Not for publication. The published report is report.html in the release folder.",
        internal=WARNING_OF_NOISE if noisy else WARNING,
    )


def _measures_part(release: Any) -> PagePart:
    """Returns all measures, each with its meaning."""
    measures = release.metrics()
    rows = [
        (
            measure.title,
            measure.meaning,
            [number(values.get(key), digits=4) for values in measures.values()],
        )
        for key, measure in MEASURES.items()
        if any(values.get(key) is not None for values in measures.values())
    ]
    return PagePart("measures", "Measures", fill("measures.html", bases=list(measures), rows=rows))


def _before_part(release: Any, data: dict[str, Any], *, noisy: bool) -> PagePart:
    """Adds layers of tiles to the data of the maps, and returns maps of tiles next to those of
    zones.
    """
    flows = release.input
    basis, lost_word = (
        ("trips", "not published") if noisy else (release.guarantee.basis, "suppressed")
    )
    trees: dict[str, tuple[Hierarchy, Ints]] = {
        "origin": (flows.origins, flows.origin),
        "destination": (flows.destinations, flows.destination),
    }
    pairs = []
    after, data["layers"] = data["layers"], {}
    if data["frame"] is not None and all(tree.geography is not None for tree, _ in trees.values()):
        suppressed = release.cell_of_flow < 0
        volume = flows.volume(basis).astype(np.float64)
        drawn = {"overlap": not release.summary()["statement"]["homogeneous"]}
        for end, (tree, tile) in trees.items():
            raw = np.bincount(tile, weights=volume, minlength=tree.n_tiles)
            lost = np.bincount(tile[suppressed], weights=volume[suppressed], minlength=tree.n_tiles)
            density = look(end, f"{basis} per km²", scale=end)
            data["layers"] |= {
                f"{end}_tiles": {**_tiles(data, tree, raw, per_area=True), **density},
                f"{end}_lost": {
                    **_tiles(data, tree, lost, per_area=False),
                    **look(end, f"{lost_word} {basis}", scale=f"{end}_lost"),
                },
                f"{end}_zones": {**after[end], **density, **drawn},
            }
            tiles = (f"{end}_tiles", "Before", f"{number(tree.n_tiles)} tiles")
            zones = (f"{end}_zones", "After", f"{number(len(after[end]['code']))} zones")
            pairs.append({"end": end, "scale": end, "maps": [tiles, zones]})
    content = fill("before.html", pairs=pairs, lost=lost_word, basis=basis)
    return PagePart("maps", "Before and after", content, data if pairs else None)


def _tiles(
    data: dict[str, Any], tree: Hierarchy, volume: NDArray[Any], *, per_area: bool
) -> dict[str, Any]:
    """Returns the tiles with volume, coloured by it or by volume per km²."""
    assert tree.geography is not None
    # Tiles outside the area are not drawn.
    used = np.flatnonzero((volume > 0) & ~np.isnan(tree.geography.centers(tree.leaf_node)[0]))
    if len(used) > MAX_ZONES:
        used = used[np.sort(np.lexsort((used, -volume[used]))[:MAX_ZONES])]
    nodes = tree.leaf_node[used]
    lat, lon = tree.geography.centers(nodes)
    area = tree.geography.areas_km2(nodes)
    return further_layer(
        data,
        code=tree.code_text(nodes).tolist(),
        lat=lat,
        lon=lon,
        outlines=tree.geography.polygons(nodes),
        values=volume[used] / area if per_area else volume[used],
    )


def _areas_part(found: Sequence[AreaAccuracy]) -> PagePart:
    """Returns the planner's errors, one row for each kind of areas."""
    heads = (
        "misplaced",
        "missed",
        "where trips begin",
        "where trips end",
        "trip length",
        "accessibility",
    )
    rows = [
        (
            f"{one.areas} ({number(one.n_areas)} areas, {one.basis})",
            [
                *(
                    f"{share:.1%}"
                    for share in (
                        one.misplaced,
                        one.area_error,
                        one.production_error,
                        one.attraction_error,
                    )
                ),
                "" if one.trip_length_ratio is None else f"{one.trip_length_ratio:.3f} times",
                "" if one.accessibility_error is None else f"{one.accessibility_error:.1%}",
            ],
        )
        for one in found
    ]
    content = fill("counts.html", heads=heads, rows=rows, figures=())
    return PagePart("areas", "Errors between areas", content)


def _raw_part(release: Any) -> PagePart:
    flows, cells, guarantee = release.input, release.cells, release.guarantee
    lost = flows.select(release.cell_of_flow < 0)
    tables = (flows, cells, lost)
    rows: list[tuple[Any, ...]] = [
        ("Flows (tile pairs) or cells (zone pairs)", *map(len, tables)),
        ("Trips", *(_sum(table.trips) for table in tables)),
    ]
    if flows.weight is not None and cells.weight is not None:
        rows.append(("Weight", *(_sum(table.weight) for table in tables)))
    if flows.people is not None:
        rows.append(("Different people", *map(_people, tables)))
    ends = (
        ("Origin", flows.origins, cells.origin),
        (
            "Destination",
            flows.destinations,
            cells.destination,
        ),
    )
    rows += [
        (f"{end} tiles or zones", tree.n_tiles, len(np.unique_values(zone)), None)
        for end, tree, zone in ends
    ]
    figures = [_histogram("Flows before, by trips", flows, guarantee.k)]
    if len(lost):
        figures.append(_histogram("Suppressed flows, by trips", lost, guarantee.k))
    content = _counts(("before", "published", "suppressed"), rows, figures)
    return PagePart("raw", "Input, published and suppressed", content)


def _counted_part(release: Any) -> PagePart:
    """Returns what was counted before noise, and what was not, by reason."""
    flows, left_out = release.input, release.left_out
    before = int(flows.trips.sum())
    rows: list[tuple[Any, ...]] = [
        ("Flows (tile pairs) or pairs of zones", len(flows), None, len(release.cells)),
        ("Trips", before, before - sum(left_out.values()), int(release.cells.trips.sum())),
        *((f"Trips {reason}", number_of, None, None) for reason, number_of in left_out.items()),
    ]
    if flows.people is not None:
        rows.append(("Different people", _people(flows), None, None))
    content = _counts(("before", "counted, before noise", "published, noise included"), rows)
    return PagePart("raw", "Input, counted and published", content)


def _counts(
    heads: Sequence[str], rows: Sequence[tuple[Any, ...]], figures: Sequence[Figure] = ()
) -> Markup:
    shown = [(name, ["" if v is None else number(v) for v in values]) for name, *values in rows]
    return fill("counts.html", heads=heads, rows=shown, figures=figures)


def _frontier_part(release: Any) -> PagePart:
    """Returns the frontier of error against suppression, with this release on it."""
    from flowveil.methods.twincut import frontier

    measures = release.metrics()[release.guarantee.basis]
    limit = release.parameters.get("max_suppressed")
    points = rounded_points(frontier(release.input, release.guarantee))
    most = (
        float(limit)
        if isinstance(limit, int | float)
        else float(measures["suppressed_share"] or 0.0)
    )
    drawn = ("Error against suppression", points, marks_of(release.method, measures))
    return frontier_part([drawn], max_suppressed=most)


def _histogram(title: str, flows: Cells, k: int) -> Figure:
    bars = size_histogram(flows.trips.astype(np.float64), threshold=float(k), name=f"k = {k}")
    chart = bar_chart(bars, title=title, label="trips in the flow")
    note = (
        "Number of pairs of tiles by their trips; those left of the line are below the threshold."
    )
    return Figure(title, note, [("", chart)])


def _sum(values: NDArray[Any]) -> float | int:
    total = values.sum().item()
    return round(total, 2) if isinstance(total, float) else total


def _people(cells: Cells) -> int | None:
    return None if cells.people is None else cells.people.total()


@dataclass(frozen=True, eq=False)
class Profile:
    """Trips of one flow between two areas over the steps of time.

    Of the input, and reconstructed from the cells.
    """

    origin: str
    destination: str
    labels: tuple[str, ...]
    before: Floats
    after: Floats


def largest_profiles(family: Family, *, n: int = 6) -> list[Profile]:
    """Returns the profiles of the flows with the most trips, on a common zoning.

    Noisy counts are refused.
    """
    if family.facets.is_noisy:
        raise ParameterError("Noisy counts have no profile: it would show the true counts.")
    if TIME not in family.slice_columns:
        raise ParameterError("A profile needs slices by time. Hint: use --time and --every.")
    zoning = _default_zoning(family)
    labels = sorted({key[-1] for key in family.input.slice_keys})
    whole = true_pairs(family.input.whole, zoning, "trips")
    chosen = np.argsort(-whole.volume, kind="stable")[:n]
    largest = replace(whole, key=whole.key[chosen], volume=whole.volume[chosen])
    before, after = np.zeros((2, len(chosen), len(labels)))
    published = dict(family.parts)
    for key, flows in family.input.split():
        at = labels.index(key[-1])
        before[:, at] += true_pairs(flows, zoning, "trips").at(largest)
        if key in published:
            estimate = estimated_pairs(published[key], flows, zoning, "trips")
            if estimate is None:
                raise ParameterError(
                    "The cells of these slices cannot be spread over common areas."
                )
            after[:, at] += estimate[0].at(largest)
    ends = ([zoning.codes[area] for area in end.tolist()] for end in largest.ends)
    return [
        Profile(o, d, tuple(labels), *trips)
        for o, d, *trips in zip(*ends, before, after, strict=True)
    ]


def _default_zoning(family: Family) -> Zoning:
    """Returns the coarsest level with enough origins, or the finest."""
    flows = family.input.whole
    lowest, highest = max(int(flows.origins.level.min()), 0), int(flows.origins.level.max())
    for level in range(lowest, highest + 1):
        zoning = zoning_at(flows, level)
        if zoning is not None and (
            level == highest or len(np.unique(zoning.origin)) >= _FEWEST_AREAS
        ):
            return zoning
    raise ParameterError(
        "A profile needs a common map of all slices. Hint: read the trips with --zones."
    )


def profile_chart(profiles: list[Profile]) -> str:
    """Returns the profiles as SVG, one panel below the other."""
    panels = (_panel(profile, _TOP + i * (_HEIGHT + _GAP)) for i, profile in enumerate(profiles))
    size = {"width": _WIDTH + _LEFT + 20, "height": _TOP + len(profiles) * (_HEIGHT + _GAP) + 10}
    return str(fill("profile.svg", **size, shapes=[drawn for panel in panels for drawn in panel]))


def _panel(profile: Profile, top: int) -> Iterator[Shape]:
    most = float(max(profile.before.max(initial=0), profile.after.max(initial=0), 1))
    n = len(profile.labels)
    x = _LEFT + (np.arange(n) + 0.5) * (_WIDTH / max(n, 1))
    bottom = top + _HEIGHT
    yield shape("text", f"{profile.origin} → {profile.destination}", x=_LEFT, y=top - 4)
    yield shape("rect", x=_LEFT, y=top, width=_WIDTH, height=_HEIGHT, fill="none", stroke="#d5dbe3")
    yield shape("text", f"{most:,.0f}", x=_LEFT - 6, y=top + 10, text_anchor="end")
    yield shape("text", "0", x=_LEFT - 6, y=bottom, text_anchor="end")
    for values, colour in ((profile.before, "#b45f06"), (profile.after, "#1f5fa8")):
        y = bottom - values / most * (_HEIGHT - 6)
        yield polyline(
            list(zip(x.tolist(), y.tolist(), strict=True)), stroke=colour, stroke_width=1.5
        )
    for at in sorted({0, n // 4, n // 2, 3 * n // 4, n - 1}):
        yield shape(
            "text",
            profile.labels[at],
            x=float(x[at]),
            y=bottom + 15,
            text_anchor="middle",
            fill="#5c6777",
        )
