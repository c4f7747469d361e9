"""Choices of the page as a `Request`: checked, and turned into arguments, a command line, Python code and a recipe.

A page can send anything. A choice is a setting of `flowveil.request` that is marked for the page, and has its type and
range. No choice is a path: the server names the files, and a study area is numbers or cells.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flowveil.errors import DataError, ParameterError
from flowveil.execution import (
    anonymize_arguments,
    check_request,
    has_slices,
    map_columns,
    method_name,
    slicing_arguments,
)
from flowveil.methods import METHODS
from flowveil.published.about import ENTRIES, checked
from flowveil.recipe import recipe_text
from flowveil.request import Request, command_line, find_setting, settings
from flowveil.settings import Setting, is_area, is_given
from flowveil.workbench.method_options import REFUSED

#: Upper bounds for a text in characters, and for the items of a list.
_LONGEST, _MOST = 300, 20
_DEFAULT_K = 10
NO_TRIPS = "There are no trips yet. Hint: drop a file first."
_THRESHOLDS = ("k", "protect", "max_suppressed", "k_population", "l", "dominance", "allow_small_k", "population_only")


def page_settings() -> list[Setting]:
    """Returns the settings that the page offers."""
    return [one for one in settings() if one.page]


def cell_choices(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the choices that decide the cells: all but the description and the formats of a release."""
    return {name: value for name, value in choices.items() if name not in (*ENTRIES, "formats")}


