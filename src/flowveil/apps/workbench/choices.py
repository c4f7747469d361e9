"""Choices of the page: its fields, and what it sends as a checked `Request`.

A page can send anything. A choice is a setting of `flowveil.request.request` that is marked for the
page, and has its type and range. No choice is a path: the server names the files, and a study area
is numbers or cells. Fields of a method's options follow from its signature, so a new option has a
field without code here.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal
from zoneinfo import available_timezones

from h3 import average_hexagon_edge_length

from flowveil.core.errors import DataError, ParameterError, did_you_mean
from flowveil.core.flows import SUM_COLUMNS
from flowveil.core.guarantee import UNITS
from flowveil.methods import METHODS, Method
from flowveil.published.about import ENTRIES, checked
from flowveil.published.exports import FORMATS
from flowveil.publishing import run as execution
from flowveil.reading.times import check_time_options
from flowveil.request import support
from flowveil.request.database_address import database_address
from flowveil.request.request import Request, find_setting, settings
from flowveil.request.settings import Setting, is_area, is_given

#: Upper bounds for a text in characters, and for the items of a list.
_LONGEST, _MOST = 300, 20
_DEFAULT_K = 10
#: Options that a browser may not set: noise with a fixed seed protects no one.
REFUSED = ("unsafe_seed_for_tests",)
NO_TRIPS = "There are no trips yet. Hint: drop a file first."
_THRESHOLDS = (
    "k",
    "protect",
    "max_suppressed",
    "k_population",
    "l",
    "dominance",
    "allow_small_k",
    "population_only",
)
#: Thresholds of the chart, and the methods that it compares with the chosen one.
CHART_K, CHART_METHODS = (5, 10, 20, 50), ("layercut", "paircut", "twincut", "odkanon")
#: Settings that scripts of the page set without a field: columns from the table, the area, options
#: of the method.
_BY_SCRIPT = (
    "origin",
    "destination",
    "origin_tile",
    "destination_tile",
    "person",
    "trips",
    *SUM_COLUMNS,
    "within",
    "options",
)
_SLICING = ("by", "every", "fold_time", "common_zones", "by_many")
#: Settings that the page asks for after one of others; a time may be chosen before its step.
_NEEDED = {
    "every": ("time",),
    "timezone": ("time",),
    "time_format": ("time",),
    "fold_time": ("every",),
    "by_many": ("by",),
    "common_zones": ("by", "every"),
}
#: Values that ask for a setting, by its name or its kind: whether they would be refused.
_EXAMPLES: dict[str, Any] = {
    "hierarchy": "halves",
    "every": ["hour"],
    "time_format": "%H",
    "outside": "keep",
    "source_format": "mds",
    "text": "x",
    "whole": 3,
    "number": 0.5,
    "flag": True,
    "list": ["x"],
    "pairs": {"x": "y"},
}
#: Answers that are no settings: that a row is one trip, although it has numbers.
PAGE_ONLY = ("row_is_trip",)
#: Settings of the column of times, which make no slices before a step is chosen.
_OF_TIMES = ("time", "timezone", "time_format")
#: What formats are called, for people.
FORMAT_NAMES = {
    "csv": "CSV tables for spreadsheets",
    "geojson": "GeoJSON for web maps",
    "gpkg": "GeoPackage for QGIS and ArcGIS",
    "fgb": "FlatGeobuf for large maps",
    "pmtiles": "PMTiles for web maps without a server",
    "omx": "OMX for transport models",
    "wide": "Square table, a column for each destination",
    "flowmap": "Flowmap.blue",
    "kepler": "Kepler.gl",
    "arrow": "Arrow for Python and R",
    "dcat": "DCAT for open-data portals",
    "croissant": "Croissant for machine learning",
}
#: What options are called, for people.
_WORDS = {
    "epsilon": "Privacy loss (epsilon): the smaller, the more noise",
    "delta": "Chance that the promise fails (delta)",
    "bound": "Most trips of one person that count",
    "level": "Level of the zones (for hexagons, their resolution)",
    "region": "Cells or zones that the noise covers; it must be no secret that trips are there",
    "budget": "How it is divided (budget)",
    "decay": "Drop at each division (decay)",
    "divide_above": "Divide cells above",
    "objective": "Make small",
    "effort": "Effort of the search",
    "time_limit": "Seconds that the search may take",
    "spend": "Use up what may be suppressed",
    "time_weight": "Weight of time against place",
    "levels": "Levels at which a pair may become safe",
    "beta": "Share of the pairs that may be suppressed (beta)",
    "v_target": "Trips that an origin area aims at",
    "lambda_": "Largest mean size of areas",
    "partitioning": "Cuts",
    "grid_m": "Grid of the boxes, in metres",
    "neighbors": "Neighbours that are looked at",
    "window": "Window of the search",
}
#: Initial values of required options of noise: always, and if people are known.
_BEGIN, _BEGIN_WITH_PEOPLE = {"epsilon": "1"}, {"bound": "3"}


def stamp_of(source: str) -> list[Any]:
    """Returns path, size and time of the last change of a file, to notice that it was replaced.

    A table of a server has no size and no time.
    """
    address = database_address(source)
    if address is not None and address.is_server:
        return [source, None, None]
    now = os.stat(source if address is None else address.place)
    return [source, now.st_size, now.st_mtime_ns]


def page_settings() -> list[Setting]:
    """Returns the settings that the page offers."""
    return [one for one in settings() if one.page]


def cell_choices(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the choices that decide the cells.

    All but the description and the formats of a release.
    """
    unused = (*ENTRIES, "formats", *(() if choices.get("every") else _OF_TIMES))
    return {name: value for name, value in choices.items() if name not in unused}


