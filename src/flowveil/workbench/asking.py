"""What the page asks for, checked; and the same as a call of the library, as a command and as lines of Python.

A page can send anything. Every choice has a type and a range here, and none of them is a path: files are named by the
server alone, so a study area is numbers or cells, never a file. One object makes the call and the words that repeat it:
what is downloaded and what the command line writes cannot drift apart.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowveil.errors import ParameterError
from flowveil.flows import SUM_COLUMNS
from flowveil.guarantee import UNITS
from flowveil.methods import METHODS
from flowveil.published.about import ENTRIES, checked
from flowveil.published.exports import FORMATS
from flowveil.workbench.method_options import REFUSED
from flowveil.zoning.refinement import HIERARCHIES

#: West, south, east and north in degrees, or H3 cells: what a study area may be here.
_DEGREES = r"\s*[+-]?\d{1,3}(\.\d{1,15})?\s*"
_AREA = re.compile(rf"{_DEGREES}(,{_DEGREES}){{3}}|[0-9a-f]{{15}}(,[0-9a-f]{{15}}){{0,500}}")
_LONGEST = 300


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST or "\0" in value:
        raise ValueError
    return value


def _one_of(allowed: Sequence[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError
        return str(value)

    return check


def _listed(check: Callable[[Any], str]) -> Callable[[Any], tuple[str, ...]]:
    def check_all(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > 20:
            raise ValueError
        return tuple(dict.fromkeys(check(one) for one in value))

    return check_all


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return check


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        # A page writes 0 for 0.0; a report would, too.
        return float(value)

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _area(value: Any) -> str:
    if not isinstance(value, str) or not _AREA.fullmatch(value):
        raise ValueError
    return value


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > 20:
        raise ValueError
    return {_text(name): _text(text) for name, text in value.items()}


#: How trips are read, by the names of the library.
READING: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("origin", "destination", "origin_tile", "destination_tile", "person", *SUM_COLUMNS, "trips"), _text
    ),
    "resolution": _whole(0, 15),
    "within": _area,
    "person_case": _one_of(("fold", "keep")),
    "same_zones": _flag,
    "skip_unknown": _flag,
    "wide": _flag,
    "max_dropped": _number(0, 1),
    "matrix": _text,
    "lookup": _text,
}
#: How trips are cut.
SLICES: dict[str, Callable[[Any], Any]] = {
    "by": _listed(_text),
    "by_many": _flag,
    "time": _text,
    "every": _text,
    "time_format": _text,
    "timezone": _text,
    "fold_time": _flag,
    "total": _flag,
    "common_zones": _flag,
    "accept_differencing": _flag,
}
#: Columns of a map of one's own.
MAP: dict[str, Callable[[Any], Any]] = {
    **{f"zones_{name}": _text for name in ("tile", "parent", "lat", "lon", "name", "root")},
    "zones_levels": _listed(_text),
}
#: What every cell must satisfy; means nothing to a method that adds noise.
THRESHOLDS: dict[str, Callable[[Any], Any]] = {
    "k": _whole(1, 10**9),
    "protect": _listed(_one_of(tuple(UNITS))),
    "max_suppressed": _number(0, 1),
    "k_population": _number(0, 1e12),
    "l": _whole(1, 10**6),
    "dominance": _number(0.01, 0.99),
    "allow_small_k": _flag,
    "population_only": _flag,
}
CHOICES: dict[str, Callable[[Any], Any]] = {
    **READING,
    **SLICES,
    **MAP,
    **THRESHOLDS,
    "method": _one_of(tuple(METHODS)),
    "hierarchy": _one_of(HIERARCHIES),
    "options": _texts,
    "formats": _listed(_one_of(tuple(FORMATS))),
    **dict.fromkeys(ENTRIES, _text),
}
#: Flags of the command line that differ from the library's names.
_FLAGS = {"allow_small_k": "--yes-k-below-3", "formats": "--format"}


def choices_of(content: Any) -> dict[str, Any]:
    """What a page chose, checked; an empty text and None are no choice, but for a person, where it means none.

    Raises:
        ParameterError: an entry is not known, or out of its range.
    """
    if not isinstance(content, dict):
        raise ParameterError("Choices are names and values.")
    found = {}
    for name, value in content.items():
        if name not in CHOICES:
            raise ParameterError(f"There is no choice of the name {str(name)[:40]!a}.")
        if value is None or (value in ("", []) and name != "person"):
            continue
        try:
            found[name] = CHOICES[name](value)
        except (ValueError, TypeError):
            raise ParameterError(f"The choice '{name}' is not one that can be made.") from None
    return found


@dataclass(frozen=True)
class Asked:
    """A release that was asked for.

    Attributes:
        reading, slices, map_columns: how the trips are read.
        thresholds: what every cell must satisfy.
        method, hierarchy, options: how.
        about, formats: what is written.
    """

    reading: Mapping[str, Any]
    slices: Mapping[str, Any]
    map_columns: Mapping[str, Any]
    thresholds: Mapping[str, Any]
    method: str
    hierarchy: str | None
    options: Mapping[str, str]
    about: Mapping[str, str]
    formats: tuple[str, ...]

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> Asked:
        """From choices that were checked.

        Raises:
            ParameterError: they do not go together.
        """

        def some(names: Mapping[str, Any]) -> dict[str, Any]:
            # Not by comparing: 0 is a choice, and equal to False.
            return {n: choices[n] for n in names if n in choices and choices[n] is not False and choices[n] != ()}

        slices = some(SLICES)
        method = choices.get("method") or (
            "odkanon" if slices.get("common_zones") else "paircut" if slices.get("fold_time") else "twincut"
        )
        noisy = METHODS[method].promises != "k"
        if noisy and slices:
            raise ParameterError(f"Method '{method}' makes one matrix: it cannot be cut into slices.")
        if slices.get("fold_time") and (slices.get("by") or not slices.get("every")):
            raise ParameterError("Folding needs a time and its step, and makes one matrix: not one for each attribute.")
        if slices and "dominance" in choices:
            raise ParameterError("A limit on what one person makes up is for a single matrix.")
        if any(name in REFUSED for name in choices.get("options", {})):
            raise ParameterError("Noise that can be drawn again hides nothing.")
        thresholds = {} if noisy else {"k": 10, "max_suppressed": 0.1, **some(THRESHOLDS)}
        return cls(
            some(READING),
            slices,
            {name.removeprefix("zones_"): value for name, value in some(MAP).items()},
            thresholds,
            method,
            choices.get("hierarchy") if METHODS[method].hierarchy else None,
            choices.get("options", {}),
            checked({name: choices[name] for name in ENTRIES if name in choices}),
            tuple(choices.get("formats", ())),
        )

    @property
    def is_sliced(self) -> bool:
        """Whether there are several matrices."""
        return bool(self.slices.get("by") or self.slices.get("time")) and not self.slices.get("fold_time")

    @property
    def how_read(self) -> dict[str, Any]:
        """What reading needs to know, but for the map."""
        named = ("by", "by_many", "time", "every", "time_format", "timezone")
        return {**self.reading, **{name: self.slices[name] for name in named if name in self.slices}}

    def key(self, source: str) -> str:
        """A name for the flows of a source that is read like this."""
        read = [source, self.how_read, dict(self.map_columns), bool(self.slices.get("fold_time"))]
        content = json.dumps(read, sort_keys=True, default=list)
        return hashlib.sha256(content.encode()).hexdigest()[:24]

    @property
    def how_made(self) -> dict[str, Any]:
        """What anonymising needs to know.

        Raises:
            ParameterError: an option of the method cannot be.
        """
        method = METHODS[self.method]
        parsed = {name: method.parse_option(name, text) for name, text in self.options.items()}
        on_tree = {} if self.hierarchy is None else {"hierarchy": self.hierarchy}
        given = dict(self.thresholds)
        if "protect" in given:
            given["protect"] = list(given["protect"])
        return {"method": self.method, **on_tree, **given, **parsed}

    @property
    def how_cut(self) -> dict[str, bool]:
        """What anonymising slices needs to know besides."""
        return {name: True for name in ("total", "common_zones", "accept_differencing") if self.slices.get(name)}

    def command(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """The command that makes the same release; with the ledger that it is recorded in, and what was accepted."""
        words = ["flowveil", "anonymize", source]
        given: dict[str, Any] = {"method": self.method, "hierarchy": self.hierarchy, **self.thresholds, **self.reading}
        given |= {**self.slices, "zones": zones, **{f"zones_{n}": v for n, v in self.map_columns.items()}}
        given |= recorded or {}
        if "levels" in self.map_columns:
            given["zones_levels"] = ",".join(self.map_columns["levels"])
        given["by"] = ",".join(self.slices.get("by", ())) or None
        given["formats"] = ",".join(self.formats) or None
        for name, value in {**given, **self.about}.items():
            flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
            if value is True:
                words.append(flag)
            elif isinstance(value, tuple):
                words += [word for one in value for word in (flag, one)]
            elif value is not None:
                words += [flag, str(value)]
        for name, text in self.options.items():
            words += ["--option", f"{name}={text}"]
        return " ".join(shlex.quote(word) for word in [*words, "--out", "release"])

    def python(self, source: str, zones: str | None, recorded: Mapping[str, Any] | None = None) -> str:
        """The lines of Python that make the same release."""
        reading = [repr(source), *_arguments(self.how_read)]
        if zones is not None:
            reading.append(f"zones=flowveil.read_zones({', '.join([repr(zones), *_arguments(self.map_columns)])})")
        cut = bool(self.slices)
        lines = [
            "import flowveil",
            f"flows = flowveil.read_{'slices' if cut else 'trips'}({', '.join(reading)})"
            + (".folded()" if self.slices.get("fold_time") else ""),
        ]
        made = _arguments({**self.how_made, **self.how_cut})
        lines.append(
            f"release = flowveil.anonymize{'_slices' if self.is_sliced else ''}({', '.join(['flows', *made])})"
        )
        written = _arguments(
            {**({"formats": list(self.formats)} if self.formats else {}), **self.about, **(recorded or {})}
        )
        return "\n".join([*lines, f"release.write({', '.join([repr('release'), *written])})"])


def _arguments(given: Mapping[str, Any]) -> list[str]:
    return [f"{name}={list(value) if isinstance(value, tuple) else value!r}" for name, value in given.items()]