def choices_of(content: Any) -> dict[str, Any]:
    """Returns the checked choices of a page, without None and empty texts. An empty person means: no person column.

    Raises:
        ParameterError: a choice is unknown or out of range.
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
            raise ParameterError(f"--{name.replace('_', '-')} is out of range or of another type.") from None
        # As the page sent it, so that the page can compare it.
        found[name] = value if isinstance(value, str) else checked_value
    return found


def _checked(one: Setting, value: Any) -> Any:
    texts = [value]
    if isinstance(value, list):
        texts = value = list(dict.fromkeys(str(item) if not isinstance(item, str) else item for item in value))
    elif isinstance(value, dict):
        texts = [*value, *value.values()]
        if not all(isinstance(text, str) for text in texts):
            raise ParameterError("Options must be texts.")
    too_long = any(isinstance(text, str) and (len(text) > _LONGEST or "\0" in text) for text in texts)
    if (too_long and one.form != "area") or len(texts) > 2 * _MOST or (isinstance(value, list) and len(value) > _MOST):
        raise ParameterError("Too long.")
    if one.form == "area" and not (isinstance(value, str) and is_area(value)):
        raise ParameterError("An area must be numbers or cells.")
    return one.check(value)


@dataclass(frozen=True)
class PageRequest:
    """The request of a page.

    Attributes:
        request: the request, without files.
    """

    request: Request

    @classmethod
    def from_choices(cls, choices: Mapping[str, Any]) -> PageRequest:
        """Returns the request of checked choices.

        Raises:
            ParameterError: the choices contradict each other, or the method does not support them.
        """
        request = Request.from_flat(choices)
        method = METHODS[method_name(request) or ""]
        if any(name in REFUSED for name in request.method.options):
            raise ParameterError("Noise with a fixed seed protects no one.")
        if method.promises != "k" and request.slices.given:
            raise ParameterError(f"Method '{method.name}' makes one matrix on this page, without slices.")
        values: dict[str, Any] = {"method": method.name, **({} if method.hierarchy else {"hierarchy": None})}
        if method.promises != "k":
            values |= dict.fromkeys(_THRESHOLDS)
        elif "k" not in request.given:
            values["k"] = _DEFAULT_K
        request = request.with_values(**values)
        # The map is a file of the session, which this check does not need.
        check_request(request.with_values(zones="map") if request.arguments("map") else request)
        return cls(request)

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.request.method.method)

    @property
    def defaults(self) -> dict[str, Any]:
        """The method of the request, and its default of the share that may be suppressed."""
        return {"method": self.method, "max_suppressed": METHODS[self.method].max_suppressed}

    @property
    def hierarchy(self) -> str | None:
        """Name of the tree of zones; None for the method's default."""
        return self.request.method.hierarchy

    @property
    def slices(self) -> dict[str, Any]:
        """Settings of slices."""
        return self.request.slices.given

    @property
    def slice_columns(self) -> list[str]:
        """Columns that distinguish the matrices of a sliced release."""
        if not has_slices(self.request) or self.request.slices.fold_time:
            return []
        return [*self.request.slices.by, *(["time"] if self.request.slices.every else [])]

    @property
    def formats(self) -> tuple[str, ...]:
        """Exports."""
        return self.request.output.formats

    @cached_property
    def thresholds(self) -> dict[str, Any]:
        """Thresholds of the guarantee; empty for noise."""
        return {name: value for name, value in self.request.protection.given.items() if name in _THRESHOLDS}

    @cached_property
    def about(self) -> dict[str, Any]:
        """Title, source, period, licence and contact."""
        return checked({name: getattr(self.request.output, name) for name in ENTRIES})

    @property
    def map_columns(self) -> dict[str, Any]:
        """Columns of the map."""
        return map_columns(self.request)

    @cached_property
    def reading(self) -> dict[str, Any]:
        """Arguments of reading, without slices and the map."""
        return {n: v for n, v in self.request.arguments("reading").items() if n not in self.request.slices.given}

    @cached_property
    def read_arguments(self) -> dict[str, Any]:
        """Arguments of reading, without the map."""
        if not has_slices(self.request):
            return self.request.arguments("reading")
        given = {n: v for n, v in self.request.arguments("reading").items() if n != "every"}
        return given | {n: v for n, v in slicing_arguments(self.request).items() if is_given(v)}

    def key(self, source: str) -> str:
        """Returns a cache key for the flows of a source that is read with these settings."""
        read = [source, self.read_arguments, self.map_columns, self.request.slices.fold_time]
        return hashlib.sha256(json.dumps(read, sort_keys=True, default=list).encode()).hexdigest()[:24]

    @property
    def release_arguments(self) -> dict[str, Any]:
        """Arguments of `flowveil.anonymize`.

        Raises:
            ParameterError: an option of the method is out of range.
        """
        return anonymize_arguments(self.request)

    @property
    def slice_flags(self) -> dict[str, bool]:
        """Further arguments of `flowveil.anonymize_slices`."""
        return {name: True for name in ("total", "common_zones", "accept_differencing") if self.slices.get(name)}

    def complete(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> Request:
        """Returns the request with its files and its ledger."""
        return self.request.with_values(input=source, zones=zones, out="release", **(recorded or {}))

    def command(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """Returns the command line of the same release."""
        return command_line(self.complete(source, zones, recorded))

    def recipe(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """Returns the recipe of the same release."""
        from flowveil import __version__

        return recipe_text(self.complete(source, zones, recorded), version=__version__)

    def python(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """Returns Python code of the same release."""
        reading = [repr(source), *_arguments(self.read_arguments)]
        if zones is not None:
            reading.append(f"zones=flowveil.read_zones({', '.join([repr(zones), *_arguments(self.map_columns)])})")
        sliced = has_slices(self.request)
        fold = self.request.slices.fold_time
        read = f"flows = flowveil.read_{'slices' if sliced else 'trips'}({', '.join(reading)})"
        made = ", ".join(["flows", *_arguments({**self.release_arguments, **self.slice_flags})])
        formats = {"formats": list(self.formats)} if self.formats else {}
        written = ", ".join(["'release'", *_arguments({**formats, **self.about, **(recorded or {})})])
        return "\n".join(
            [
                "import flowveil",
                read + (".folded()" if fold else ""),
                f"release = flowveil.anonymize{'_slices' if sliced and not fold else ''}({made})",
                f"release.write({written})",
            ]
        )


def derivation_of(content: Any) -> dict[str, Any]:
    """Returns the checked arguments of a derived table: a level of zones, and slice columns to add up.

    Raises:
        ParameterError: an argument is unknown or of another type.
    """
    given = content if isinstance(content, dict) else {}
    level, columns = given.get("level"), given.get("sum") or []
    names = isinstance(columns, list) and len(columns) <= _MOST and all(isinstance(one, str) for one in columns)
    if not (level is None or type(level) is int) or not names or not set(given) <= {"level", "sum"}:
        raise ParameterError("A derived table has a level of zones and slice columns to add up.")
    if level is None and not columns:
        raise ParameterError("Choose coarser zones or columns to add up.")
    return {"level": level, "sum": columns}


def choices_in_recipe(text: str) -> dict[str, Any]:
    """Returns the choices of a recipe, without its files.

    Raises:
        DataError: the text is not TOML.
        ParameterError: a setting is unknown or wrong.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise DataError("This is not a recipe. Hint: open a file that `anonymize --save-recipe` wrote.") from None
    content.pop("flowveil", None)
    given = Request.from_sections(content).given
    found = {name: value for name, value in given.items() if find_setting(name).page}
    plain: dict[str, Any] = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    if len(plain.get("every", ())) == 1:
        plain["every"] = plain["every"][0]
    if "options" in plain:
        plain["options"] = {name: str(value) for name, value in plain["options"].items()}
    return choices_of(plain)


def _arguments(given: Mapping[str, Any]) -> list[str]:
    return [f"{name}={list(value) if isinstance(value, tuple) else value!r}" for name, value in given.items()]
