"""Reads a column of times in SQL: one form for the whole column, or an error (docs/reading.md lists
the forms).

A misread time makes wrong hours, and nothing in a release shows it. So the form is chosen from all
values, and values of another form, impossible dates and years outside 1900 to 2100 are errors.
Messages show the shape of a value (``9/9/99 9:99:99 AA``), never the value. If no value decides
between day-first and month-first, the column is refused. Times without a zone are local; Unix times
and times in UTC have no local hour, so the user must name a zone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from flowveil.core.errors import DataError, ParameterError, did_you_mean
from flowveil.reading.sql import MISSING_PATTERN, quoted_text

#: The first microsecond of 1900, and the first after 2100.
FIRST_MICROSECOND, END_MICROSECOND = -2_208_988_800_000_000, 4_133_980_800_000_000
#: Name of the column of microseconds that is added to a table.
MICROSECONDS = "flowveil_us"
#: Range of Unix numbers, from 1980 on: smaller ones are hours, seconds of a day, days, or dates
#: without separators. The ranges of the three units do not overlap.
_UNIX_FROM, _UNIX_TO = 315_532_800, 4_133_980_800
_UNIX_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}
#: Shapes of recognised texts, with 9 for every digit.
_SHAPE = re.compile(
    r"(?P<date>9999(?P<y>[-/.])99?(?P=y)99?|99?(?P<d>[-/.])99?(?P=d)9999)"
    r"(?:(?P<gap>[T ]) *99?:99(?P<seconds>:99(?:(?P<point>[.,])(?P<fraction>9{1,9}))?)?"
    r"(?P<half> *[AP]M| *[ap]m)?(?P<zone> *(?:Z|UTC|GMT|[+-]99(?::?99)?))?)?"
)
#: An offset from UTC.
_OFFSET = r"[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?$"
_MINUTE = 60_000_000
#: Upper bound for distinct shapes; a column with more does not hold times.
_MOST_SHAPES = 2_000
#: Rows that are tried first.
_FIRST_ROWS = 10_000
#: A time of day without a date, and an hour as a number.
_LONG_CLOCK = r"^(\d{1,2}):([0-5]\d)(:([0-5]\d)([.]\d+)?)?$"
_CLOCK = r"^([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_HOUR_TEXT = r"^([01]?[0-9]|2[0-4])(\.[0-9]+)?$"
_UNIX_TEXT = r"^[0-9]{9,16}(\.[0-9]+)?$"
#: Types of DuckDB.
NUMBER_TYPE = re.compile(
    r"^U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)$|^FLOAT$|^DOUBLE$|^DECIMAL|^\"?NULL\"?$"
)
FLOAT_TYPE = re.compile(r"^(FLOAT|DOUBLE)$")
TEXT_TYPE = re.compile(r"^VARCHAR|^ENUM")
#: A format is published, so it may hold directives and separators, but no words.
_DIRECTIVES = "YymdHIMSfpbBaAjz"
_FORMAT = re.compile(rf"(?:%[{_DIRECTIVES}]|[ /:.,;_TZ-]){{1,60}}")
_ZONE = re.compile(r"UTC|[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+")
#: A fixed offset in recorded form: ``UTC+0530``.
_FIXED = re.compile(r"UTC([+-])(0[0-9]|1[0-4])([0-5][0-9])")
#: Names of UTC in types of columns, in lower case.
_UTC_NAMES = frozenset(
    {"utc", "gmt", "z", "zulu", "uct", "universal", "greenwich", "+00:00", "-00:00"}
)


def check_time_options(time_format: str | None, timezone: str | None) -> None:
    """Raises ParameterError for a malformed format or zone.

    `decide` checks whether the zone exists.
    """
    if time_format is not None and not (_FORMAT.fullmatch(time_format) and "%" in time_format):
        raise ParameterError(
            "time_format (--time-format) must be made of directives of strptime"
            f" ({', '.join('%' + c for c in _DIRECTIVES)}) and of blanks and / : . , ; _ - T Z"
            " between them, such as '%m/%d/%y %H:%M'."
        )
    directives = re.findall("%(.)", time_format or "")
    if len(set(directives)) < len(directives) or ("I" in directives) != ("p" in directives):
        raise ParameterError(
            "time_format (--time-format) must have each directive once, and %I (1 to 12) and %p"
            " (AM, PM) together."
        )
    if {"H", "I"} <= set(directives):
        raise ParameterError(
            "time_format (--time-format) must have one of %H (0 to 23) and %I (1 to 12), not both."
        )
    if timezone is not None and not (_ZONE.fullmatch(timezone) or _FIXED.fullmatch(timezone)):
        raise ParameterError(
            "timezone (--timezone) must be UTC or a name such as Europe/Paris; abbreviations such"
            " as CST mean several."
        )


@dataclass(frozen=True)
class TimeForm:
    """How one column of times is read.

    Attributes:
        moment: SQL: microseconds since 1970 in local time, of any year; NULL if the value is
            missing or no time.
        missing, looks: SQL: whether the value is missing; its shape.
        problem, note: what is wrong with the column as a whole; how the time zone was chosen; or
            None.
        timezone: name or fixed offset (``UTC+0100``) of the local time; None if times are shown as
            written.
        of_day: whether the values are times of day without a date.
        needs_timezone: what the times are ("Unix times", "in UTC") if the hour of the day is not
            known, because no zone is named; or None. `moment` is in UTC then.
    """

    moment: str
    missing: str
    looks: str
    problem: str | None = None
    note: str | None = None
    timezone: str | None = None
    needs_timezone: str | None = None
    of_day: bool = False

    def over(self, relation: str) -> str:
        """Returns the FROM clause with the additional column `MICROSECONDS`, NULL also outside 1900
        to 2100.
        """
        # A separate subquery, so that the expression is evaluated once.
        inside = f"flowveil_moment >= {FIRST_MICROSECOND} AND flowveil_moment < {END_MICROSECOND}"
        bounded = f"CASE WHEN {inside} THEN flowveil_moment END"
        moments = f"(SELECT *, {self.moment} AS flowveil_moment FROM {relation})"
        return f"(SELECT * EXCLUDE (flowveil_moment), {bounded} AS {MICROSECONDS} FROM {moments})"

    @property
    def state(self) -> str:
        """SQL over `over`: 0 for a time, 1 for a missing value, 2 for a value of another form."""
        if self.problem is not None:
            return "CAST(0 AS TINYINT)"
        return (
            f"CAST(CASE WHEN {MICROSECONDS} IS NOT NULL THEN 0 WHEN {self.missing} THEN 1 ELSE 2"
            " END AS TINYINT)"
        )

    @property
    def shape(self) -> str:
        """SQL over `over`: the shape of a value of state 2, otherwise NULL."""
        return f"CASE WHEN {MICROSECONDS} IS NULL AND NOT ({self.missing}) THEN {self.looks} END"

    def refuse(self, column: str) -> None:
        """Raises DataError if the column as a whole cannot be read, or has no dates."""
        if self.of_day:
            raise DataError(
                f"The times in column {column!r} have no date. Hint: name a column with date and"
                " time."
            )
        if self.problem is not None:
            raise DataError(f"The times in column {column!r} cannot be read: {self.problem}.")


def decide(
    con: Any,
    relation: str,
    column: str,
    kind: str,
    *,
    time_format: str | None = None,
    timezone: str | None = None,
    column_zone: str | None = None,
) -> TimeForm:
    """Chooses how a column of times is read, from all of its values.

    ``column`` and ``kind`` are its SQL and its type in DuckDB; ``column_zone`` is the zone of its
    type, which DuckDB drops. The relation is a FROM clause that can be read more than once.
    """
    found = _recognised(
        con, relation, column, kind, time_format=time_format, column_zone=column_zone
    )
    moment, shown, note, needs = found.moment, timezone, None, None
    if timezone is not None:
        if found.instants is None and found.problem is None:
            raise ParameterError(
                "timezone (--timezone) is given, but the times have no zone, so there is nothing to"
                " convert: they are taken as local times. Hint: leave it out, or write the times"
                " with their zone."
            )
        moment = _in_zone(con, moment, timezone)
    elif found.offsets - {0}:
        # The local time is the one written.
        moment = f"({moment}) + ({found.offset})"
        shown = None if len(found.offsets) > 1 else _fixed_zone(next(iter(found.offsets)))
        note = (
            "Times have different offsets from UTC and are shown in local time, without conversion."
        )
        if shown is not None:
            note = f"Times are shown in {shown}, the offset that they are written with."
    else:
        shown = _zone_of_type(con, found.zone)
        if shown is None:
            needs = found.instants
        else:
            moment = _in_zone(con, moment, shown)
            note = f"Times are shown in {shown}, the time zone of the column."
    moment = moment if found.problem is None else "CAST(NULL AS BIGINT)"
    looks = _missing(column, kind), _shape(column)
    return TimeForm(moment, *looks, found.problem, note, shown, needs, found.of_day)


@dataclass(frozen=True)
class _Column:
    """A recognised column of times, before a zone is chosen; see `TimeForm`.

    ``moment`` is in UTC if the times are ``instants`` ("Unix times", "in UTC"). ``offset`` is SQL
    of the offset of a text from UTC in microseconds, ``offsets`` are all different ones, in
    minutes.
    """

    moment: str
    problem: str | None = None
    instants: str | None = None
    zone: str | None = None
    offset: str | None = None
    offsets: frozenset[int] = frozenset()
    of_day: bool = False


def _recognised(
    con: Any,
    relation: str,
    column: str,
    kind: str,
    *,
    time_format: str | None,
    column_zone: str | None,
) -> _Column:
    if kind.startswith(("TIMESTAMP", "DATE")):
        if time_format is not None:
            raise ParameterError(
                "time_format (--time-format) is for text and numbers; the column holds times"
                " already."
            )
        if kind.startswith("TIMESTAMP WITH TIME ZONE"):
            # A cast would convert to the zone of the machine.
            return _Column(f"epoch_us({column})", instants="in UTC", zone=column_zone)
        return _Column(f"epoch_us(TRY_CAST({column} AS TIMESTAMP))")
    if time_format is not None:
        text = f"trim(CAST({column} AS VARCHAR))"
        if FLOAT_TYPE.match(kind):
            text = (
                f"CASE WHEN {column} = trunc({column}) THEN CAST(TRY_CAST({column} AS HUGEINT) AS"
                " VARCHAR) END"
            )
        moment = f"epoch_us(try_strptime({text}, {quoted_text(time_format)}))"
        if "%z" not in time_format:
            return _Column(moment)
        if not time_format.endswith("%z"):
            return _Column(moment, instants="in UTC")
        return _with_offsets(
            con, relation, text, f"({moment}) IS NOT NULL", _Column(moment, instants="in UTC")
        )
    if kind == "TIME":
        return _Column(f"epoch_us({column})", of_day=True)
    if NUMBER_TYPE.match(kind):
        number = f"CAST({column} AS DOUBLE)"
        if _all_match(
            con, relation, f"NOT isnan({number}) AND {number} <> 0", f"{number} BETWEEN 0 AND 24"
        ):
            return _hours(number)
        moment, problem = _unix(con, relation, number)
        return _Column(moment, problem, "Unix times")
    text = f"trim(CAST({column} AS VARCHAR))"
    present = f"NOT regexp_full_match(lower({text}), {MISSING_PATTERN})"
    if _all_match(con, relation, present, _matches(text, _HOUR_TEXT)):
        return _hours(f"TRY_CAST({text} AS DOUBLE)")
    if _all_match(con, relation, present, _matches(text, _CLOCK)):
        return _Column(
            f"epoch_us(TRY_CAST(CASE WHEN ({text})[2:2] = ':' THEN '0' || {text} ELSE {text} END AS"
            " TIME))",
            of_day=True,
        )
    if _all_match(con, relation, present, _matches(text, _LONG_CLOCK)):
        return _long_clock(text)
    return _of_text(con, relation, text)


def _all_match(con: Any, relation: str, present: str, test: str) -> bool:
    """Returns whether a test holds for all present values, and there are some.

    Tries the first rows first.
    """
    for rows in (f"(SELECT * FROM {relation} LIMIT {_FIRST_ROWS})", relation):
        sql = f"SELECT max(CASE WHEN {test} THEN 0 ELSE 1 END) FROM {rows} WHERE {present}"
        if (con.execute(sql).fetchall() or [(1,)])[0][0] != 0:
            return False
    return True


def _hours(number: str) -> _Column:
    """Returns the column of hours of the day as numbers; 24 is midnight."""
    inside = f"({number}) >= 0 AND ({number}) <= 24"
    return _Column(
        f"CASE WHEN {inside} THEN CAST(floor(({number} % 24) * 3600000000) AS BIGINT) END",
        of_day=True,
    )


def _long_clock(text: str) -> _Column:
    """Returns the column of times of a day of service, which goes on after 24:00."""
    part = (
        f"coalesce(TRY_CAST(nullif(regexp_extract({text}, {quoted_text(_LONG_CLOCK)}, {i}), '') AS"
        " BIGINT), 0)"
        for i in (1, 2, 4)
    )
    hours, minutes, seconds = part
    moment = f"((({hours}) * 3600 + ({minutes}) * 60 + ({seconds})) % 86400) * 1000000"
    return _Column(f"CASE WHEN {_matches(text, _LONG_CLOCK)} THEN {moment} END", of_day=True)


def _with_offsets(con: Any, relation: str, text: str, usable: str, column: _Column) -> _Column:
    """Returns the column with the offsets at the end of its texts."""
    written = f"regexp_extract({text}, {quoted_text(_OFFSET)})"
    rows = con.execute(
        f"SELECT {written} AS written, count(*) FROM {relation} WHERE {usable} GROUP BY written"
        " ORDER BY written"
    ).fetchall()
    offsets = frozenset(_minutes(found) for found, _ in rows)
    hours, minutes = (
        f"TRY_CAST(({written})[2:3] AS BIGINT)",
        f"TRY_CAST(right({written}, 2) AS BIGINT)",
    )
    size = f"{hours} * 60 + CASE WHEN length({written}) > 3 THEN {minutes} ELSE 0 END"
    sign = f"CASE WHEN starts_with({written}, '-') THEN -{_MINUTE} ELSE {_MINUTE} END"
    offset = f"coalesce(({size}) * ({sign}), 0)"
    return replace(column, offset=offset, offsets=offsets)


def _minutes(offset: str | None) -> int:
    """Returns the minutes of an offset such as ``-03:30``; 0 for Z, UTC and GMT."""
    digits = re.sub(r"\D", "", offset or "")
    size = int(digits[:2] or 0) * 60 + int(digits[2:] or 0)
    return -size if (offset or "").startswith("-") else size


def _fixed_zone(minutes: int) -> str:
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"


def _zone_of_type(con: Any, zone: str | None) -> str | None:
    """Returns the zone of a column's type if it says more than UTC."""
    if zone is None or zone.casefold().removeprefix("etc/") in _UTC_NAMES:
        return None
    if re.fullmatch(_OFFSET, zone):
        return _fixed_zone(_minutes(zone))
    return zone if _ZONE.fullmatch(zone) and zone in _zone_names(con) else None


