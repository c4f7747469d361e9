"""The description of one option: a dataclass field with meaning, allowed values, default, example
and tier.

`flowveil.request.request` declares all options with `setting`; every interface is generated from
these descriptions.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Literal

from flowveil.core.errors import ParameterError, did_you_mean, option

Tier = Literal["common", "all", "recipe"]
Kind = Literal["text", "whole", "number", "flag", "list", "pairs"]
#: What a text is: a place on this machine, a column of the input, an area, or words.
Form = Literal["words", "path", "column", "area"]
#: Which call takes the value: reading, reading the map, anonymising, anonymising slices, writing,
#: deriving; or the run.
Call = Literal["reading", "map", "anonymize", "slices", "write", "run", "derive"]

_KINDS: dict[Any, Kind] = {
    str: "text",
    int: "whole",
    float: "number",
    bool: "flag",
    tuple[str, ...]: "list",
    Mapping[str, Any]: "pairs",
}


@dataclass(frozen=True)
class Setting:
    """The description of one field."""

    name: str  # keyword argument, and key in a recipe
    section: str
    kind: Kind
    meaning: str
    call: Call
    tier: Tier = (
        "all"  # common: in the short help; all: in --help-all; recipe: in recipes and --set only
    )
    default: Any = None  # what applies if it is not given, as documentation: a value or words
    example: str = ""  # a value as users write it on the command line
    #: The values, or ``module:ATTRIBUTE``: a mapping whose keys they are, or a function that
    #: returns them.
    allowed: tuple[str, ...] | str = ()
    low: float | None = None
    high: float | None = None
    form: Form = "words"
    flag: str = ""
    metavar: str = ""  # what the help shows for the value
    recorded: bool = False  # whether report.json records it among the parameters
    page: bool = True  # whether the workbench's form has it
    commas: bool = True  # whether commas separate the items of a list

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values; empty if they are not a list."""
        if isinstance(self.allowed, tuple):
            return self.allowed
        module, _, attribute = self.allowed.partition(":")
        found = getattr(import_module(module), attribute)
        return tuple(found() if callable(found) else found)

    @property
    def is_flag(self) -> bool:
        """Whether the option takes no value."""
        return self.kind == "flag"

    @property
    def is_list(self) -> bool:
        """Whether the value is a list of texts."""
        return self.kind == "list"

    @property
    def is_pairs(self) -> bool:
        """Whether the value is a list of ``NAME=VALUE``."""
        return self.kind == "pairs"

    @property
    def path(self) -> str:
        """Section and name, as ``--set`` takes them."""
        return f"{self.section}.{self.name}"

    def check(self, value: Any) -> Any:
        """Return the value in the type of the field; None and empty lists mean "not given"."""
        if value is None:
            return _EMPTY.get(self.kind)
        if self.is_list and isinstance(value, str):
            value = split(value) if self.commas else (value,)
        if isinstance(value, bool) and "true" in self.choices:
            value = str(value).lower()
        checked = _CHECKS[self.kind](value)
        if checked is None:
            raise self._wrong(value, _WANTED[self.kind])
        if self.kind in ("whole", "number"):
            if self.low is not None and checked < self.low:
                raise self._wrong(value, f"at least {self.low:g}")
            if self.high is not None and checked > self.high:
                raise self._wrong(value, f"at most {self.high:g}")
        if self.allowed:
            for one in checked if isinstance(checked, tuple) else [checked]:
                if one not in self.choices:
                    wanted = f"one of {', '.join(self.choices)}"
                    raise self._wrong(one, wanted, did_you_mean(str(one), self.choices))
        return checked

    def parse(self, text: str) -> Any:
        """Return the value that a text on the command line means."""
        text = text.strip()
        if self.is_flag and text.casefold() in ("true", "false"):
            return text.casefold() == "true"
        if self.kind in ("whole", "number"):
            try:
                number = int(text) if self.kind == "whole" else float(text)
            except ValueError:
                raise self._wrong(text, _WANTED[self.kind]) from None
            return self.check(number)
        return self.check(text)

    def _wrong(self, value: Any, wanted: str, hint: str = "") -> ParameterError:
        found = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        return ParameterError(
            f"{option(self.name, flag=self.flag)} must be {wanted}; found {found}.{hint}"
        )


