"""Columns inside columns: fields of structs, lists of records in JSON, and geometries as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flowveil.reading.sql import quoted_name

#: Records inside records are opened down to this depth.
_DEEPEST = 4
#: Coordinates of text geometries: longitude, then latitude.
_NUMBER = r"([-+0-9.eE]+)"
_POINT = rf"{_NUMBER}\s+{_NUMBER}"
_WKT = r"^\s*(SRID=\d+;)?\s*(POINT|LINESTRING|MULTIPOINT)\s*(Z|M|ZM)?\s*\(.*\)\s*$"


def opened_records(con: Any, relation: str) -> str:
    """Returns a FROM clause with a row for each record, where the rows of a relation are envelopes
    of lists of records, as in ``{"data": {"trips": [...]}}``.
    """
    for _ in range(_DEEPEST):
        lists = [
            sql
            for _, sql, kind in fields_of(con, relation)
            if kind.id == "list" and kind.children[0][1].id == "struct"
        ]
        rows = con.execute(f"SELECT count(*) FROM (SELECT 1 FROM {relation} LIMIT 2)").fetchall()
        # An envelope is one row; in several rows, lists belong to their records.
        if len(lists) != 1 or rows[0][0] != 1:
            return relation
        relation = (
            f"(SELECT unnest(records) FROM (SELECT unnest({lists[0]}) AS records FROM {relation}))"
        )
    return relation


def fields_of(con: Any, relation: str) -> list[tuple[str, str, Any]]:
    """Returns name, SQL and type of every column, and of every field of structs as ``a.b``."""
    found = con.sql(f"SELECT * FROM {relation} LIMIT 0")
    return [
        field
        for name, kind in zip(found.columns, found.types, strict=True)
        for field in _fields(name, quoted_name(name), kind)
    ]


def _fields(name: str, sql: str, kind: Any) -> Iterator[tuple[str, str, Any]]:
    if kind.id != "struct":
        yield name, sql, kind
        return
    for inner, of in kind.children:
        yield from _fields(f"{name}.{inner}", f"{sql}[{_text(inner)}]", of)


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def wkt_columns(names: Mapping[str, str], sample: Callable[[str], list[Any]]) -> dict[str, str]:
    """Returns SQL of the coordinates in columns of geometries as text, by name.

    Points become ``NAME_lat`` and ``NAME_lon``; a line or two points become ``start_lat``,
    ``start_lon``, ``end_lat`` and ``end_lon``. ``names`` has the SQL of each column.
    """
    import re

    found: dict[str, str] = {}
    for name, sql in names.items():
        texts = [value for value in sample(name) if isinstance(value, str) and value.strip()]
        kinds = {
            match[2] if (match := re.match(_WKT, text, re.IGNORECASE)) else "" for text in texts
        }
        kinds = {kind.upper() for kind in kinds}
        if not texts or not kinds <= {"POINT", "LINESTRING", "MULTIPOINT"}:
            continue
        ends = {name: ""} if kinds == {"POINT"} else {"start": "", "end": r"[^0-9]*$"}
        for end, tail in ends.items():
            for axis, group in (("lon", 1), ("lat", 2)):
                found[f"{end}_{axis}"] = (
                    f"TRY_CAST(regexp_extract({sql}, {_text(_POINT + tail)}, {group}) AS DOUBLE)"
                )
    return {name: sql for name, sql in found.items() if name not in names}
