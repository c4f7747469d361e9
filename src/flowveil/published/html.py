"""report.html, made from the published tables and the data of report.json, and from nothing else.

One page that opens offline by double click, for people who decide: maps, what is protected, what was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowveil.analysis.measures import MEASURES
from flowveil.analysis.measures.closeness import SPREAD
from flowveil.analysis.seen_areas import KILOMETRES
from flowveil.errors import ParameterError
from flowveil.guarantee import ALL_UNITS, UNITS
from flowveil.published.about import described, title
from flowveil.published.basemap_context import own_context
from flowveil.published.document import Part, fill, host, number, page, sensible
from flowveil.published.headline import left_out, sentence, sides
from flowveil.published.maps import ENDS, MAX_FLOWS, MAX_ZONES, Frame, map_of_release, map_of_views
from flowveil.published.noise import figures_of_noise, is_noisy, promise_of_noise, rows_of_noise
from flowveil.published.places import distance_in_words, share_known_within, typical_radius_m
from flowveil.published.sizes import BASES, distribution_part
from flowveil.published.slices import overview, short_number, slices_part
from flowveil.published.times import held_times, times_part
from flowveil.published.views import Views, limits, views_of
from flowveil.times import TIME_COLUMNS

if TYPE_CHECKING:
    from flowveil.published.user_outlines import Outline
    from flowveil.release.release import Release

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
    side_by_side: Release | None = None,
) -> str:
    """The page of a report; without another release it follows from report.json, the two tables and the outlines.

    Args:
        report: the data of report.json, see `flowveil.published.report.summarize`. Where it names a tile server
            (``basemap``), the reader is asked before anything is requested.
        flows: the published matrix; without the tables the page has no maps.
        zones: the published zones.
        outlines: those of context.geojson; see `flowveil.published.user_outlines`.
        compact: maps and measures alone, for a notebook.
        side_by_side: another release to show too. Never in a release folder.

    Returns:
        A whole HTML document. All text from outside is escaped.
    """
    parts = [protection_part(report), measures_part(report), parameters_part(report)]
    basemap = tile_server(report.get("basemap"))
    shown = flows
    if flows is not None and zones is not None:
        if report.get("slices"):
            shown = overview(flows, report["slice_columns"], report["parameters"]["slices"].get("every"))
        elif report["kind"] == "folded":
            shown = overview(flows, TIME_COLUMNS, None)
        most = _COMPACT_FLOWS if compact else None
        beside = side_by_side is not None
        parts.insert(0, maps_part(report, flows, zones, basemap, outlines, max_flows=most, common=not beside))
        parts.insert(2, distribution_part(report, flows, zones))
        if shown is not None and not is_noisy(report):
            parts.insert(1, utility_part(report, shown, zones))
        if side_by_side is not None:
            from flowveil.analysis.pages.two_releases import side_by_side_part

            data = dict(parts[0].map_data or {})
            parts.insert(1, side_by_side_part(report, side_by_side, data))
            parts[0] = replace(parts[0], map_data=data)
    if report.get("slices"):
        parts.insert(1, slices_part(report))
    if report["kind"] == "folded" and flows is not None and zones is not None:
        parts.insert(1, times_part(report, flows, zones))
    if compact:
        parts = [part for part in parts if part.name in ("maps", "measures")]
    return page(
        title=f"{title(report)} ({short_promise(report)})",
        heading=title(report),
        **top(report, shown, zones),
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


def top(report: Mapping[str, Any], flows: pa.Table | None = None, zones: pa.Table | None = None) -> dict[str, Any]:
    """What stands between the heading and the sections, for `flowveil.published.document.page`.

    Args:
        report: the data of report.json.
        flows, zones: the published tables; of slices, their sum.
    """
    kind = "zones that do not overlap" if report["homogeneous"] else "zones that may overlap"
    if report.get("boxes") is not None:
        kind = "boxes that overlap"
    protected, not_protected, rest = sides(report["statement"])
    return {
        "story": sentence(report, flows, zones),
        "about": described(report["about"]),
        "method": report["method"],
        "lead": f"{promise(report)}, {kind}, written by flowveil {report['version']}.",
        "notices": _notices(report),
        "sides": [("Protected", "good", protected), ("Not protected", "warn", not_protected)],
        # Not twice: a notice stands above.
        "to_read": [said for said in rest if said[0] != "Noisy"],
        "figures": _figures(report, flows, zones),
    }


def short_promise(report: Mapping[str, Any]) -> str:
    """The promise in one number, for the title of a page."""
    guarantee = report["guarantee"]
    if is_noisy(report):
        return f"ε = {guarantee['epsilon']:g}"
    return promise(report) if guarantee["k"] is None else f"k = {guarantee['k']}"


def promise(report: Mapping[str, Any]) -> str:
    """The guarantee in a few words. A population threshold that was given as a number is not called k, nor is l."""
    guarantee = report["guarantee"]
    if is_noisy(report):
        return promise_of_noise(guarantee)
    given = guarantee["k"] is None or report["parameters"].get("k_population") is not None
    units = [unit for unit in UNITS if unit in guarantee]
    held = [unit for unit in units if unit != "population" or not given]
    said = [f"k = {guarantee['k']} on {', '.join(held)}"] if held else []
    if given:
        said.append(f"a population of {number(guarantee['population'])}")
    if "locations" in guarantee:
        by = " by listed places" if report["parameters"].get("l_places") else ""
        said.append(f"l = {guarantee['locations']}{by}")
    return "; ".join(said)


def _notices(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader must know before anything else: that counts are noisy. What is not protected has a place beside."""
    heads = ("Noisy:", "Not protected: the list of zones")
    said = (line.partition(":") for line in report["statement"] if line.startswith(heads))
    return [(head, rest) for head, _, rest in said]


