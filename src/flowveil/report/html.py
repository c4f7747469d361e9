"""report.html, made from the published tables and the data of report.json, and from nothing else.

One page that opens offline by double click, for people who decide: maps, what is protected, what was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.errors import ParameterError
from flowveil.guarantee import ALL_UNITS, UNITS
from flowveil.measures import MEASURES
from flowveil.report.charts import bar_chart, count_histogram, share_bar, size_histogram
from flowveil.report.document import (
    Part,
    asset,
    chart_figure,
    figure_cards,
    host,
    map_figure,
    number,
    page,
    text,
)
from flowveil.report.maps import ENDS, map_of_release
from flowveil.report.noise import figures_of_noise, promise_of_noise, rows_of_noise
from flowveil.report.slices import overview
from flowveil.report.tables import cross_check_table, slices_section

if TYPE_CHECKING:
    from flowveil.release.release import Release

_BASES = {"trips": "by trips", "weight": "by weight"}

#: Tile server of the optional background map. It answers pages that were opened from a file; OpenStreetMap's own
#: wants to know the page that asks, and a file has no address.
BASEMAP = "https://basemaps.cartocdn.com/rastertiles/voyager/{z}/{x}/{y}.png"
#: Host, perhaps a port, then a path and a query without anything that could end a word elsewhere.
_TILE_SERVER = re.compile(
    r"https://[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*(:[0-9]{1,5})?/[A-Za-z0-9._~/%?&=+,:@{}-]*"
)
_ATTRIBUTION = "Background map © OpenStreetMap contributors, © CARTO."

#: Flows that a notebook's page holds: it is saved with the notebook.
_COMPACT_FLOWS = 3_000

_FOOTER = (
    "The numbers of this page are those of report.json, flows.parquet and zones.parquet; "
    "manifest.json holds the SHA-256 of each file."
)


def render(
    report: Mapping[str, Any],
    flows: pa.Table | None = None,
    zones: pa.Table | None = None,
    *,
    compact: bool = False,
    beside: Release | None = None,
) -> str:
    """The page of a report; without ``beside`` it follows from the data of report.json and the two tables alone.

    Args:
        report: the data of report.json, see `flowveil.report.summary.summarize`. Where it names a tile server
            (``basemap``), the reader is asked before anything is requested.
        flows: the published matrix; without the tables the page has no maps. Of several slices, the maps show the sum.
        zones: the published zones.
        compact: maps and measures alone, for a notebook.
        beside: another release to show beside it; see `flowveil.report.side_by_side`. Never in a release folder.

    Returns:
        A whole HTML document. All text from outside is escaped.
    """
    parts = [protection_part(report), measures_part(report), parameters_part(report)]
    basemap = tile_server(report.get("basemap"))
    if flows is not None and zones is not None:
        shown = overview(flows, report) if report.get("slices") else flows
        most = _COMPACT_FLOWS if compact else None
        parts.insert(0, maps_part(_as_mapped(report), shown, zones, basemap, max_flows=most))
        parts.insert(2, distribution_part(report, flows, zones))
        if beside is not None:
            from flowveil.report.side_by_side import beside_part

            data = dict(parts[0].map_data or {})
            parts.insert(1, beside_part(report, beside, data))
            parts[0] = replace(parts[0], map_data=data)
    if report.get("slices"):
        parts.insert(1, Part("slices", "Slices", slices_section(report)))
    if compact:
        parts = [part for part in parts if part.name in ("maps", "measures")]
    return page(
        title=f"Release report: {report['method']}, {short_promise(report)}",
        heading=f"Origin-destination matrix, {promise(report)}",
        lead=lead(report),
        notice=notice(report),
        figures=figures(report),
        parts=parts,
        footer=_FOOTER,
        basemap=basemap,
        compact=compact,
    )


def _as_mapped(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The report as the maps need it: zones of different slices overlap unless they are shared."""
    slices = report["parameters"].get("slices")
    shared = slices is None or slices.get("common_zones") is True
    return {**report, "homogeneous": report["homogeneous"] and shared}


def tile_server(given: str | None) -> str | None:
    """The address of the background map: None, the usual one for ``default``, or the one given.

    The host becomes part of the page's security policy, where a blank, a semicolon or a quotation mark would add a
    rule. So the address is made of the plain signs of addresses, without a user's name, and nothing else.

    Raises:
        ParameterError: it is no https address with ``{z}``, ``{x}`` and ``{y}``, or has other signs.
    """
    if given is None:
        return None
    url = BASEMAP if given == "default" else given
    if not _TILE_SERVER.fullmatch(url) or any(part not in url for part in ("{z}", "{x}", "{y}")):
        raise ParameterError(
            "The background map needs the https address of a tile server with {z}, {x} and {y} in it, a plain host "
            "and port, no name or password, no blanks, quotation marks or semicolons; "
            f"found '{given}'. Hint: leave the address out for the usual one."
        )
    return url


