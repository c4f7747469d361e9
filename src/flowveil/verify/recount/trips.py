"""Independent reader of trips from CSV and Parquet files, with the settings of a report.

Follows docs/reading.md.

A map is an argument: the rebuild of the folder compares it. Other inputs (other file formats, times
in unusual forms) are refused with `UnreadableInputError`. The caller then takes the flows of the
engine and says so.
"""

from __future__ import annotations

import csv
import gzip
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from glob import glob
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from .geometry import UnreadableInputError, cells_in_area, points_in_area, tiles_at
from .inputs import MILLION, PersonRows, Trips, number_columns
from .tree import OUTSIDE, OUTSIDE_CELL, ZoneMap, parent_cells, resolution_of
from .values import ValueRows

__all__ = ["UnreadableInputError", "files_of", "read_trips"]

Mask = NDArray[np.bool_]
_ENDS = ("origin", "destination")

_CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET = (".parquet", ".pq", ".parq")
#: What tables write for a missing value, without case and outer blanks.
_MISSING = ("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n")
#: Words and patterns that are placeholders for a missing person; docs/reading.md lists them.
_PLACEHOLDERS = (
    "unknown",
    "unk",
    "missing",
    "anonymous",
    "anon",
    "undefined",
    "unspecified",
    "unidentified",
    "not available",
    "not applicable",
    "not known",
    "no id",
    "noid",
    "no_id",
    "nobody",
    "guest",
    "n.a.",
    "n.d.",
    "#n/a",
    "(null)",
    "(none)",
    "(blank)",
    "(empty)",
    "<null>",
    "<none>",
    "[null]",
    "tbd",
    "test",
    "inconnu",
    "unbekannt",
    "desconocido",
    "sconosciuto",
    "desconhecido",
)
_NO_PERSON = re.compile(
    "|".join(re.escape(word) for word in (*_MISSING, *_PLACEHOLDERS))
    + r"|[?]+|-+|[.]+|[*]+|_+|x+|-1|-9+|0[0-]*0|-(?:32768|2147483648|9223372036854775808)"
    r"|2147483647|4294967295|9223372036854775807|18446744073709551615"
)
_MISSING_SQL = "'(" + "|".join(re.escape(word) for word in _MISSING) + ")'"
_LABELS = {"month": "%Y-%m", "week": "%G-W%V", "day": "%Y-%m-%d", "hour": "%H:00"}
#: Microseconds of the years 1900 to 2100; numbers count from 1980 on.
_YEARS = (-2_208_988_800_000_000, 4_133_980_800_000_000)
_UNIX = (315_532_800, 4_133_980_800)
_ISO = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?"
_ZONED = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})"


def read_trips(
    source: Any,
    parameters: Mapping[str, Any],
    *,
    zones: ZoneMap | None = None,
    area: Any = None,
) -> Trips:
    """Reads trips as the parameters of a report say.

    UnreadableInputError if this reader does not know the input.

    Args:
        source: path of a file or a folder, or a pattern.
        parameters: ``parameters`` of report.json; a reader who does not trust it with case gives
            ``person_case``.
        zones: the map, if the tiles are zones of a map; with outlines if the ends are coordinates.
        area: the study area, if it came from a file, as ``wkb:`` and hexadecimal digits.
    """
    if not isinstance(source, str | PathLike) or any(
        parameters.get(name) for name in ("matrix", "wide", "lookup")
    ):
        raise UnreadableInputError("the input is not a file, or is a matrix file")
    written = ("crs", "decimal_comma", "thousands", "pad_codes", "column_names", "source_format")
    if any(parameters.get(name) for name in written):
        raise UnreadableInputError(
            "coordinates are not in degrees, numbers have separators, or codes have lost zeros"
        )
    if bool(parameters.get("zones")) != (zones is not None):
        raise UnreadableInputError("the release was made on a map, which was not given, or on none")
    area = parameters.get("within") if area is None else area
    if area == "AREA":
        raise UnreadableInputError("the study area came from a file, which was not given")
    try:
        with duckdb.connect(":memory:") as connection:
            rows = _select(connection, source, parameters)
    except (duckdb.Error, pa.ArrowException, OSError, KeyError):
        # Messages of the database may quote rows.
        raise UnreadableInputError(
            "the input cannot be read with the columns that the report names"
        ) from None
    return _Reader(rows, parameters, zones, area).trips()


