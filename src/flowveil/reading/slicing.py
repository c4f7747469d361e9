"""Slice columns in SQL: attributes as text, times as the label of their step. `times` says how times are read."""

from __future__ import annotations

from flowveil.times import Every


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