# ---- the top -----------------------------------------------------------------------------------------------------


def _is_noisy(guarantee: Mapping[str, Any]) -> bool:
    """Whether differential privacy is promised, and no smallest cell."""
    return "epsilon" in guarantee


def short_promise(report: Mapping[str, Any]) -> str:
    """The promise in one number, for the title of a page."""
    guarantee = report["guarantee"]
    if _is_noisy(guarantee):
        return f"ε = {guarantee['epsilon']:g}"
    return promise(report) if guarantee["k"] is None else f"k = {guarantee['k']}"


def promise(report: Mapping[str, Any]) -> str:
    """The guarantee in a few words. A population threshold that was given as a number is not called k, nor is l."""
    guarantee = report["guarantee"]
    if _is_noisy(guarantee):
        return promise_of_noise(guarantee)
    given = guarantee["k"] is None or report["parameters"].get("k_population") is not None
    units = [unit for unit in UNITS if unit in guarantee]
    held = [unit for unit in units if unit != "population" or not given]
    said = [f"k = {guarantee['k']} on {', '.join(held)}"] if held else []
    if given:
        said.append(f"a population of {number(guarantee['population'])}")
    if "locations" in guarantee:
        said.append(f"l = {guarantee['locations']}")
    return "; ".join(said)


def lead(report: Mapping[str, Any]) -> str:
    """The line below the heading."""
    zones = "zones that do not overlap" if report["homogeneous"] else "zones that may overlap"
    if report.get("boxes") is not None:
        zones = "boxes that overlap"
    method, version = text(report["method"]), text(report["version"])
    return f"Method <strong>{method}</strong>, {zones}, written by flowveil {version}."


def notice(report: Mapping[str, Any]) -> str:
    """What a reader must know before anything else: whether people are protected, and whether counts are noisy."""
    heads = ("Not protected: people", "Not protected: participants", "Not protected: the list of zones", "Noisy:")
    said = (line.partition(":") for line in report["statement"] if line.startswith(heads))
    return "".join(f'<p class="notice"><strong>{text(head)}:</strong>{text(line)}</p>' for head, _, line in said)


def figures(report: Mapping[str, Any]) -> str:
    """The numbers that matter most."""
    basis = "weight" if "population" in report["guarantee"] and "weight" in report["measures"] else "trips"
    m = report["measures"][basis]
    if _is_noisy(report["guarantee"]):
        return figure_cards([(name, number(value), note) for name, value, note in figures_of_noise(report)])
    hidden = (report.get("withheld") or {}).get("measures", {}).get(basis, ())
    share, distance, people = m.get("suppressed_share"), m.get("generalization_distance_m"), m.get("k_people")
    suppressed = "withheld" if "suppressed_share" in hidden else "not known" if share is None else f"{share:.2%}"
    entries = [
        ("Published cells", number(m.get("n_cells")), "pairs of an origin and a destination zone"),
        ("Origin zones", number(m.get("n_origin_zones")), "areas where trips start"),
        ("Destination zones", number(m.get("n_destination_zones")), "areas where trips end"),
        (
            "Smallest cell",
            f"{number(m.get('k_trips'))} trips",
            "how many people is not known" if people is None else f"fewest people in a cell: {people:,}",
        ),
        ("Suppressed", suppressed, f"of the {basis}"),
    ]
    if distance is not None:
        far = f"{distance:,.0f} m" if distance < 10_000 else f"{distance / 1000:,.0f} km"
        entries.append(("Trip ends moved by", far, "on average, to the centre of their zone"))
    return figure_cards(entries)


# ---- maps --------------------------------------------------------------------------------------------------------


