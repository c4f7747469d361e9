"""The page "before and after" of `flowveil analyze`. It discloses raw counts: private, marked on every printed page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.analysis.areas import AreaAccuracy, area_accuracy
from flowveil.analysis.measures import MEASURES
from flowveil.analysis.pages.trade_offs import frontier_part, rounded_points
from flowveil.published.charts import Mark, bar_chart, size_histogram
from flowveil.published.document import Figure, Part, fill, number, page, sensible
from flowveil.published.headline import sentence
from flowveil.published.html import promise, short_promise
from flowveil.published.maps import MAX_ZONES, further_layer, look, map_of_release
from flowveil.published.report import summed
from flowveil.published.sentences import is_noisy
from flowveil.published.slices import zones_in
from flowveil.release.statement import Statement

if TYPE_CHECKING:
    from markupsafe import Markup

    from flowveil.flows import Cells
    from flowveil.hierarchy import Hierarchy, Ints
    from flowveil.release.noisy import NoisyRelease
    from flowveil.release.release import Release

WARNING = "this page discloses raw counts, suppressed ones too. It is for the data holder alone."
WARNING_OF_NOISE = "this page discloses true counts without noise. It is for the data holder alone."


def render_internal(release: Release | NoisyRelease, *, areas: Sequence[AreaAccuracy] | None = None) -> str:
    """Returns the page: the published report, the input, and what was suppressed and where.

    Args:
        release: with its input.
        areas: the planner's errors, if they are known.
    """
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
        parts=[
            *([_areas_part(found)] if found else []),
            before,
            *inside,
            _measures_part(release),
        ],
        footer="Not for publication. The published report is report.html in the release folder.",
        internal=WARNING_OF_NOISE if noisy else WARNING,
    )


def _measures_part(release: Any) -> Part:
    """Returns all measures, each with its meaning."""
    measures = release.metrics()
    rows = [
        (measure.title, measure.meaning, [sensible(values.get(key)) for values in measures.values()])
        for key, measure in MEASURES.items()
        if any(values.get(key) is not None for values in measures.values())
    ]
    return Part("measures", "Measures", fill("measures.html", bases=list(measures), rows=rows))


# ---- maps --------------------------------------------------------------------------------------------------------


def _before_part(release: Any, data: dict[str, Any], *, noisy: bool) -> Part:
    """Adds layers of tiles to the data of the maps, and returns maps of tiles next to those of zones."""
    flows = release.input
    basis, lost_word = ("trips", "not published") if noisy else (release.guarantee.basis, "suppressed")
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
    return Part("maps", "Before and after", content, data if pairs else None)


def _tiles(data: dict[str, Any], tree: Hierarchy, volume: NDArray[Any], *, per_area: bool) -> dict[str, Any]:
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


def _areas_part(found: Sequence[AreaAccuracy]) -> Part:
    """Returns the planner's errors, one row for each kind of areas."""
    heads = ("misses or misplaces", "where trips begin", "where trips end", "trip length", "accessibility")
    rows = [
        (
            f"{one.areas} ({number(one.n_areas)} areas, {one.basis})",
            [
                *(f"{share:.1%}" for share in (one.area_error, one.production_error, one.attraction_error)),
                "" if one.trip_length_ratio is None else f"{one.trip_length_ratio:.3f} times",
                "" if one.accessibility_error is None else f"{one.accessibility_error:.1%}",
            ],
        )
        for one in found
    ]
    content = fill("counts.html", heads=heads, rows=rows, figures=())
    return Part("areas", "Errors between areas", content)


# ---- numbers -----------------------------------------------------------------------------------------------------


def _raw_part(release: Any) -> Part:
    flows, guarantee = release.input, release.guarantee
    suppressed = release.cell_of_flow < 0
    lost = flows.select(suppressed)
    rows: list[tuple[str, float | None, float | None, float | None]] = [
        ("Flows (tile pairs) or cells (zone pairs)", len(flows), len(release.cells), len(lost)),
        ("Trips", _sum(flows.trips), _sum(release.cells.trips), _sum(lost.trips)),
    ]
    if flows.weight is not None and release.cells.weight is not None and lost.weight is not None:
        rows.append(("Weight", _sum(flows.weight), _sum(release.cells.weight), _sum(lost.weight)))
    if flows.people is not None:
        rows.append(("Different people", _people(flows), _people(release.cells), _people(lost)))
    rows += [
        ("Origin tiles or zones", flows.origins.n_tiles, len(np.unique_values(release.cells.origin)), None),
        (
            "Destination tiles or zones",
            flows.destinations.n_tiles,
            len(np.unique_values(release.cells.destination)),
            None,
        ),
    ]
    figures = [_histogram("Flows before, by trips", flows, guarantee.k)]
    if len(lost):
        figures.append(_histogram("Suppressed flows, by trips", lost, guarantee.k))
    content = _counts(("before", "published", "suppressed"), rows, figures)
    return Part("raw", "Input, published and suppressed", content)


def _counted_part(release: Any) -> Part:
    """Returns what was counted before noise, and what was not, by reason."""
    flows, left_out = release.input, release.left_out
    before = int(flows.trips.sum())
    rows: list[tuple[str, int | None, int | None, int | None]] = [
        ("Flows (tile pairs) or pairs of zones", len(flows), None, len(release.cells)),
        ("Trips", before, before - sum(left_out.values()), int(release.cells.trips.sum())),
        *((f"Trips {reason}", number_of, None, None) for reason, number_of in left_out.items()),
    ]
    if flows.people is not None:
        rows.append(("Different people", _people(flows), None, None))
    content = _counts(("before", "counted, before noise", "published, noise included"), rows)
    return Part("raw", "Input, counted and published", content)


def _counts(heads: Sequence[str], rows: Sequence[tuple[Any, ...]], figures: Sequence[Figure] = ()) -> Markup:
    shown = [(name, ["" if v is None else number(v) for v in values]) for name, *values in rows]
    return fill("counts.html", heads=heads, rows=shown, figures=figures)


def _frontier_part(release: Any) -> Part:
    """Returns the frontier of error against suppression, with this release on it."""
    from flowveil.methods.twincut import frontier

    measures = release.metrics()[release.guarantee.basis]
    share, error = measures["suppressed_share"], measures["mean_generalization_error"]
    marks = [Mark(release.method, float(share), float(error))] if share is not None and error else []
    limit = release.parameters.get("max_suppressed")
    points = rounded_points(frontier(release.input, release.guarantee))
    most = float(limit) if isinstance(limit, int | float) else float(share or 0.0)
    return frontier_part([("Error against suppression", points, marks)], max_suppressed=most)


def _histogram(title: str, flows: Cells, k: int) -> Figure:
    bars = size_histogram(flows.trips.astype(np.float64), threshold=float(k), name=f"k = {k}")
    chart = bar_chart(bars, title=title, label="trips in the flow")
    note = "Number of pairs of tiles by their trips; those left of the line are below the threshold."
    return Figure(title, note, [("", chart)])


def _sum(values: NDArray[Any]) -> float | int:
    total = values.sum().item()
    return round(total, 2) if isinstance(total, float) else total


def _people(cells: Cells) -> int | None:
    return None if cells.people is None else cells.people.total()