def choices_of(content: Any) -> dict[str, Any]:
    """Returns the checked choices of a page without empty ones (except no person).

    ParameterError if one is wrong.
    """
    if not isinstance(content, dict):
        raise ParameterError("Choices must be an object of names and values.")
    allowed = {one.name: one for one in page_settings()}
    found: dict[str, Any] = {}
    for name, value in content.items():
        if name in PAGE_ONLY:
            if value not in (True, False, None):
                raise ParameterError(f"{name} is true or false.")
            found |= {name: True} if value else {}
            continue
        if name not in allowed:
            raise ParameterError(f"Unknown choice {str(name)[:40]!a}.")
        if value is None or (value in ("", []) and name != "person"):
            continue
        try:
            checked_value = _checked(allowed[name], value)
        except ParameterError:
            raise ParameterError(
                f"--{name.replace('_', '-')} is out of range or of another type."
            ) from None
        # As the page sent it, so that the page can compare it.
        found[name] = value if isinstance(value, str) else checked_value
    return found


def _checked(one: Setting, value: Any) -> Any:
    texts = [value]
    if isinstance(value, list):
        texts = value = list(dict.fromkeys(map(str, value)))
    elif isinstance(value, dict):
        texts = [*value, *value.values()]
        if not all(isinstance(text, str) for text in texts):
            raise ParameterError("Options must be texts.")
    too_long = any(
        isinstance(text, str) and (len(text) > _LONGEST or "\0" in text) for text in texts
    )
    if (
        (too_long and one.form != "area")
        or len(texts) > 2 * _MOST
        or (isinstance(value, list) and len(value) > _MOST)
    ):
        raise ParameterError("Too long.")
    if one.form == "area" and not (isinstance(value, str) and is_area(value)):
        raise ParameterError("An area must be numbers or cells.")
    return one.check(value)


def page_request(choices: Mapping[str, Any]) -> Request:
    """Returns the request of checked choices, without files.

    ParameterError if they contradict each other.
    """
    _check_timezone(choices.get("timezone"))
    pending = (*PAGE_ONLY, *(() if choices.get("every") else _OF_TIMES))
    given = {n: value for n, value in choices.items() if n not in pending}
    if choices.get("row_is_trip"):
        # An empty name says that there is no column of counts.
        given["trips"] = ""
    request = Request.from_flat(given)
    method = METHODS[execution.method_name(request) or ""]
    if any(name in REFUSED for name in request.method.options):
        raise ParameterError("Noise with a fixed seed protects no one.")
    if method.counts == "noisy" and request.slices.given:
        raise ParameterError(
            f"Method '{method.name}' makes one matrix on this page, without slices."
        )
    values: dict[str, Any] = {
        "method": method.name,
        **({} if method.hierarchy else {"hierarchy": None}),
    }
    if method.counts == "noisy":
        values |= dict.fromkeys(_THRESHOLDS)
    elif "k" not in request.given:
        values["k"] = _DEFAULT_K
    request = request.with_values(**values)
    # The map is a file of the session, which this check does not need.
    execution.check_request(
        request.with_values(zones="map") if request.arguments("map") else request
    )
    return request