def maps_part(
    report: Mapping[str, Any], flows: pa.Table, zones: pa.Table, basemap: str | None, *, max_flows: int | None = None
) -> Part:
    """The maps, what can be done with them, and the same numbers as tables."""
    resolution = report["parameters"].get("resolution")
    view = map_of_release(
        flows,
        zones,
        resolution=resolution if isinstance(resolution, int) else None,
        homogeneous=report["homogeneous"],
        boxes=report.get("boxes") is not None,
        **({} if max_flows is None else {"max_flows": max_flows}),
    )
    if basemap:
        view["background"] = {"url": basemap, "maxZoom": 19}
    drawn = view["frame"] is not None
    content = [_introduction(report, view), _tools(view, basemap)]
    if drawn:
        content += [
            '<div class="maps">',
            map_figure("origin", "Where trips start", "origin zones", hue="origin"),
            map_figure("destination", "Where trips end", "destination zones", hue="destination"),
            '</div><div class="legend" data-scale="main"></div>',
        ]
    content.append('<div class="selected" id="selected" role="status" aria-live="polite"></div>')
    if drawn:
        content += [
            '<h3>Flows between the zones</h3><div class="maps">',
            map_figure("flows", "The largest flows", '<span class="shown"></span>', wide=True),
            '</div><div class="legend"><span class="arc-key">from <i aria-hidden="true"></i> to</span>',
            "<span>wider lines carry more; a disc is a flow that starts and ends in the same zone</span></div>",
        ]
    volumes = "".join(f'<th scope="col" class="number">{basis.capitalize()}</th>' for basis in view["bases"])
    content.append(Template(asset("tables.html")).substitute(volumes=volumes, level=_level_head(view)))
    return Part("maps", "Maps", "\n".join(content), view)


def _level_head(view: Mapping[str, Any]) -> str:
    return "" if view["boxes"] else '<th scope="col" class="number">Level</th>'


def _introduction(report: Mapping[str, Any], view: Mapping[str, Any]) -> str:
    if view["frame"] is None:
        return "<p>The zones of this release have no place on a map; the tables below list them.</p>"
    said = [
        "Each shape is a published zone: the larger it is, the coarser the place is known.",
        "Click a zone to see where its trips go or come from.",
        "Zones do not overlap."
        if report["homogeneous"]
        else "Zones may overlap: small ones are drawn on top of large ones, and another click at the same place "
        "selects the next larger one.",
    ]
    if view["grid"]:
        said.append(
            f"The faint grid is every hexagon of H3 resolution {view['grid']['resolution']} that a "
            f"{'box touches' if view['boxes'] else 'zone could hold'}; "
            "it does not tell where trips were seen."
        )
    held = {"flows": len(view["flows"]["origin"]), **{end: len(view["layers"][end]["code"]) for end in ENDS}}
    said += [
        f"The page holds the {number(n)} largest of {number(view['count'][name])} "
        + ("flows." if name == "flows" else f"{name} zones.")
        for name, n in held.items()
        if n < view["count"][name]
    ]
    return f"<p>{' '.join(said)}</p>"


_COLOURS = (
    ("volume", "volume"),
    ("density", "volume per km²"),
    ("tiles", "size (possible tiles in the zone)"),
    ("level", "level (resolution)"),
)
_END_OPTIONS = '<option value="origin">origin</option><option value="destination">destination</option>'


def _tools(view: Mapping[str, Any], basemap: str | None) -> str:
    drawn = view["frame"] is not None
    parts = ['<form class="tools" onsubmit="return false" aria-label="What the maps show">']
    if drawn:
        # Boxes are not nodes of a tree: they have no level. How many tiles there could be is not always known.
        unknown = {"level"} if view["boxes"] else set()
        if any(None in view["layers"][end]["tiles"] for end in ENDS):
            unknown.add("tiles")
        colours = [c for c in _COLOURS if c[0] not in unknown]
        parts.append(f'<label>Colour zones by<select id="colour">{_options(colours)}</select></label>')
    if len(view["bases"]) > 1:
        parts.append(f'<label>Count<select id="basis">{_options((b, b) for b in view["bases"])}</select></label>')
    if drawn:
        most = min(500, len(view["flows"]["origin"]))
        shown = min(200, most)
        parts.append(
            f'<label><span>Flows drawn: <b id="lines-shown">{shown}</b></span>'
            f'<input type="range" id="lines" min="0" max="{most}" value="{shown}"></label>'
        )
    parts.append(
        '<div class="field"><span id="find-label">Find a zone by its code</span><span class="row">'
        f'<select id="find-end" aria-label="Origin or destination">{_END_OPTIONS}</select>'
        '<input id="find" size="17" autocomplete="off" spellcheck="false" aria-labelledby="find-label"></span></div>'
    )
    if drawn and view["grid"]:
        parts.append('<label class="check"><input type="checkbox" id="grid" checked>Grid</label>')
    if drawn and basemap:
        parts.append(
            '<label class="check"><input type="checkbox" id="background">'
            f"Background map (asks {text(host(basemap))}, which learns the area you look at)</label>"
        )
    parts.append('<button type="button" id="clear" disabled>Clear selection</button></form>')
    if drawn and basemap:
        parts.append(f'<p class="soft" id="attribution" hidden>{_ATTRIBUTION}</p>')
    return "\n".join(parts)


