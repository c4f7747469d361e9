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
from flowveil.published.about import period_in_words, title
from flowveil.published.answer import answer_data, finding, guarantee_in, words_of_answer
from flowveil.published.answer import headline as to_headline
from flowveil.published.catalogue import schema_org
from flowveil.published.document import PagePart, fill, number, page
from flowveil.published.exports import parse_formats
from flowveil.published.flow_map import flow_map
from flowveil.published.language import DEFAULT, Say
from flowveil.published.report import distance_in_words
from flowveil.published.sentences import (
    NOT_PEOPLE,
    is_noisy,
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
    say = Say(language, unit_words("trips", report["parameters"]))
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
        data["words"] = _map_words(report, heading, say)
        if basemap:
            data["background"] = {"url": basemap, "maxZoom": 19}
    answering = data is not None and "answer" in data
    about, noisy = report["statement"]["about"], Facets.from_report(report).is_noisy
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
        "say": say,
        "about": [
            (say(name), period_in_words(about[name], language) if name == "period" else about[name])
            for name in ("source", "period")
            if name in about
        ],
        "meaning": _meaning(report, say, answering=answering),
        "precision": _precision(report, say),
        "missing": _missing(report, say),
        "licence": _licence(about, say),
        "files": _files(report, say, estimated=estimate is not None),
        "sides": [
            (say("protected"), "good", protected),
            (say("not_protected"), "warn", not_protected),
        ],
        "to_read": [line for line in to_read if line[0] not in ("Noisy", "Incomplete")],
        "method": say(
            "method",
            method=report["method"],
            guarantee=promise(report),
            version=report["version"],
        ),
        "command": report["published"]["command"],
        "dataset": schema_org(report, zones),
        "again": say("again_noise" if noisy else "again"),
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


def _map_words(report: Mapping[str, Any], heading: str, say: Say) -> dict[str, Any]:
    """Returns the texts of the map and of pictures of it."""
    about, noisy = report["statement"]["about"], is_noisy(report)
    if noisy:
        covered = f"{promise(report)} ({short_promise(report)})."
    else:
        covered = say("picture_covers", least=_least(report), promise=short_promise(report))
    credits = [f"{say('source')}: {about['source']}."] if "source" in about else []
    if "licence" in about:
        credits.append(say("licence", licence=about["licence"]))
    return {
        "title": heading,
        "missing": "none, or too few after the noise" if noisy else "none, or too few to publish",
        "picture": [covered, *credits, say("picture_map")],
    }


def _least(report: Mapping[str, Any]) -> str:
    """Returns the thresholds in words, in the language of the page."""
    return guarantee_in(report, report["statement"]["about"].get("language", DEFAULT))


def _meaning(report: Mapping[str, Any], say: Say, *, answering: bool) -> list[str]:
    """Returns what a number is and how the map shows it."""
    columns, when, shown = report["statement"]["slice_columns"], "", []
    if Facets.from_report(report).folds:
        fold = report["parameters"].get("fold") or ()
        timed = (report["parameters"].get("slices") or {}).get("fold_time")
        parts = [say("interval")] if timed else []
        parts += [say("group", name=name) for name in fold]
        when = say("in", parts=f" {say.word('and')} ".join(parts))
        shown = [say("mean_hour")]
        if fold:
            shown = [say("groups")]
    elif columns:
        when = say("each", columns=f" {say.word('and')} ".join(columns))
        shown = [say("sum")]
    return [
        say("counts", when=when),
        say("noise") if is_noisy(report) else say("covers", least=_least(report)),
        say("areas" if answering else "circles"),
        *shown,
    ]


def _precision(report: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Returns how precise places and numbers are.

    Shares of trips with both ends known, and sentences.
    """
    published, statement = report["published"], report["statement"]
    known = [
        (say("within", distance=distance_in_words(float(metres)).replace(".0 ", " ")), share)
        for metres, share in sorted(
            published["both_ends_within_m"].items(), key=lambda one: float(one[0])
        )
        if share is not None
    ]
    lines = []
    if published["typical_radius_m"] is not None:
        lines.append(say("radius", radius=distance_in_words(published["typical_radius_m"])))
    if is_noisy(report):
        lines.append(say("deviation", noise=rounded(report["guarantee"]["deviation"], 2)))
    else:
        lines.append(say("exact"))
    if statement["boxes"] is not None:
        lines.append(say("boxes"))
    elif not statement["homogeneous"]:
        lines.append(say("overlap"))
    return {"known": known, "lines": lines}


def _missing(report: Mapping[str, Any], say: Say) -> list[str]:
    """Returns what is not in the release, in shares of the input."""
    lines, shares = [], report["statement"]["shares"]
    if shares is not None:
        basis = say(shares["basis"])
        reasons = [say("suppressed", share=say.at_most(shares["suppressed"]), basis=basis)]
        if shares["outside"] is not None:
            reasons.append(say("outside", share=say.at_most(shares["outside"])))
        reasons.append(say("dropped", share=say.at_most(shares["dropped"])))
        lines.append(say("of_input", reasons=", ".join(reasons)))
    if report["statement"]["slice_columns"]:
        lines.append(say("slices"))
    return [*lines, say("pair_noise" if is_noisy(report) else "pair")]


def _licence(about: Mapping[str, str], say: Say) -> list[str]:
    """Returns whether a reader may use the release, and whom to ask."""
    contact = [say("contact", contact=about["contact"])] if "contact" in about else []
    if "licence" in about:
        return [say("licence", licence=about["licence"]), *contact]
    return [say("ask" if contact else "no_licence"), *contact]


def _files(report: Mapping[str, Any], say: Say, *, estimated: bool) -> list[tuple[str, str]]:
    """Returns the files of the folder with what each is for."""
    statement = report["statement"]
    names = ["flows.parquet", "zones.parquet"]
    names += ["estimate.parquet"] if estimated else []
    names += ["report.json"]
    names += ["lookup.csv"] if report["parameters"].get("zones") else []
    names += ["context.geojson"] if statement["context"] else []
    exports = [
        (file, say("file_export", format=wanted.name))
        for wanted in parse_formats(statement["formats"])
        for file in wanted.files
    ]
    named = [(name, say(f"file_{name.partition('.')[0]}")) for name in names]
    return [*named, *exports, ("manifest.json", say("file_manifest"))]


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
