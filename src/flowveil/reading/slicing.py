"""Slice columns in SQL: attributes as text, times as the label of their step.

Times may be timestamps, dates, text, or Unix numbers. A time with a zone is taken in UTC, one without as it stands.
"""

from __future__ import annotations

from flowveil.slices import Every

#: Unix numbers from these sizes on are milliseconds and microseconds: as seconds they would lie past the year 5000.
_MILLISECONDS_FROM = 10**11
_MICROSECONDS_FROM = 10**14
#: Later times have years of more than four digits, which a calendar here cannot name.
_LAST_MICROSECOND = 253_402_300_799_999_999


def microseconds_sql(column: str, kind: str, *, missing: str) -> str:
    """SQL: a time as microseconds since 1970; NULL where it is missing or cannot be read.

    Args:
        column: the column.
        kind: its type in DuckDB.
        missing: a quoted pattern of the texts that stand for no value.
    """
    if kind.startswith("TIMESTAMP WITH TIME ZONE"):
        # Not through a cast: that would take the zone of the machine.
        return _bounded(f"epoch_us({column})")
    if kind.startswith(("TIMESTAMP", "DATE")):
        return _bounded(f"epoch_us(TRY_CAST({column} AS TIMESTAMP))")
    if kind.startswith(("VARCHAR", "ENUM")):
        text = f"trim(CAST({column} AS VARCHAR))"
        plain = f"regexp_replace({text}, '\\s*(UTC|GMT|Z)$', '')"
        number = f"CASE WHEN regexp_full_match(lower({text}), {missing}) THEN NULL ELSE TRY_CAST({text} AS DOUBLE) END"
        return _bounded(f"coalesce(epoch_us(TRY_CAST({plain} AS TIMESTAMP)), {_unix(number)})")
    return _bounded(_unix(f"CAST({column} AS DOUBLE)"))


def time_state_sql(microseconds: str, column: str, kind: str, *, missing: str) -> str:
    """SQL: 0 for a time that can be read, 1 for one that is missing, 2 for what is not a time."""
    gone = f"{column} IS NULL"
    if kind.startswith(("VARCHAR", "ENUM")):
        gone += f" OR regexp_full_match(lower(trim(CAST({column} AS VARCHAR))), {missing})"
    elif kind in ("FLOAT", "DOUBLE"):
        gone += f" OR isnan({column})"
    return f"CAST(CASE WHEN {gone} THEN 1 WHEN {microseconds} IS NULL THEN 2 ELSE 0 END AS TINYINT)"


def label_sql(microseconds: str, every: Every) -> str:
    """SQL: the label of the step that a time falls in. Labels sort like the times they stand for."""
    if every.minutes is not None:
        step = every.minutes * 60_000_000
        start = f"({microseconds}) - ((({microseconds}) % {step}) + {step}) % {step}"
        return f"strftime(make_timestamp({start}), '%Y-%m-%dT%H:%M')"
    moment = f"make_timestamp({microseconds})"
    if every.name == "weekday":
        return f"CAST(isodow({moment}) AS VARCHAR) || strftime({moment}, ' %a')"
    if every.name == "weekday-hour":
        return f"CAST(isodow({moment}) AS VARCHAR) || strftime({moment}, ' %a %H:00')"
    return f"strftime({moment}, '{_FORMATS[every.name]}')"


def attribute_sql(column: str, kind: str, *, missing: str) -> str:
    """SQL: an attribute as text, NULL where missing; whole numbers without a decimal point."""
    text = f"trim(CAST({column} AS VARCHAR))"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"CAST(CAST({column} AS HUGEINT) AS VARCHAR)"
        return (
            f"CASE WHEN isnan({column}) OR isinf({column}) THEN NULL "
            f"WHEN {column} = trunc({column}) AND abs({column}) < 1e15 THEN {whole} ELSE {text} END"
        )
    return f"CASE WHEN regexp_full_match(lower({text}), {missing}) THEN NULL ELSE {text} END"


_FORMATS = {"month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%H:00"}


def _unix(number: str) -> str:
    factor = (
        f"CASE WHEN abs({number}) >= {_MICROSECONDS_FROM} THEN 1 WHEN abs({number}) >= {_MILLISECONDS_FROM} "
        "THEN 1000 ELSE 1000000 END"
    )
    return f"TRY_CAST(floor(({number}) * ({factor})) AS BIGINT)"


def _bounded(microseconds: str) -> str:
    return f"CASE WHEN abs({microseconds}) <= {_LAST_MICROSECOND} THEN {microseconds} END"
