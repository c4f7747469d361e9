"""Counters and settings of one read of trips."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flowveil.errors import with_value


@dataclass(frozen=True)
class Days:
    """The days of the trips of one read, by which a ledger proves that two releases share no trip. Private.

    The same row has the same day only if time zone and format are equal. ``missing``: a row without a time was used.
    """

    column: str
    timezone: str | None
    time_format: str | None
    days: frozenset[str]
    missing: bool


@dataclass(frozen=True)
class ReadSummary:
    """Counters and settings of one read. Contains no input rows.

    Every row that represents trips is used, dropped or outside. Dropped rows could not be read: a missing end, an
    unknown code, a point off the earth. Rows outside have an end (or, if ``outside`` is ``keep``, both ends) outside
    the study area. Trips and weight count all of these rows; a row without a number of trips or weight counts 0.

    Attributes:
        empty_rows: rows without trips: their number of trips is 0.
        dropped: dropped rows, by reason.
        input_trips, input_weight: of all rows: used, dropped and outside.
        columns: which input column served as what.
        resolution: H3 resolution of the tiles, or None for tiles of the user's own.
        zones: which column of the user's own map served as what.
        within: the study area as text; a placeholder where it came from a file; None where there was none.
        outside: ``keep`` if trips with one end outside that area were kept.
        max_dropped, skip_unknown: how tolerant the reading was.
        partition_columns: columns that were taken from the paths of the files.
        by_many: whether attributes with many values were allowed to make slices.
        person_case: ``fold`` if upper and lower case in names of persons was ignored, else ``keep``.
        time_format: how times were read, if the user gave a format.
        timezone: the zone that times are shown in, named by the user or by the column: a name, or a fixed offset such
            as ``UTC+0100``. None for local times without a zone, and for texts with different offsets, which are shown
            as written.
        during: the month or day whose trips alone were read; None for all.
        notes: sentences for the operator on how the input was read; never published.
        same_zones: whether both ends have one tree, over the tiles seen at either, and are to have the same zones.
        matrix, lookup, wide: which matrices of a file were read, and how its zones were named.
        crs: reference system of the coordinates; None for degrees.
        decimal_comma: whether numbers in text had a decimal comma.
        nobody: used rows without a known person, by the placeholder in the person column.
        days: the days of the trips, where the input has a time column; private.
        outline: the study area as text that `flowveil.reading.areas.parse_area` reads, or as WKB in hexadecimal digits
            if it came from a file; private.
        key: fingerprint of the key of the record keys; None if none were read.
        between, value_share, p_percent: bounds and rules of the numbers that cells publish.
    """

    rows: int = 0
    empty_rows: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    dropped_trips: float = 0
    dropped_weight: float | None = None
    outside_rows: int = 0
    outside_trips: float = 0
    outside_weight: float | None = None
    input_trips: float = 0
    input_weight: float | None = None
    columns: dict[str, str] = field(default_factory=dict)
    resolution: int | None = None
    zones: dict[str, str] = field(default_factory=dict)
    within: str | None = None
    outside: str | None = None
    max_dropped: float = 0.05
    skip_unknown: bool = False
    partition_columns: tuple[str, ...] = ()
    by_many: bool = False
    person_case: str = "fold"
    time_format: str | None = None
    timezone: str | None = None
    during: str | None = None
    notes: tuple[str, ...] = ()
    same_zones: bool = False
    matrix: tuple[str, ...] = ()
    lookup: str | None = None
    wide: bool = False
    crs: str | None = None
    decimal_comma: bool = False
    nobody: dict[str, int] = field(default_factory=dict)
    days: Days | None = None
    outline: str | None = None
    key: str | None = None
    between: tuple[str, ...] = ()
    value_share: float | None = None
    p_percent: float | None = None

    @property
    def left_out(self) -> dict[str, int]:
        """All rows that are not used, by reason."""
        empty = {"no trips": self.empty_rows} if self.empty_rows else {}
        outside = {"outside the area": self.outside_rows} if self.outside_rows else {}
        return {**empty, **self.dropped, **outside}

    @property
    def used_rows(self) -> int:
        """Rows whose trips are in the flows."""
        return self.rows - sum(self.left_out.values())

    @property
    def dropped_share(self) -> float:
        """Share of the input that was dropped: of rows, trips or weight, whichever is largest. Exact, so private."""
        rows = sum(self.dropped.values()), self.rows - self.empty_rows
        weight = self.dropped_weight or 0.0, self.input_weight or 0.0
        shares = [rows, (self.dropped_trips, self.input_trips), weight]
        return max(part / whole if whole else 0.0 for part, whole in shares)

    def parameters(self) -> dict[str, Any]:
        """How the input was read, as a report records it; `Reading.from_parameters` reads it the same again."""
        said: dict[str, Any] = {
            "time_format": self.time_format,
            "timezone": self.timezone,
            "during": self.during,
            "outside": self.outside,
            "crs": self.crs,
            "decimal_comma": self.decimal_comma or None,
        }
        if self.between:
            said |= {"between": list(self.between), "value_share": self.value_share, "p_percent": self.p_percent}
        return {
            **{name: value for name, value in said.items() if value is not None},
            "resolution": self.resolution,
            "columns": dict(self.columns),
            "max_dropped": self.max_dropped,
            "skip_unknown": self.skip_unknown,
            "partition_columns": list(self.partition_columns),
            "person_case": self.person_case,
            "zones": dict(self.zones),
            "within": self.within,
            "same_zones": self.same_zones,
            "matrix": list(self.matrix),
            "lookup": self.lookup,
            "wide": self.wide,
        }

    def about_reading(self, *, counted: bool = True) -> list[str]:
        """Returns sentences for the operator: which column served as what, and notes on the reading.

        Args:
            counted: whether they may say how many rows have no person.
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
            lines.append(f"Rows without a known person, which add no person: {sum(self.nobody.values()):,} ({words}).")
        return lines
