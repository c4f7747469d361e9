"""Choices of the page: its fields, and what it sends as a checked `Request`.

A page can send anything. A choice is a setting of `flowveil.request.request` that is marked for the
page, and has its type and range. No choice is a path: the server names the files, and a study area
is numbers or cells. Fields of a method's options follow from its signature, so a new option has a
field without code here.
"""

from __future__ import annotations

import inspect
import re
import tomllib
import typing
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal
from zoneinfo import available_timezones

from flowveil.core.errors import DataError, ParameterError, did_you_mean
from flowveil.core.flows import SUM_COLUMNS
from flowveil.core.guarantee import UNITS
from flowveil.methods import METHODS, Method
from flowveil.published.about import ENTRIES, checked
from flowveil.published.exports import FORMATS
from flowveil.publishing import run as execution
from flowveil.reading.times import check_time_options
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
#: Settings of the column of times, which make no slices before a step is chosen.
_OF_TIMES = ("time", "timezone", "time_format")
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
    found = {}
    for name, value in content.items():
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
    pending = () if choices.get("every") else _OF_TIMES
    request = Request.from_flat({n: value for n, value in choices.items() if n not in pending})
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


def defaults_of(request: Request) -> dict[str, Any]:
    """Returns the method of a request, and its default of the share that may be suppressed."""
    name = str(request.method.method)
    return {"method": name, "max_suppressed": METHODS[name].max_suppressed}


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
    known = {"offers": offers, "units": UNITS, "formats": FORMATS, "entries": ENTRIES}
    page = made.get_template("index.html")
    placed = {*_BY_SCRIPT, *re.findall(r'data-choice="(\w+)"', page.render(**known, more=[]))}
    return page.render(**known, more=[one for one in page_settings() if one.name not in placed])
