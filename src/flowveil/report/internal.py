"""The internal report: before against after, for the data holder alone.

It tells raw counts, suppressed ones too, so it is the opposite of a release: marked on the screen and on every printed
page, and refused wherever a release is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.errors import OutputError
from flowveil.output import check_file, real_place, write_files
from flowveil.release.noisy import NoisyRelease
from flowveil.report.charts import Mark, bar_chart, size_histogram
from flowveil.report.document import Part, chart_figure, map_figure, number, page, text
from flowveil.report.frontier import EXPLANATION, frontier_figure, rounded_points
from flowveil.report.html import (
    distribution_part,
    figures,
    lead,
    maps_part,
    measures_part,
    notice,
    parameters_part,
    promise,
    protection_part,
    short_promise,
)
from flowveil.report.maps import ENDS, MAX_ZONES, Frame, encode_shapes
from flowveil.report.summary import FORMAT, summarize
from flowveil.verify.files import read_json

if TYPE_CHECKING:
    from flowveil.flows import Cells
    from flowveil.hierarchy import Hierarchy, Ints
    from flowveil.release.release import Release

WARNING = "this page tells raw counts, suppressed ones too. It is for the data holder alone."
WARNING_OF_NOISE = "this page tells true counts without noise. It is for the data holder alone."


def write_internal_report(
    release: Release | NoisyRelease,
    path: str | PathLike[str],
    *,
    folder: str | PathLike[str] | None = None,
    content: str | None = None,
) -> Path:
    """Write the internal report into a file.

    Args:
        release: what was published.
        path: the file; never inside a release.
        folder: the folder of this release, if it was written.
        content: the page, where it was rendered before.

    Raises:
        OutputError: the file would lie inside a release, or cannot be written.
    """
    return write_private(path, render_internal(release) if content is None else content, folder=folder)


def write_private(path: str | PathLike[str], document: str, *, folder: str | PathLike[str] | None = None) -> Path:
    """Write a document of raw counts into a file that only its owner may read, and never inside a release.

    Raises:
        OutputError: the file would lie inside a release, or cannot be written.
    """
    check_place(path, release=folder)
    write_files({path: document}, private=True)
    return Path(path)


def check_place(path: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> None:
    """Refuse a place where raw counts could be published by mistake, before anything is computed.

    Raises:
        OutputError: it cannot be written, or it lies in a release.
    """
    target = real_place(path)
    around = {Path(os.path.realpath(release))} if release is not None else set()
    if around & {target, *target.parents} or any(_is_release(folder) for folder in target.parents):
        raise OutputError(
            f"'{path}' lies inside a release, and raw counts are not for publication. Hint: name a file outside of it."
        )
    check_file(path)


def _is_release(folder: Path) -> bool:
    try:
        content = read_json(folder / "manifest.json")
        return bool(content["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def render_internal(release: Release | NoisyRelease) -> str:
    """The page: the published report with what was before it, and what was left out and where."""
    report = summarize(release)
    published = maps_part(report, release.flows, release.zones, None)
    data = dict(published.map_data or {})
    # What the report withholds or rounds may stand here.
    measured = {**report, "measures": release.metrics(), "withheld": None}
    before = _before_part(release, data)
    inside = [_counted_part(release)] if release.kind == "noisy" else [_raw_part(release), _frontier_part(release)]
    return page(
        title=f"INTERNAL: {report['method']}, {short_promise(report)}",
        heading=f"Before and after, {promise(report)}",
        lead=lead(report),
        notice=notice(report),
        figures=figures(report),
        parts=[
            before,
            *inside,
            Part(published.name, "What is published", published.content, data),
            protection_part(report),
            distribution_part(report, release.flows, release.zones),
            measures_part(measured),
            parameters_part(report),
        ],
        footer="Not for publication. The published report is report.html in the release folder.",
        internal=WARNING_OF_NOISE if release.kind == "noisy" else WARNING,
    )


# ---- maps --------------------------------------------------------------------------------------------------------


def _before_part(release: Release | NoisyRelease, data: dict[str, Any]) -> Part:
    """Adds layers of tiles to the data of the maps, and shows them beside the zones."""
    flows = release.input
    basis, lost_word = (
        ("trips", "not published") if release.kind == "noisy" else (release.guarantee.basis, "suppressed")
    )
    frame_data = data.get("frame")
    trees: dict[str, tuple[Hierarchy, Ints]] = {
        "origin": (flows.origins, flows.origin),
        "destination": (flows.destinations, flows.destination),
    }
    if frame_data is None or any(tree.geography is None for tree, _ in trees.values()):
        return Part("before", "Before and after", "<p>The tiles have no place on a map.</p>")
    frame = Frame(frame_data["west"], frame_data["north"], frame_data["perUnit"])
    data["layers"], data["shapes"] = dict(data["layers"]), list(data["shapes"])
    suppressed = release.cell_of_flow < 0
    volume = flows.volume(basis).astype(np.float64)
    content = ["<p>Tiles are what was observed; zones are what is published. Both are coloured by volume per km².</p>"]
    for end, (tree, tile) in trees.items():
        raw = np.bincount(tile, weights=volume, minlength=tree.n_tiles)
        lost = np.bincount(tile[suppressed], weights=volume[suppressed], minlength=tree.n_tiles)
        _add_tiles(data, f"{end}_tiles", end, tree, frame, raw, scale=end, per_area=f"{basis} per km²")
        _add_tiles(
            data, f"{end}_lost", end, tree, frame, lost, scale=f"{end}_lost", per_area=None, word=f"{lost_word} {basis}"
        )
        zones = data["layers"][end]
        data["layers"][f"{end}_zones"] = {
            **{key: zones[key] for key in ("code", "level", "tiles", "area", "lat", "lon", "x", "y", "shape")},
            "values": [v / a if a else 0 for v, a in zip(zones[basis], zones["area"], strict=True)],
            "title": f"{basis.capitalize()} per km²",
            "label": f"{end}s",
            "word": f"{basis} per km²",
            "hue": end,
            "scale": end,
            "fixed": True,
        }
        content += [
            f"<h3>{end.capitalize()}s</h3>",
            '<div class="maps">',
            map_figure(f"{end}_tiles", "Before", f"{number(tree.n_tiles)} tiles", hue=end),
            map_figure(f"{end}_zones", "After", f"{number(len(zones['code']))} zones", hue=end),
            f'</div><div class="legend" data-scale="{end}"></div>',
        ]
    content += [
        f"<h3>What was {lost_word}, and where</h3>",
        '<div class="maps">',
        *(map_figure(f"{end}_lost", f"{lost_word.capitalize()}: {basis} by {end} tile", "", hue=end) for end in ENDS),
        "</div>",
        *(f'<div class="legend" data-scale="{end}_lost"></div>' for end in ENDS),
    ]
    return Part("before", "Before and after", "\n".join(content))


def _add_tiles(
    data: dict[str, Any],
    name: str,
    end: str,
    tree: Hierarchy,
    frame: Frame,
    volume: NDArray[Any],
    *,
    scale: str,
    per_area: str | None,
    word: str = "",
) -> None:
    assert tree.geography is not None
    used = np.flatnonzero(volume > 0)
    if len(used) > MAX_ZONES:
        used = np.sort(np.lexsort((used, -volume[used]))[:MAX_ZONES])
        used = np.flatnonzero(volume > 0)[used]
    nodes = tree.leaf_node[used]
    lat, lon = tree.geography.centers(nodes)
    area = tree.geography.areas_km2(nodes)
    outlines: NDArray[np.object_] = tree.geography.polygons(nodes)
    has_shape = ~(shapely.is_missing(outlines) | shapely.is_empty(outlines))
    shape = np.full(len(used), -1, dtype=np.int64)
    shape[has_shape] = len(data["shapes"]) + np.arange(int(has_shape.sum()))
    data["shapes"] += encode_shapes(outlines[has_shape], frame)
    units = np.rint(frame.units(np.column_stack((lon, lat)))).astype(np.int64)
    values = volume[used] / area if per_area else volume[used]
    data["layers"][name] = {
        "code": tree.code_text(nodes).tolist(),
        "level": tree.level[nodes].tolist(),
        "tiles": [1] * len(used),
        "area": [float(f"{a:.4g}") for a in area.tolist()],
        "lat": np.round(lat, 5).tolist(),
        "lon": np.round(lon, 5).tolist(),
        "x": units[:, 0].tolist(),
        "y": units[:, 1].tolist(),
        "shape": shape.tolist(),
        "values": [float(f"{v:.6g}") for v in values.tolist()],
        "title": (per_area or word).capitalize(),
        "label": f"{end}s",
        "word": per_area or word,
        "hue": end,
        "scale": scale,
        "fixed": True,
    }


# ---- numbers -----------------------------------------------------------------------------------------------------


def _raw_part(release: Release) -> Part:
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
    body = "\n".join(_table_row(name, values) for name, *values in rows)
    charts = [_histogram("Flows before, by trips", flows, guarantee.k)]
    if len(lost):
        charts.append(_histogram("Suppressed flows, by trips", lost, guarantee.k))
    content = f"""<div class="scroll"><table>