def _check_timezone(name: Any) -> None:
    """Refuses a time zone that does not exist before anything is read."""
    check_time_options(None, name)
    known = _timezones()
    if name is not None and "/" in name and known and name not in known:
        raise ParameterError(
            f"timezone (--timezone) '{name}' does not exist.{did_you_mean(name, known)}"
        )


@cache
def _timezones() -> set[str]:
    return available_timezones()


def unavailable(
    choices: Mapping[str, Any], *, facts: Mapping[str, bool], mapped: bool
) -> dict[str, str]:
    """Returns the fields that do not apply to the choices, each with the reason.

    From the support table, and from what the input has (``facts``). Values of a list are
    ``name=value``.
    """
    content = json.dumps(choices, sort_keys=True)
    return dict(_unavailable(content, frozenset(facts.items()), mapped))


@lru_cache(maxsize=64)
def _unavailable(
    content: str, facts: frozenset[tuple[str, bool]], mapped: bool
) -> Mapping[str, str]:
    choices, known = json.loads(content), dict(facts)
    request = page_request(choices).with_values(zones="map" if mapped else None)
    # Without a chosen method, the recommended one follows from the other choices.
    own = {} if "method" in choices else {"method": None, "options": None}
    refused = set(_refusals(request.with_values(**own)))
    found: dict[str, str] = {}
    for name in sorted(support.FEATURES.keys() & _page_names() - {"timezone", "time_format"}):
        example = find_setting(name).check(_EXAMPLES.get(name, _EXAMPLES[find_setting(name).kind]))
        changed = request.with_values(**{name: request.given.get(name, example)}, **own)
        for problem in _refusals(changed):
            if problem not in refused:
                found[name] = problem
    for name, needed in _NEEDED.items():
        if not any(choices.get(one) for one in needed):
            found[name] = f"It needs {' or '.join(needed)}."
    if METHODS[str(request.method.method)].counts == "noisy":
        noisy = ("protect", *_SLICING)
        found |= dict.fromkeys(noisy, "A method that adds noise makes one matrix, without k.")
    if mapped:
        of_map = "The zones of the map are the tiles, and have their tree."
        found |= dict.fromkeys(("resolution", "hierarchy"), of_map)
    if not known.get("people", True):
        no_people = "Nothing says who travelled."
        found |= dict.fromkeys(("protect=people", "dominance", "population_only"), no_people)
    if not known.get("weight", True):
        found["protect=population"] = "Rows have no expansion factor."
    if choices.get("protect") != ["population"]:
        found.setdefault("population_only", "The population is not the only unit.")
    return found


def _refusals(request: Request) -> list[str]:
    """Returns what the support table refuses of a request."""
    features = support.asked_of(request.given)
    found = list(support.refusals(features, execution.expected_of(request)))
    try:
        support.check_needs(features)
    except ParameterError as problem:
        found.append(str(problem))
    return found


@cache
def _page_names() -> frozenset[str]:
    return frozenset(one.name for one in page_settings())


def with_method(choices: Mapping[str, Any], method: str, k: int) -> Request:
    """Returns the request with another method and k; options stay with the chosen method.

    ParameterError if the method does not suit the other choices.
    """
    chosen = METHODS[str(page_request(choices).method.method)]
    given = dict(choices)
    if chosen.name != method:
        given.pop("options", None)
    if METHODS[method].hierarchy is None:
        given.pop("hierarchy", None)
    if chosen.counts == "noisy":
        given = {name: value for name, value in given.items() if name not in _THRESHOLDS}
    return page_request({**given, "method": method, "k": k})