def _what_a_cell_is(report: Mapping[str, Any]) -> str:
    if report.get("kind") == "folded":
        return "pairs of zones, each in an interval of time"
    return "pairs of zones, of all slices" if report.get("slices") else "pairs of an origin and a destination zone"


def _figures(report: Mapping[str, Any], flows: pa.Table | None, zones: pa.Table | None) -> list[tuple[str, str, str]]:
    """The numbers that matter most: name, value, what it means."""
    if is_noisy(report):
        return [(name, number(value), note) for name, value, note in figures_of_noise(report)]
    basis = "weight" if "population" in report["guarantee"] and "weight" in report["measures"] else "trips"
    m = report["measures"][basis]
    distance, people = m.get("generalization_distance_m"), m.get("k_people")
    entries = [
        ("Published cells", number(m.get("n_cells")), _what_a_cell_is(report)),
        ("Origin zones", number(m.get("n_origin_zones")), "areas where trips start"),
        ("Destination zones", number(m.get("n_destination_zones")), "areas where trips end"),
        (
            "Smallest cell",
            f"{number(m.get('k_trips'))} trips",
            "how many people is not known" if people is None else f"fewest people in a cell: {people:,}",
        ),
        ("Suppressed", _measure(report, basis, "suppressed_share"), f"of the {basis}"),
    ]
    radius = None if flows is None or zones is None else typical_radius_m(flows, zones)
    if radius is not None:
        half = "radius of the zone of a typical trip end"
        entries.append(("Places known to about", distance_in_words(radius), half))
    if distance is not None:
        moved = "mean distance from an input tile to its zone, centre to centre"
        entries.append(("Moved beyond the input", distance_in_words(distance), moved))
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
    resolution, boxes = given if isinstance(given, int) else None, report.get("boxes") is not None
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
    if report["homogeneous"]:
        yield (
            "Their outlines overlap where those of the map do."
            if report["overlapping_outlines"]
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
    """The guarantee in numbers, and who else is hidden."""
    guarantee = report["guarantee"]
    heads, rows = ("Differential privacy", "value"), []
    if is_noisy(report):
        rows = [(name, number(value)) for name, value in rows_of_noise(guarantee)]
    else:
        heads = ("Every published cell has", "at least")
        rows = [(unit.title, _threshold(guarantee, name)) for name, unit in ALL_UNITS.items() if name in guarantee]
    content = fill(
        "protection.html",
        heads=heads,
        rows=rows,
        cross_check=[
            (UNITS[row["unit"]].title, row["protected"], [short_number(row[key]) for key in ("k", "cells_short")])
            for row in report.get("cross_check", ())
        ],
    )
    return Part("protection", "The guarantee", content)


def _threshold(guarantee: Mapping[str, Any], unit: str) -> str:
    """A threshold; where its number would disclose something it is not published, but what it is may be said."""
    if guarantee[unit] is None:
        return f"{number(guarantee['k'])} times the mean weight of a trip"
    return number(guarantee[unit])


def measures_part(report: Mapping[str, Any]) -> Part:
    """All measures, each with what it means."""
    content = fill(
        "measures.html",
        bases=[BASES.get(basis, basis) for basis in report["measures"]],
        rows=list(_measure_rows(report)),
        reason=(report.get("withheld") or {}).get("reason"),
        spread=[name.replace("_", " ") for name in SPREAD],
        closeness=list(_closeness_rows(report.get("closeness") or {})),
    )
    return Part("measures", "Measures", content)


def _closeness_rows(closeness: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The distribution of each distance over the zones of each end."""
    partners = {"origin": "destinations of origin zones", "destination": "origins of destination zones"}
    for role, distances in closeness.items():
        for name, unit in (("total_variation", "total variation"), ("metres", "metres")):
            if distances[name] is not None:
                yield f"{partners[role].capitalize()}, {unit}", [number(distances[name][key]) for key in SPREAD]


#: Radii, in metres, that planners ask for.
_RADII = (500, 1000, 2000, 5000)


def utility_part(report: Mapping[str, Any], flows: pa.Table, zones: pa.Table) -> Part:
    """What the numbers are good for, in a planner's words, from the published tables and the report."""
    shares = [(radius, share_known_within(flows, zones, radius)) for radius in _RADII]
    known = [
        (f"Both ends known within {distance_in_words(radius).replace('.0 ', ' ')}", f"{share:.0%}")
        for radius, share in shares
        if share is not None
    ]
    said = [f"{left_out(report).capitalize()}.", *_between_areas(report)]
    loss = report["measures"]["trips"].get("reconstruction_loss")
    if loss is not None:
        # Trips that are too many in one pair are missing in another: half of the sum of differences is misplaced.
        said.append(
            f"Spread evenly back over the tiles of the input, about {loss / 2:.0%} of the trips are in another pair of "
            "tiles than they were: for questions between single tiles these numbers are an estimate."
        )
    said.append("Between published zones the numbers are exact counts of the trips that are published.")
    return Part("utility", "What it is good for", fill("utility.html", known=known, said=said))


def _between_areas(report: Mapping[str, Any]) -> Iterator[str]:
    """What goes wrong between larger areas, the finest first."""
    in_cells = report["parameters"].get("resolution") is not None
    for number_of, entry in enumerate(report.get("between_areas") or (), start=1):
        level = entry["level"]
        areas = f"zones {'one level' if number_of == 1 else f'{number_of} levels'} above those of the input"
        if in_cells:
            across = f"about {KILOMETRES[level]} km across, " if level in KILOMETRES else ""
            areas = f"areas {across}of H3 resolution {level}"
        if entry["error"] is None:
            yield f"Added up between {areas}: how much goes wrong is withheld, because it would disclose single cells."
        else:
            yield (
                f"Added up between {areas}, about {entry['error']:.0%} of all trips are missing or counted between "
                "other areas."
            )


def parameters_part(report: Mapping[str, Any]) -> Part:
    """The command that makes the release again, and every parameter."""
    again = "Whoever holds the trips gets the same files, byte by byte, with"
    if is_noisy(report):
        again = "Whoever holds the trips makes another release like this, with noise of its own and at its own ε, with"
    rows: list[tuple[str, Any]] = [("method", report["method"]), *sorted(report["parameters"].items())]
    rows += [(f"suppression: {key}", value) for key, value in sorted(report["suppression"].items())]
    rows += [(f"note: {key}", value) for key, value in sorted(report["notes"].items())]
    rows = [(name, _value(value)) for name, value in rows]
    content = fill("parameters.html", command=report.get("command"), again=again, rows=rows)
    return Part("parameters", "Method and parameters", content)


def _measure_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    measures: Mapping[str, Mapping[str, Any]] = report["measures"]
    for key, measure in MEASURES.items():
        if not any(key in values for values in measures.values()):
            continue
        entries = [_measure(report, basis, key) for basis in measures]
        # Measures of classes of k mean nothing of noise; "not known" would say that there was something to know.
        if not (is_noisy(report) and set(entries) == {"not known"}):
            yield measure.title, measure.meaning, entries


def _measure(report: Mapping[str, Any], basis: str, key: str) -> str:
    """A share in per cent, everything else as a number, unless it is withheld."""
    if key in (report.get("withheld") or {}).get("measures", {}).get(basis, ()):
        return "withheld"
    value = report["measures"][basis].get(key)
    return f"{value:.1%}" if key == "suppressed_share" and value is not None else sensible(value)


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
