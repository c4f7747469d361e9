"""Counters and settings of one read of trips."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

from flowveil.core.errors import with_value

#: Settings that a report always records, in its order.
_RECORDED = (
    "resolution",
    "columns",
    "max_dropped",
    "skip_unknown",
    "partition_columns",
    "person_case",
    "zones",
    "within",
    "same_zones",
    "matrix",
    "lookup",
    "wide",
)


@dataclass(frozen=True)
class Days:
    """The days of the trips of one read, by which a ledger proves that two releases share no trip.

    Private.

    The same row has the same day only if time zone and format are equal. ``missing``: a row without
    a time was used.
    """

    column: str
    timezone: str | None
    time_format: str | None
    days: frozenset[str]
    missing: bool


@dataclass(frozen=True)
class ReadSummary:
    """Counters and settings of one read. Contains no input rows.

    Every row that represents trips is used, dropped or outside. Dropped rows could not be read: a
    missing end, an unknown code, a point off the earth. Rows outside have an end (or, if
    ``outside`` is ``keep``, both ends) outside the study area. Trips and weight count all of these
    rows; a row without a number of trips or weight counts 0. Fields without a comment are those of
    `flowveil.reading.Reading`.
    """

    rows: int = 0
    empty_rows: int = 0  # their number of trips is 0
    dropped: dict[str, int] = field(default_factory=dict)  # by reason
    dropped_trips: float = 0
    dropped_weight: float | None = None
    outside_rows: int = 0
    outside_trips: float = 0
    outside_weight: float | None = None
    input_trips: float = 0  # of all rows: used, dropped and outside
    input_weight: float | None = None
    columns: dict[str, str] = field(
        default_factory=dict
    )  # which column of the input served as what
    resolution: int | None = None  # of the tiles; None for tiles of the user's map
    zones: dict[str, str] = field(
        default_factory=dict
    )  # which column of the user's map served as what
    within: str | None = None  # the study area as text; a placeholder if it came from a file
    outside: str | None = None
    max_dropped: float = 0.05
    skip_unknown: bool = False
    partition_columns: tuple[str, ...] = ()
    by_many: bool = False
    person_case: str = "fold"
    time_format: str | None = None
    #: Zone that times are shown in: a name, or an offset such as ``UTC+0100``. None for local times
    #: without a zone, and for texts with different offsets, which are shown as written.
    timezone: str | None = None
    during: str | None = None
    notes: tuple[
        str, ...
    ] = ()  # sentences for the operator on how the input was read; never published
    same_zones: bool = False
    matrix: tuple[str, ...] = ()
    lookup: str | None = None
    wide: bool = False
    crs: str | None = None
    decimal_comma: bool = False
    thousands: str | None = None
    counted: str | None = None
    source_format: str | None = None
    column_names: tuple[str, ...] = ()
    pad_codes: bool = False
    nobody: dict[str, int] = field(
        default_factory=dict
    )  # used rows without a known person, by placeholder
    days: Days | None = None  # of the trips, where the input has a time column; private
    outline: str | None = None  # the study area as `flowveil.reading.areas.Area.stored`; private
    between: tuple[str, ...] = ()
    value_share: float | None = None
    p_percent: float | None = None

    def __repr__(self) -> str:
        return f"<ReadSummary: {self.rows:,} rows>"

    @property
    def left_out(self) -> dict[str, int]:
        """All rows that are not used, by reason."""
        rows = {"no trips": self.empty_rows, **self.dropped, "outside the area": self.outside_rows}
        return {reason: n for reason, n in rows.items() if n}

    @property
    def used_rows(self) -> int:
        """Rows whose trips are in the flows."""
        return self.rows - sum(self.left_out.values())

    @property
    def dropped_share(self) -> float:
        """Share of the input that was dropped: of rows, trips or weight, whichever is largest.

        Exact, so private.
        """
        rows = sum(self.dropped.values()), self.rows - self.empty_rows
        weight = self.dropped_weight or 0.0, self.input_weight or 0.0
        shares = [rows, (self.dropped_trips, self.input_trips), weight]
        return max(part / whole if whole else 0.0 for part, whole in shares)

    def parameters(self) -> dict[str, Any]:
        """How the input was read, as a report records it.

        `Reading.from_parameters` reads it the same again.
        """
        given = {
            name: getattr(self, name)
            for name in (
                "time_format",
                "timezone",
                "during",
                "outside",
                "crs",
                "thousands",
                "counted",
                "source_format",
            )
        }
        given["decimal_comma"] = self.decimal_comma or None
        given["pad_codes"] = self.pad_codes or None
        given["column_names"] = list(self.column_names) or None
        if self.between:
            given |= {
                "between": list(self.between),
                "value_share": self.value_share,
                "p_percent": self.p_percent,
            }
        recorded = {name: value for name, value in given.items() if value is not None}
        for name in _RECORDED:
            value = getattr(self, name)
            recorded[name] = list(value) if isinstance(value, tuple) else copy(value)
        return recorded

    def about_reading(self, *, counted: bool = True) -> list[str]:
        """Returns sentences for the operator: columns, notes and, if ``counted``, the rows without
        a person.
        """
        used = "; ".join(f"{role} from {name}" for role, name in self.columns.items() if name)
        lines = [*([f"Columns: {used}."] if used else []), *self.notes]
        if not self.columns.get("person"):
            return lines
        case = {"fold": "ignored", "keep": "distinguished"}[self.person_case]
        given = with_value("person_case", self.person_case)
        lines.append(f"Upper and lower case in names of persons is {case} ({given}).")
        if self.nobody and counted:
            words = ", ".join(f"{word}: {rows:,}" for word, rows in self.nobody.items())
            lines.append(
                f"Rows without a known person, which add no person: {sum(self.nobody.values()):,}"
                f" ({words})."
            )
        return lines