def hexagon_width(resolution: int) -> str:
    """Returns how wide the H3 cells of a resolution are on average, in words.

    >>> hexagon_width(10), hexagon_width(7)
    ('130 m', '2.4 km')
    """
    metres = math.sqrt(3) * average_hexagon_edge_length(resolution, unit="m")
    digits = 1 - math.floor(math.log10(metres))
    rounded = round(metres, digits)
    return f"{rounded:.0f} m" if rounded < 1000 else f"{rounded / 1000:g} km"


def keys_of(choices: Mapping[str, Any]) -> dict[str, str]:
    """Returns what jobs are compared by: a key of the choices that decide how trips are read, of
    those that decide the cells, and of those that decide the chart.
    """
    calls = {one.name: one.call for one in page_settings()}
    cells = cell_choices(choices)
    others = (*_OF_TIMES, *PAGE_ONLY)
    read = {n: v for n, v in choices.items() if calls.get(n) in ("reading", "map") or n in others}
    method = str(page_request(choices).method.method)
    own = "options" in cells or method not in CHART_METHODS
    charted = {n: v for n, v in cells.items() if n not in ("k", "method") or (own and n != "k")}
    found = {"reading": read, "cells": cells, "chart": charted}
    return {name: _hash(value) for name, value in found.items()}


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def defaults_of(request: Request) -> dict[str, Any]:
    """Returns the method of a request, its default of the share that may be suppressed, and the
    widths of hexagons.
    """
    name = str(request.method.method)
    widths = {resolution: hexagon_width(resolution) for resolution in range(16)}
    return {
        "method": name,
        "max_suppressed": METHODS[name].max_suppressed,
        "widths": widths,
    }


def thresholds_of(request: Request) -> dict[str, Any]:
    """Returns the thresholds of the guarantee; empty for noise."""
    return {name: value for name, value in request.protection.given.items() if name in _THRESHOLDS}


def about_of(request: Request) -> dict[str, Any]:
    """Returns title, source, period, licence and contact."""
    return checked({name: getattr(request.output, name) for name in ENTRIES})


def slice_columns(request: Request) -> list[str]:
    """Returns the columns that distinguish the matrices of a sliced release."""
    if not execution.has_slices(request) or execution.has_folds(request):
        return []
    return [*request.slices.by, *(["time"] if request.slices.every else [])]


def read_arguments(request: Request) -> dict[str, Any]:
    """Returns the arguments of `flowveil.read_slices`, or of `flowveil.read_trips` without slices.

    Without the map.
    """
    given = execution.reading_arguments(request.with_values(zones=None))
    if execution.has_slices(request):
        return given | {
            name: value
            for name, value in execution.slicing_arguments(request).items()
            if is_given(value)
        }
    return {name: value for name, value in given.items() if name != "time"}


def python_code(request: Request) -> str:
    """Returns Python code of a release; the request has its files and its ledger."""
    reading = [repr(request.input.input), *_arguments(read_arguments(request))]
    if request.zones.zones is not None:
        named = ", ".join([repr(request.zones.zones), *_arguments(execution.map_columns(request))])
        reading.append(f"zones=flowveil.read_zones({named})")
    sliced, fold = execution.has_slices(request), execution.has_folds(request)
    trees = [
        f"{name!r}: flowveil.read_tree({place!r})" for name, place in request.slices.fold.items()
    ]
    folded = f".folded({{{', '.join(trees)}}})" if trees else ".folded()" if fold else ""
    flags = {
        name: True
        for name in ("common_zones", "separate")
        if sliced and getattr(request.slices, name)
    }
    made = ", ".join(["flows", *_arguments({**execution.anonymize_arguments(request), **flags})])
    out = request.output
    written = {
        "formats": list(out.formats),
        **about_of(request),
        "ledger": out.ledger,
        "accept_differencing": out.accept_differencing,
    }
    written = {name: value for name, value in written.items() if value}
    read = f"flows = flowveil.read_{'slices' if sliced else 'trips'}({', '.join(reading)})"
    release = f"release = flowveil.anonymize({made})"
    write = f"release.write({', '.join([repr('release'), *_arguments(written)])})"
    return "\n".join(["import flowveil", read + folded, release, write])