<thead><tr><th scope="col">What</th><th scope="col" class="number">before</th>
<th scope="col" class="number">published</th><th scope="col" class="number">suppressed</th></tr></thead>
<tbody>
{body}
</tbody></table></div>
<div class="charts">{"".join(charts)}</div>"""
    return Part("raw", "What was there, what is left", content)


def _counted_part(release: NoisyRelease) -> Part:
    """What the noise was added to: what was counted, and what was not and why."""
    flows, left_out = release.input, release.left_out
    before = int(flows.trips.sum())
    rows: list[tuple[str, int | None, int | None, int | None]] = [
        ("Flows (tile pairs) or pairs of zones", len(flows), None, len(release.cells)),
        ("Trips", before, before - sum(left_out.values()), int(release.cells.trips.sum())),
        *((f"Trips {reason}", number_of, None, None) for reason, number_of in left_out.items()),
    ]
    if flows.people is not None:
        rows.append(("Different people", _people(flows), None, None))
    body = "\n".join(_table_row(name, values) for name, *values in rows)
    content = f"""<div class="scroll"><table>
<thead><tr><th scope="col">What</th><th scope="col" class="number">before</th>
<th scope="col" class="number">counted, before noise</th>
<th scope="col" class="number">published, noise included</th></tr></thead>
<tbody>
{body}
</tbody></table></div>"""
    return Part("raw", "What was there, what was counted, what is published", content)


def _table_row(name: str, values: Sequence[float | None]) -> str:
    entries = "".join(f'<td class="number">{"" if v is None else number(v)}</td>' for v in values)
    return f'<tr><th scope="row">{text(name)}</th>{entries}</tr>'


def _frontier_part(release: Release) -> Part:
    """How fine the zones could be if more or less were suppressed, with this release beside it."""
    from flowveil.methods.twincut import frontier

    measures = release.metrics()[release.guarantee.basis]
    share, error = measures["suppressed_share"], measures["mean_generalization_error"]
    marks = [Mark(release.method, float(share), float(error))] if share is not None and error else []
    limit = release.parameters.get("max_suppressed")
    drawing = frontier_figure(
        rounded_points(frontier(release.input, release.guarantee)),
        max_suppressed=float(limit) if isinstance(limit, int | float) else float(share or 0.0),
        marks=marks,
        title="Error against suppression",
    )
    content = f'<p>{text(EXPLANATION)}</p><div class="charts">{drawing}</div>'
    return Part("frontier", "What suppressing more or less would give", content)


def _histogram(title: str, flows: Cells, k: int) -> str:
    bars = size_histogram(flows.trips.astype(np.float64), threshold=float(k), name=f"k = {k}")
    chart = bar_chart(bars, title=title, label="trips in the flow")
    return chart_figure(title, "How many pairs of tiles have how many trips; those left of the line are short.", chart)


def _sum(values: NDArray[Any]) -> float | int:
    total = values.sum().item()
    return round(total, 2) if isinstance(total, float) else total


def _people(cells: Cells) -> int | None:
    return None if cells.people is None else len(np.unique_values(cells.people.person))