def files_of(source: str | PathLike[str]) -> list[Path]:
    """Returns the files of an input, sorted: of a folder the Parquet files, else the text files."""
    here = Path(source).expanduser()
    if here.is_dir():
        names = [
            path
            for path in here.rglob("*")
            if not re.search(r"(^|/)[._]", path.relative_to(here).as_posix())
        ]
    else:
        names = (
            [here] if here.exists() else [Path(name) for name in glob(str(here), recursive=True)]
        )
    every = [path for path in names if path.is_file()]
    for endings in (_PARQUET, _CSV):
        found = sorted(path for path in every if path.name.casefold().endswith(endings))
        if found and (here.is_dir() or len(found) == len(every)):
            return found
    raise UnreadableInputError("the input is neither CSV nor Parquet")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _relation(files: Sequence[Path], partitions: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Returns a FROM clause over files, and the SQL of each column."""
    literal = ("".join(f"[{c}]" if c in "*?[" else c for c in str(path)) for path in files)
    paths = f"[{', '.join(map(_quoted, literal))}]"
    if files[0].name.casefold().endswith(_PARQUET):
        union = ", union_by_name = true" if len(files) > 1 else ""
        names = [field.name for path in files for field in pq.read_schema(path)]
        columns = {name: '"' + name.replace('"', '""') + '"' for name in names}
        call = f"read_parquet({paths}{union}"
    else:
        head, *others = (_first_line(path) for path in files)
        if any(other != head for other in others):
            raise UnreadableInputError("the text files have different columns")
        delimiter = "\t" if ".tsv" in files[0].name.casefold() else max(",;\t|", key=head.count)
        names = next(csv.reader([head], delimiter=delimiter))
        columns = {name: f"c{i}" for i, name in reversed(list(enumerate(names)))}
        types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
        form = (
            f"auto_detect = false, header = true, delim = '{delimiter}', quote = '\"', escape ="
            " '\"', nullstr = ''"
        )
        call = f"read_csv({paths}, {form}, columns = {{{types}}}"
    columns |= {name: _partition(files, name) for name in partitions}
    return f"{call}, hive_partitioning = false, filename = 'recount_path')", columns


def _first_line(path: Path) -> str:
    opener: Any = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig") as file:
        return str(file.readline()).rstrip("\r\n")


def _partition(files: Sequence[Path], name: str) -> str:
    """Returns SQL for the value of a partition column.

    That of the folder ``name=value`` of each file.
    """
    cases = []
    for path in files:
        values = [
            part.removeprefix(f"{name}=")
            for part in path.parent.parts
            if part.startswith(f"{name}=")
        ]
        if len(values) != 1:
            raise UnreadableInputError("a partition column is not in the path of every file")
        value = "NULL" if values[0] == "__HIVE_DEFAULT_PARTITION__" else _quoted(unquote(values[0]))
        cases.append(f"WHEN recount_path = {_quoted(str(path))} THEN {value}")
    return f"CAST(CASE {' '.join(cases)} END AS VARCHAR)"


def _select(con: Any, source: str | PathLike[str], parameters: Mapping[str, Any]) -> pa.Table:
    """Returns the columns that the report names, by role; null where a value is missing."""
    roles = {role: name for role, name in parameters["columns"].items() if name}
    partitions = parameters.get("partition_columns") or ()
    relation, columns = _relation(files_of(source), partitions)
    kinds = {
        name: str(kind)
        for name, kind, *_ in con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    }

    def column(name: str) -> tuple[str, str]:
        found = columns.get(name) or {n.strip(): sql for n, sql in columns.items()}.get(
            name.strip()
        )
        if found is None:
            raise UnreadableInputError("the input has no column of a name that the report names")
        return found, kinds.get(found.strip('"'), "VARCHAR")

    sql: dict[str, str] = {}
    for end in _ENDS:
        for axis, name in zip(("lat", "lon"), roles.get(end, "").split(","), strict=False):
            sql |= {f"{end}_{axis}": _number_sql(*column(name))} if name else {}
        if end not in roles:
            name, _ = column(roles[f"{end}_tile"])
            sql[f"{end}_tile"] = (
                f"CASE WHEN {_missing(name)} THEN NULL ELSE CAST({name} AS VARCHAR) END"
            )
    sql |= {
        role: _number_sql(*column(roles[role])) for role in ("trips", "weight") if role in roles
    }
    sql |= {f"value {c}": _number_sql(*column(c)) for _, c in number_columns(parameters).values()}
    sql |= {"person": _person_sql(*column(roles["person"]))} if "person" in roles else {}
    sql |= {f"by {name}": _attribute_sql(*column(name)) for name in _attributes(parameters)}
    every = _every(parameters)
    if every is not None:
        sql["time"] = _label_sql(
            _moment_sql(con, relation, *column(roles["time"]), parameters), every
        )
    query = con.sql(
        f"SELECT {', '.join(f'{text} AS s{i}' for i, text in enumerate(sql.values()))} FROM"
        f" {relation}"
    )
    # Named differently by versions of DuckDB.
    reader = getattr(query, "to_arrow_reader", None) or query.fetch_arrow_reader
    return reader(1 << 17).read_all().rename_columns(list(sql)).combine_chunks()


def _attributes(parameters: Mapping[str, Any]) -> list[str]:
    return [name for name in (parameters["columns"].get("by") or "").split(",") if name]


def _floats(column: Any) -> Any:
    return pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy()


def _encoded(column: Any) -> tuple[Any, list[Any]]:
    """Returns the number of each value among the distinct values, and these followed by None, the
    number of nulls.
    """
    encoded = column.combine_chunks().dictionary_encode()
    number = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return number, [*encoded.dictionary.to_pylist(), None]


def _every(parameters: Mapping[str, Any]) -> str | None:
    """Returns the step of time by which trips are cut.

    Of a month or day that alone was read, that step.
    """
    during, slices = parameters.get("during"), parameters.get("slices") or {}
    return slices.get("every") if during is None else "month" if len(during) == 7 else "day"


def _missing(column: str) -> str:
    return f"regexp_full_match(lower(trim(CAST({column} AS VARCHAR))), {_MISSING_SQL})"


def _number_sql(column: str, kind: str) -> str:
    if not kind.startswith(("VARCHAR", "ENUM")):
        return f"CAST({column} AS DOUBLE)"
    number = (
        f"CASE WHEN contains({column}, '_') THEN error('text') ELSE CAST(CAST({column} AS VARCHAR)"
        " AS DOUBLE) END"
    )
    return f"CASE WHEN {column} IS NULL OR {_missing(column)} THEN NULL ELSE {number} END"


def _person_sql(column: str, kind: str) -> str:
    text = f"CAST({column} AS VARCHAR)"
    text = f"CASE WHEN NOT isnan({column}) THEN {text} END" if kind in ("FLOAT", "DOUBLE") else text
    seen = rf"regexp_replace({text}, '^[\s\p{{Z}}\p{{C}}]+|[\s\p{{Z}}\p{{C}}]+$|\p{{C}}+', '', 'g')"
    return rf"regexp_replace({seen}, '^(-?[0-9]+)\.0+$', '\1')"


def _attribute_sql(column: str, kind: str) -> str:
    text = f"trim(CAST({column} AS VARCHAR))"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"CAST(CAST({column} AS HUGEINT) AS VARCHAR)"
        is_whole = f"{column} = trunc({column}) AND abs({column}) < 1e15"
        return (
            f"CASE WHEN isnan({column}) OR isinf({column}) THEN NULL WHEN {is_whole} THEN {whole}"
            f" ELSE {text} END"
        )
    return f"CASE WHEN {_missing(column)} THEN NULL ELSE {text} END"


def _moment_sql(
    con: Any, relation: str, column: str, kind: str, parameters: Mapping[str, Any]
) -> str:
    """Returns SQL for microseconds since 1970 in the local time of the trips.

    NULL where missing.
    """
    form, timezone = parameters.get("time_format"), parameters.get("timezone")
    text = f"trim(CAST({column} AS VARCHAR))"
    present = f"{column} IS NOT NULL AND NOT {_missing(column)}"

    def always(test: str) -> bool:
        query = f"SELECT count(*) FROM {relation} WHERE {present} AND NOT coalesce({test}, false)"
        return bool(con.execute(query).fetchall()[0][0] == 0)

    if kind.startswith(("TIMESTAMP", "DATE")):
        zoned = kind.startswith("TIMESTAMP WITH")
        moment = f"epoch_us({column})" if zoned else f"epoch_us(CAST({column} AS TIMESTAMP))"
    elif form is not None:
        zoned, moment = "%z" in form, f"epoch_us(strptime({text}, '{form}'))"
    elif always(f"regexp_full_match({text}, '{_ISO}')"):
        zoned, moment = False, f"epoch_us(CAST({text} AS TIMESTAMP))"
    elif always(f"regexp_full_match({text}, '{_ZONED}')"):
        zoned, moment = True, f"epoch_us(CAST({text} AS TIMESTAMPTZ))"
    else:
        number = f"TRY_CAST({text} AS DOUBLE)"
        units = [
            u
            for u in (1, 1_000, MILLION)
            if always(f"{number} >= {_UNIX[0] * u} AND {number} < {_UNIX[1] * u}")
        ]
        if not units:
            raise UnreadableInputError("times have a form that this reader does not know")
        zoned, moment = True, f"CAST(floor({number} * {MILLION // units[0]}) AS BIGINT)"
    if timezone is not None and zoned:
        moment = f"epoch_us(timezone('{timezone}', make_timestamptz({moment})))"
    inside = f"{moment} >= {_YEARS[0]} AND {moment} < {_YEARS[1]}"
    return f"CASE WHEN {present} THEN CASE WHEN {inside} THEN {moment} ELSE error('year') END END"


def _label_sql(moment: str, every: str) -> str:
    if step := re.fullmatch(r"(\d+)(min|h)", every):
        length = int(step[1]) * (60 if step[2] == "h" else 1) * 60 * MILLION
        start = f"({moment}) - ((({moment}) % {length}) + {length}) % {length}"
        return f"strftime(make_timestamp({start}), '%Y-%m-%dT%H:%M')"
    if every in ("weekday", "weekday-hour"):
        form = " %a" if every == "weekday" else " %a %H:00"
        return (
            f"CAST(isodow(make_timestamp({moment})) AS VARCHAR) ||"
            f" strftime(make_timestamp({moment}), '{form}')"
        )
    return f"strftime(make_timestamp({moment}), '{_LABELS[every]}')"


@dataclass(frozen=True, eq=False)
class _Reader:
    """Turns columns into flows."""

    rows: pa.Table
    parameters: Mapping[str, Any]
    of_map: ZoneMap | None
    area: str | None

    @property
    def keep_outside(self) -> bool:
        return self.parameters.get("outside") == "keep"

    def trips(self) -> Trips:
        """Drops rows, finds their tiles and groups the others."""
        names, n = self.rows.column_names, len(self.rows)
        dropped = np.zeros(n, dtype=np.bool_)
        for name in names:
            dropped |= self.rows[name].is_null().to_numpy() & (
                name.startswith("by ") or name == "time"
            )
        values = {name: _floats(self.rows[name]) for name in ("trips", "weight") if name in names}
        if any(np.any((column < 0) | np.isinf(column)) for column in values.values()):
            raise UnreadableInputError("counts or weights are negative or infinite")
        given = np.nan_to_num(values.get("trips", np.ones(n)), nan=1)
        count = given.astype(np.int64)
        if np.any(given != count):
            raise UnreadableInputError("numbers of trips are not whole")
        for column in values.values():
            dropped |= np.isnan(column)
        tiles = self._tiles(count > 0, dropped)
        usable = ~dropped & (count > 0)
        outside = self._outside(tiles, usable)
        counted, during = count > 0, self.parameters.get("during")
        if during is not None:
            counted &= pc.fill_null(pc.equal(self.rows["time"], during), True).to_numpy()
        kept = np.flatnonzero(usable & ~outside & counted)
        if len(kept) == 0:
            raise UnreadableInputError("no row of the input can be used")
        weight = np.rint(values["weight"][kept] * MILLION) if "weight" in values else None
        return Trips(
            **self._flows(
                self.rows.take(pa.array(kept)), [end[kept] for end in tiles], count[kept], weight
            ),
            dropped=int(np.sum(dropped & counted)),
            outside=int(np.sum(outside & usable & counted)),
            rows_are_trips=not values,
        )

    def _tiles(self, counted: Mask, dropped: Mask) -> list[Any]:
        """Returns the tile of both ends: an H3 cell, or the number of a tile of the map, -1 for
        none; marks drops.
        """
        on_map = self.of_map is not None
        if "origin_lat" in self.rows.column_names:
            ends = self._tiles_of_points(counted, dropped)
        else:
            columns = [self.rows[f"{end}_tile"] for end in _ENDS]
            for column in columns:
                dropped |= column.is_null().to_numpy()
            ends = []
            for column in columns:
                found, unknown = self._tiles_named(column)
                if not (self.keep_outside and on_map):
                    if np.any(unknown & counted & ~dropped) and not self.parameters.get(
                        "skip_unknown"
                    ):
                        raise UnreadableInputError("tiles are not on the map, or not H3 cells")
                    dropped |= unknown
                ends.append(found)
        for end in ends if on_map and not self.keep_outside else ():
            dropped |= (end < 0) & counted
        return ends

    def _tiles_of_points(self, counted: Mask, dropped: Mask) -> list[Any]:
        """Returns the tiles of coordinates; each distinct point is looked up once.

        Marks rows off the earth to drop.
        """
        lat, lon = (
            np.concatenate([_floats(self.rows[f"{end}_{axis}"]) for end in _ENDS])
            for axis in ("lat", "lon")
        )
        wrong, n = (
            ~((np.abs(lat) <= 90) & (np.abs(lon) <= 180)) | ((lat == 0) & (lon == 0)),
            len(counted),
        )
        dropped |= wrong[:n] | wrong[n:]
        at = np.flatnonzero(np.tile(counted & ~dropped, 2))
        y, x = (pa.array(values[at]).dictionary_encode() for values in (lat, lon))
        key = y.indices.to_numpy().astype(np.int64) * len(x.dictionary) + x.indices.to_numpy()
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        lat, lon = lat[at[first]], lon[at[first]]
        if self.of_map is not None:
            tiles = np.full(2 * n, -1, dtype=np.int64)
            tiles[at] = tiles_at(lat, lon, self.of_map)[place]
        else:
            tiles = np.zeros(2 * n, dtype=np.uint64)
            cells = map(
                h3_int.latlng_to_cell,
                lat.tolist(),
                lon.tolist(),
                repeat(self.parameters["resolution"]),
            )
            tiles[at] = np.fromiter(cells, dtype=np.uint64, count=len(first))[place]
        return [tiles[:n], tiles[n:]]

    def _tiles_named(self, column: Any) -> tuple[Any, Mask]:
        """Returns tiles given by name, and which are unknown.

        Each distinct name is looked up once.
        """
        index, names = _encoded(column)
        if self.of_map is not None:
            number = {
                code: i for i, code in enumerate(self.of_map.code[self.of_map.tiles].tolist())
            }
            whole = re.compile(r"^(-?[0-9]+)\.0+$")
            found = np.array(
                [number.get(n, number.get(whole.sub(r"\1", n), -1)) if n else -1 for n in names]
            )
            return found[index], (found < 0)[index]
        cells = np.array([_cell_of(name) for name in names], dtype=np.uint64)
        unknown, resolution = cells == 0, int(self.parameters["resolution"])
        if len(np.unique(resolution_of(cells[~unknown]))) > 1:
            raise UnreadableInputError("tiles have several H3 resolutions")
        finer = ~unknown & (resolution_of(cells) > resolution)
        cells = np.where(finer, parent_cells(cells, resolution), cells)
        return cells[index], unknown[index]

    def _outside(self, ends: list[Any], usable: Mask) -> Mask:
        """Returns rows outside the study area: with an end outside, or with both if the other is
        kept as `outside`.
        """
        beyond = []
        for i, end in enumerate(ends):
            away = np.zeros(len(end), dtype=np.bool_)
            rows = np.flatnonzero(usable & (end >= 0))
            if self.area is not None:
                distinct, number = np.unique(end[rows], return_inverse=True)
                if self.of_map is None:
                    inside = cells_in_area(distinct, self.area)
                else:
                    node = self.of_map.tiles[distinct]
                    inside = points_in_area(self.of_map.lat[node], self.of_map.lon[node], self.area)
                away[rows] = ~inside[number]
            if self.of_map is not None:
                away |= usable & (end < 0)
            if self.keep_outside:
                ends[i] = np.where(
                    away, np.uint64(OUTSIDE_CELL) if self.of_map is None else -1, end
                )
            beyond.append(away)
        return beyond[0] & beyond[1] if self.keep_outside else beyond[0] | beyond[1]

    def _flows(self, rows: pa.Table, tiles: list[Any], count: Any, weight: Any) -> dict[str, Any]:
        """Returns the flows of rows: one for each slice, origin and destination."""
        distinct, ends = zip(*(np.unique(end, return_inverse=True) for end in tiles), strict=True)
        codes = [end.astype(np.uint64) for end in distinct]
        if self.of_map is not None:
            names_of_map = np.append(self.of_map.code[self.of_map.tiles], OUTSIDE)
            codes = [names_of_map[end] for end in distinct]
        if self.parameters.get("same_zones"):
            both = np.union1d(*codes)
            ends = tuple(
                np.searchsorted(both, named)[number]
                for named, number in zip(codes, ends, strict=True)
            )
            codes = [both, both]
        # A month or day that alone was read is no slice.
        every = _every(self.parameters) if self.parameters.get("during") is None else None
        names = _attributes(self.parameters)
        columns = [*(f"by {name}" for name in names), *(["time"] if every is not None else [])]
        keys, of_slice = _slices([rows[name] for name in columns], len(rows))
        key = (of_slice * len(codes[0]) + ends[0]) * len(codes[1]) + ends[1]
        _, first, row = np.unique(key, return_index=True, return_inverse=True)
        who = self._who(rows["person"]) if "person" in rows.column_names else None
        return {
            "origin": ends[0][first].astype(np.int32),
            "destination": ends[1][first].astype(np.int32),
            "trips": np.bincount(row, weights=count).astype(np.int64),
            "weight": None if weight is None else np.bincount(row, weights=weight).astype(np.int64),
            "persons": None if who is None else _persons(who, row, count),
            "values": self._values(rows, row, who, count * MILLION if weight is None else weight),
            **dict(zip(("origins", "destinations"), codes, strict=True)),
            **dict.fromkeys(("origin_map", "destination_map"), self.of_map),
            "slice_columns": (*names, *(["time"] if every is not None else [])),
            "slices": keys,
            "slice": of_slice[first].astype(np.int32) if columns else None,
            "every": every,
        }

    def _values(self, rows: pa.Table, row: Any, who: Any, weight: Any) -> ValueRows | None:
        """Returns the values of the columns of means, totals and medians.

        None without such columns.
        """
        names = [column for _, column in number_columns(self.parameters).values()]
        values = {name: _floats(rows[f"value {name}"]) for name in names}
        return ValueRows(row, who, weight.astype(np.int64), values) if values else None

    def _who(self, column: Any) -> Any:
        """Returns the number of the person of each row, -1 if unknown.

        Each spelling is looked at once.
        """
        index, names = _encoded(column)
        folds, known = (self.parameters.get("person_case") or "fold") == "fold", dict[str, int]()
        nfkc = partial(unicodedata.normalize, "NFKC")
        number = np.full(len(names), -1, dtype=np.int64)
        for i, name in enumerate(names):
            if name is not None and not _NO_PERSON.fullmatch(name.lower()):
                number[i] = known.setdefault(
                    nfkc(nfkc(name).casefold()) if folds else name, len(known)
                )
        return number[index]


def _persons(who: Any, row: Any, count: Any) -> PersonRows:
    """Returns the distinct persons of each flow, with their trips."""
    size, real = int(who.max(initial=0)) + 1, np.flatnonzero(who >= 0)
    pair, place = np.unique(row[real].astype(np.int64) * size + who[real], return_inverse=True)
    made = np.bincount(place, weights=count[real], minlength=len(pair)).astype(np.int64)
    return PersonRows((pair // size).astype(np.int32), (pair % size).astype(np.int32), made)


def _cell_of(name: str | None) -> int:
    """Returns an H3 cell from text: 18 decimal or 15 hexadecimal digits; 0 for other texts."""
    text = (name or "").strip().lower()
    try:
        cell = int(text) if len(text) == 18 and text.isdigit() else int(text.removeprefix("0x"), 16)
    except ValueError:
        return 0
    return cell if 0 < cell < 1 << 63 and h3_int.is_valid_cell(cell) else 0


def _slices(columns: list[Any], n: int) -> tuple[tuple[tuple[str, ...], ...], Any]:
    """Returns the distinct combinations of values, sorted, and the number of that of each row."""
    key = np.zeros(n, dtype=np.int64)
    for column in columns:
        number, names = _encoded(column)
        order = sorted(range(len(names) - 1), key=names.__getitem__)
        key = key * len(order) + np.argsort(order)[number]
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    keys = zip(*(column.take(pa.array(first)).to_pylist() for column in columns), strict=True)
    return tuple(keys) if columns else ((),), place
