"""The names by which users say how trips are read, each written once: `read_trips` and `read_slices` take them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class _Options(TypedDict, total=False):
    resolution: int
    origin: str | Sequence[str] | None
    destination: str | Sequence[str] | None
    origin_tile: str | None
    destination_tile: str | None
    person: str | None
    no_person: bool
    ask_person: bool
    weight: str | None
    trips: str | None
    zones: Any
    within: Any
    outside: str | None
    max_dropped: float
    skip_unknown: bool
    partition_columns: str | Sequence[str]
    person_case: str
    same_zones: bool
    matrix: str | Sequence[str]
    lookup: str | None
    wide: bool
    remote: bool
    time: str | None
    time_format: str | None
    timezone: str | None


class TripOptions(_Options, total=False):
    """What `flowveil.read_trips` takes; its documentation says what each means."""

    during: str | None


class SliceOptions(_Options, total=False):
    """What `flowveil.read_slices` takes."""

    by: str | Sequence[str]
    every: str | None
    by_many: bool


def refuse_unknown(given: TripOptions | SliceOptions, allowed: Any) -> None:
    """Raise TypeError for a name that is not among the options, as Python does for one that no parameter has."""
    known = sorted(allowed.__optional_keys__)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"Unknown argument {unknown[0]!r}. Known are {', '.join(known)}.")