#: West, south, east and north in degrees, or H3 cells.
_DEGREES = r"\s*[+-]?\d{1,3}(?:\.\d{1,15})?\s*"
_AREA = re.compile(rf"{_DEGREES}(,{_DEGREES}){{3}}|[0-9a-f]{{15}}(,[0-9a-f]{{15}}){{0,500}}")


def is_area(text: str) -> bool:
    """Whether a text is an area itself, and not the path of a file with its polygons."""
    return _AREA.fullmatch(text) is not None


#: A grid, its size of cells and a box: the form of `flowveil.zoning.grids`.
GRID = re.compile(
    rf"(geohash|quadkey|s2|inspire):([0-9A-Za-z]{{1,12}}):({_DEGREES}(?:,{_DEGREES}){{3}})"
)


def is_grid(text: str) -> bool:
    """Whether a text is a grid, and not the path of a map."""
    return GRID.fullmatch(text) is not None


def split(text: str) -> tuple[str, ...]:
    """The names in a text, separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


_EMPTY: dict[str, Any] = {"flag": False, "list": (), "pairs": types.MappingProxyType({})}
_WANTED = {
    "text": "a text", "whole": "a whole number", "number": "a number", "flag": "true or false",
    "list": "a list of texts", "pairs": "names and values",
}  # fmt: skip


def _list(value: Any) -> tuple[str, ...] | None:
    is_list = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    return tuple(value) if is_list else None


def _pairs(value: Any) -> Mapping[str, Any] | None:
    plain = (str, int, float, bool, list, tuple)
    is_pairs = isinstance(value, Mapping) and all(
        isinstance(n, str) and isinstance(v, plain) for n, v in value.items()
    )
    return dict(value) if is_pairs else None


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and value == value  # not NaN


#: Each returns None for a value of another type.
_CHECKS: dict[str, Any] = {
    "text": lambda value: value if isinstance(value, str) and "\0" not in value else None,
    "whole": lambda value: value if _is_number(value, int) else None,
    "number": lambda value: float(value) if _is_number(value, int, float) else None,
    "flag": lambda value: value if isinstance(value, bool) else None,
    "list": _list,
    "pairs": _pairs,
}


def setting(
    meaning: str, *, between: tuple[float | None, float | None] = (None, None), **described: Any
) -> Any:
    """Returns a field of a section.

    The arguments are attributes of `Setting`, and the bounds of a number.
    """
    return field(
        default=None,
        metadata={"meaning": meaning, "low": between[0], "high": between[1], **described},
    )


class Section:
    """Base of the sections: checks the values and replaces None by the empty value of the kind."""

    key: ClassVar[str]
    heading: ClassVar[str]
    call: ClassVar[Call]

    def __init_subclass__(cls, *, key: str, heading: str, call: Call) -> None:
        """Declare a section."""
        cls.key, cls.heading, cls.call = key, heading, call

    def __post_init__(self) -> None:
        for one in section_settings(type(self)):
            object.__setattr__(self, one.name, one.check(getattr(self, one.name)))

    @property
    def given(self) -> dict[str, Any]:
        """The fields that were given, by name."""
        return {
            one.name: value
            for one in section_settings(type(self))
            if is_given(value := getattr(self, one.name))
        }


def is_given(value: Any) -> bool:
    """Whether a value of a field was given: 0 and an empty text are values, False and empty lists
    are not.
    """
    return not (
        value is None or value is False or (isinstance(value, tuple | Mapping) and not value)
    )


def section_settings(section: type[Section]) -> tuple[Setting, ...]:
    """The settings of a section, in the order of its fields."""
    key: Any = section
    return _described(key)


@cache
def _described(section: Any) -> tuple[Setting, ...]:
    hints = typing.get_type_hints(section)
    found = []
    for one in fields(section):
        hint = hints[one.name]
        is_optional = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        kind = _KINDS[
            next(k for k in typing.get_args(hint) if k is not type(None)) if is_optional else hint
        ]
        allowed = one.metadata.get("allowed")
        choices = "|".join(allowed) if isinstance(allowed, tuple) else ""
        usual = {
            "call": section.call,
            "flag": f"--{one.name.replace('_', '-')}",
            "metavar": choices or ("" if kind == "flag" else "NAME"),
            "page": one.metadata.get("form") != "path",
        }
        found.append(
            Setting(name=one.name, section=section.key, kind=kind, **{**usual, **one.metadata})
        )
    return tuple(found)
