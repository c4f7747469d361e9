"""report.html, made from the published tables and the data of report.json, and the page of a series
of releases.

One page that opens offline by double click: a map first, then what a reader asks of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import shapely

from flowveil.core.errors import ParameterError
from flowveil.core.unit_names import unit_words
from flowveil.published.about import described, title
from flowveil.published.answer import answer_data, finding, words_of_answer
from flowveil.published.answer import headline as to_headline
from flowveil.published.catalogue import schema_org
from flowveil.published.document import PagePart, fill, number, page
from flowveil.published.exports import parse_formats
from flowveil.published.flow_map import flow_map
from flowveil.published.language import DEFAULT
from flowveil.published.report import distance_in_words
from flowveil.published.sentences import (
    NOT_PEOPLE,
    guarantee_words,
    is_noisy,
    missing,
    promise_of_noise,
    rounded,
    sentence,
    sides,
)
from flowveil.published.zone_names import names_by_code
from flowveil.release.facets import Facets

if TYPE_CHECKING:
    from flowveil.published.estimate import Estimate
    from flowveil.published.user_outlines import Outline

#: Tile server of the optional background map. It answers pages that were opened from a file;
#: OpenStreetMap's own wants to know the page that asks, and a file has no address.
BASEMAP = "https://basemaps.cartocdn.com/rastertiles/voyager/{z}/{x}/{y}.png"
#: An entry of the query of such an address: a key, or a word of the Web Map Tile Service.
_TILE_QUERY = (
    r"(?i:key|api_?key|(access_)?token|service|request|version|layer|style|format|tilematrix|tilematrixset|tilerow|tilecol)"
    r"=([A-Za-z0-9._~/:-]|\{[xyz]\}){0,128}"
)
#: Host, perhaps a port, then names of layers and a query: what addresses of tiles are made of, and
#: nothing that could end a word elsewhere.
_TILE_SERVER = re.compile(
    r"https://[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){0,8}(:[0-9]{1,5})?"
    r"(/([A-Za-z0-9._~-]|@[1-4]x|\{[xyz]\}){1,64}){1,9}"
    rf"(\?{_TILE_QUERY}(&{_TILE_QUERY}){{0,15}})?"
)
#: What each file of a folder is for.
_FILES = {
    "flows.parquet": "the numbers: trips between zones",
    "zones.parquet": "the zones with their outlines (GeoParquet)",
    "estimate.parquet": "what the map shows: estimates between areas of one size, with ranges",
    "report.json": "everything that this page says, for programs, with all parameters",
    "lookup.csv": "which tiles of the publisher's map each zone holds",
    "context.geojson": "outlines for orientation",
    "manifest.json": "the SHA-256 of each file",
}


def render(
    report: Mapping[str, Any],
    flows: pa.Table | None = None,
    zones: pa.Table | None = None,
    *,
    estimate: Estimate | None = None,
    outlines: Sequence[Outline] = (),
    compact: bool = False,
) -> str:
    """Returns the page of a release: a function of report.json, the two tables and the outlines of
    context.geojson.

    Without the tables the page has no map; ``compact`` is the map alone, for a notebook. If the
    report names a tile server, readers decide before any request. All text from outside is escaped.
    """
    data = (
        None
        if flows is None or zones is None
        else flow_map(report, flows, zones, outlines=outlines)
    )
    heading = title(report, None if data is None else data["area"])
    headline = story = None
    language = report["statement"]["about"].get("language", DEFAULT)
    if data is not None and estimate is not None and zones is not None and data["frame"]:
        answer = answer_data(report, zones, estimate, outlines=outlines)
        answer |= words_of_answer(report, answer, heading, language)
        found = finding(answer, estimate)
        headline, story = (
            None if found is None else to_headline(answer, *found, language),
            answer["story"],
        )
        data["answer"] = {**answer, "headline": headline}
    basemap = tile_server(report["statement"]["basemap"])
    if data is not None:
        data["words"] = _map_words(report, heading)
        if basemap:
            data["background"] = {"url": basemap, "maxZoom": 19}
    answering = data is not None and "answer" in data
    about, again = report["statement"]["about"], "makes the same files, byte by byte:"
    if Facets.from_report(report).is_noisy:
        again = "makes another release like this, with new noise and at its own ε:"
    protected, not_protected, to_read = sides(report["published"]["sentences"])
    values = {
        "heading": headline or heading,
        "title": f"{heading} ({short_promise(report)})",
        "story": story or sentence(report),
        "language": language,
        # On a page that answers, what trips are not stands next to the answer.
        "notices": [] if answering else _notices(report),
        "data": data,
        "answering": answering,
        "server": urlsplit(basemap).netloc if basemap else None,
        "compact": compact,
        "about": described(
            {name: text for name, text in about.items() if name in ("source", "period")}
        ),
        "meaning": _meaning(report),
        "precision": _precision(report),
        "missing": _missing(report),
        "licence": about.get("licence"),
        "contact": about.get("contact"),
        "files": _files(report, estimated=estimate is not None),
        "sides": [("Protected", "good", protected), ("Not protected", "warn", not_protected)],
        "to_read": [line for line in to_read if line[0] not in ("Noisy", "Incomplete")],
        "method": report["method"],
        "promise": promise(report),
        "version": report["version"],
        "command": report["published"]["command"],
        "dataset": schema_org(report, zones),
        "again": f"With the same trips, this command {again}",
    }
    return str(fill("release.html", **values))


def tile_server(given: str | None) -> str | None:
    """Returns the address of the background map: None, the usual one for ``default``, or the one
    given.

    The host becomes part of the page's security policy, where a blank, a semicolon or a quotation
    mark would add a rule. So ParameterError refuses all but the plain signs of an https address
    with ``{z}``, ``{x}`` and ``{y}``.
    """
    if given is None:
        return None
    url = BASEMAP if given == "default" else given
    if not _TILE_SERVER.fullmatch(url) or any(part not in url for part in ("{z}", "{x}", "{y}")):
        raise ParameterError(
            "The background map needs the https address of a tile server with {z}, {x} and"
            " {y} in it, a plain host and port, no name or password, no blanks, quotation marks"
            " or semicolons, and in its query a key or words of the Web Map Tile Service; found"
            f" '{given}'. Hint: leave the address out for the usual one."
        )
    return url


def short_promise(report: Mapping[str, Any]) -> str:
    """Returns the guarantee as one number, for the title of a page."""
    guarantee = report["guarantee"]
    if is_noisy(report):
        return f"ε = {guarantee['epsilon']:g}"
    return promise(report) if guarantee["k"] is None else f"k = {guarantee['k']}"


def promise(report: Mapping[str, Any]) -> str:
    """Returns the guarantee in a few words.

    A population given as a number is not called k, nor is l.
    """
    guarantee = report["guarantee"]
    if is_noisy(report):
        return promise_of_noise(guarantee)
    given = guarantee.get("population") is not None
    by_k = [
        unit_words(unit, report["parameters"])
        for unit in ("trips", "people", *(() if given else ("population",)))
        if unit in guarantee
    ]
    words = [f"k = {guarantee['k']} on {', '.join(by_k)}"] if by_k else []
    if given:
        words.append(f"a population of {number(guarantee['population'])}")
    if "locations" in guarantee:
        by = " by listed places" if report["parameters"].get("l_places") else ""
        words.append(f"l = {guarantee['locations']}{by}")
    return "; ".join(words)


def _notices(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns what a reader must know before using a number.

    That counts are noisy, and what noise does not cover.
    """
    heads = ("Noisy:", "Not protected: the list of zones", *NOT_PEOPLE)
    lines = (
        line.partition(":") for line in report["published"]["sentences"] if line.startswith(heads)
    )
    return [(head, rest) for head, _, rest in lines]


