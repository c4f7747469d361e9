"""Choices of the page as a `Request`: checked, and as a call, a command, lines of Python and a recipe.

A page can send anything. A choice is a setting of `flowveil.request` that the page may make, so its type and range are
those of the setting. None is a path: files are named by the server alone, and a study area is numbers or cells.
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
#: Defaults that the page shows as chosen.
_SHOWN = {"k": 10, "max_suppressed": 0.1}
_THRESHOLDS = ("k", "protect", "max_suppressed", "k_population", "l", "dominance", "allow_small_k", "population_only")


def page_settings() -> list[Setting]:
    """The settings that the page may make."""
    return [one for one in settings() if one.page]


def choices_of(content: Any) -> dict[str, Any]:
    """Choices of a page, checked; None and an empty text are no choice, except for a person, where it means none.

    Raises:
        ParameterError: an entry is not known, or out of its range.
    """
    if not isinstance(content, dict):
        raise ParameterError("Choices are names and values.")
    allowed = {one.name: one for one in page_settings()}
    found = {}
    for name, value in content.items():
        if name not in allowed:
            raise ParameterError(f"There is no choice of the name {str(name)[:40]!a}.")
        if value is None or (value in ("", []) and name != "person"):
            continue
        try:
            checked_value = _checked(allowed[name], value)
        except ParameterError:
            raise ParameterError(f"The choice '{name}' is not one that can be made.") from None
        # In the form in which the page sent it, so that it can compare.
        found[name] = value if isinstance(value, str) else checked_value
    return found


def _checked(one: Setting, value: Any) -> Any:
    texts = [value]
    if isinstance(value, list):
        texts = value = list(dict.fromkeys(str(item) if not isinstance(item, str) else item for item in value))
    elif isinstance(value, dict):
        texts = [*value, *value.values()]
        if not all(isinstance(text, str) for text in texts):
            raise ParameterError("Options are texts.")
    too_long = any(isinstance(text, str) and (len(text) > _LONGEST or "\0" in text) for text in texts)
    if (too_long and one.form != "area") or len(texts) > 2 * _MOST or (isinstance(value, list) and len(value) > _MOST):
        raise ParameterError("Too long.")
    if one.form == "area" and not (isinstance(value, str) and is_area(value)):
        raise ParameterError("An area is numbers or cells.")
    return one.check(value)


@dataclass(frozen=True)
class Asked:
    """A release that a page asks for.

    Attributes:
        request: the request, without files.
    """

    request: Request

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> Asked:
        """From choices that were checked.

        Raises:
            ParameterError: they contradict each other.
        """
        request = Request.from_flat(choices)
        method = METHODS[method_name(request) or ""]
        noisy = method.promises != "k"
        slices = request.slices
        if noisy and slices.given:
            raise ParameterError(f"Method '{method.name}' makes one matrix: it cannot be cut into slices.")
        if slices.fold_time and (slices.by or not slices.every):
            raise ParameterError("Folding needs a time and its step, and makes one matrix: not one for each attribute.")
        if has_slices(request) and request.protection.dominance is not None:
            raise ParameterError("A limit on what one person makes up is for a single matrix.")
        if any(name in REFUSED for name in request.method.options):
            raise ParameterError("Noise that can be drawn again hides nothing.")
        checked({name: getattr(request.output, name) for name in ENTRIES})
        values: dict[str, Any] = {"method": method.name, **({} if method.hierarchy else {"hierarchy": None})}
        values |= dict.fromkeys(_THRESHOLDS) if noisy else {n: v for n, v in _SHOWN.items() if n not in request.given}
        return cls(request.with_values(**values))

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.request.method.method)

    @property
    def hierarchy(self) -> str | None:
        """The tree that was chosen."""
        return self.request.method.hierarchy

    @property
    def slices(self) -> dict[str, Any]:
        """How trips are cut."""
        return self.request.slices.given

    @property
    def formats(self) -> tuple[str, ...]:
        """Exports."""
        return self.request.output.formats

    @cached_property
    def thresholds(self) -> dict[str, Any]:
        """What every cell must satisfy; empty for noise."""
        return {name: value for name, value in self.request.protection.given.items() if name in _THRESHOLDS}

    @cached_property
    def about(self) -> dict[str, str]:
        """What the release is about."""
        return checked({name: getattr(self.request.output, name) for name in ENTRIES})

    @property
    def map_columns(self) -> dict[str, Any]:
        """Columns of the map."""
        return map_columns(self.request)

    @cached_property
    def reading(self) -> dict[str, Any]:
        """How to read the trips, without slices and the map."""
        return {n: v for n, v in self.request.arguments("reading").items() if n not in self.request.slices.given}

    @cached_property
    def how_read(self) -> dict[str, Any]:
        """What reading takes, except the map."""
        if not has_slices(self.request):
            return self.request.arguments("reading")
        given = {n: v for n, v in self.request.arguments("reading").items() if n != "every"}
        return given | {n: v for n, v in slicing_arguments(self.request).items() if is_given(v)}

    def key(self, source: str) -> str:
        """A name for the flows of a source that is read like this."""
        read = [source, self.how_read, self.map_columns, self.request.slices.fold_time]
        return hashlib.sha256(json.dumps(read, sort_keys=True, default=list).encode()).hexdigest()[:24]

    @property
    def how_made(self) -> dict[str, Any]:
        """What anonymising takes.

        Raises:
            ParameterError: an option of the method cannot be.
        """
        return anonymize_arguments(self.request)

    @property
    def how_cut(self) -> dict[str, bool]:
        """What anonymising slices takes besides."""
        return {name: True for name in ("total", "common_zones", "accept_differencing") if self.slices.get(name)}

    def complete(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> Request:
        """The request with its files, and the ledger that the release is recorded in."""
        return self.request.with_values(input=source, zones=zones, out="release", **(recorded or {}))

    def command(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """The command that makes the same release."""
        return command_line(self.complete(source, zones, recorded))

    def recipe(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """The recipe that makes the same release."""
        from flowveil import __version__

        return recipe_text(self.complete(source, zones, recorded), version=__version__)

    def python(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """The lines of Python that make the same release."""
        reading = [repr(source), *_arguments(self.how_read)]
        if zones is not None:
            reading.append(f"zones=flowveil.read_zones({', '.join([repr(zones), *_arguments(self.map_columns)])})")
        sliced = has_slices(self.request)
        fold = self.request.slices.fold_time
        read = f"flows = flowveil.read_{'slices' if sliced else 'trips'}({', '.join(reading)})"
        made = ", ".join(["flows", *_arguments({**self.how_made, **self.how_cut})])
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


def choices_in_recipe(text: str) -> dict[str, Any]:
    """The choices of a recipe that was opened on the page; its files are dropped or picked there.

    Raises:
        DataError: it is not TOML.
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