def _arguments(given: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}={list(value) if isinstance(value, tuple) else value!r}"
        for name, value in given.items()
    ]


def derivation_of(content: Any) -> dict[str, Any]:
    """Returns the checked arguments of a derived table.

    A level of zones, and slice columns to add up.
    """
    given = content if isinstance(content, dict) else {}
    level, columns = given.get("level"), given.get("sum") or []
    names = (
        isinstance(columns, list)
        and len(columns) <= _MOST
        and all(isinstance(one, str) for one in columns)
    )
    if not (level is None or type(level) is int) or not names or not set(given) <= {"level", "sum"}:
        raise ParameterError("A derived table has a level of zones and slice columns to add up.")
    if level is None and not columns:
        raise ParameterError("Choose coarser zones or columns to add up.")
    return {"level": level, "sum": columns}


def choices_in_recipe(text: str) -> dict[str, Any]:
    """Returns the choices of a recipe, without its files.

    DataError or ParameterError if it is wrong.
    """
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise DataError(
            "This is not a recipe. Hint: open a file that `anonymize --save-recipe` wrote."
        ) from None
    content.pop("flowveil", None)
    given = Request.from_sections(content).given
    found = {name: value for name, value in given.items() if find_setting(name).page}
    plain: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in found.items()
    }
    if plain.get("trips") == "":
        plain["row_is_trip"] = True
    if len(plain.get("every", ())) == 1:
        plain["every"] = plain["every"][0]
    if "options" in plain:
        plain["options"] = {name: str(value) for name, value in plain["options"].items()}
    return choices_of(plain)


def _field(method: Method, name: str, hint: Any) -> dict[str, Any]:
    """Returns the field of an option: its default (``usual``), its values if they are a list, the
    step of a number.
    """
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    default, noisy = method.options[name].default, method.counts == "noisy"
    words = (
        tuple(map(str, kinds))
        if typing.get_origin(hint) is Literal
        else ("true", "false")
        if bool in kinds
        else ()
    )
    plain = kinds[0] if len(kinds) == 1 and not words else None
    usual = (
        ""
        if default in (None, inspect.Parameter.empty)
        else str(default).lower()
        if words
        else str(default)
    )
    return {
        **{"name": name, "label": _WORDS.get(name, name), "usual": usual, "choices": words},
        "step": "1" if plain is int else "any" if plain is float else "",
        "begin": _BEGIN.get(name, "") if noisy else "",
        "begin_with_people": _BEGIN_WITH_PEOPLE.get(name, "") if noisy else "",
    }


@cache
def index() -> str:
    """The page; all that changes is fetched by its scripts.

    Settings without a field of the template get one.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files("flowveil.apps.workbench") / "templates"
    made = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    offers = []
    # The page takes no secret keys.
    for method in METHODS.values():
        hints = typing.get_type_hints(method.plan)
        offers.append(
            (
                method,
                [
                    _field(method, name, hints[name])
                    for name in method.options
                    if name not in REFUSED
                ],
            )
        )
    known: dict[str, Any] = {"offers": offers, "units": UNITS, "entries": ENTRIES}
    known["formats"] = {name: FORMAT_NAMES[name] for name in FORMATS}
    # The page has no flags.
    known["summaries"] = {
        name: method.summary.partition("; --")[0] for name, method in METHODS.items()
    }
    page = made.get_template("index.html")
    placed = {*_BY_SCRIPT, *re.findall(r'data-choice="(\w+)"', page.render(**known, more=[]))}
    more = [one for one in page_settings() if one.name not in placed]
    return page.render(**known, more=[replace(one, meaning=_in_words(one.meaning)) for one in more])


def _in_words(text: str) -> str:
    """Returns a text whose flags are words: the page has none.

    >>> _in_words("Merge steps (--fold-time) of --zones.")
    'Merge steps (‘fold time’) of ‘zones’.'
    """
    named = re.sub(r"--([a-z][a-z-]*)", lambda m: f"‘{m[1].replace('-', ' ')}’", text)
    return re.sub(r"`flowveil [^`]*`", "the command line", named)