def _in_zone(con: Any, moment: str, zone: str) -> str:
    """Returns SQL: the local time of an instant, in microseconds."""
    if _FIXED.fullmatch(zone):
        return f"({moment}) + {_minutes(zone.removeprefix('UTC')) * _MINUTE}"
    names = _zone_names(con)
    if zone not in names:
        raise ParameterError(
            f"timezone (--timezone) {zone!r} does not exist.{did_you_mean(zone, names)}"
        )
    return f"epoch_us(timezone({quoted_text(zone)}, make_timestamptz({moment})))"


def _zone_names(con: Any) -> set[str]:
    return {row[0] for row in con.execute("SELECT name FROM pg_timezone_names()").fetchall()}


@dataclass(frozen=True)
class _Shape:
    """A recognised shape of texts."""

    #: Order of the date, separator, clock, and whether there is a zone; the same for all texts of a
    #: column.
    family: str
    #: The format after the date.
    rest: str
    #: Start and end of the digits of a fraction beyond microseconds.
    cut: tuple[int, int] | None

    @classmethod
    def parse(cls, shape: str) -> _Shape | None:
        found = _SHAPE.fullmatch(shape)
        if found is None:
            return None
        rest, cut, clock = "", None, "-"
        if found["gap"]:
            clock = "I" if found["half"] else "H"
            rest = f"{found['gap']}%{clock}:%M"
            if found["seconds"]:
                rest += ":%S"
            if found["fraction"]:
                rest += f"{found['point']}%f"
                end = found.end("fraction")
                cut = (
                    (end - len(found["fraction"]) + 6, end) if len(found["fraction"]) > 6 else None
                )
            rest += (
                " %p"
                if found["half"] and found["half"].startswith(" ")
                else "%p"
                if found["half"]
                else ""
            )
        zone = found["zone"] or ""
        rest += re.sub(r"[+-]9.*", "%z", zone)
        order = f"y{found['y']}" if found["y"] else f"d{found['d']}"
        return cls(f"{order}{clock}{'z' if zone else '-'}", rest, cut)

    def sql(self, text: str, date: str) -> str:
        """Returns SQL: the microseconds of a text of this shape."""
        whole = (
            text
            if self.cut is None
            else f"({text})[:{self.cut[0]}] || ({text})[{self.cut[1] + 1}:]"
        )
        moment = f"epoch_us(try_strptime({whole}, {quoted_text(date + self.rest)}))"
        return (
            f"CASE WHEN {_matches(text, _OFFSET)} THEN {moment} END"
            if "%z" in self.rest
            else moment
        )


