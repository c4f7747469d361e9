"""A comparison as one page with its table, charts and maps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.report.charts import Line, Mark, line_chart
from flowveil.report.document import Part, asset, chart_figure, map_figure, number, page, text
from flowveil.report.frontier import EXPLANATION, frontier_figure
from flowveil.report.maps import ENDS, place_layers

if TYPE_CHECKING:
    from flowveil.experiments.comparison import Comparison, Run

#: Zones drawn for one end of one run, and maps on the page.
_MAX_ZONES = 4_000
_MAX_MAPS = 60

_CHARTS = (
    ("mean_generalization_error", "Mean generalisation error", "Tiles of both zones of a trip; less is finer.", True),
    ("reconstruction_loss", "Reconstruction loss", "0 is perfect, 2 is the worst.", False),
    ("generalization_distance_m", "Distance moved (m)", "From a trip's ends to the centres of their zones.", True),
    ("suppressed_share", "Suppressed (%)", "Of the volume; gaps are withheld.", False),
    ("seconds", "Time (s)", "The method and its recount, one run; starting and compiling are not counted.", True),
)


def render_comparison(
    comparison: Comparison, *, heads: Sequence[str], rows: Sequence[Sequence[str]], internal: str
) -> str:
    """One page: trade-offs, maps side by side on one colour scale, the table.

    Args:
        comparison: the runs.
        heads: names of the table's columns.
        rows: its entries, a row for each run.
        internal: why the page is not for publication.
    """
    runs = comparison.runs
    done = sum(run.status == "done" for run in runs)
    methods, steps = _distinct(run.method for run in runs), _distinct(run.k for run in runs)
    parts = [_table_part(runs, heads, rows), _charts_part(runs)]
    if comparison.frontiers:
        parts.append(_frontier_part(comparison))
    maps = _maps_part(runs)
    if maps is not None:
        parts.append(maps)
    lead = (
        f"{len(methods)} methods, k = {', '.join(map(str, steps))}; {done} of {len(runs)} runs gave a release. "
        f"Up to {comparison.max_suppressed:.0%} may be suppressed; a run was stopped after "
        f"{number(comparison.time_limit)} seconds."
    )
    return page(
        title="Comparison of methods",
        heading="Comparison of methods",
        lead=text(lead),
        parts=parts,
        footer="Measures are those that a release would publish, but for the error, which has all its digits for "
        "every method; what a release would withhold is withheld here. "
        "Frontiers are computed from all flows, and rounded.",
        internal=internal,
    )


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _table_part(runs: Sequence[Run], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Part:
    head = "".join(f'<th scope="col"{_number_class(i)}>{_breakable(h)}</th>' for i, h in enumerate(heads))
    body = []
    for run, entries in zip(runs, rows, strict=True):
        if run.status == "done":
            cells = "".join(f"<td{_number_class(i + 1)}>{_breakable(e)}</td>" for i, e in enumerate(entries[1:]))
        else:
            start = "".join(f"<td{_number_class(i + 1)}>{_breakable(e)}</td>" for i, e in enumerate(entries[1:3]))
            cells = (
                f'{start}<td colspan="{len(heads) - 3}"><strong>{text(run.status)}</strong>: {text(run.reason)}</td>'
            )
        body.append(f'<tr><th scope="row">{text(entries[0])}</th>{cells}</tr>')
    lines = "\n".join(body)
    hint = f"The table has {len(heads)} columns: scroll it sideways to see them all."
    content = f"""<p class="sideways-hint soft">{hint}</p>
