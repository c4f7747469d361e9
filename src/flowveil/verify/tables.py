"""The two tables of a release, read as they are: ``published_rows`` and ``zones``; and how a table may not look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from flowveil.verify.database import SOURCE, Database, quoted

if TYPE_CHECKING:
    from flowveil.flows import Flows

NAMES = ("flows.parquet", "zones.parquet")
_FLOW_COLUMNS = {"origin_zone": "VARCHAR", "destination_zone": "VARCHAR", "trips": "BIGINT", "weight": "DOUBLE"}
_ZONE_COLUMNS: dict[str, str | None] = {
    "zone": "VARCHAR",
    "role": "VARCHAR",
    "level": "INTEGER",
    "tiles": "BIGINT",
    "area_km2": "DOUBLE",
    "lat": "DOUBLE",
    "lon": "DOUBLE",
    # Bytes or a type of its own, by the version of DuckDB; not looked into.
    "geometry": None,
}
_CELLS: dict[str, str | None] = {"h3_cells": "VARCHAR[]"}
#: How many tiles a zone could hold is not known of boxes, nor without a map; a weight may be missing nowhere else.
_MAY_BE_EMPTY = ("tiles", "weight", "name")
_LONGEST_TEXT = 4_096
#: More than any release counts, and little enough that products and sums of counts fit.
_LARGEST_COUNT = 1 << 53


def load_tables(
    db: Database,
    place: Path,
    flows: Flows,
    slice_columns: Sequence[str] = (),
    *,
    noisy: bool = False,
    in_cells: bool = False,
    named: bool = False,
    revised: bool = False,
    folded: bool = False,
) -> tuple[bool, list[str]]:
    """Read both tables; whether they can be counted with, and what is not as it should be.

    A table with an empty code, role, count or time cannot, nor one with a count beyond all counts: each later step
    would have to expect one.

    Args:
        db: gets ``published_rows``, slice columns as c0, c1, ..., and ``zones``.
        place: the folder; its tables have passed the check of their layout.
        flows: the input, which says whether there are weights.
        slice_columns: text that may be empty, unless it is the times of a folded release.
        noisy: noise is on trips alone.
        in_cells: zones are made of H3 cells, which are listed.
        named: whether zones have names.
        revised: whether cells say if their value is a new one.
        folded: whether the slice columns are times.
    """
    of_zones = {**_ZONE_COLUMNS, **({"name": "VARCHAR"} if named else {}), **(_CELLS if in_cells else {})}
    weighted = flows.weight is not None and not noisy
    columns = {name: kind for name, kind in _FLOW_COLUMNS.items() if name != "weight" or weighted}
    columns |= {"revised": "BOOLEAN"} if revised else {}
    first = list(_unreadable(db, place / NAMES[0], {**columns, **dict.fromkeys(slice_columns, "VARCHAR")}))
    second = list(_unreadable(db, place / NAMES[1], of_zones))
    if first or second:
        return False, [*first, *second]
    sliced = [f"{quoted(name)} AS c{i}" for i, name in enumerate(slice_columns)]
    loaded = [
        _load(db, place / NAMES[0], "published_rows", columns, sliced),
        _load(db, place / NAMES[1], "zones", of_zones),
    ]
    if not all(loaded):
        return False, [f"{name}: cannot be read" for name, found in zip(NAMES, loaded, strict=True) if not found]
    times = [f"c{i}" for i in range(len(slice_columns))] if folded else []
    unusable = [
        *_unusable_fields(db, NAMES[0], "published_rows", columns, times),
        *_unusable_fields(db, NAMES[1], "zones", of_zones),
    ]
    if unusable:
        return False, unusable
    return True, [
        *_strange_rows(db, NAMES[0], "published_rows", columns, slice_columns),
        *_strange_rows(db, NAMES[1], "zones", of_zones),
    ]


def _unreadable(db: Database, path: Path, expected: Mapping[str, str | None]) -> Iterator[str]:
    """A finding where a table has other columns, or longer text than any code: repeated, it would fill the memory."""
    import duckdb

    try:
        kinds = {name: kind for name, kind, *_ in db.rows(f"DESCRIBE SELECT * FROM {SOURCE}", [escape(str(path))])}
        texts = [quoted(name) for name, kind in kinds.items() if kind == "VARCHAR"]
        lists = [quoted(name) for name, kind in kinds.items() if kind == "VARCHAR[]"]
        lengths_of = [f"max(strlen({name}))" for name in texts]
        lengths_of += [f"max(strlen(array_to_string({name}, ',')))" for name in lists]
        longest = ", ".join(lengths_of) or "0"
        lengths = db.rows(f"SELECT {longest} FROM {SOURCE}", [escape(str(path))])[0]
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        yield f"{path.name}: cannot be read"
        return
    if max(n or 0 for n in lengths) > _LONGEST_TEXT:
        yield f"{path.name}: has text longer than any code"
    elif list(kinds) != list(expected) or any(kind and kinds[name] != kind for name, kind in expected.items()):
        yield f"{path.name}: its columns are not {', '.join(expected)} in their types"


def _load(
    db: Database,
    path: Path,
    table: str,
    columns: Mapping[str, str | None],
    sliced: Sequence[str] = (),
) -> bool:
    """Read a table; whether that was possible."""
    import duckdb

    picked = ", ".join([*(name for name, kind in columns.items() if kind is not None), *sliced])
    source = "read_parquet(?, file_row_number = true, hive_partitioning = false)"
    try:
        db.create(table, f"SELECT {picked}, file_row_number AS row FROM {source}", [escape(str(path))])
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        return False
    return True


def _unusable_fields(
    db: Database, name: str, table: str, columns: Mapping[str, str | None], times: Sequence[str] = ()
) -> Iterator[str]:
    numbers = [column for column, kind in columns.items() if kind == "BIGINT"]
    texts = [column for column, kind in columns.items() if kind == "VARCHAR"]
    filled = [column for column in (*texts, *numbers) if column not in _MAY_BE_EMPTY]
    tests = {
        "has empty fields": [f"{column} IS NULL" for column in (*filled, *times)],
        "has numbers larger than any count": [
            f"{column} NOT BETWEEN -{_LARGEST_COUNT} AND {_LARGEST_COUNT}" for column in numbers
        ],
    }
    for what, n in db.counts(table, {what: " OR ".join(tests[what]) for what in tests}).items():
        if n:
            yield f"{name}: {what}"


def _strange_rows(
    db: Database, name: str, table: str, columns: Mapping[str, str | None], slice_columns: Sequence[str] = ()
) -> Iterator[str]:
    keys = list(columns)[:2]
    of_slice = [f"c{i} IS NOT NULL, coalesce(c{i}, '')" for i in range(len(slice_columns))]
    key = f"row({', '.join((*of_slice, *keys))})"
    before = f"SELECT {key} AS key, lag({key}) OVER (ORDER BY row) AS before FROM {table}"
    falls, same = db.rows(f"SELECT count(*) FILTER (key < before), count(*) FILTER (key = before) FROM ({before})")[0]
    if falls:
        yield f"{name}: not sorted by {' and '.join((*slice_columns, *keys))}"
    if same:
        yield f"{name}: {same} duplicate rows"


def check_ends(db: Database, published: str, *, same_zones: bool = False) -> Iterator[str]:
    """Whether the zones that are listed are those that cells use.

    Args:
        db: with ``zones``.
        published: the table of cells.
        same_zones: both ends have the same zones: each is listed for both, and used at one at least.
    """
    roles = ("both",) if same_zones else ("origin", "destination", "both")
    strange = db.one(f"SELECT count(*) FROM zones WHERE role NOT IN {str(roles).replace(',)', ')')}")
    if strange:
        yield f"zones.parquet: {strange} rows have another role than {' or '.join(roles)}"
    for role, other in (("origin", "destination"), ("destination", "origin")):
        # Each zone once: whether cells of this end use it, cells of any end that counts, and how often it is listed.
        used = f"SELECT {role}_zone AS zone, true AS own, 0 AS listed FROM {published}"
        used += f" UNION ALL SELECT {other}_zone, false, 0 FROM {published}" if same_zones else ""
        rows = f"{used} UNION ALL SELECT zone, NULL, 1 FROM {listed_zones(role)}"
        of_zone = f"SELECT zone, bool_or(own) AS own, sum(listed) AS listed FROM ({rows}) GROUP BY zone"
        missing, unused, twice = db.rows(
            "SELECT count(*) FILTER (own AND listed = 0), coalesce(sum(listed) FILTER (own IS NULL), 0), "
            f"count(*) FILTER (listed > 1) FROM ({of_zone})"
        )[0]
        for problem, n in {
            f"{role} zones of flows.parquet are missing": missing,
            f"{role} zones are not used by any published flow": unused,
            f"{role} zones are listed twice": twice,
        }.items():
            if n:
                yield f"zones.parquet: {n} {problem}"


def listed_zones(role: str) -> str:
    """SQL: the rows of zones.parquet that are zones of this end."""
    return f"(SELECT * FROM zones WHERE role IN ('{role}', 'both'))"