def _of_text(con: Any, relation: str, text: str) -> _Column:
    """Recognises a column of text, by the number of texts of each shape."""
    counts = con.execute(
        f"SELECT translate({text}, '0123456789', '9999999999') AS shape, count(*) FROM {relation} "
        f"WHERE {text} IS NOT NULL AND NOT regexp_full_match(lower({text}), {MISSING_PATTERN}) "
        f"GROUP BY shape ORDER BY count(*) DESC, shape LIMIT {_MOST_SHAPES}"
    ).fetchall()
    families: Counter[str] = Counter()
    ways: dict[_Shape, list[str]] = {}
    for shape, n in counts:
        known = _Shape.parse(shape)
        if known is not None:
            families[known.family] += n
            ways.setdefault(known, []).append(shape)
        elif re.fullmatch(_UNIX_TEXT, shape):
            families["unix"] += n
    if not families:
        # No value is a time; each row with a value is an error.
        return _Column("CAST(NULL AS BIGINT)")
    chosen = min(families, key=lambda family: (-families[family], family))
    if chosen == "unix":
        number = f"TRY_CAST(CASE WHEN {_matches(text, _UNIX_TEXT)} THEN {text} END AS DOUBLE)"
        return _Column(*_unix(con, relation, number), instants="Unix times")
    ways = {way: shapes for way, shapes in ways.items() if way.family == chosen}
    separator, problem = chosen[1], None
    date = f"%Y{separator}%m{separator}%d"
    every = _any_of(text, [shape for shapes in ways.values() for shape in shapes])
    if chosen[0] == "d":
        date, problem = _order(
            con, f"SELECT {text} AS text FROM {relation} WHERE {every}", separator
        )
    cases = " ".join(
        f"WHEN {_any_of(text, spelled)} THEN {way.sql(text, date)}" for way, spelled in ways.items()
    )
    moment = f"CASE {cases} END"
    if chosen[3] != "z":
        return _Column(moment, problem)
    return _with_offsets(con, relation, text, every, _Column(moment, problem, "in UTC"))