<div class="scroll sideways across-page" tabindex="0" role="region" aria-label="Table of runs"><table class="dense">
<thead><tr>{head}</tr></thead>
<tbody>
{lines}
</tbody></table></div>
<script>
{asset("sideways.js")}</script>"""
    return Part("table", "All runs", content)


def _breakable(entry: str) -> str:
    """Text that may be divided where a column is narrow: long words of the heads, and lists of protections."""
    shown = text(entry)
    for word, parts in (
        ("destination", "desti&shy;nation"),
        ("reconstruction", "recon&shy;struction"),
        ("distribution", "distri&shy;bution"),
        ("suppressed", "sup&shy;pressed"),
        ("+", "+<wbr>"),
    ):
        shown = shown.replace(word, parts)
    return shown


def _number_class(column: int) -> str:
    return ' class="number"' if column in (1,) or column > 2 else ""


def _charts_part(runs: Sequence[Run]) -> Part:
    drawings = []
    protections = _distinct(run.protection for run in runs)
    for protection in protections:
        here = [run for run in runs if run.protection == protection]
        steps = sorted({run.k for run in here})
        if len(protections) > 1:
            drawings.append(f'<h3 class="across">Protecting {text(protection)}</h3>')
        for key, title, note, log in _CHARTS:
            lines = [
                Line(method, tuple((float(run.k), _value(run, key)) for run in here if run.method == method))
                for method in _distinct(run.method for run in here)
            ]
            chart = line_chart(lines, title=title, x_label="k", ticks=[float(s) for s in steps], log=log)
            drawings.append(chart_figure(title, note, chart))
    content = f'<div class="charts">{"".join(drawings)}</div>'
    missing = [run for run in runs if run.status != "done"]
    if missing:
        named = ", ".join(f"{run.method} at k = {run.k} protecting {run.protection} ({run.status})" for run in missing)
        content = f"<p>Not in the charts: {text(named)}.</p>{content}"
    return Part("charts", "What each k costs", content)


def _value(run: Run, key: str) -> float | None:
    value = run.seconds if key == "seconds" else run.measures.get(key)
    if value is None:
        return None
    return 100 * float(value) if key == "suppressed_share" else float(value)


def _frontier_part(comparison: Comparison) -> Part:
    """Error against suppression for each protection and k, with the runs that lie near."""
    drawings = []
    for frontier in comparison.frontiers:
        protection = "+".join(frontier.protect)
        marks = []
        for run in comparison.runs:
            share, error = run.measures.get("suppressed_share"), run.measures.get("mean_generalization_error")
            if (run.k, run.protect) == (frontier.k, frontier.protect) and share is not None and error:
                marks.append(Mark(run.method, float(share), float(error)))
        title = f"Error against suppression, k = {frontier.k}, protecting {protection}"
        drawings.append(
            frontier_figure(frontier.points, max_suppressed=comparison.max_suppressed, marks=marks, title=title)
        )
    content = f'<p>{text(EXPLANATION)}</p><div class="charts">{"".join(drawings)}</div>'
    return Part("frontier", "What suppressing more or less would give", content)


def _maps_part(runs: Sequence[Run]) -> Part | None:
    """Origins and destinations of every run, coloured by volume per km² on one scale for all."""
    shown = [run for run in runs if run.zones is not None and run.zones["lat"].null_count == 0]
    # The largest k is the hardest and shows the most where not all fit.
    while len(shown) * 2 > _MAX_MAPS:
        smallest = min(run.k for run in shown)
        fewer = [run for run in shown if run.k != smallest]
        if not fewer:
            shown = shown[: _MAX_MAPS // 2]
            break
        shown = fewer
    if not shown:
        return None
    basis = "weight" if all(run.basis == "weight" for run in shown) else "trips"
    layers, outlines = {}, []
    for i, run in enumerate(shown):
        for end in ENDS:
            layer, shapes = _layer(run, end, basis)
            layers[f"run{i}_{end}"] = layer
            outlines.append(shapes)
    frame, shapes = place_layers(layers, outlines)
    if frame is None:
        return None
    data = {
        "bases": [basis],
        "homogeneous": True,
        "frame": frame.to_dict(),
        "shapes": shapes,
        "layers": layers,
        "flows": {"origin": [], "destination": [], basis: []},
        "count": {"flows": 0},
        "grid": None,
    }
    content = [f"<p>Coloured by {basis} per km², the same colours for all. The maps move together.</p>"]
    content.append('<div class="legend sticky" data-scale="main"></div>')
    for protection, k in _distinct((run.protection, run.k) for run in shown):
        content.append(f"<h3>k = {k}, protecting {text(protection)}</h3>")
        for end in ENDS:
            content.append('<div class="maps small">')
            content += [
                map_figure(
                    f"run{i}_{end}", run.method, f"{number(len(layers[f'run{i}_{end}']['code']))} {end}s", hue=end
                )
                for i, run in enumerate(shown)
                if (run.protection, run.k) == (protection, k)
            ]
            content.append("</div>")
    return Part("maps", "Maps side by side", "\n".join(content), data)


def _layer(run: Run, end: str, basis: str) -> tuple[dict[str, Any], Any]:
    assert run.flows is not None
    assert run.zones is not None
    zones = run.zones.filter(pc.is_in(run.zones["role"], value_set=pa.array([end, "both"])))
    at = pc.index_in(run.flows[f"{end}_zone"], value_set=zones["zone"].combine_chunks()).to_numpy()
    volume = np.bincount(at, weights=run.flows[basis].to_numpy().astype(np.float64), minlength=len(zones))
    area = zones["area_km2"].to_numpy(zero_copy_only=False).astype(np.float64)
    order = np.lexsort((np.arange(len(zones)), -volume))[:_MAX_ZONES]
    order = order[np.lexsort((order, -np.nan_to_num(area[order])))]
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.nan_to_num(volume / area, posinf=0.0)[order]
    table = zones.take(pa.array(order))
    layer = {
        "code": table["zone"].to_pylist(),
        "lat": np.round(table["lat"].to_numpy(), 5).tolist(),
        "lon": np.round(table["lon"].to_numpy(), 5).tolist(),
        "values": [float(f"{v:.4g}") for v in density.tolist()],
        "title": f"{basis.capitalize()} per km²",
        "label": f"{end}s",
        "word": f"{basis} per km²",
        "hue": end,
        "scale": "main",
        "fixed": True,
        "overlap": not run.homogeneous,
    }
    return layer, np.asarray(shapely.from_wkb(table["geometry"].to_numpy(zero_copy_only=False)), dtype=object)
