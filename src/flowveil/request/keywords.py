"""Keywords of calls, typed for editors and mypy.

Made by tools/keywords.py from the settings of `flowveil.request.request`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, TypedDict


class FurtherReading(TypedDict, total=False):
    """How to read trips, besides ends, persons and times."""

    source_format: str | None
    column_names: str | Iterable[str]
    origin_tile: str | None
    destination_tile: str | None
    trips: str | None
    counted: str | None
    max_dropped: float
    skip_unknown: bool
    partition_columns: str | Iterable[str]
    matrix: str | Iterable[str]
    lookup: str | None
    wide: bool
    crs: str | None
    decimal_comma: bool
    thousands: str | None
    pad_codes: bool
    remote: bool
    no_person: bool
    person_case: str
    zones: Any
    within: Any
    outside: str
    same_zones: bool
    timezone: str | None
    time_format: str | None
    during: str | None
    by: str | Iterable[str]
    by_many: bool
    mean: str | Iterable[str]
    total_of: str | Iterable[str]
    median: str | Iterable[str]
    between: str | Iterable[str]
    value_share: float
    p_percent: float


class TimelessReading(FurtherReading, total=False):
    """How to read trips, besides their times."""

    resolution: int
    origin: str | tuple[str, str] | None
    destination: str | tuple[str, str] | None
    person: str | None
    weight: str | None
    engine: str
    progress: Callable[[float], None] | None
    ask_person: bool


class ReadingKeywords(TimelessReading, total=False):
    """How to read trips: `flowveil.read_trips`."""

    time: str | None
    every: str | None


class AboutKeywords(TypedDict, total=False):
    """What a release is about."""

    title: str | None
    source: str | None
    period: str | None
    licence: str | None
    publisher: str | None
    contact: str | None
    issued: str | None
    modified: str | None
    base_url: str | None
    language: str


class FolderKeywords(AboutKeywords, total=False):
    """How to write a folder: a derived release."""

    formats: str | Iterable[str]
    ledger: str | PathLike[str] | None
    replace_stronger: bool
    overwrite: bool


class WritingKeywords(FolderKeywords, total=False):
    """How to write a release: `Release.write`."""

    basemap: str | None
    context: str | PathLike[str] | None
    accept_differencing: bool
    epsilon_total: float | None
