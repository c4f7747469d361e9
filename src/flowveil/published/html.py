"""report.html, made from the published tables and the data of report.json, and from nothing else.

One page that opens offline by double click, for people who decide: maps, what is protected, what was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowveil.errors import ParameterError
from flowveil.published.about import described, title
from flowveil.published.basemap_context import own_context
from flowveil.published.document import Part, fill, host, number, page
from flowveil.published.headline import missing, sentence, sides
from flowveil.published.maps import ENDS, MAX_FLOWS, MAX_ZONES, Frame, map_of_release, map_of_views
from flowveil.published.noise import figures_of_noise, is_noisy, promise_of_noise, rows_of_noise
from flowveil.published.places import distance_in_words
from flowveil.published.sentences import percent
from flowveil.published.sizes import distribution_part
from flowveil.published.slices import slices_part
from flowveil.published.times import held_times, times_part
from flowveil.published.units import TITLES, threshold_words
from flowveil.published.views import Views, limits, views_of

if TYPE_CHECKING:
    from flowveil.published.user_outlines import Outline

#: Tile server of the optional background map. It answers pages that were opened from a file; OpenStreetMap's own
#: wants to know the page that asks, and a file has no address.
BASEMAP = "https://basemaps.cartocdn.com/rastertiles/voyager/{z}/{x}/{y}.png"
#: An entry of the query of such an address: a key, or a word of the Web Map Tile Service.
_TILE_QUERY = (
    r"(?i:key|api_?key|(access_)?token|service|request|version|layer|style|format|tilematrix|tilematrixset|tilerow|tilecol)"
    r"=([A-Za-z0-9._~/:-]|\{[xyz]\}){0,128}"
)
#: Host, perhaps a port, then names of layers and a query: what addresses of tiles are made of, and nothing that could
#: end a word elsewhere.
_TILE_SERVER = re.compile(
    r"https://[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){0,8}(:[0-9]{1,5})?"
    r"(/([A-Za-z0-9._~-]|@[1-4]x|\{[xyz]\}){1,64}){1,9}"
    rf"(\?{_TILE_QUERY}(&{_TILE_QUERY}){{0,15}})?"
)

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
    outlines: Sequence[Outline] = (),
    compact: bool = False,
) -> str:
    """Returns the page of a release: a function of report.json, the two tables and the outlines.

    Args:
        report: the content of report.json. Where it names a tile server, the reader is asked before any request.
        flows: the published matrices; without the tables the page has no maps.
        zones: the published zones.
        outlines: those of context.geojson; see `flowveil.published.user_outlines`.
        compact: maps and figures alone, for a notebook.

    Returns:
        A whole HTML document. All text from outside is escaped.
    """
    parts = [protection_part(report), parameters_part(report)]
    basemap = tile_server(report["statement"]["basemap"])
    if flows is not None and zones is not None:
        most = _COMPACT_FLOWS if compact else None
        shown = [maps_part(report, flows, zones, basemap, outlines, max_flows=most)]
        if report["kind"] == "folded":
            shown.append(times_part(report, flows, zones))
        if report["statement"]["slice_columns"]:
            shown.append(slices_part(report))
        if not is_noisy(report):
            shown.append(utility_part(report))
        parts = [*shown, distribution_part(report, flows, zones), *parts]
    if compact:
        parts = [part for part in parts if part.name in ("maps", "utility")]
    return page(
        title=f"{title(report)} ({short_promise(report)})",
        heading=title(report),
        **top(report),
        parts=parts,
        footer=_FOOTER,
        basemap=basemap,
        compact=compact,
    )


def tile_server(given: str | None) -> str | None:
    """The address of the background map: None, the usual one for ``default``, or the one given.

    The host becomes part of the page's security policy, where a blank, a semicolon or a quotation mark would add a
    rule. So the address is made of the plain signs of addresses, without a user's name, and nothing else.

    Raises:
        ParameterError: it is not an https address with ``{z}``, ``{x}`` and ``{y}``, or has other signs.
    """
    if given is None:
        return None
    url = BASEMAP if given == "default" else given
    if not _TILE_SERVER.fullmatch(url) or any(part not in url for part in ("{z}", "{x}", "{y}")):
        raise ParameterError(
            "The background map needs the https address of a tile server with {z}, {x} and {y} in it, a plain host "
            "and port, no name or password, no blanks, quotation marks or semicolons, and in its query a key or words "
            "of the Web Map Tile Service; "
            f"found '{given}'. Hint: leave the address out for the usual one."
        )
    return url


# ---- the top -----------------------------------------------------------------------------------------------------


def top(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is shown between the heading and the sections, for `flowveil.published.document.page`."""
    statement = report["statement"]
    kind = "zones that do not overlap" if statement["homogeneous"] else "zones that may overlap"
    if statement["boxes"] is not None:
        kind = "boxes that overlap"
    protected, not_protected, rest = sides(report["published"]["sentences"])
    return {
        "story": sentence(report),
        "about": described(statement["about"]),
        "method": report["method"],
        "lead": f"{promise(report)}, {kind}, written by flowveil {report['version']}.",
        "notices": _notices(report),
        "sides": [("Protected", "good", protected), ("Not protected", "warn", not_protected)],
        # Shown as a notice above.
        "to_read": [line for line in rest if line[0] != "Noisy"],
        "figures": _figures(report),
    }