def _map_words(report: Mapping[str, Any], heading: str) -> dict[str, Any]:
    """Returns the texts of the map and of pictures of it."""
    about, noisy = report["statement"]["about"], is_noisy(report)
    least = guarantee_words(report["guarantee"], report["parameters"])
    covered = promise(report) if noisy else f"Every number covers at least {least}"
    credits = [
        f"{name.capitalize()}: {about[name]}." for name in ("source", "licence") if name in about
    ]
    return {
        "title": heading,
        "missing": "none, or too few after the noise" if noisy else "none, or too few to publish",
        "picture": [
            f"{covered} ({short_promise(report)}).",
            *credits,
            "Map: flowveil, GeoNames, Natural Earth.",
        ],
    }


def _meaning(report: Mapping[str, Any]) -> list[str]:
    """Returns what a number is and how the map shows it."""
    columns, when, shown = report["statement"]["slice_columns"], "", []
    if Facets.from_report(report).folds:
        fold = report["parameters"].get("fold") or ()
        timed = (
            ["an interval of time"]
            if (report["parameters"].get("slices") or {}).get("fold_time")
            else []
        )
        when = f" in {' and '.join([*timed, *(f'a group of {name}' for name in fold)])}"
        shown = ["For one hour the map shows the mean per hour of the intervals that hold it."]
        if fold:
            shown = [
                "A group is a value or several values of an attribute. All cells together are"
                " everything. A group in the menu includes the groups below it; trips that are"
                " counted in larger groups are not among them."
            ]
    elif columns:
        when = f", for each {' and '.join(columns)}"
        shown = ["All slices together are their sum."]
    least = guarantee_words(report["guarantee"], report["parameters"])
    protection = (
        f"Every published number covers at least {least}; smaller ones were merged or suppressed."
    )
    if is_noisy(report):
        protection = (
            "Random noise was added to every number, so that single contributions cannot be found"
            " out."
        )
    return [
        f"A number counts the trips from one zone to another{when}.",
        protection,
        (
            "On the map a circle is a place, larger where more trips start and end. Zones that lie"
            " close together share a circle until you zoom in. An arrow is a flow, wider where"
            " there are more trips."
        ),
        *shown,
    ]