def _order(con: Any, texts: str, separator: str) -> tuple[str, str | None]:
    """Returns the format of dates with the year last, day-first or month-first.

    And a problem or None.
    """
    day_first, month_first = f"%d{separator}%m{separator}%Y", f"%m{separator}%d{separator}%Y"
    if separator == ".":
        return day_first, None
    parts = ", ".join(f"max(CAST(split_part(text, '{separator}', {i}) AS INTEGER))" for i in (1, 2))
    first, second = con.execute(f"SELECT {parts} FROM ({texts})").fetchall()[0]
    if first > 12 and second > 12:
        return (
            day_first,
            "some values fit day-first only and others month-first only, so it mixes the two",
        )
    if first > 12 or second > 12:
        return (day_first if first > 12 else month_first), None
    return (
        day_first,
        (
            "day-first and month-first both fit every value. Say which with time_format"
            " (--time-format), such as '%d/%m/%Y %H:%M' or '%m/%d/%Y %I:%M:%S %p'"
        ),
    )


def _unix(con: Any, relation: str, number: str) -> tuple[str, str | None]:
    """Returns SQL of the microseconds of Unix numbers, in the most frequent unit.

    And a problem or None.
    """
    units = " ".join(
        f"WHEN n >= {_UNIX_FROM * u} AND n < {_UNIX_TO * u} THEN '{name}'"
        for name, u in _UNIX_UNITS.items()
    )
    found = con.execute(
        f"SELECT CASE {units} END AS unit, count(*) FROM (SELECT {number} AS n FROM {relation}) "
        "WHERE n IS NOT NULL AND NOT isnan(n) GROUP BY unit ORDER BY count(*) DESC, unit"
    ).fetchall()
    known = [name for name, _ in found if name is not None]
    if not known:
        wrong = (
            "its numbers are not Unix seconds, milliseconds or microseconds from 1980 to 2100."
            " Hours, days and dates without separators need time_format (--time-format), such as"
            " '%Y%m%d%H%M'"
        )
        return "CAST(NULL AS BIGINT)", wrong if found else None
    unit = _UNIX_UNITS[known[0]]
    inside = f"({number}) >= {_UNIX_FROM * unit} AND ({number}) < {_UNIX_TO * unit}"
    return (
        f"CASE WHEN {inside} THEN CAST(floor(({number}) * {1_000_000 // unit}) AS BIGINT) END",
        None,
    )