def _options(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<option value="{text(value)}">{text(name)}</option>' for value, name in pairs)


# ---- how full, how large -----------------------------------------------------------------------------------------


def distribution_part(report: Mapping[str, Any], flows: pa.Table, zones: pa.Table) -> Part:
    """Cell sizes against k, volume kept and suppressed, zone sizes."""
    drawings = [
        _cell_sizes(report["guarantee"], flows, basis) for basis in ("trips", "weight") if basis in flows.column_names
    ]
    if not _is_noisy(report["guarantee"]):
        drawings.append(_kept(report))
    for end in ENDS:
        listed = zones.filter(pc.is_in(zones["role"], value_set=pa.array([end, "both"])))
        if listed["tiles"].null_count:
            # How many tiles a zone could hold is not always known.
            continue
        title = f"Sizes of {end} zones"
        chart = bar_chart(count_histogram(listed["tiles"].to_numpy()), title=title, label="possible tiles in the zone")
        caption = "How many zones could hold how many tiles, seen or not; the fewer, the finer."
        drawings.append(chart_figure(title, caption, chart))
    return Part(
        "sizes", "How full the cells are, how large the zones", f'<div class="charts">{"".join(drawings)}</div>'
    )


def _cell_sizes(guarantee: Mapping[str, Any], flows: pa.Table, basis: str) -> str:
    if _is_noisy(guarantee):
        return _noisy_sizes(guarantee, flows)
    threshold = guarantee.get("trips" if basis == "trips" else "population")
    if threshold is None and basis == "trips":
        # k different people make at least k trips.
        threshold = guarantee.get("people")
    name = f"k = {threshold}" if basis == "trips" else f"threshold {number(threshold)}"
    bars = size_histogram(flows[basis].to_numpy().astype(np.float64), threshold=threshold, name=name)
    note = "No published cell is left of the line."
    if basis == "weight" and "population" in guarantee and threshold is None:
        note = "Every cell reaches the threshold, whose number is withheld."
    elif threshold is None:
        note = f"By {basis}, nothing is promised in this release."
    elif any(bars.short):
        note = "Cells left of the line are short in this unit."
    title = f"Cell sizes, {_BASES[basis]}"
    chart = bar_chart(bars, title=title, label=f"{basis} in the cell")
    return chart_figure(title, f"How many cells hold how much. {note}", chart)


def _noisy_sizes(guarantee: Mapping[str, Any], flows: pa.Table) -> str:
    threshold = guarantee["threshold"]
    name = f"threshold {number(threshold)}"
    bars = size_histogram(flows["trips"].to_numpy().astype(np.float64), threshold=threshold, name=name)
    title = "Noisy counts"
    note = "Noise included: most small counts may be nothing else." if threshold is None else "Noise included."
    return chart_figure(
        title, f"How many pairs show how many trips. {note}", bar_chart(bars, title=title, label="trips of the pair")
    )


def _kept(report: Mapping[str, Any]) -> str:
    title = "Volume kept and suppressed"
    drawings = []
    for basis, values in report["measures"].items():
        share = values.get("suppressed_share")
        if share is not None:
            name = _BASES.get(basis, basis)
            drawings.append(f'<p class="soft">{text(name)}</p>' + share_bar(1 - share, title=f"{title}, {name}"))
    if not drawings:
        return chart_figure(title, "How much was suppressed is withheld, because it would tell single values.", "")
    return chart_figure(title, "The part of the input that is in a published cell.", "".join(drawings))


# ---- text --------------------------------------------------------------------------------------------------------


def protection_part(report: Mapping[str, Any]) -> Part:
    """What is and what is not protected, and the guarantee."""
    guarantee = report["guarantee"]
    said = "\n".join(_said(line) for line in report["statement"])
    noisy = _is_noisy(guarantee)
    if noisy:
        values = [(name, number(value)) for name, value in rows_of_noise(guarantee)]
    else:
        values = [(unit.title, _threshold(guarantee, name)) for name, unit in ALL_UNITS.items() if name in guarantee]
    rows = "\n".join(_row(text(name), [value]) for name, value in values)
    heads = ("Differential privacy", "value") if noisy else ("Every published cell has", "at least")
    content = f"""<ul class="statement">
{said}
</ul>
<h3>The guarantee</h3>
<table class="narrow">
<thead>
<tr><th scope="col">{heads[0]}</th><th scope="col" class="number">{heads[1]}</th></tr>
</thead>
<tbody>
{rows}
</tbody>
</table>
{cross_check_table(report.get("cross_check", ()))}"""
    return Part("protection", "What is and what is not protected", content)


def _threshold(guarantee: Mapping[str, Any], unit: str) -> str:
    """A threshold; where its number would tell something it is not published, but what it is may be said."""
    if guarantee[unit] is None:
        return f"{number(guarantee['k'])} times the mean weight of a trip"
    return number(guarantee[unit])


def measures_part(report: Mapping[str, Any]) -> Part:
    """All measures, each with what it means."""
    bases = "".join(f'<th scope="col" class="number">{text(_BASES.get(b, b))}</th>' for b in report["measures"])
    rows = "\n".join(_measure_rows(report))
    content = f"""{_withheld(report.get("withheld"))}
<div class="scroll">
<table class="measures">
<thead><tr><th scope="col">Measure</th>{bases}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""
    return Part("measures", "Measures", content)


def parameters_part(report: Mapping[str, Any]) -> Part:
    """The command that makes the release again, and every parameter."""
    again = ""
    if report.get("command"):
        same = "Whoever holds the trips gets the same files, byte by byte, with"
        if _is_noisy(report["guarantee"]):
            same = (
                "Whoever holds the trips makes another release like this, with noise of its own and at its own ε, with"
            )
        again = f"<p>{same}</p><pre><code>{text(report['command'])}</code></pre>"
    rows = "\n".join(_parameter_rows(report))
    content = f"""{again}
<div class="scroll">
<table>
<thead><tr><th scope="col">Name</th><th scope="col">Value</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""
    return Part("parameters", "Method and parameters", content)


def _said(line: str) -> str:
    head, colon, rest = line.partition(":")
    kind = {"Protected": "good", "Complete": "good", "Not protected": "warn", "Withheld": "warn"}.get(head, "")
    said = f"<strong>{text(head)}:</strong>{text(rest)}" if colon else text(line)
    return f'<li class="{kind}">{said}</li>' if kind else f"<li>{said}</li>"


def _withheld(withheld: Mapping[str, Any] | None) -> str:
    if not withheld:
        return ""
    return f"<p>Measures marked “withheld” are not published, because {text(withheld['reason'])}.</p>"


def _measure_rows(report: Mapping[str, Any]) -> Iterable[str]:
    measures: Mapping[str, Mapping[str, Any]] = report["measures"]
    hidden = (report.get("withheld") or {}).get("measures", {})
    for key, measure in MEASURES.items():
        if not any(key in values for values in measures.values()):
            continue
        if _is_noisy(report["guarantee"]) and not any(
            values.get(key) is not None or key in hidden.get(basis, ()) for basis, values in measures.items()
        ):
            # Measures of classes of k mean nothing here; "not known" would say that there was something to know.
            continue
        entries = [
            "withheld" if key in hidden.get(basis, ()) else _measure(key, values.get(key))
            for basis, values in measures.items()
        ]
        yield _row(f"{text(measure.title)}<small>{text(measure.meaning)}</small>", entries, measures)


def _measure(key: str, value: Any) -> str:
    """A share in per cent, as at the top of the page; everything else as a number."""
    return f"{value:.2%}" if key == "suppressed_share" and value is not None else number(value)


def _parameter_rows(report: Mapping[str, Any]) -> Iterable[str]:
    rows: list[tuple[str, Any]] = [("method", report["method"]), *sorted(report["parameters"].items())]
    rows += [(f"suppression: {key}", value) for key, value in sorted(report["suppression"].items())]
    rows += [(f"note: {key}", value) for key, value in sorted(report["notes"].items())]
    for name, value in rows:
        yield f'<tr><th scope="row">{text(name)}</th><td><code>{text(_value(value))}</code></td></tr>'


def _value(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_value(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} = {_value(v)}" for k, v in value.items())
    return str(value)


def _row(head: str, entries: Iterable[str], bases: Iterable[str] | None = None) -> str:
    named = [""] * 99 if bases is None else [f' data-basis="{text(_BASES.get(b, b))}"' for b in bases]
    numbers = "".join(f'<td class="number"{n}>{entry}</td>' for n, entry in zip(named, entries, strict=False))
    return f'<tr><th scope="row">{head}</th>{numbers}</tr>'