def short_promise(report: Mapping[str, Any]) -> str:
    """The promise in one number, for the title of a page."""
    guarantee = report["guarantee"]
    if is_noisy(report):
        return f"ε = {guarantee['epsilon']:g}"
    return promise(report) if guarantee["k"] is None else f"k = {guarantee['k']}"


def promise(report: Mapping[str, Any]) -> str:
    """Returns the guarantee in a few words. A population given as a number is not called k, nor is l."""
    guarantee = report["guarantee"]
    if is_noisy(report):
        return promise_of_noise(guarantee)
    given = guarantee.get("population") is not None
    by_k = [
        unit for unit in ("trips", "people", "population") if unit in guarantee and not (unit == "population" and given)
    ]
    words = [f"k = {guarantee['k']} on {', '.join(by_k)}"] if by_k else []
    if given:
        words.append(f"a population of {number(guarantee['population'])}")
    if "locations" in guarantee:
        by = " by listed places" if report["parameters"].get("l_places") else ""
        words.append(f"l = {guarantee['locations']}{by}")
    return "; ".join(words)


def _notices(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader must know before anything else: that counts are noisy. What is not protected has a place beside."""
    heads = ("Noisy:", "Not protected: the list of zones")
    lines = (line.partition(":") for line in report["published"]["sentences"] if line.startswith(heads))
    return [(head, rest) for head, _, rest in lines]


def _what_a_cell_is(report: Mapping[str, Any]) -> str:
    if report["kind"] == "folded":
        return "pairs of zones, each in an interval of time"
    return (
        "pairs of zones, of all slices"
        if report["statement"]["slice_columns"]
        else "pairs of an origin and a destination zone"
    )


def _figures(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the figures that matter most: name, value, meaning."""
    if is_noisy(report):
        return [(name, number(value), note) for name, value, note in figures_of_noise(report)]
    published, shares = report["published"], report["statement"]["shares"]
    entries = [
        ("Published cells", number(published["cells"]), _what_a_cell_is(report)),
        ("Origin zones", number(published["origin_zones"]), "areas where trips start"),
        ("Destination zones", number(published["destination_zones"]), "areas where trips end"),
        ("Smallest cell", f"{number(published['smallest_cell'])} trips", "of all published cells"),
    ]
    if shares is not None:
        entries.append(("Suppressed", percent(shares["suppressed"]), f"of the {shares['basis']} of the input"))
        entries.append(("Dropped", percent(shares["dropped"]), "of the input could not be read"))
    if published["typical_radius_m"] is not None:
        radius = distance_in_words(published["typical_radius_m"])
        entries.append(("One end known to about", radius, "radius of the zone of a typical trip end"))
    both = published["both_ends_within_m"]["1000"]
    if both is not None:
        entries.append(("Both ends within 1 km", f"{both:.0%}", "of the published trips"))
    return entries


# ---- maps --------------------------------------------------------------------------------------------------------


def maps_part(
    report: Mapping[str, Any],
    flows: pa.Table,
    zones: pa.Table,
    basemap: str | None,
    outlines: Sequence[Outline] = (),
    *,
    max_flows: int | None = None,
    common: bool = True,
) -> Part:
    """The maps, what can be done with them, and the same numbers as tables.

    Args:
        report, flows, zones: what is published.
        basemap: address of a tile server, if any.
        outlines: what the publisher brought for orientation.
        max_flows: most flows to hold.
        common: whether zones that overlap are shown on common areas first; other parts of a page may need the zones.
    """
    views = views_of(report, flows, zones, common=common)
    view = _drawn(report, views, zones, max_flows)
    if is_noisy(report):
        view["missing"] = "none, or too few after the noise"
    # Across the 180th meridian nothing lies around the zones.
    if outlines and view["context"] is not None:
        placed = view["frame"]
        view["context"] |= own_context(outlines, Frame(placed["west"], placed["north"], placed["perUnit"]))
    if basemap:
        view["background"] = {"url": basemap, "maxZoom": 19}
    most = min(500, max(len(held["flows"]["origin"]) for held in (view, *view.get("views", {}).get("list", ()))))
    content = fill(
        "maps.html",
        view=view,
        drawn=view["frame"] is not None,
        introduction=list(_introduction(report, view)),
        colours=_colours(view),
        named=any("name" in view["layers"][end] for end in ENDS),
        most=most,
        shown=min(200, most),
        server=host(basemap) if basemap else None,
    )
    return Part("maps", "Maps", content, view)


def _drawn(report: Mapping[str, Any], views: Views, zones: pa.Table, max_flows: int | None) -> dict[str, Any]:
    """What the page's script draws."""
    given = report["parameters"].get("resolution")
    resolution, boxes = given if isinstance(given, int) else None, report["statement"]["boxes"] is not None
    own = views.own
    if not views.further:
        most: dict[str, Any] = {} if max_flows is None else {"max_flows": max_flows}
        view = map_of_release(
            own.flows, own.zones, resolution=resolution, homogeneous=own.homogeneous, boxes=boxes, **most
        )
        return view if own.times is None else {**view, "times": held_times(own.times, view["layers"], view["flows"])}
    most = {"max_flows": MAX_FLOWS, "max_zones": MAX_ZONES, **limits(views, max_flows)}
    view = map_of_views(own, views.further, zones, resolution=resolution, boxes=boxes, **most)
    view["views"] |= views.said
    for listed, further in zip(view["views"]["list"], views.further, strict=True):
        if further.times is not None:
            codes = {end: {"code": [view["areas"]["code"][z] for z in listed[end]["zone"]]} for end in ENDS}
            listed["times"] = held_times(further.times, codes, listed["flows"])
    return view if views.slices is None else {**view, "slices": views.slices}


def _introduction(report: Mapping[str, Any], view: Mapping[str, Any]) -> Iterator[str]:
    if view["frame"] is None:
        yield "The zones of this release have no place on a map; the tables below list them."
        return
    slices = view.get("slices")
    if slices is not None:
        yield "Each slice is a matrix of its own; the maps show one at a time."
        if len(slices["keys"]) < slices["count"]:
            yield f"The page holds {number(len(slices['keys']))} of {number(slices['count'])} slices."
    if view.get("views", {}).get("kind") == "nested":
        yield "The maps begin with common areas; choose the zones as published to see those. The larger a published"
        yield "zone is, the coarser the place is known. Click an area or a zone to see where its trips go or come from."
    else:
        yield "Each shape is a published zone: the larger it is, the coarser the place is known."
        yield "Click a zone to see where its trips go or come from."
    if report["statement"]["homogeneous"]:
        yield (
            "Their outlines overlap where those of the map do."
            if report["published"]["overlapping_outlines"]
            else ("Zones of a slice do not overlap." if slices else "Zones do not overlap.")
        )
    else:
        yield "Published zones may overlap: small ones are drawn on top of large ones, and another click at the same"
        yield "place selects the next larger one."
    if view["grid"]:
        yield f"The faint grid is every hexagon of H3 resolution {view['grid']['resolution']} that a"
        yield "box touches;" if view["boxes"] else "zone could hold;"
        yield "it does not reveal where trips were seen."
    held = {"flows": len(view["flows"]["origin"]), **{end: len(view["layers"][end]["code"]) for end in ENDS}}
    for name, n in held.items():
        if n < view["count"][name]:
            what = "flows" if name == "flows" else f"{name} zones"
            yield f"The page holds the {number(n)} largest of {number(view['count'][name])} {what}."


#: The first is what a page begins with: zones differ in size, and a large one has more trips for that alone.
_COLOURS = (
    ("density", "volume per km²"),
    ("volume", "volume"),
    ("tiles", "size (possible tiles in the zone)"),
    ("level", "level (resolution)"),
)


def _colours(view: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Boxes are not nodes of a tree: they have no level. How many tiles there could be is not always known."""
    unknown = {"level"} if view["boxes"] else set()
    if any(None in view["layers"][end]["tiles"] for end in ENDS):
        unknown.add("tiles")
    return [colour for colour in _COLOURS if colour[0] not in unknown]


# ---- text --------------------------------------------------------------------------------------------------------


def protection_part(report: Mapping[str, Any]) -> Part:
    """The guarantee in numbers."""
    guarantee = report["guarantee"]
    if is_noisy(report):
        heads = ("Differential privacy", "value")
        rows = [(name, number(value)) for name, value in rows_of_noise(guarantee)]
    else:
        heads = ("Every published cell has", "at least")
        rows = [(text, _threshold(guarantee, unit)) for unit, text in TITLES.items() if unit in guarantee]
    return Part("protection", "The guarantee", fill("protection.html", heads=heads, rows=rows))


def _threshold(guarantee: Mapping[str, Any], unit: str) -> str:
    return threshold_words(unit, guarantee) if guarantee[unit] is None else number(guarantee[unit])


def utility_part(report: Mapping[str, Any]) -> Part:
    """How precise and how complete the numbers are, from the published tables and the statement."""
    known = [
        (f"Both ends known within {distance_in_words(float(metres)).replace('.0 ', ' ')}", f"{share:.0%}")
        for metres, share in sorted(report["published"]["both_ends_within_m"].items(), key=lambda one: float(one[0]))
        if share is not None
    ]
    lines = [f"{missing(report).capitalize()}."] if report["statement"]["shares"] is not None else []
    lines.append("Between published zones the numbers are exact counts of the trips that are published.")
    return Part("utility", "How precise, and what is missing", fill("utility.html", known=known, lines=lines))


def parameters_part(report: Mapping[str, Any]) -> Part:
    """The command that makes the release again, and every parameter."""
    again = "With the same trips, this command makes the same files, byte by byte:"
    if is_noisy(report):
        again = "With the same trips, this command makes another release like this, with new noise and at its own ε:"
    rows: list[tuple[str, Any]] = [("method", report["method"]), *sorted(report["parameters"].items())]
    rows += [(f"suppression: {key}", value) for key, value in sorted(report["statement"]["suppression"].items())]
    content = fill(
        "parameters.html",
        command=report["published"]["command"],
        again=again,
        rows=[(name, _value(value)) for name, value in rows],
    )
    return Part("parameters", "Method and parameters", content)


def _value(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_value(v) for v in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) or "none"
    return str(value)
