"""The statement: everything a release publishes in addition to its cells and zones. A closed list.

Only what the operator chose or declared is in it, and three shares of the input. The shares are the
only numbers that are computed from raw trips. A share is published as the smallest multiple of a
step that is not below it, and at least one step, so that 0 and 1 suppressed trip look the same. The
step is max(1 %, k / published trips): every published share leaves at least k possible counts open.
Noisy releases and revisions have no shares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from flowveil.core.errors import ParameterError
from flowveil.core.times import TIME_COLUMNS
from flowveil.release.facets import Facets, Kind
from flowveil.request.request import fold_files

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.core.hierarchy import Hierarchy
    from flowveil.zoning.public_map import PublicMap


#: What a cell must have, as the statement says it.
Bar = Literal["k", "k plus a secret amount"]
#: Entries of report.json that stand next to ``statement``, not in it.
_TOP = ("method", "parameters", "guarantee")
_SMALLEST_STEP = Fraction(1, 100)
#: The version that reads and verifies folders without a statement of this form.
_EARLIER = "0.2"


@dataclass(frozen=True)
class Shares:
    """What share of the input is not published, each rounded up; see the module."""

    basis: Literal[
        "trips", "weight"
    ]  # what is counted: trips, or weight where the population is protected
    step: float  # the step that shares are rounded up to
    dropped: float  # rows that could not be read
    outside: (
        float | None
    )  # trips outside the study area or map; None if all of them are dropped or read
    suppressed: float  # trips that were read and are in no published cell

    @property
    def published(self) -> float:
        """The share of the input that is published at least."""
        return max(0.0, 1.0 - self.dropped - (self.outside or 0.0) - self.suppressed)


def share_step(k: int, published_trips: Fraction | int) -> Fraction:
    """Returns the step of shares: max(1 %, k / published trips), at most 1."""
    return min(Fraction(1), max(_SMALLEST_STEP, Fraction(k) / max(published_trips, 1)))


def round_share(share: Fraction, step: Fraction) -> float:
    """Returns the smallest multiple of the step that is not below the share.

    At least one step, at most 1.
    """
    steps = max(1, -(-share // step))
    return float(min(Fraction(1), steps * step))


@dataclass(frozen=True)
class Statement:
    """What a release says of itself."""

    method: str  # name of the method
    parameters: Mapping[
        str, Any
    ]  # the request, without paths: how the input was read, and the settings
    guarantee: Mapping[
        str, Any
    ]  # the rule that every cell satisfies; a population of k mean weights has no number
    about: Mapping[str, str] = field(
        default_factory=dict
    )  # title, source, period, licence and contact, as declared
    homogeneous: bool = True  # the zones of each end are disjoint
    # The rule by which trips were suppressed.
    suppression: Mapping[str, Any] = field(default_factory=lambda: {"rule": "short cells"})
    # What a pair of zones must have to be a cell. A secret amount protects its parts.
    thresholds: Bar = "k"
    boxes: Mapping[str, Any] | None = None  # grid of the boxes; None where zones are nodes
    layers: bool = False  # cells come in layers, each with the trips that earlier layers left
    slice_columns: tuple[str, ...] = ()  # columns that distinguish the matrices
    # Zone of the published times; None where no time is published, or it is local time without a
    # zone.
    timezone: str | None = None
    shares: Shares | None = None  # see `Shares`; None for noise and revisions
    confirmed: tuple[str, ...] = ()  # weaknesses that the operator confirmed
    ledger: Mapping[str, Any] | None = None  # verdict of the ledger; None without one
    # SHA-256 of flows.parquet of each release that this one revises, the oldest first.
    revision_of: tuple[str, ...] = ()
    zones_of: str | None = (
        None  # SHA-256 of the zone map that was given; None where the method chose the zones
    )
    derived_from: str | None = (
        None  # SHA-256 of the manifest of the release that this one was computed from
    )
    differencing_accepted: bool = (
        False  # the operator accepted that readers can subtract releases or matrices
    )
    formats: tuple[str, ...] = ()  # exports in the folder
    basemap: str | None = None  # address of the tile server that readers may switch on
    context: bool = False  # outlines of the operator are published in context.geojson

    def __post_init__(self) -> None:
        # In the order of the file, so that texts made from a statement are the same when it is read
        # back.
        for name in ("parameters", "guarantee", "about", "suppression", "boxes", "ledger"):
            object.__setattr__(self, name, _plain(getattr(self, name)))

    @cached_property
    def facets(self) -> Facets:
        """What the release is."""
        return Facets.stated(
            guarantee=self.guarantee,
            parameters=self.parameters,
            boxes=self.boxes,
            layers=self.layers,
            slice_columns=self.slice_columns,
        )

    @property
    def kind(self) -> Kind:
        """The word for readers, which report.json has."""
        return self.facets.kind

    @property
    def fold_trees(self) -> dict[str, Hierarchy]:
        """The tree of each folded attribute that has one, as it is stated."""
        from flowveil.zoning.files import read_tree

        return {name: read_tree(parents) for name, parents in fold_files(self.parameters).items()}

    @property
    def fold_columns(self) -> tuple[str, ...]:
        """The columns of the cells that hold groups of attributes, or times.

        Empty if nothing is folded.
        """
        if not self.facets.folds:
            return ()
        timed = (self.parameters.get("slices") or {}).get("fold_time")
        return *self.parameters.get("fold", ()), *(TIME_COLUMNS if timed else ())

    def to_report(self) -> dict[str, Any]:
        """Returns the entries of report.json that are not figures: plain JSON types."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["shares"] = None if self.shares is None else asdict(self.shares)
        plain = {name: _plain(value) for name, value in values.items()}
        top = {name: plain.pop(name) for name in _TOP}
        return {"kind": self.kind, **top, "statement": plain}

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Statement:
        """Reads a statement back."""
        check_report(report)
        return cls.from_checked(report)

    @classmethod
    def from_checked(cls, report: Mapping[str, Any]) -> Statement:
        """Reads a statement back from a report that `check_report` accepts."""
        values = {name: report[name] for name in _TOP} | dict(report["statement"])
        values["shares"] = None if values["shares"] is None else Shares(**values["shares"])
        for name in ("slice_columns", "confirmed", "revision_of", "formats"):
            values[name] = tuple(values[name])
        return cls(**values)