def _precision(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how precise places and numbers are.

    Shares of trips with both ends known, and sentences.
    """
    published, statement = report["published"], report["statement"]
    known = [
        (distance_in_words(float(metres)).replace(".0 ", " "), share)
        for metres, share in sorted(
            published["both_ends_within_m"].items(), key=lambda one: float(one[0])
        )
        if share is not None
    ]
    lines = []
    if published["typical_radius_m"] is not None:
        radius = distance_in_words(published["typical_radius_m"])
        lines.append(
            f"One end of a typical trip is known to about {radius}, the radius of its zone."
        )
    if is_noisy(report):
        noise = rounded(report["guarantee"]["deviation"], 2)
        lines.append(f"Every number has random noise with a standard deviation of {noise} trips.")
    else:
        lines.append("Numbers are exact counts of the published trips.")
    if statement["boxes"] is not None:
        lines.append("Zones are boxes, and boxes overlap; a trip is counted in one cell only.")
    elif not statement["homogeneous"]:
        lines.append(
            "Zones overlap: where few trips were made they are larger. A trip is counted in one"
            " cell only."
        )
    return {"known": known, "lines": lines}


def _missing(report: Mapping[str, Any]) -> list[str]:
    """Returns what is not in the release, in shares of the input."""
    lines = []
    if report["statement"]["shares"] is not None:
        lines.append(f"Of the input: {missing(report)}. Shares are rounded up.")
    if report["statement"]["slice_columns"]:
        lines.append("Slices that are not listed had no trips, or too few to be published.")
    none = (
        "no trips, or too few left after noise"
        if is_noisy(report)
        else "no trips, or too few to publish"
    )
    return [
        *lines,
        f"A pair of zones that is not on the map had {none}. Not published does not mean zero.",
    ]


def _files(report: Mapping[str, Any], *, estimated: bool) -> list[tuple[str, str]]:
    """Returns the files of the folder with what each is for."""
    statement = report["statement"]
    names = ["flows.parquet", "zones.parquet"]
    names += ["estimate.parquet"] if estimated else []
    names += ["report.json"]
    names += ["lookup.csv"] if report["parameters"].get("zones") else []
    names += ["context.geojson"] if statement["context"] else []
    exports = [
        (file, f"the same, as {wanted.name}")
        for wanted in parse_formats(statement["formats"])
        for file in wanted.files
    ]
    return [
        *((name, _FILES[name]) for name in names),
        *exports,
        ("manifest.json", _FILES["manifest.json"]),
    ]


#: Width of the map of a series in units of the drawing; corners are rounded to a tenth of a unit.
_WIDTH = 720
#: Cells that are listed for each step.
_LARGEST = 10


def render_series(index: Mapping[str, Any], steps: Mapping[str, tuple[pa.Table, pa.Table]]) -> str:
    """Returns the page of a series with a slider over its steps.

    A pure function of index.json and their tables.
    """
    shapes, height = _drawn(steps)
    values, largest, names = {}, {}, dict[str, str]()
    for _, zones in steps.values():
        names |= names_by_code(zones)
    for step, (flows, _) in steps.items():
        cells = list(
            zip(
                *(flows[c].to_pylist() for c in ("origin_zone", "destination_zone", "trips")),
                strict=True,
            )
        )
        starts: Counter[str] = Counter()
        for origin, _, trips in cells:
            starts[origin] += trips
        values[step] = [starts[code] for code in shapes]
        shown = sorted(cells, key=lambda cell: (-cell[2], cell[0], cell[1]))[:_LARGEST]
        largest[step] = [[names.get(o, o), names.get(d, d), trips] for o, d, trips in shown]
    called = [f"{names[code]} ({code})" if code in names else code for code in shapes]
    data = {"steps": list(steps), "values": values, "largest": largest, "codes": called}
    # The folder of the newest release of a step.
    folders = [
        f"{row['step']}-r{row['revisions']}" if row["revisions"] else str(row["step"])
        for row in index["steps"]
    ]
    counts = [[number(row["trips"]), number(row["cells"])] for row in index["steps"]]
    rows = list(zip((row["step"] for row in index["steps"]), folders, counts, strict=True))
    over_time = fill(
        "series.html",
        shapes=shapes,
        width=_WIDTH,
        height=height,
        data=data,
        first=next(iter(steps)),
    )
    return page(
        title="Series of releases",
        heading="Series of releases",
        lead=(
            f"{len(steps)} steps (every {index['every']}) over the same zones; each is a release"
            " with its own page."
        ),
        parts=[
            PagePart("maps", "Over time", over_time),
            PagePart("steps", "Steps", fill("series_steps.html", rows=rows)),
        ],
        notices=[
            (
                "Totals",
                (
                    " are sums of what the steps publish: cells that a step suppresses are not in"
                    " them."
                ),
            )
        ],
    )


def _drawn(steps: Mapping[str, tuple[pa.Table, pa.Table]]) -> tuple[dict[str, str], int]:
    """The outline of each origin zone as a path, by code; and the height of the drawing."""
    outlines: dict[str, Any] = {}
    for _, zones in steps.values():
        listed = zip(
            *(zones[name].to_pylist() for name in ("zone", "role", "geometry")), strict=True
        )
        outlines |= {
            zone: shape
            for zone, role, shape in listed
            if role != "destination" and shape is not None
        }
    if not outlines:
        return {}, 0
    shapes = {code: shapely.from_wkb(outlines[code]) for code in sorted(outlines)}
    west, south, east, north = shapely.total_bounds(list(shapes.values())).tolist()
    narrowing = float(np.cos(np.radians((south + north) / 2)))
    scale = _WIDTH / max((east - west) * narrowing, 1e-9)

    def path(polygon: Any) -> str:
        ring = shapely.get_coordinates(shapely.get_exterior_ring(polygon)) - [west, north]
        return (
            "M"
            + " ".join(f"{x:.1f},{y:.1f}" for x, y in (ring * [narrowing * scale, -scale]).tolist())
            + "Z"
        )

    paths = {
        code: " ".join(path(part) for part in shapely.get_parts(shape))
        for code, shape in shapes.items()
    }
    return paths, round((north - south) * scale)