def _missing(column: str, kind: str) -> str:
    if TEXT_TYPE.match(kind):
        return (
            f"{column} IS NULL OR regexp_full_match(lower(trim(CAST({column} AS VARCHAR))),"
            f" {MISSING_PATTERN})"
        )
    return f"{column} IS NULL OR isnan({column})" if FLOAT_TYPE.match(kind) else f"{column} IS NULL"


def _shape(column: str) -> str:
    """Returns SQL: a value with 9 for digits, A for letters, and ? for signs that times do not
    have.
    """
    shape = f"left(trim(CAST({column} AS VARCHAR)), 40)"
    for pattern, sign in ((r"\p{Nd}", "9"), (r"\p{L}", "A"), (r"[^9A :/.,+T-]", "?")):
        shape = f"regexp_replace({shape}, {quoted_text(pattern)}, '{sign}', 'g')"
    return shape


def _matches(text: str, pattern: str) -> str:
    return f"regexp_matches({text}, {quoted_text(pattern)})"


def _any_of(text: str, shapes: Iterable[str]) -> str:
    """Returns SQL: whether a text has one of these shapes."""
    patterns = "|".join(re.escape(shape).replace("9", "[0-9]") for shape in shapes)
    return f"regexp_full_match({text}, {quoted_text(patterns)})"