def check_report(report: Any) -> None:
    """Refuses a report.json that has another form than `report.schema.json`."""
    if isinstance(report, Mapping) and str(report.get("version", "")).startswith(f"{_EARLIER}."):
        raise ParameterError(
            f"This release was written by flowveil {_EARLIER}, whose report.json has another form."
            f" Hint: use flowveil {_EARLIER} to read or verify it: pip install"
            f" 'flowveil=={_EARLIER}.*'."
        )
    place = _find_problem(report, report_schema(), "")
    if place is not None:
        raise ParameterError(
            "report.json does not have the form of a release: see"
            f" {place.removeprefix('.') or 'the top level'}."
        )


@cache
def report_schema() -> Mapping[str, Any]:
    """Returns the JSON schema of report.json."""
    text = (files("flowveil.release") / "report.schema.json").read_text(encoding="utf-8")
    return MappingProxyType(json.loads(text))


#: Keywords of JSON schema that limit a value: the type they apply to, and whether a value breaks
#: the limit.
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("number", lambda value, limit: value < limit),
    "maximum": ("number", lambda value, limit: value > limit),
    "exclusiveMinimum": ("number", lambda value, limit: value <= limit),
    "minLength": ("string", lambda value, limit: len(value) < limit),
    "maxLength": ("string", lambda value, limit: len(value) > limit),
    "pattern": ("string", lambda value, limit: re.search(limit, value) is None),
}


def _find_problem(value: Any, schema: Any, place: str) -> str | None:
    """Returns the first place where a value breaks a JSON schema with the keywords of
    `report.schema.json`, or None.
    """
    if isinstance(schema, bool):
        return None if schema else place
    types = _types_of(value)
    allowed = schema.get("type", types)
    if types.isdisjoint([allowed] if isinstance(allowed, str) else allowed):
        return place
    if "enum" in schema and not any(
        value == one and types == _types_of(one) for one in schema["enum"]
    ):
        return place
    if "anyOf" in schema and all(
        _find_problem(value, one, place) is not None for one in schema["anyOf"]
    ):
        return place
    if any(
        name in schema and kind in types and breaks(value, schema[name])
        for name, (kind, breaks) in _LIMITS.items()
    ):
        return place
    found: list[str | None] = []
    if isinstance(value, list):
        found = [
            _find_problem(inner, schema.get("items", True), f"{place}.{i}")
            for i, inner in enumerate(value)
        ]
    elif isinstance(value, Mapping):
        found = [place for name in schema.get("required", ()) if name not in value]
        for name, inner in value.items():
            found.append(_find_problem(name, schema.get("propertyNames", True), place))
            known = name in schema.get("properties", ())
            own = schema["properties"][name] if known else schema.get("additionalProperties", True)
            # Names of unknown entries are not quoted.
            found.append(_find_problem(inner, own, f"{place}.{name}" if known else place))
    return next((one for one in found if one is not None), None)


def _types_of(value: Any) -> set[str]:
    """Returns the names that JSON schema has for the type of a value."""
    if value is None or isinstance(value, bool):
        return {"null" if value is None else "boolean"}
    if isinstance(value, int | float):
        return {"number", "integer"} if value % 1 == 0 else {"number"}
    return {
        "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
    }


def _plain(value: Any) -> Any:
    """Returns the value in JSON types, entries sorted by name.

    No tuples, no numpy numbers, no NaN.
    """
    if isinstance(value, Mapping):
        named = {str(name): inner for name, inner in value.items()}
        return {name: _plain(named[name]) for name in sorted(named)}
    if isinstance(value, list | tuple | set | frozenset):
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(inner) for inner in ordered]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value + 0.0 if value - value == 0 else None
    return value if value is None or isinstance(value, str | int) else str(value)


@dataclass(frozen=True, eq=False)
class Published:
    """A release as its readers have it. Every file of the folder is a function of this."""

    cells: (
        pa.Table
    )  # flows.parquet: the zones of each cell by code, its trips, its slice or time; sorted
    statement: Statement  # the closed list of all other published facts
    # where zones lie, by their codes: a function of the map that was given, never of the trips
    map: PublicMap
    outlines: str | None = None  # text of context.geojson, where the operator gave outlines
